// The page: one model, and a tab for each task.

import { get, post } from "./api.js";
import { options } from "./dom.js";
import * as compare from "./compare.js";
import * as generate from "./generate.js";
import * as inpaint from "./inpaint.js";
import * as theory from "./theory.js";

const select = document.getElementById("model");
const about = document.getElementById("about");

function setUpTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const panel = (tab) => tab.getAttribute("aria-controls");
  const show = (tab, focus) => {
    for (const other of tabs) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      document.getElementById(panel(other)).hidden = other !== tab;
    }
    if (focus) tab.focus();
    history.replaceState(null, "", `#${panel(tab)}`);
  };
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => show(tab, false));
    tab.addEventListener("keydown", (event) => {
      const next = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      show(tabs[(next + tabs.length) % tabs.length], true);
    });
  });
  const linked = tabs.find((tab) => `#${panel(tab)}` === location.hash);
  if (linked) show(linked, false);
}

let chosen = null;
let choices = 0;

// If a model cannot be read, the previous one stays. Responses to earlier choices may arrive late and are ignored, even
// if they describe the same model.
async function choose(tabs) {
  const name = select.value;
  const choice = ++choices;
  about.textContent = "Loading …";
  about.classList.remove("alert");
  try {
    const model = await get(`/api/model?name=${encodeURIComponent(name)}`);
    if (choice !== choices) return;
    about.textContent = describe(model);
    chosen = name;
    for (const tab of tabs) tab.setModel(model);
  } catch (error) {
    if (choice !== choices) return;
    about.textContent = error.message;
    about.classList.add("alert");
    if (chosen !== null) select.value = chosen;
  }
}

function describe(model) {
  const [channels, height, width] = model.shape;
  const levels = model.max_state === null ? "unbounded counts" : `levels 0 to ${model.max_state}`;
  const { length } = model.classes;
  const listed = `${model.classes.slice(0, 4).join(", ")}${length > 4 ? ", …" : ""}`;
  const classes = length ? `, ${length} classes (${listed})` : "";
  const kind = channels === 3 ? "colour" : model.max_state === 1 ? "black and white" : "greyscale";
  const size = model.parameters < 1e6 ? model.parameters.toLocaleString("en") : `${(model.parameters / 1e6).toFixed(1)} million`;
  return `${width} × ${height} ${kind}, ${levels}${classes}; ${model.process}, ${size} parameters`;
}

async function showQueue() {
  if (!document.hidden) {
    const queue = document.getElementById("queue");
    try {
      const { running, waiting } = await get("/api/queue");
      queue.textContent = running ? `Sampling; ${waiting} waiting.` : "Idle.";
    } catch {
      queue.textContent = "The server does not respond.";
    }
  }
  setTimeout(showQueue, 3000);
}

const { models, ...choicesOffered } = await get("/api/models");
const tabs = Object.entries({ generate, compare, inpaint })
  .map(([id, tab]) => tab.mount(document.getElementById(id), choicesOffered));
select.append(...options(models));
select.addEventListener("change", () => choose(tabs));
theory.mount(document.getElementById("theory"), (values) => post("/api/theory", values)); // needs no model
setUpTabs();
await choose(tabs);
showQueue();
