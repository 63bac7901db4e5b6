// The tab that erases a part of an image and samples it anew.

import { bytes, sample, states, upload } from "./api.js";
import { Controls, newSeed, samplingForm } from "./controls.js";
import { button, field, make, options, showAlert, tick } from "./dom.js";
import { Editor } from "./editor.js";
import { drawStd } from "./pixels.js";
import { View } from "./view.js";

const FIELDS = ["sampler", "times", "steps", "correctors", "resample", "label", "guidance", "num", "seed"];
const REGIONS = {
  "None": () => false,
  "Left half": (row, column) => column < 0.5,
  "Right half": (row, column) => column >= 0.5,
  "Top half": (row) => row < 0.5,
  "Bottom half": (row) => row >= 0.5,
  "Centre": (row, column) => [row, column].every((place) => place >= 0.25 && place < 0.75),
};

export function mount(element, offered) {
  const controls = new Controls("inpaint", FIELDS, offered, { num: 4, steps: 30 }, { num: "Samples" });
  const view = new View("inpaint", "Draw or upload an image, erase a part, and press Inpaint.");
  const canvas = make("canvas", { width: 28, height: 28, role: "img", "aria-label": "Standard deviation over samples" });
  const std = make("figure", { className: "std", hidden: true }, canvas,
    make("figcaption", {}, "Standard deviation over samples: white where it is largest, zero at observed pixels."));
  view.charts.prepend(std);
  const erased = make("p", { className: "hint", role: "status" });
  const editor = new Editor(({ observed }) => {
    erased.textContent = `${observed.filter((value) => value === 0).length} of ${observed.length} pixels erased.`;
  });

  const requests = () => {
    if (editor.observed.every((value) => value === 1)) throw new Error("Erase a part of the image first.");
    const values = { ...controls.values(), observed: [...editor.x], mask: [...editor.observed] };
    std.hidden = true;
    return [values];
  };
  const form = samplingForm("Inpaint", [controls.element], [view], requests, (model, [last]) => {
    if (!last?.std || view.count === 1) return;
    drawStd(canvas, model, bytes(last.std));
    std.hidden = false;
  });
  const source = new Source(editor, form.alert, offered.limits);
  const brushes = makeBrushes(editor);
  const panel = make("div", { className: "panel" }, source.element, editor.canvas, erased, brushes.element);
  element.append(make("div", { className: "tab inpaint" }, panel, form.element, view.element));
  return { setModel: (model) => [controls, editor, source, brushes, form].forEach((part) => part.setModel(model)) };
}

// The image to start from: a file, a new sample, or a blank one.
class Source {
  constructor(editor, alert, limits) {
    Object.assign(this, { editor, alert, limits });
    const accept = "image/png,image/jpeg,image/webp";
    const file = make("input", { type: "file", id: "inpaint-file", accept, onchange: async () => {
      if (file.files[0]) await this.read(file.files[0]);
      file.value = "";
    } });
    this.generate = button("New sample", () => this.sample());
    this.element = make("div", { className: "source" }, make("h2", {}, "Image"),
      field("Upload an image", file, "PNG, JPEG or WebP; its centre is resized to the size of the model"),
      make("div", { className: "buttons" }, this.generate, button("Blank", () => editor.setModel(this.model)),
        button("Invert", () => editor.invert())));
  }

  setModel(model) {
    this.model = model;
  }

  async read(file) {
    const { model, limits } = this;
    const number = (value) => value.toLocaleString("en");
    try {
      if (file.size > limits.upload) throw new Error(`the file has ${number(file.size)} bytes, the limit is ${number(limits.upload)}`);
      const { x } = await upload(`/api/upload?model=${encodeURIComponent(model.name)}`, file);
      if (model !== this.model) throw new Error("the model was changed during the upload; choose the file again");
      showAlert(this.alert, "");
      this.editor.setImage(x);
    } catch (error) {
      showAlert(this.alert, `${file.name}: ${error.message}`);
    }
  }

  async sample() {
    const { model, generate } = this;
    generate.disabled = true;
    generate.textContent = "Sampling …";
    try {
      const request = { model: model.name, steps: Math.min(100, model.max_steps), seed: newSeed(), num: 1 };
      const last = await sample(request, () => {});
      showAlert(this.alert, "");
      if (last.event === "done" && model === this.model) this.editor.setImage(states(model, last.x));
    } catch (error) {
      showAlert(this.alert, error.message);
    } finally {
      generate.disabled = false;
      generate.textContent = "New sample";
    }
  }
}

function makeBrushes(editor) {
  const radio = ([tool, label]) => tick(label, { type: "radio", name: "tool", id: `inpaint-${tool}`, checked: tool === "erase",
    onchange: () => (editor.tool = tool) });
  const tools = Object.entries({ erase: "Erase", restore: "Restore", draw: "Draw" }).map(radio);
  const size = make("input", { type: "range", id: "inpaint-brush", min: 1, max: 16, value: 4,
    oninput: () => (editor.size = Number(size.value)) });
  const level = make("input", { type: "range", id: "inpaint-level", min: 0, max: 255, value: 255,
    oninput: () => editor.colour.fill(Number(level.value) / Number(level.max)) });
  const colour = make("input", { type: "color", id: "inpaint-colour", value: "#ffffff", oninput: () => {
    editor.colour = [1, 3, 5].map((k) => parseInt(colour.value.slice(k, k + 2), 16) / 255);
  } });
  const inks = [field("Brush level", level), field("Brush colour", colour)];
  const region = make("select", { id: "inpaint-region", onchange: () => editor.setMask(REGIONS[region.value]) },
    ...options(Object.keys(REGIONS)));
  return {
    element: make("div", { className: "brushes" },
      make("div", { className: "tools", role: "radiogroup", "aria-label": "Brush" }, ...tools),
      field("Brush size", size), ...inks, field("Erase region", region)),
    setModel(model) {
      inks.forEach((ink, k) => (ink.hidden = model.shape[0] !== [1, 3][k]));
      level.max = level.value = String(model.max_state ?? 255);
      colour.value = "#ffffff";
      editor.colour = [1, 1, 1];
      region.value = "None";
    },
  };
}
