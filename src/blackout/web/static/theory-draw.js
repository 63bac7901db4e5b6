// Elements, colours and axes that the pictures of the theory room are made of. Colours are attributes and not style, so
// that a picture looks the same in a file of its own.

const SVG = "http://www.w3.org/2000/svg";
const FALLBACK = {
  ink: "#e6e9ed", dim: "#9aa5b1", line: "#2d353f", panel: "#14191f", accent: "#56b4e9", accent2: "#e69f00",
};

export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Subscripts and exponents, written as in X_t and e^{−t}.
export function rich(text) {
  const piece = ([, low, high, plain]) => plain ?? html(low ? "sub" : "sup", {}, low ?? high);
  return html("span", {}, ...[...text.matchAll(/_(\w)|\^\{([^}]*)\}|([^_^]+)/g)].map(piece));
}

export function palette(element) {
  const style = getComputedStyle(element);
  const own = (name) => style.getPropertyValue(`--${name}`).trim();
  const plain = (value) => /^#[0-9a-f]{6}$/i.test(value);
  const choose = ([name, value]) => [name, plain(own(name)) ? own(name) : value];
  const colours = Object.fromEntries(Object.entries(FALLBACK).map(choose));
  // From the dark over the accent to nearly white: ever lighter, so that it also reads in grey.
  return { ...colours, ramp: ["#0d1014", mix("#0d1014", colours.accent, 0.5), colours.accent, "#fbf8ec"] };
}

function mix(from, to, part) {
  const [a, b] = [from, to].map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));
  return `#${a.map((v, i) => Math.round(v + part * (b[i] - v)).toString(16).padStart(2, "0")).join("")}`;
}

export function heat(probability, { ramp }) {
  // The power lifts what is improbable out of the dark; few states are more probable than 0.6 before the end.
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

// The end of an axis: a round number that is not less, one of few, so that axes seldom jump while time moves.
export function ceiling(value, rounds = [1, 1.5, 2, 3, 4, 6, 8, 10]) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-12)));
  return power * rounds.find((round) => round * power >= value * 0.999999);
}

// Every picture is as wide as its place. All are measured before the first is drawn: the browser lays out once.
export function measure(roots) {
  const widths = roots.map((root) => Math.max(240, root.parentElement.clientWidth));
  roots.forEach((root, i) => root.setAttribute("width", widths[i]));
}

// An empty picture with axes: where x and y are drawn, and what lies under a pointer.
export function frame(root, { height = 230, x, y, xticks, yticks, xlabel, ylabel, name, right = 8 }, colours) {
  const width = Number(root.getAttribute("width"));
  const box = { left: 52, right: width - right, top: 10, bottom: height - 36 };
  const X = (v) => box.left + ((v - x[0]) / (x[1] - x[0])) * (box.right - box.left);
  const Y = (v) => box.bottom - ((v - y[0]) / (y[1] - y[0])) * (box.bottom - box.top);
  fill(root, { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": name, "font-size": 12,
    "font-family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" }, []);
  root.replaceChildren();
  const text = (at, content, more = {}) => svg("text", { ...at, fill: colours.dim, ...more }, content);
  let last = -Infinity;
  for (const [value, label] of xticks) {
    const room = 3.5 * String(label).length + 6;
    if (X(value) - room < last) continue;
    last = X(value) + room;
    root.append(text({ x: X(value), y: box.bottom + 15 }, label, { "text-anchor": "middle" }));
  }
  for (const [value, label] of yticks) {
    root.append(svg("line", { x1: box.left, x2: box.right, y1: Y(value), y2: Y(value), stroke: colours.line }));
    root.append(text({ x: box.left - 6, y: Y(value) + 4 }, label, { "text-anchor": "end" }));
  }
  root.append(text({ x: (box.left + box.right) / 2, y: height - 5 }, xlabel, { "text-anchor": "middle" }));
  const middle = (box.top + box.bottom) / 2;
  root.append(text({ x: 11, y: middle }, ylabel, { "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }));
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

// Where a time lies between those of the grid, as a fraction of an index.
export function position(times, t) {
  const after = times.findIndex((value) => value >= t);
  if (after <= 0) return after < 0 ? times.length - 1 : 0;
  return after - 1 + (t - times[after - 1]) / (times[after] - times[after - 1]);
}

export function timeTicks(times) {
  return [0, 0.02, 0.1, 0.3, 0.7, 1.5, 3, 15].map((t) => [position(times, t), String(t)]);
}

export const STATE_TICKS = [0, 5, 10, 15, 20].map((m) => [m, String(m)]);

export function linearTicks(low, high, count = 4) {
  const step = ceiling((high - low) / count, [1, 2, 5, 10]);
  const first = Math.ceil(low / step - 1e-9);
  const size = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: size }, (_, i) => [(first + i) * step, number((first + i) * step)]);
}
