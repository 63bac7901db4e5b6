// What one sees, as files: the picture, the numbers, the program.

import { copyText } from "./dom.js";
import { html, number, svg } from "./theory-draw.js";

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  html("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// All panels in one SVG, two in a row, as they stand now.
export function picture({ answer, now, panels, colours }) {
  const caption = `${answer.processes[answer.process].label}, t = ${number(answer.times[now])}, `
    + `p = exp(−t) = ${number(answer.survival[now])}`;
  const gap = 24;
  const head = 34;
  const font = { "font-family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", fill: colours.ink };
  const width = Math.max(...panels.map(({ root }) => Number(root.getAttribute("width"))));
  const whole = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: 2 * width + 3 * gap });
  whole.append(svg("rect", { width: "100%", height: "100%", fill: colours.panel }));
  whole.append(svg("text", { ...font, x: gap, y: 34, "font-size": 17 }, caption));
  let y = 56;
  for (let i = 0; i < panels.length; i += 2) {
    const row = panels.slice(i, i + 2);
    row.forEach(({ title, root }, j) => {
      const x = gap + j * (width + gap);
      const copy = root.cloneNode(true);
      copy.setAttribute("x", x);
      copy.setAttribute("y", y + head);
      whole.append(svg("text", { ...font, x, y: y + 20, "font-size": 15, "font-weight": 600 }, title), copy);
    });
    y += head + Math.max(...row.map(({ root }) => Number(root.getAttribute("height")))) + gap;
  }
  whole.setAttribute("height", y);
  return new XMLSerializer().serializeToString(whole);
}

export function table(answer) {
  const { times, survival, rates, score } = answer;
  const columns = {
    forward: answer.forward, reverse: answer.reverse, difference: answer.difference,
    rate_up: rates.up, rate_down: rates.down, score_up: score.up, score_down: score.down,
    posterior: answer.posterior, bridge: answer.bridge,
  };
  const lines = [["t", "p", "state", ...Object.keys(columns)].join(",")];
  times.forEach((t, k) => answer.law.forEach((_, m) => {
    lines.push([t, survival[k], m, ...Object.values(columns).map((column) => column[k][m] ?? "")].join(","));
  }));
  return `${lines.join("\n")}\n`;
}

// The buttons, and the box with the program. `seen()` gives { answer, now, panels, colours }.
export function saving(seen) {
  const code = html("code", {});
  const said = html("span", { role: "status", class: "said" });
  const copy = async () => (said.textContent = await copyText(code));
  const button = (label, onclick) => html("button", { type: "button", onclick }, label);
  const file = (label, name, type, make) => button(label, () => seen().answer && download(name, type, make(seen())));
  const files = html("div", { class: "row", role: "group", "aria-label": "files" },
    file("Picture (SVG)", "theory.svg", "image/svg+xml", picture),
    file("Numbers (CSV)", "theory.csv", "text/csv", ({ answer }) => table(answer)),
    file("Numbers (JSON)", "theory.json", "application/json", ({ answer }) => JSON.stringify(answer)),
    file("Program (Python)", "theory.py", "text/x-python", ({ answer }) => answer.code));
  const title = html("h3", {}, "The Python program that gives these numbers again");
  const head = html("div", { class: "row" }, title, button("Copy", copy), said);
  const box = html("pre", { tabindex: 0, "aria-label": "Python program" }, code);
  const show = (answer) => {
    code.textContent = answer.code;
    said.textContent = "";
  };
  return { show, element: html("section", { class: "save" }, files, head, box) };
}
