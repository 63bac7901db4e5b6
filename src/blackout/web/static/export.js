// Files to download from a finished job, and the code that reproduces it.

import { bytes } from "./api.js";
import { button, codeBox, make, save } from "./dom.js";

const FILES = {
  "samples.zip": "All files (.zip)",
  "samples.png": "Image grid (.png)",
  "trajectory.gif": "Animation (.gif)",
  "samples.npz": "Arrays (.npz)",
  "steps.csv": "Curves (.csv)",
};

export function exportPanel(event, canvas) {
  const file = ([name, label]) => button(label, () => save(name, new Blob([bytes(event.files[name])])));
  const frame = button("Current frame (.png)", () => canvas.toBlob((blob) => save("frame.png", blob)));
  const note = event.std ? make("p", { className: "hint" }, "observed.npy and mask.npy are in the .zip.") : null;
  return make("div", { className: "export" },
    make("h3", {}, "Download"),
    make("div", { className: "buttons" }, ...Object.entries(FILES).map(file), frame),
    make("h3", {}, "Reproduce"), note,
    codeBox("Command line", event.command),
    codeBox("Python", event.python.trimEnd()));
}
