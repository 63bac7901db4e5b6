// The page: one model, several rooms.

import { get, post } from "./api.js";
import { make } from "./dom.js";
import * as compare from "./compare.js";
import * as fill from "./fill.js";
import * as generate from "./generate.js";
import * as theory from "./theory.js";

const ROOMS = { generate, compare, fill };

const select = document.getElementById("model");
const about = document.getElementById("about");

function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  const show = (tab, focus) => {
    for (const other of all) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) tab.focus();
    history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  };
  all.forEach((tab, k) => {
    tab.addEventListener("click", () => show(tab, false));
    tab.addEventListener("keydown", (event) => {
      const next = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: all.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      show(all[(next + all.length) % all.length], true);
    });
  });
  const asked = all.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  if (asked) show(asked, false);
}

let chosen = null;
let choices = 0;

// A model that cannot be read is told of, and the one before stays. Only the last choice counts: an answer to an earlier
// one may come late, even one about the same model.
async function choose(rooms) {
  const name = select.value;
  const mine = ++choices;
  about.textContent = "reading …";
  about.classList.remove("alert");
  try {
    const model = await get(`/api/model?name=${encodeURIComponent(name)}`);
    if (mine !== choices) return;
    about.textContent = describe(model);
    chosen = name;
    for (const room of rooms) room.setModel(model);
  } catch (error) {
    if (mine !== choices) return;
    about.textContent = error.message;
    about.classList.add("alert");
    if (chosen !== null) select.value = chosen;
  }
}

function describe(model) {
  const [channels, height, width] = model.shape;
  const levels = model.largest === null ? "counts without a bound" : `levels 0 to ${model.largest}`;
  const classes = model.classes ? `, ${model.classes} classes` : "";
  const kind = channels === 3 ? "in colour" : model.largest === 1 ? "black and white" : "grey";
  return `${width} × ${height} ${kind}, ${levels}${classes}; ${model.process}, ${(model.weights / 1e6).toFixed(1)} million weights`;
}

// How busy the machine is, while the page is looked at.
async function watch() {
  if (!document.hidden) {
    try {
      const { running, waiting } = await get("/api/line");
      document.getElementById("line").textContent = running ? `Walking now; ${waiting} waiting.` : "At rest.";
    } catch {
      document.getElementById("line").textContent = "The server does not answer.";
    }
  }
  setTimeout(watch, 3000);
}

const { models, limits } = await get("/api/models");
const rooms = Object.entries(ROOMS).map(([name, room]) => room.mount(document.getElementById(name), limits));
select.append(...models.map((name) => make("option", { value: name }, name)));
select.addEventListener("change", () => choose(rooms));
theory.mount(document.getElementById("theory"), (values) => post("/api/theory", values)); // it needs no model
tabs();
await choose(rooms);
watch();
