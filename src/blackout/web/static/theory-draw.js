// Colours and axes of the plots in the theory tab. Colours are attributes, not CSS, so that an exported SVG keeps them.

import { make, setAttributes, svg } from "./dom.js";

// Subscripts and superscripts, written as in X_t and e^{−t}.
export function rich(text) {
  const piece = ([, low, high, plain]) => plain ?? make(low ? "sub" : "sup", {}, low ?? high);
  return make("span", {}, ...[...text.matchAll(/_(\w)|\^\{([^}]*)\}|([^_^]+)/g)].map(piece));
}

// The colours of style.css, and a ramp of increasing lightness, which is readable in greyscale.
export function palette(element) {
  const style = getComputedStyle(element);
  const names = ["ink", "dim", "line", "panel", "accent", "accent2"];
  const colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, ramp: ["#0d1014", mix("#0d1014", colours.accent, 0.5), colours.accent, "#fbf8ec"] };
}

function mix(from, to, part) {
  const [a, b] = [from, to].map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
  return `#${a.map((v, i) => Math.round(v + part * (b[i] - v)).toString(16).padStart(2, "0")).join("")}`;
}

export function heat(probability, { ramp }) {
  // The power makes small probabilities visible; few probabilities exceed 0.6 before the last time.
  const at = Math.min(1, (probability / 0.6) ** 0.45) * (ramp.length - 1);
  const low = Math.min(Math.floor(at), ramp.length - 2);
  return mix(ramp[low], ramp[low + 1], at - low);
}

export function number(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

// The smallest round number that is at least `value`; from a short list, so that axes seldom change while time moves.
export function ceiling(value, rounds = [1, 1.5, 2, 3, 4, 6, 8, 10]) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-12)));
  return power * rounds.find((round) => round * power >= value * 0.999999);
}

// Set the width of every plot to that of its parent. All are measured before the first is drawn: one layout pass.
export function measure(roots) {
  const widths = roots.map((root) => Math.max(240, root.parentElement.clientWidth));
  roots.forEach((root, i) => root.setAttribute("width", widths[i]));
}

// An empty plot with axes: X and Y map values to pixels, `under` maps a pointer event to values.
export function frame(root, { height = 230, x, y, xticks, yticks, xlabel, ylabel, name, right = 8 }, colours) {
  const width = Number(root.getAttribute("width"));
  const box = { left: 52, right: width - right, top: 10, bottom: height - 36 };
  const X = (v) => box.left + ((v - x[0]) / (x[1] - x[0])) * (box.right - box.left);
  const Y = (v) => box.bottom - ((v - y[0]) / (y[1] - y[0])) * (box.bottom - box.top);
  setAttributes(root, { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": name, "font-size": 12,
    "font-family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" });
  root.replaceChildren();
  const text = (at, content, more = {}) => root.append(svg("text", { ...at, fill: colours.dim, ...more }, content));
  let last = -Infinity;
  for (const [value, label] of xticks) {
    const half = 3.5 * label.length + 6;
    if (X(value) - half < last) continue;
    last = X(value) + half;
    text({ x: X(value), y: box.bottom + 15 }, label, { "text-anchor": "middle" });
  }
  for (const [value, label] of yticks) {
    root.append(svg("line", { x1: box.left, x2: box.right, y1: Y(value), y2: Y(value), stroke: colours.line }));
    text({ x: box.left - 6, y: Y(value) + 4 }, label, { "text-anchor": "end" });
  }
  text({ x: (box.left + box.right) / 2, y: height - 5 }, xlabel, { "text-anchor": "middle" });
  const middle = (box.top + box.bottom) / 2;
  text({ x: 11, y: middle }, ylabel, { "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` });
  const under = (event) => {
    const rect = root.getBoundingClientRect();
    const across = ((event.clientX - rect.left) / rect.width) * width;
    const down = ((event.clientY - rect.top) / rect.height) * height;
    return {
      x: x[0] + ((across - box.left) / (box.right - box.left)) * (x[1] - x[0]),
      y: y[0] + ((box.bottom - down) / (box.bottom - box.top)) * (y[1] - y[0]),
    };
  };
  return { root, X, Y, box, under, colours };
}

// The fractional index of a time in the grid.
export function position(times, t) {
  const after = times.findIndex((value) => value >= t);
  if (after <= 0) return after < 0 ? times.length - 1 : 0;
  return after - 1 + (t - times[after - 1]) / (times[after] - times[after - 1]);
}

// Round times near some indices of the grid.
export function timeTicks(times) {
  const round = (k) => Math.min(ceiling(times[k] * 0.8, [1, 1.5, 2, 3, 5, 7, 10]), times.at(-1));
  return [0, ...[8, 16, 28, 40, 54, 68, 80].map(round)].map((t) => [position(times, t), number(t)]);
}

export function stateTicks(count) {
  return Array.from({ length: Math.ceil(count / 5) }, (_, i) => [5 * i, String(5 * i)]);
}

export function linearTicks(low, high, count = 4) {
  const step = ceiling((high - low) / count, [1, 2, 5, 10]);
  const first = Math.ceil(low / step - 1e-9);
  const size = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: size }, (_, i) => [(first + i) * step, number((first + i) * step)]);
}
