// The tab that generates images.

import { Controls, samplingForm } from "./controls.js";
import { make } from "./dom.js";
import { View } from "./view.js";

const FIELDS = ["sampler", "times", "steps", "correctors", "label", "guidance", "num", "seed"];

export function mount(element, offered) {
  const controls = new Controls("generate", FIELDS, offered);
  const view = new View("generate", "No samples yet. Choose settings and press Generate.");
  const form = samplingForm("Generate", [controls.element], [view], () => [controls.values()]);
  element.append(make("div", { className: "tab generate" }, form.element, view.element));
  return { setModel: (model) => [controls, form].forEach((part) => part.setModel(model)) };
}
