// The tab that compares two samplers with the same seed.

import { Controls, samplingForm } from "./controls.js";
import { make } from "./dom.js";
import { View } from "./view.js";

export function mount(element, offered) {
  const shared = new Controls("compare", ["label", "guidance", "num", "seed"], offered, { num: 4 });
  const sides = ["A", "B"].map((name) => {
    const id = `compare-${name.toLowerCase()}`;
    const defaults = { steps: 50, ...(name === "B" && { sampler: "poisson" }) };
    return {
      name: `Sampler ${name}`,
      controls: new Controls(id, ["sampler", "times", "steps", "correctors"], offered, defaults),
      view: new View(id, "No samples yet."),
    };
  });
  const views = sides.map((side) => side.view);
  for (const kind of ["mean", "births"]) {
    const charts = views.map((view) => view[kind]);
    for (const chart of charts) chart.peers = charts;
  }
  const requests = () => {
    const common = shared.values();
    return sides.map((side) => ({ ...common, ...side.controls.values() }));
  };
  const fieldset = (side) => make("fieldset", {}, make("legend", {}, side.name), side.controls.element);
  const hint = make("p", { className: "hint" }, "Each image has the same random numbers under both samplers.");
  const redraw = () => views.forEach((view) => view.draw()); // with the common scale of both
  const form = samplingForm("Compare", [hint, shared.element, ...sides.map(fieldset)], views, requests, redraw);
  const shown = sides.map((side) => make("div", { className: "side" }, make("h2", {}, side.name), side.view.element));
  element.append(make("div", { className: "tab compare" }, form.element, ...shown));
  const parts = [shared, form, ...sides.map((side) => side.controls)];
  return { setModel: (model) => parts.forEach((part) => part.setModel(model)) };
}
