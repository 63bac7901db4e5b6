// A line that grows with the walk.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 320;
const HEIGHT = 132;
const LEFT = 44;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 20;

export class Chart {
  // `second` names the thinner line, for when it is there.
  constructor(title, unit, second = "") {
    this.title = title;
    this.element = document.createElement("figure");
    this.element.className = "chart";
    this.caption = document.createElement("figcaption");
    const name = document.createElement("span");
    name.textContent = title;
    this.value = document.createElement("output");
    this.key = document.createElement("span");
    this.key.className = "key";
    this.key.textContent = second;
    this.caption.append(name, this.key, this.value);
    this.unit = unit;
    this.svg = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    this.axes = node("g", { class: "axes" });
    this.second = node("path", { class: "line second" });
    this.line = node("path", { class: "line" });
    this.cursor = node("line", { class: "cursor" });
    this.dot = node("circle", { class: "dot", r: 3 });
    this.svg.append(this.axes, this.second, this.line, this.cursor, this.dot);
    this.element.append(this.caption, this.svg);
    this.peers = [this];
    this.clear(1);
  }

  clear(steps) {
    this.steps = steps;
    this.points = [];
    this.others = [];
    this.draw(null);
  }

  // `other` is drawn thinner, in the second colour.
  add(step, value, other = 0) {
    this.points.push([step, value]);
    this.others.push([step, other]);
  }

  // Charts of one kind beside each other have one scale.
  top() {
    const values = this.peers.flatMap((chart) => [...chart.points, ...chart.others].map((point) => point[1]));
    return values.reduce((a, b) => Math.max(a, b), 0) || 1;
  }

  draw(step) {
    const top = this.top();
    const x = (value) => LEFT + (value / this.steps) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const path = (points) => points.map(([k, v], i) => `${i ? "L" : "M"}${x(k).toFixed(1)} ${y(v).toFixed(1)}`).join("");
    this.axes.replaceChildren(
      node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0) }),
      node("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(top), y2: y(top), class: "faint" }),
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
      set(this.cursor, { x1: x(at[0]), x2: x(at[0]), y1: TOP, y2: HEIGHT - BOTTOM });
      set(this.dot, { cx: x(at[0]), cy: y(at[1]) });
    }
    this.value.textContent = at ? `${short(at[1])} ${this.unit}` : "";
    this.svg.setAttribute("aria-label", `${this.title}${at ? `: ${short(at[1])} ${this.unit} at step ${at[0]}` : ""}`);
  }
}

function node(tag, values) {
  return set(document.createElementNS(SVG, tag), values);
}

function set(element, values) {
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
  return element;
}

function text(x, y, content, anchor) {
  const element = node("text", { x, y, "text-anchor": anchor });
  element.textContent = content;
  return element;
}

function short(value) {
  if (value === 0) return "0";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value >= 10 ? value.toFixed(1) : value.toPrecision(2);
}
