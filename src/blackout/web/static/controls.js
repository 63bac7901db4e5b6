// The settings of one walk, as the model at hand allows them.

import { field, make } from "./dom.js";

const SAMPLERS = {
  bridge: "the paper's binomial bridge; for other processes the bridge that the model allows",
  "bridge-nearest": "the same, rounding to the nearest integer, as in the authors' code",
  poisson: "tau-leaping with Poisson numbers of births",
  "poisson-instantaneous": "the same with the rates of the step's beginning",
  binomial: "tau-leaping with binomial numbers of births, never past the largest level",
  exact: "event by event, with no time step: slow",
  posterior: "X₀ drawn from its law, then the exact bridge",
};

export function newSeed() {
  return Math.floor(Math.random() * 2 ** 31);
}

export class Controls {
  // `names`: which of sampler, steps, correctors, label, guidance, num, resample, seed this room has.
  constructor(prefix, names, limits, defaults = {}) {
    this.names = names;
    this.limits = limits;
    this.defaults = { steps: 100, correctors: 0, guidance: 1, num: 16, seed: 0, resample: 7, ...defaults };
    this.inputs = {};
    this.labels = {};
    this.element = make("div", { className: "controls" });
    for (const name of names) this.element.append(this.control(prefix, name));
  }

  control(prefix, name) {
    const id = `${prefix}-${name}`;
    const number = (label, max, hint = null, min = 0, step = 1) => {
      const value = this.defaults[name];
      const input = make("input", { type: "number", id, min, max, step, value, required: true, inputMode: "decimal" });
      return this.keep(name, label, input, hint);
    };
    switch (name) {
      case "sampler": {
        const select = make("select", { id, onchange: () => this.explain() });
        return this.keep(name, "Sampler", select, "");
      }
      case "label": {
        const select = make("select", { id, onchange: () => this.guide() });
        return this.keep(name, "Class", select, "");
      }
      case "steps": return number("Steps", this.limits.steps, null, 1);
      case "correctors": return number("Correctors", this.limits.correctors, "after each step");
      case "guidance": return number("Guidance", this.limits.guidance, "1: the class as it was learnt", 0, "any");
      case "num": return number(this.defaults.numLabel ?? "Images", 64, "", 1);
      case "resample": return number("Resampling", this.limits.resample, "how often a step is taken again");
      case "seed": {
        const element = number("Seed", this.limits.seed);
        const dice = make("button", { type: "button", className: "small", onclick: () => this.roll() }, "New seed");
        element.classList.add("with-button");
        element.append(dice);
        return element;
      }
    }
    throw new Error(`no control ${name}`);
  }

  keep(name, label, input, hint) {
    this.inputs[name] = input;
    this.labels[name] = label;
    return field(label, input, hint);
  }

  hint(name, text) {
    const note = this.element.querySelector(`#${CSS.escape(this.inputs[name].id)}-hint`);
    if (note) note.textContent = text;
  }

  roll() {
    this.inputs.seed.value = String(newSeed());
  }

  setModel(model) {
    this.model = model;
    const { sampler, label, num, steps } = this.inputs;
    if (sampler) {
      const chosen = sampler.value || this.defaults.sampler || "bridge";
      sampler.replaceChildren(
        ...Object.entries(model.samplers).map(([name, reason]) =>
          make("option", { value: name, disabled: reason !== null, title: reason ?? "" }, name)),
      );
      sampler.value = model.samplers[chosen] === null ? chosen : "bridge";
      this.explain();
    }
    if (label) {
      const classes = Array.from({ length: model.classes }, (_, k) => make("option", { value: String(k) }, String(k)));
      label.replaceChildren(make("option", { value: "" }, "any"), ...classes);
      label.disabled = model.classes === 0;
      this.hint("label", model.classes ? `${model.classes} classes` : "this model knows no classes");
      this.guide();
    }
    if (num) {
      num.max = String(model.max_images);
      this.hint("num", `at most ${model.max_images}`);
      // A larger network is slower: begin with fewer images.
      const usual = model.weights > 5e6 ? Math.min(4, this.defaults.num) : this.defaults.num;
      num.value = String(Math.min(usual, model.max_images));
    }
    if (steps) {
      steps.max = String(model.max_steps);
      if (Number(steps.value) > model.max_steps) steps.value = String(model.max_steps);
    }
  }

  explain() {
    this.hint("sampler", SAMPLERS[this.inputs.sampler.value] ?? "");
  }

  guide() {
    if (!this.inputs.guidance) return;
    this.inputs.guidance.disabled = this.inputs.label.value === "";
    this.hint("guidance", this.inputs.guidance.disabled ? "needs a class" : "1: the class as it was learnt");
  }

  // What the server is sent; an Error names the first control that holds something else than it may.
  values() {
    const values = {};
    for (const name of this.names) {
      const input = this.inputs[name];
      if (input.disabled) continue;
      if (name === "sampler") values.sampler = input.value;
      else if (name === "label") {
        if (input.value !== "") values.label = Number(input.value);
      } else {
        if (!input.validity.valid) {
          input.focus();
          const kind = input.step === "any" ? "a number" : "a whole number";
          throw new Error(`${this.labels[name]} must be ${kind} from ${input.min} to ${input.max}.`);
        }
        values[name] = Number(input.value);
      }
    }
    return values;
  }
}
