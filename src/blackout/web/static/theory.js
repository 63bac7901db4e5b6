// The theory tab: draw a distribution on {0, ..., 20}, move time, and see the exact quantities of the paper.

import { button, make, svg } from "./dom.js";
import { captions } from "./theory-captions.js";
import { measure, number, palette, rich } from "./theory-draw.js";
import { DistributionEditor, PRESETS } from "./theory-editor.js";
import { exportSection } from "./theory-export.js";
import * as plots from "./theory-panels.js";

const LAST = 80;
const INTERVAL = 60; // milliseconds between two times while they play
const TRAJECTORIES = 6;

const integer = (value, low, high) => Math.min(high, Math.max(low, Math.round(value)));

// `request(values)` returns a promise of the data, rejected with a message of one line.
export function mount(element, request) {
  return new Theory(element, request);
}

class Theory {
  constructor(element, request) {
    Object.assign(this, { request, data: null, now: 28, timer: null, pending: null, busy: false });
    this.values = { weights: PRESETS["Two peaks"], k: LAST / 2, xt: null, x0: null, seed: 0, trajectories: TRAJECTORIES };
    this.element = make("div", { className: "theory" });
    element.append(this.element);
    this.colours = palette(this.element);
    this.build();
    new ResizeObserver(() => this.resize()).observe(this.element);
    this.refresh();
  }

  build() {
    this.notes = {};
    this.roots = {};
    this.export = exportSection(() => ({ ...this, panels: this.panels() }));
    const editor = this.panel("initial", "Initial distribution");
    const changed = (weights, done) => this.change({ weights, trajectories: done ? TRAJECTORIES : 0 });
    this.editor = new DistributionEditor(this.roots.initial, this.colours, changed);
    editor.insertBefore(this.editor.presets, editor.lastChild);
    const bridge = this.panel("bridge", "Bridge");
    bridge.insertBefore(this.observation(), bridge.lastChild);
    this.element.append(this.controls(), make("div", { className: "panels" },
      editor, this.panel("forward", "Forward process and reverse trajectories", (at) => this.observe(at.x, at.y)),
      this.panel("marginal", "Distribution at the current time", (at) => this.observe(this.data.k, at.x)),
      this.panel("rates", "Reverse rates and score", (at) => this.observe(this.data.k, at.x)),
      this.panel("posterior", "Posterior of the initial state", (at) => this.start(integer(at.x, 0, this.lastState()))),
      bridge), this.export.element);
  }

  panel(key, title, click) {
    this.roots[key] = svg("svg", { class: click ? "pick" : key });
    if (click) this.roots[key].addEventListener("click", (event) => this.data && click(this.plots[key].under(event)));
    this.notes[key] = make("p", { className: "note" });
    const plot = make("div", { className: "plot" }, this.roots[key]);
    return make("section", { className: "panel card", "data-panel": key }, make("h3", {}, title), plot, this.notes[key]);
  }

  panels() {
    return [...this.element.querySelectorAll(".card")].map((panel) => ({
      title: panel.querySelector("h3").textContent, root: panel.querySelector("svg"),
    }));
  }

  controls() {
    this.process = make("select", { onchange: () => this.change({ process: this.process.value, xt: null, x0: null }) });
    const range = { type: "range", min: 0, max: LAST, step: 1, "aria-label": "Time" };
    this.slider = make("input", { ...range, oninput: () => this.move(Number(this.slider.value)) });
    this.clock = make("output", { className: "clock" });
    this.play = button("Play", () => this.run(), { className: "play" });
    this.message = make("p", { className: "message", role: "status" });
    const resample = button("New trajectories", () => this.change({ seed: this.values.seed + 1 }));
    return make("div", { className: "panel board" },
      make("div", { className: "row" }, make("label", {}, "Process ", this.process), resample, this.message),
      make("div", { className: "row timeline" }, this.play, this.slider, this.clock));
  }

  // Inputs for x_0, x_t and t, as an alternative to clicking.
  observation() {
    const field = (name, label, attributes, change) => {
      const changed = () => change(input.value === "" ? null : Number(input.value));
      const input = (this.fields[name] = make("input", { ...attributes, onchange: changed }));
      return make("label", {}, rich(label), input);
    };
    this.fields = {};
    const state = { type: "number", min: 0, step: 1 };
    return make("div", { className: "row" },
      field("x0", "initial x_0", state, (x0) => this.start(x0)),
      field("xt", "observed x_t", state, (xt) => this.change({ xt, x0: null })),
      field("k", "at time t", { type: "range", min: 1, max: LAST, step: 1 }, (k) => this.change({ k, x0: null })));
  }

  lastState() {
    return this.data.initial.length - 1;
  }

  observe(k, xt) {
    this.change({ k: integer(k, 1, LAST), xt: integer(xt, 0, this.lastState()), x0: null });
  }

  start(x0) {
    this.change({ xt: this.data.xt, x0 });
  }

  change(values) {
    this.values = { ...this.values, trajectories: TRAJECTORIES, ...values };
    this.refresh();
  }

  // One request at a time; of the changes made meanwhile, only the last one is sent.
  async refresh() {
    if (this.busy) {
      this.pending = this.values;
      return;
    }
    this.busy = true;
    this.element.setAttribute("aria-busy", "true");
    let values = this.values;
    while (values) {
      this.pending = null;
      await this.send(values);
      values = this.pending;
    }
    this.busy = false;
    this.element.setAttribute("aria-busy", "false");
  }

  // Where x_0 or x_t cannot be reached, the server chooses the most probable state, and the message explains it.
  async send(values) {
    let message = "";
    let failure = "";
    for (const given of [{}, { x0: null }, { x0: null, xt: null }]) {
      if (failure && Object.keys(given).every((name) => values[name] === null)) continue;
      try {
        this.show(await this.request({ ...values, ...given }), message);
        this.values = { ...this.values, ...given };
        return;
      } catch (error) {
        failure = error.message;
        message ||= `${failure}: replaced by the most probable state`;
      }
      if (this.pending) return;
    }
    this.message.textContent = failure;
  }

  show(data, message) {
    if (!this.data) {
      const option = ([name, help]) => make("option", { value: name, title: help }, name);
      this.process.append(...Object.entries(data.processes).map(option));
    }
    this.data = data;
    this.message.textContent = message;
    if (!this.pending) {
      this.process.value = data.process;
      for (const [name, input] of Object.entries(this.fields)) input.value = data[name];
    }
    for (const name of ["x0", "xt"]) this.fields[name].max = this.lastState();
    this.fields.k.setAttribute("aria-valuetext", `t = ${number(data.times[data.k])}`);
    this.export.show(data.code);
    this.draw();
  }

  move(now) {
    this.now = now;
    this.draw();
  }

  run() {
    if (this.timer) {
      this.pause();
      return;
    }
    if (this.now === 0) this.move(LAST);
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      this.move(Math.max(0, this.now - 1));
      if (this.now === 0) this.pause();
    }, INTERVAL);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
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
    if (!this.data || !this.width) return; // no data yet, or the tab is hidden
    const { data, now } = this;
    this.plots = {};
    for (const [key, plot] of Object.entries(plots)) this.plots[key] = plot(this.roots[key], data, now, this.colours);
    for (const [key, text] of Object.entries(captions(data, now))) this.notes[key].replaceChildren(rich(text));
    const time = `t = ${number(data.times[now])}`;
    this.slider.value = now;
    this.slider.setAttribute("aria-valuetext", time);
    this.clock.textContent = data.mean_suffices ? `${time},  p = e⁻ᵗ = ${number(Math.exp(-data.times[now]))}` : time;
  }
}
