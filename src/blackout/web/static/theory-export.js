// Downloads of the theory tab: the figure, the data and the Python code.

import { button, codeBox, make, save, svg } from "./dom.js";
import { number } from "./theory-draw.js";

// All panels in one SVG, two in a row, at the current time.
function figure({ data, now, panels, colours }) {
  const gap = 24;
  const head = 34;
  const font = { "font-family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", fill: colours.ink };
  const width = Math.max(...panels.map(({ root }) => Number(root.getAttribute("width"))));
  const all = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: 2 * width + 3 * gap });
  all.append(svg("rect", { width: "100%", height: "100%", fill: colours.panel }));
  all.append(svg("text", { ...font, x: gap, y: 34, "font-size": 17 }, `${data.process}, t = ${number(data.times[now])}`));
  let y = 56;
  for (let i = 0; i < panels.length; i += 2) {
    const row = panels.slice(i, i + 2);
    row.forEach(({ title, root }, j) => {
      const x = gap + j * (width + gap);
      const copy = root.cloneNode(true);
      copy.setAttribute("x", x);
      copy.setAttribute("y", y + head);
      all.append(svg("text", { ...font, x, y: y + 20, "font-size": 15, "font-weight": 600 }, title), copy);
    });
    y += head + Math.max(...row.map(({ root }) => Number(root.getAttribute("height")))) + gap;
  }
  all.setAttribute("height", y);
  return new XMLSerializer().serializeToString(all);
}

function table({ data }) {
  const { times, rates, score } = data;
  const columns = {
    forward: data.forward, reverse: data.reverse, difference: data.difference,
    rate_up: rates.up, rate_down: rates.down, score_up: score.up, score_down: score.down,
    posterior: data.posterior, bridge: data.bridge,
  };
  const lines = [["t", "state", ...Object.keys(columns)].join(",")];
  times.forEach((t, k) => data.initial.forEach((_, m) => {
    lines.push([t, m, ...Object.values(columns).map((column) => column[k][m] ?? "")].join(","));
  }));
  return `${lines.join("\n")}\n`;
}

// `current()` gives { data, now, panels, colours }.
export function exportSection(current) {
  const box = codeBox("Python");
  const file = (label, name, type, content) => button(label, () => {
    if (current().data) save(name, new Blob([content(current())], { type }));
  });
  const files = make("div", { className: "row", role: "group", "aria-label": "Downloads" },
    file("Figure (SVG)", "theory.svg", "image/svg+xml", figure),
    file("Data (CSV)", "theory.csv", "text/csv", table),
    file("Data (JSON)", "theory.json", "application/json", ({ data }) => JSON.stringify(data)),
    file("Script (Python)", "theory.py", "text/x-python", ({ data }) => data.code));
  return {
    element: make("section", { className: "panel save" }, make("h3", {}, "Download"), files, make("h3", {}, "Reproduce"), box),
    show: (code) => (box.querySelector("code").textContent = code),
  };
}
