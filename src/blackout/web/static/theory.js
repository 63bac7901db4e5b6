// The theory room: draw a law on {0, ..., 20}, move time, and see what the paper says about it.

import { html, measure, number, palette, rich, svg } from "./theory-draw.js";
import { LawEditor, presets, PRESETS } from "./theory-law.js";
import * as pictures from "./theory-panels.js";
import { saving } from "./theory-save.js";
import { sentences } from "./theory-words.js";

const LAST = 80;
const FRAME = 60; // milliseconds between two times while they run

const inside = (value, low = 0, high = 20) => Math.min(high, Math.max(low, Math.round(value)));

// `ask(values)` gives a promise of the answer; it fails with one line for the visitor to read.
export function mount(element, ask) {
  return new Room(element, ask);
}

class Room {
  constructor(element, ask) {
    Object.assign(this, { ask, answer: null, now: 28, timer: null, waiting: null, busy: false });
    const [weights, process] = [PRESETS["Two peaks"], "pure-death"];
    this.values = { weights, process, k: LAST / 2, xt: null, x0: null, seed: 0, paths: 6 };
    this.element = html("div", { class: "theory" });
    element.append(this.element);
    this.colours = palette(this.element);
    this.build();
    new ResizeObserver(() => this.resize()).observe(this.element);
    this.refresh();
  }

  build() {
    this.notes = {};
    this.roots = {};
    this.saving = saving(() => ({ ...this, panels: this.panels() }));
    const law = this.panel("law", "Your law");
    const changed = (weights, done) => this.change({ weights, paths: done ? 6 : 0 });
    this.editor = new LawEditor(this.roots.law, this.colours, changed);
    law.insertBefore(presets((weights) => this.editor.set(weights)), law.lastChild);
    const bridge = this.panel("bridge", "Bridge");
    bridge.insertBefore(this.sight(), bridge.lastChild);
    this.element.append(this.controls(), html("div", { class: "panels" },
      law, this.panel("forward", "Forward, and walks back", (at) => this.see(at.x, at.y)),
      this.panel("lawNow", "The law at this time", (at) => this.see(this.answer.k, at.x)),
      this.panel("moves", "Reverse rates and score", (at) => this.see(this.answer.k, at.x)),
      this.panel("posterior", "What was there", (at) => this.begin(inside(at.x))), bridge), this.saving.element);
  }

  panel(key, title, click) {
    this.roots[key] = svg("svg", { class: click ? "pick" : key });
    if (click) this.roots[key].addEventListener("click", (event) => this.answer && click(this.plots[key].under(event)));
    this.notes[key] = html("p", { class: "note" });
    const picture = html("div", { class: "picture" }, this.roots[key]);
    return html("section", { class: "card", "data-panel": key }, html("h3", {}, title), picture, this.notes[key]);
  }

  panels() {
    return [...this.element.querySelectorAll(".card")].map((panel) => ({
      title: panel.querySelector("h3").textContent, root: panel.querySelector("svg"),
    }));
  }

  controls() {
    this.process = html("select", { onchange: () => this.change({ process: this.process.value, xt: null, x0: null }) });
    const range = { type: "range", min: 0, max: LAST, step: 1, "aria-label": "time" };
    this.slider = html("input", { ...range, oninput: () => this.move(Number(this.slider.value)) });
    this.clock = html("output", { class: "clock" });
    this.play = html("button", { type: "button", class: "play", onclick: () => this.run() }, "Run back");
    this.message = html("p", { class: "message", role: "status" });
    const others = () => this.change({ seed: this.values.seed + 1 });
    const again = html("button", { type: "button", onclick: others }, "Other walks");
    return html("div", { class: "board" },
      html("div", { class: "row" }, html("label", {}, "Process ", this.process), again, this.message),
      html("div", { class: "row clockwork" }, this.play, this.slider, this.clock));
  }

  // The sight x_t at time t and the start x_0, for those who do not click.
  sight() {
    const field = (label, attributes, change) => {
      const changed = () => change(input.value === "" ? null : Number(input.value));
      const input = html("input", { ...attributes, onchange: changed });
      return [input, html("label", {}, rich(label), input)];
    };
    const state = { type: "number", min: 0, max: 20, step: 1 };
    const [x0, first] = field("start x_0", state, (value) => this.begin(value));
    const [xt, second] = field("seen x_t", state, (value) => this.change({ xt: value, x0: null }));
    const range = { type: "range", min: 1, max: LAST, step: 1 };
    const [k, third] = field("at time t", range, (value) => this.change({ k: value, x0: null }));
    this.fields = { x0, xt, k };
    return html("div", { class: "row" }, first, second, third);
  }

  see(k, xt) {
    this.change({ k: inside(k, 1, LAST), xt: inside(xt), x0: null });
  }

  begin(x0) {
    this.change({ xt: this.answer.xt, x0 });
  }

  change(values) {
    this.values = { ...this.values, paths: 6, ...values };
    this.refresh();
  }

  // One question at a time; of those that come up meanwhile, the last one is asked.
  async refresh() {
    if (this.busy) {
      this.waiting = this.values;
      return;
    }
    this.busy = true;
    this.element.setAttribute("aria-busy", "true");
    let asked = this.values;
    while (asked) {
      this.waiting = null;
      await this.put(asked);
      asked = this.waiting;
    }
    this.busy = false;
    this.element.setAttribute("aria-busy", "false");
  }

  // A start or a sight that the law does not allow is given up, and said so.
  async put(values) {
    let said = "";
    let refused = "";
    for (const given of [{}, { x0: null }, { x0: null, xt: null }]) {
      if (refused && Object.keys(given).every((name) => values[name] === null)) continue;
      try {
        this.show(await this.ask({ ...values, ...given }), said);
        this.values = { ...this.values, ...given };
        return;
      } catch (error) {
        refused = error.message;
        said ||= `${refused}: the most probable one is taken instead`;
      }
      if (this.waiting) return;
    }
    this.message.textContent = refused;
  }

  show(answer, message) {
    if (!this.answer) {
      const option = ([value, { label, sentence }]) => html("option", { value, title: sentence }, label);
      this.process.append(...Object.entries(answer.processes).map(option));
    }
    this.answer = answer;
    this.message.textContent = message;
    if (!this.waiting) {
      this.process.value = answer.process;
      for (const [name, field] of Object.entries(this.fields)) field.value = answer[name];
    }
    this.fields.k.setAttribute("aria-valuetext", `t = ${number(answer.times[answer.k])}`);
    this.saving.show(answer);
    this.draw();
  }

  move(now) {
    this.now = now;
    this.draw();
  }

  run() {
    if (this.timer) {
      this.rest();
      return;
    }
    if (this.now === 0) this.move(LAST);
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      this.move(Math.max(0, this.now - 1));
      if (this.now === 0) this.rest();
    }, FRAME);
  }

  rest() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Run back";
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    measure(Object.values(this.roots));
    this.editor.draw();
    this.draw();
  }

  draw() {
    if (!this.answer || !this.width) return; // not yet, or another room is shown
    const { answer, now } = this;
    this.plots = {};
    for (const [key, picture] of Object.entries(pictures)) {
      this.plots[key] = picture(this.roots[key], answer, now, this.colours);
    }
    for (const [key, sentence] of Object.entries(sentences(answer, now))) {
      this.notes[key].replaceChildren(rich(sentence));
    }
    const time = `t = ${number(answer.times[now])}`;
    this.slider.value = now;
    this.slider.setAttribute("aria-valuetext", time);
    this.clock.textContent = `${time},  p = e⁻ᵗ = ${number(answer.survival[now])}`;
  }
}
