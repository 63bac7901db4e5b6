// An editor for the distribution of X_0: mouse, touch or arrow keys.

import { button, make, svg } from "./dom.js";
import { frame, number, stateTicks } from "./theory-draw.js";

const LEVELS = 21;
const each = (weight) => Array.from({ length: LEVELS }, (_, m) => round(weight(m)));
const round = (weight) => Math.round(100 * Math.min(1, Math.max(0, weight))) / 100;
const bump = (m, centre, width) => Math.exp(-(((m - centre) / width) ** 2) / 2);

function poisson(m, mean) {
  let value = Math.exp(-mean);
  for (let n = 1; n <= m; n += 1) value *= mean / n;
  return value;
}

export const PRESETS = {
  "Two peaks": each((m) => 0.6 * bump(m, 4, 1.2) + 0.9 * bump(m, 14, 1.6)),
  "One point": each((m) => (m === 12 ? 1 : 0)),
  Uniform: each(() => 0.5),
  Poisson: each((m) => poisson(m, 6) / poisson(6, 6)),
};

export class DistributionEditor {
  // `changed(weights, done)` is called while the user draws, with done = true at the end of a stroke.
  constructor(root, colours, changed) {
    Object.assign(this, { root, colours, changed, weights: PRESETS["Two peaks"], last: null, focus: 0 });
    root.addEventListener("pointerdown", (event) => this.begin(event));
    root.addEventListener("pointermove", (event) => this.move(event));
    root.addEventListener("pointerup", () => this.end());
    root.addEventListener("pointercancel", () => this.end());
    root.addEventListener("keydown", (event) => this.key(event));
    const preset = ([name, weights]) => button(name, () => this.set(weights));
    this.presets = make("div", { className: "row", role: "group", "aria-label": "Presets" },
      ...Object.entries(PRESETS).map(preset));
  }

  set(weights, done = true) {
    this.weights = weights;
    this.draw();
    this.changed(weights, done);
  }

  begin(event) {
    this.root.setPointerCapture(event.pointerId);
    event.preventDefault();
    this.last = this.under(event);
    this.paint(this.last, this.last);
  }

  move(event) {
    if (!this.last) return;
    const here = this.under(event);
    this.paint(this.last, here);
    this.last = here;
  }

  end() {
    if (!this.last) return;
    this.last = null;
    this.changed(this.weights, true);
  }

  under(event) {
    const { x, y } = this.plot.under(event);
    return { m: Math.min(LEVELS - 1, Math.max(0, Math.round(x))), weight: y };
  }

  // Fast pointer moves skip states: these are interpolated.
  paint(from, to) {
    const weights = [...this.weights];
    const steps = Math.abs(to.m - from.m);
    for (let i = 0; i <= steps; i += 1) {
      const part = steps ? i / steps : 1;
      weights[from.m + Math.sign(to.m - from.m) * i] = round(from.weight + part * (to.weight - from.weight));
    }
    this.set(weights, false);
  }

  key(event) {
    const m = Number(event.target.dataset.state);
    if (Number.isNaN(m)) return;
    const step = { ArrowUp: 0.05, ArrowDown: -0.05, PageUp: 0.2, PageDown: -0.2, Home: -1, End: 1 }[event.key];
    const aside = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined && aside === undefined) return;
    event.preventDefault();
    this.focus = Math.min(LEVELS - 1, Math.max(0, m + (aside ?? 0)));
    if (step === undefined) this.draw();
    else this.set(this.weights.map((weight, i) => (i === m ? round(weight + step) : weight)));
  }

  draw() {
    const focused = this.root.contains(document.activeElement);
    const total = this.weights.reduce((a, b) => a + b, 0);
    const axes = { x: [-0.6, LEVELS - 0.4], y: [0, 1.02], xticks: stateTicks(LEVELS), yticks: [[0, ""]], height: 290 };
    const labels = { xlabel: "state o", ylabel: "weight", name: "distribution of X at time 0" };
    this.plot = frame(this.root, { ...axes, ...labels }, this.colours);
    this.root.setAttribute("role", "group");
    const { X, Y, box } = this.plot;
    const width = X(0.8) - X(0);
    this.weights.forEach((weight, m) => {
      const share = total ? `${number((100 * weight) / total)} %` : "none";
      const place = { x: X(m) - width / 2, width, y: Math.min(Y(weight), box.bottom - 2), rx: 2 };
      const slider = { role: "slider", tabindex: m === this.focus ? 0 : -1, "aria-orientation": "vertical",
        "aria-label": `weight of state ${m}`, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": weight,
        "aria-valuetext": `${weight}, ${share}` };
      const style = { class: "grip", height: Math.max(2, box.bottom - Y(weight)), fill: this.colours.accent };
      this.root.append(svg("rect", { ...place, ...style, ...slider, "data-state": m }, svg("title", {}, `${m}: ${share}`)));
    });
    if (focused) this.root.querySelector(`[data-state="${this.focus}"]`).focus();
  }
}
