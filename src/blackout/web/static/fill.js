// The room where a part of a picture is erased, and the model fills it in.

import { bytes, upload, walk } from "./api.js";
import { Controls, newSeed } from "./controls.js";
import { alertLine, field, make, message } from "./dom.js";
import { Editor } from "./editor.js";
import { drawSpread } from "./pixels.js";
import { View } from "./view.js";

const PARTS = {
  "Nothing": () => false,
  "Left half": (row, column) => column < 0.5,
  "Right half": (row, column) => column >= 0.5,
  "Upper half": (row) => row < 0.5,
  "Lower half": (row) => row >= 0.5,
  "Middle": (row, column) => [row, column].every((place) => place >= 0.25 && place < 0.75),
};

export function mount(element, limits) {
  const controls = new Controls("fill", ["sampler", "steps", "correctors", "resample", "label", "guidance", "num", "seed"],
    limits, { num: 4, numLabel: "Draws", steps: 30 });
  const view = new View("fill", "Draw or upload a picture, erase a part, and press Fill in.");
  const spread = make("canvas", { width: 28, height: 28, role: "img", "aria-label": "Standard deviation over the draws" });
  const uncertain = make("figure", { className: "spread", hidden: true }, spread,
    make("figcaption", {}, "Where the draws differ: their standard deviation, white where it is largest. What was known is dark."));
  view.charts.prepend(uncertain);
  const alert = alertLine();
  const left = make("p", { className: "hint", role: "status" });
  const editor = new Editor((state) => {
    const unknown = state.known.reduce((sum, known) => sum + 1 - known, 0);
    left.textContent = `${unknown} of ${state.known.length} pixels are erased.`;
  });
  const go = make("button", { className: "primary", disabled: true }, "Fill in");
  const stop = make("button", { type: "button", disabled: true, onclick: () => view.stop() }, "Stop");
  let model = null;

  const start = startFrom(() => model, editor, alert, limits);
  const brush = brushes(editor);

  async function submit(event) {
    event.preventDefault();
    let values;
    try {
      values = controls.values();
      if (editor.known.every((known) => known === 1)) throw new Error("Erase a part of the picture first: all of it is known.");
    } catch (error) {
      return message(alert, error.message);
    }
    message(alert, "");
    uncertain.hidden = true;
    stop.disabled = false;
    const asked = model; // another one may be chosen meanwhile
    const last = await view.run(asked, { ...values, known: [...editor.x], mask: [...editor.known] });
    if (!view.running) stop.disabled = true;
    if (last?.spread && values.num > 1) {
      drawSpread(spread, asked, bytes(last.spread));
      uncertain.hidden = false;
    }
  }

  const form = make("form", { className: "panel settings", noValidate: true, onsubmit: submit },
    make("h2", {}, "Fill in"), controls.element, alert, make("div", { className: "buttons" }, go, stop));
  const desk = make("div", { className: "panel desk" }, start.element, editor.canvas, left, brush.element);
  element.append(make("div", { className: "room fill" }, desk, form, view.element));
  return {
    setModel(chosen) {
      model = chosen;
      controls.setModel(chosen);
      editor.setModel(chosen);
      brush.setModel(chosen);
      go.disabled = false;
    },
  };
}

// A file, a fresh sample, or an empty sheet.
function startFrom(model, editor, alert, limits) {
  async function read(file) {
    if (!file) return;
    try {
      if (file.size > limits.upload) throw new Error(`The file has ${file.size.toLocaleString("en")} bytes; at most ${limits.upload.toLocaleString("en")} are read.`);
      const chosen = model();
      const { x } = await upload(`/api/picture?model=${encodeURIComponent(chosen.name)}`, file);
      if (chosen !== model()) throw new Error("another model was chosen meanwhile; choose the file again.");
      message(alert, "");
      editor.setPicture(x);
    } catch (error) {
      message(alert, `${file.name}: ${error.message}`);
    }
  }

  async function fresh() {
    sample.disabled = true;
    sample.textContent = "Sampling …";
    try {
      const chosen = model();
      const order = { model: chosen.name, steps: Math.min(100, chosen.max_steps), seed: newSeed(), num: 1 };
      const last = await walk(order, () => {});
      message(alert, "");
      if (last.event === "done" && chosen === model()) {
        editor.setPicture(chosen.bytes === 1 ? bytes(last.x) : new Int32Array(bytes(last.x).buffer));
      }
    } catch (error) {
      message(alert, error.message);
    } finally {
      sample.disabled = false;
      sample.textContent = "A fresh sample";
    }
  }

  const file = make("input", {
    type: "file", id: "fill-file", accept: "image/png,image/jpeg,image/webp",
    onchange: () => read(file.files[0]).then(() => (file.value = "")),
  });
  const sample = make("button", { type: "button", onclick: fresh }, "A fresh sample");
  const sheet = make("button", { type: "button", onclick: () => editor.setModel(model()) }, "An empty sheet");
  const inverse = make("button", { type: "button", onclick: () => editor.invert() }, "Invert");
  return {
    element: make("div", { className: "start" }, make("h2", {}, "Start from"),
      field("A picture of yours", file, "PNG, JPEG or WebP; its middle is brought to the model's size and levels"),
      make("div", { className: "buttons" }, sample, sheet, inverse)),
  };
}

function brushes(editor) {
  const tools = { erase: "Erase", restore: "Bring back", draw: "Draw" };
  const choices = Object.entries(tools).map(([name, label]) => {
    const radio = make("input", { type: "radio", name: "tool", id: `fill-${name}`, checked: name === "erase", onchange: () => (editor.tool = name) });
    return make("div", { className: "tick" }, radio, make("label", { htmlFor: radio.id }, label));
  });
  const size = make("input", { type: "range", id: "fill-brush", min: 1, max: 16, value: 4, oninput: () => (editor.size = Number(size.value)) });
  const level = make("input", { type: "range", id: "fill-level", min: 0, max: 255, value: 255 });
  level.addEventListener("input", () => editor.colour.fill(Number(level.value) / Number(level.max)));
  const colour = make("input", { type: "color", id: "fill-colour", value: "#ffffff" });
  colour.addEventListener("input", () => {
    editor.colour = [1, 3, 5].map((k) => parseInt(colour.value.slice(k, k + 2), 16) / 255);
  });
  const ink = { level: field("Level to draw with", level), colour: field("Colour to draw with", colour) };
  const parts = make("select", { id: "fill-part", onchange: () => editor.setMask(PARTS[parts.value]) },
    ...Object.keys(PARTS).map((name) => make("option", {}, name)));
  return {
    element: make("div", { className: "brushes" },
      make("div", { className: "tools", role: "radiogroup", "aria-label": "Brush" }, ...choices),
      field("Brush size", size), ink.level, ink.colour, field("Erase at once", parts)),
    setModel(model) {
      ink.level.hidden = model.shape[0] === 3;
      ink.colour.hidden = model.shape[0] === 1;
      level.max = level.value = String(model.largest ?? 255);
      colour.value = "#ffffff";
      editor.colour = [1, 1, 1];
      parts.value = "Nothing";
    },
  };
}
