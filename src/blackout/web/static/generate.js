// The room where images come out of the dark.

import { Controls } from "./controls.js";
import { alertLine, make, message } from "./dom.js";
import { View } from "./view.js";

const FIELDS = ["sampler", "steps", "correctors", "label", "guidance", "num", "seed"];

export function mount(element, limits) {
  const controls = new Controls("generate", FIELDS, limits);
  const view = new View("generate", "Black, so far. Choose, and press Generate.");
  const alert = alertLine();
  const go = make("button", { className: "primary", disabled: true }, "Generate");
  const stop = make("button", { type: "button", disabled: true, onclick: () => view.stop() }, "Stop");
  let model = null;

  async function submit(event) {
    event.preventDefault();
    let values;
    try {
      values = controls.values();
    } catch (error) {
      return message(alert, error.message);
    }
    message(alert, "");
    stop.disabled = false;
    await view.run(model, values);
    if (!view.running) stop.disabled = true;
  }

  const form = make("form", { className: "panel settings", noValidate: true, onsubmit: submit },
    make("h2", {}, "Generate"), controls.element, alert, make("div", { className: "buttons" }, go, stop));
  element.append(make("div", { className: "room generate" }, form, view.element));
  return {
    setModel(chosen) {
      model = chosen;
      controls.setModel(chosen);
      go.disabled = false;
    },
  };
}
