// A line chart that grows with the steps of a job.

import { make, setAttributes, svg } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 132;
const LEFT = 44;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 20;

export class Chart {
  // `second` is the name of the second line, which is shown if it is not zero everywhere.
  constructor(title, unit, second = "") {
    Object.assign(this, { title, unit, peers: [this] });
    this.value = make("output");
    this.key = make("span", { className: "key" }, second);
    this.axes = svg("g", { class: "axes" });
    this.second = svg("path", { class: "line second" });
    this.line = svg("path", { class: "line" });
    this.cursor = svg("line", { class: "cursor" });
    this.dot = svg("circle", { class: "dot", r: 3 });
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
      this.axes, this.second, this.line, this.cursor, this.dot);
    this.element = make("figure", { className: "chart" },
      make("figcaption", {}, make("span", {}, title), this.key, this.value), this.svg);
    this.clear(1);
  }

  clear(steps) {
    Object.assign(this, { steps, points: [], others: [] });
    this.draw(null);
  }

  add(step, value, other = 0) {
    this.points.push([step, value]);
    this.others.push([step, other]);
  }

  // Charts side by side share one scale.
  top() {
    const values = this.peers.flatMap((chart) => [...chart.points, ...chart.others].map((point) => point[1]));
    return values.reduce((a, b) => Math.max(a, b), 0) || 1;
  }

  draw(step) {
    const top = this.top();
    const x = (value) => LEFT + (value / this.steps) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const path = (points) => points.map(([k, v], i) => `${i ? "L" : "M"}${x(k).toFixed(1)} ${y(v).toFixed(1)}`).join("");
    const text = (x, y, content, anchor) => svg("text", { x, y, "text-anchor": anchor }, content);
    this.axes.replaceChildren(
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0) }),
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(top), y2: y(top), class: "faint" }),
      text(LEFT - 6, y(0) + 4, "0", "end"),
      text(LEFT, HEIGHT - 5, "0", "start"),
    );
    if (this.points.length) {
      this.axes.append(
        text(LEFT - 6, y(top) + 4, short(top), "end"), text(WIDTH - RIGHT, HEIGHT - 5, `step ${this.steps}`, "end"));
    }
    this.line.setAttribute("d", path(this.points));
    this.key.hidden = !this.others.some((point) => point[1] > 0);
    this.second.setAttribute("d", this.key.hidden ? "" : path(this.others));
    const at = this.points.findLast((point) => step !== null && point[0] <= step);
    for (const mark of [this.cursor, this.dot]) mark.setAttribute("visibility", at ? "visible" : "hidden");
    if (at) {
      setAttributes(this.cursor, { x1: x(at[0]), x2: x(at[0]), y1: TOP, y2: HEIGHT - BOTTOM });
      setAttributes(this.dot, { cx: x(at[0]), cy: y(at[1]) });
    }
    this.value.textContent = at ? `${short(at[1])} ${this.unit}` : "";
    this.svg.setAttribute("aria-label", `${this.title}${at ? `: ${this.value.textContent} at step ${at[0]}` : ""}`);
  }
}

function short(value) {
  if (value === 0) return "0";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value >= 10 ? value.toFixed(1) : value.toPrecision(2);
}
