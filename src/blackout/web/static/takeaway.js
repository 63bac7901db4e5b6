// Files and words of a finished walk.

import { bytes } from "./api.js";
import { copyText, make } from "./dom.js";

const NAMES = {
  "walk.zip": "Everything (.zip)",
  "samples.png": "Picture (.png)",
  "samples.npz": "Integers (.npz)",
  "walk.csv": "Curves (.csv)",
};

export function takeAway(event, canvas) {
  const links = Object.entries(NAMES).map(([name, label]) => link(name, label, bytes(event.files[name])));
  const frame = make("button", { type: "button", onclick: () => saveCanvas(canvas(), "frame.png") }, "This frame (.png)");
  return make("div", { className: "takeaway" },
    make("h3", {}, "Take it away"),
    make("div", { className: "buttons" }, ...links, frame),
    make("h3", {}, "The same again"),
    ...(event.spread ? [make("p", { className: "hint" }, "known.npy and mask.npy are in the .zip.")] : []),
    words("Command line", event.command),
    words("Python", event.python.trimEnd()));
}

function link(name, label, data) {
  return make("a", { className: "button", download: name, href: URL.createObjectURL(new Blob([data])) }, label);
}

function words(label, text) {
  const said = make("span", { className: "hint", role: "status" });
  const code = make("code", {}, text);
  const copy = async () => {
    said.textContent = await copyText(code);
    setTimeout(() => (said.textContent = ""), 4000);
  };
  const button = make("button", { type: "button", className: "small", onclick: copy, "aria-label": `Copy: ${label}` }, "Copy");
  return make("div", { className: "words" },
    make("div", { className: "bar" }, make("span", {}, label), said, button),
    make("pre", { tabIndex: 0 }, code));
}

export function saveCanvas(canvas, name) {
  canvas.toBlob((blob) => {
    const url = URL.createObjectURL(blob);
    make("a", { download: name, href: url }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  });
}
