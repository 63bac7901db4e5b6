// The settings of a sampling job, limited to what the model allows.

import { alertLine, button, field, make, options, showAlert } from "./dom.js";

const GUIDANCE = "classifier-free (0: unconditional, 1: conditional)";
const SELECTS = { sampler: "Sampler", times: "Time grid", label: "Class" };
const NUMBERS = {
  steps: { label: "Steps", min: 1 },
  correctors: { label: "Correctors", hint: "after each step" },
  guidance: { label: "Guidance scale", hint: GUIDANCE, step: "any" },
  num: { label: "Images", hint: "", min: 1 },
  resample: { label: "Resampling", hint: "repetitions of each step" },
  seed: { label: "Seed" },
};
const DEFAULTS = { correctors: 0, guidance: 1, num: 16, seed: 0, resample: 7 };

export function newSeed() {
  return Math.floor(Math.random() * 2 ** 31);
}

export class Controls {
  // `names`: which controls to show. `offered`: limits, and the samplers and time rules with their help, by name.
  constructor(prefix, names, offered, defaults = {}, labels = {}) {
    Object.assign(this, { offered, inputs: {}, defaults: { ...DEFAULTS, ...defaults } });
    this.labels = { ...SELECTS, ...Object.fromEntries(Object.entries(NUMBERS).map(([k, v]) => [k, v.label])), ...labels };
    this.element = make("div", { className: "controls" }, ...names.map((name) => this.control(`${prefix}-${name}`, name)));
    if (this.inputs.times) this.inputs.times.append(make("option", { value: "" }, "default"), ...options(Object.keys(offered.times)));
    this.update();
  }

  control(id, name) {
    if (name in SELECTS) {
      this.inputs[name] = make("select", { id, onchange: () => this.update() });
      return field(this.labels[name], this.inputs[name], "");
    }
    const { hint = null, min = 0, step = 1 } = NUMBERS[name];
    const range = { min, max: this.offered.limits[name] ?? 1, step, value: this.defaults[name] };
    this.inputs[name] = make("input", { type: "number", id, ...range, required: true, inputMode: "decimal" });
    const element = field(this.labels[name], this.inputs[name], hint);
    if (name === "seed") {
      element.classList.add("with-button");
      element.append(button("New seed", () => (this.inputs.seed.value = String(newSeed())), { className: "small" }));
    }
    return element;
  }

  hint(name, text) {
    const note = this.inputs[name] && this.element.querySelector(`#${CSS.escape(this.inputs[name].id)}-hint`);
    if (note) note.textContent = text;
  }

  setModel(model) {
    const { sampler, label, num, steps } = this.inputs;
    if (sampler) {
      const wanted = sampler.value || this.defaults.sampler;
      const option = ([name, problem]) => make("option", { value: name, disabled: problem !== null, title: problem ?? "" }, name);
      sampler.replaceChildren(...Object.entries(model.samplers).map(option));
      sampler.value = model.samplers[wanted] === null ? wanted : model.default_sampler;
    }
    if (label) {
      const option = (name, number) => make("option", { value: number }, name);
      label.replaceChildren(option("none", ""), ...model.classes.map(option));
      label.disabled = model.classes.length === 0;
      this.hint("label", label.disabled ? "this model is unconditional" : `${model.classes.length} classes; none: unconditional`);
    }
    if (num) {
      num.max = String(model.max_images);
      this.hint("num", `at most ${model.max_images}`);
      // A large network is slow: fewer images by default.
      const usual = model.parameters > 5e6 ? Math.min(4, this.defaults.num) : this.defaults.num;
      num.value = String(Math.min(usual, model.max_images));
    }
    if (steps) {
      steps.max = String(model.max_steps);
      steps.value = String(Math.min(this.defaults.steps ?? Infinity, model.default_steps));
    }
    this.update();
  }

  update() {
    const { sampler, times, label, guidance } = this.inputs;
    if (sampler) this.hint("sampler", this.offered.samplers[sampler.value] ?? "");
    if (times) this.hint("times", this.offered.times[times.value] ?? "chosen for the model and the number of steps");
    if (guidance) {
      guidance.disabled = label.value === "";
      this.hint("guidance", guidance.disabled ? "requires a class" : GUIDANCE);
    }
  }

  // Values for the server; throws an Error that names the first invalid control.
  values() {
    const values = {};
    for (const [name, input] of Object.entries(this.inputs)) {
      if (input.disabled || input.value === "" && name in SELECTS) continue;
      if (!input.validity.valid) {
        input.focus();
        const kind = input.step === "any" ? "a number" : "an integer";
        throw new Error(`${this.labels[name]} must be ${kind} from ${input.min} to ${input.max}.`);
      }
      values[name] = name in SELECTS && name !== "label" ? input.value : Number(input.value);
    }
    return values;
  }
}

// A form that runs one sampling job for each view: `requests()` gives their values, `finished(model, events)` is called
// with the last event of each.
export function samplingForm(title, content, views, requests, finished = () => {}) {
  const alert = alertLine();
  const submit = make("button", { className: "primary", disabled: true }, title);
  const stop = button("Stop", () => views.forEach((view) => view.stop()), { disabled: true });
  let model = null;

  async function run(event) {
    event.preventDefault();
    let values;
    try {
      values = requests();
    } catch (error) {
      return showAlert(alert, error.message);
    }
    showAlert(alert, "");
    stop.disabled = false;
    const used = model; // the choice may change while the jobs run
    const last = await Promise.all(views.map((view, k) => view.run(used, values[k])));
    if (views.some((view) => view.running)) return;
    stop.disabled = true;
    finished(used, last);
  }

  const element = make("form", { className: "panel settings", noValidate: true, onsubmit: run },
    make("h2", {}, title), ...content, alert, make("div", { className: "buttons" }, submit, stop));
  const setModel = (chosen) => {
    model = chosen;
    submit.disabled = false;
  };
  return { element, alert, setModel };
}
