// The room where two samplers start from one seed.

import { Controls } from "./controls.js";
import { alertLine, make, message } from "./dom.js";
import { View } from "./view.js";

export function mount(element, limits) {
  const shared = new Controls("compare", ["label", "guidance", "num", "seed"], limits, { num: 4 });
  const defaults = [{ sampler: "bridge", steps: 50 }, { sampler: "poisson", steps: 50 }];
  const sides = ["A", "B"].map((name, k) => ({
    name,
    controls: new Controls(`compare-${name.toLowerCase()}`, ["sampler", "steps", "correctors"], limits, defaults[k]),
    view: new View(`compare-${name.toLowerCase()}`, `${name} has not walked yet.`),
  }));
  const views = sides.map((side) => side.view);
  for (const kind of ["mean", "births"]) {
    const charts = views.map((view) => view[kind]);
    for (const chart of charts) chart.peers = charts;
  }
  const alert = alertLine();
  const go = make("button", { className: "primary", disabled: true }, "Compare");
  const stop = make("button", { type: "button", disabled: true, onclick: () => views.forEach((view) => view.stop()) }, "Stop");
  let model = null;

  async function submit(event) {
    event.preventDefault();
    let orders;
    try {
      const common = shared.values();
      orders = sides.map((side) => ({ ...common, ...side.controls.values() }));
    } catch (error) {
      return message(alert, error.message);
    }
    message(alert, "");
    stop.disabled = false;
    await Promise.all(sides.map((side, k) => side.view.run(model, orders[k])));
    if (views.every((view) => !view.running)) {
      stop.disabled = true;
      views.forEach((view) => view.draw()); // both scales are known now
    }
  }

  const form = make("form", { className: "panel settings", noValidate: true, onsubmit: submit },
    make("h2", {}, "Compare"),
    make("p", { className: "hint" }, "Two samplers, one seed: image k of A and image k of B draw from the same stream."),
    shared.element,
    ...sides.map((side) => make("fieldset", {}, make("legend", {}, `Sampler ${side.name}`), side.controls.element)),
    alert, make("div", { className: "buttons" }, go, stop));
  const shown = sides.map((side) => make("div", { className: "side" }, make("h2", {}, `Sampler ${side.name}`), side.view.element));
  element.append(make("div", { className: "room compare" }, form, ...shown));
  return {
    setModel(chosen) {
      model = chosen;
      shared.setModel(chosen);
      sides.forEach((side) => side.controls.setModel(chosen));
      go.disabled = false;
    },
  };
}
