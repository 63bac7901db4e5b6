// The view of a sampling job: its images, charts of its steps, and its export.

import { sample, states } from "./api.js";
import { Chart } from "./chart.js";
import { alertLine, button, make, showAlert } from "./dom.js";
import { exportPanel } from "./export.js";
import { BRIGHTNESS, drawGrid } from "./pixels.js";

export class View {
  constructor(prefix, empty) {
    this.canvas = make("canvas", { width: 640, height: 640, role: "img", "aria-label": empty });
    this.empty = make("p", { className: "empty" }, empty);
    this.status = make("p", { className: "status", role: "status" });
    this.alert = alertLine();
    this.bar = make("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.slider = make("input", {
      type: "range", id: `${prefix}-step`, min: 0, max: 0, value: 0, disabled: true, oninput: () => this.scrub(),
    });
    this.play = button("Replay", () => this.replay(), { className: "small", disabled: true });
    this.mean = new Chart("Mean intensity", "per component");
    this.births = new Chart("Births per step", "per image", "deaths");
    this.charts = make("div", { className: "charts" }, this.mean.element, this.births.element);
    this.export = make("div");
    this.running = null;
    this.frames = [];
    this.brightness = make("select", { id: `${prefix}-brightness`, onchange: () => this.draw() },
      ...Object.entries(BRIGHTNESS).map(([value, label]) => make("option", { value }, label)));
    this.stage = make("div", { className: "stage" },
      make("div", { className: "canvas" }, this.canvas, this.empty), this.bar, this.status, this.alert,
      make("div", { className: "time" },
        make("label", { htmlFor: this.slider.id }, "Step"), this.slider, this.play,
        make("label", { htmlFor: this.brightness.id }, "Brightness"), this.brightness));
    this.element = make("div", { className: "view" }, this.stage, this.charts, this.export);
  }

  // Run a job and show it; resolves to the last event, or to null if it failed or was stopped.
  async run(model, values) {
    this.stop();
    const control = (this.running = new AbortController());
    const current = () => this.running === control;
    this.export.replaceChildren();
    showAlert(this.alert, "");
    this.show("Submitting …");
    if (matchMedia("(max-width: 720px)").matches) this.stage.scrollIntoView({ block: "nearest" });
    try {
      const handle = (event) => current() && this.handle(model, values, event);
      const last = await sample({ ...values, model: model.name }, handle, control.signal);
      return current() && last.event === "done" ? last : null;
    } catch (error) {
      if (error.name !== "AbortError") showAlert(this.alert, error.message);
      if (current()) this.show(error.name === "AbortError" ? "Stopped." : "");
      return null;
    } finally {
      if (current()) this.running = null;
    }
  }

  // Aborting the request stops the server before the next pass of the network.
  stop() {
    const control = this.running;
    this.running = null;
    cancelAnimationFrame(this.replaying);
    if (control) {
      control.abort();
      this.show("Stopped.");
    }
  }

  show(text) {
    this.status.textContent = text;
  }

  handle(model, values, event) {
    if (event.event === "queued") this.show(`Queued: ${event.ahead} ${event.ahead === 1 ? "job" : "jobs"} ahead.`);
    else if (event.event === "browser-limit") this.show("Waiting for jobs in other tabs of this browser.");
    else if (event.event === "start") this.begin(model, values, event);
    else if (event.event === "step") this.step(event);
    else if (event.event === "done") this.done(event);
    else if (event.event === "stopped") this.show("Stopped by the server.");
  }

  begin(model, values, event) {
    Object.assign(this, { model, count: values.num, times: event.times, frames: [], first: null, left: "" });
    this.steps = event.times.length - 1;
    Object.assign(this.slider, { max: this.steps, value: 0, disabled: false });
    this.mean.clear(this.steps);
    this.births.clear(this.steps);
    this.empty.hidden = true;
    this.bar.value = 0;
    this.canvas.setAttribute("aria-label", `${values.num} images`);
    this.addFrame(0, event.frame);
  }

  step(event) {
    this.mean.add(event.step, event.mean);
    this.births.add(event.step, event.births, event.deaths);
    this.bar.value = event.step / this.steps;
    this.left = this.remaining(event.step);
    if (event.frame) this.addFrame(event.step, event.frame);
  }

  // The remaining time, from the second step on: the first one may be slow.
  remaining(step) {
    const now = performance.now();
    this.first ??= { step, now };
    if (step === this.first.step || step === this.steps) return "";
    const seconds = ((now - this.first.now) / (step - this.first.step) / 1000) * (this.steps - step);
    return `about ${seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`} left`;
  }

  addFrame(step, frame) {
    const following = Number(this.slider.value) >= (this.frames.at(-1)?.step ?? 0);
    this.frames.push({ step, x: states(this.model, frame) });
    if (following) this.slider.value = String(step);
    this.draw();
  }

  done(event) {
    this.bar.value = 1;
    this.play.disabled = false;
    this.export.replaceChildren(exportPanel(event, this.canvas));
    this.draw();
    this.show(`Done: ${this.steps} ${this.steps === 1 ? "step" : "steps"}.`);
  }

  scrub() {
    cancelAnimationFrame(this.replaying);
    this.draw();
  }

  replay() {
    cancelAnimationFrame(this.replaying);
    let frame = 0;
    const next = () => {
      this.slider.value = String(this.frames[Math.min(Math.floor(frame), this.frames.length - 1)].step);
      this.draw();
      frame += 0.4;
      if (frame < this.frames.length) this.replaying = requestAnimationFrame(next);
    };
    next();
  }

  draw() {
    const frame = this.frames.findLast(({ step }) => step <= Number(this.slider.value));
    if (!frame) return;
    const isLast = frame.step === this.steps;
    const scale = drawGrid(this.canvas, this.model, frame.x, this.count, this.brightness.value, isLast);
    this.mean.draw(frame.step);
    this.births.draw(frame.step);
    const time = this.times[frame.step];
    const shown = time < 0.01 && time > 0 ? time.toExponential(1) : time.toFixed(2);
    const light = scale === Infinity ? "black" : scale > 1.05 ? `shown ${scale.toFixed(scale < 10 ? 1 : 0)} times as bright` : "";
    this.show([`Step ${frame.step} of ${this.steps}, t = ${shown}`, light, this.running ? this.left : ""].filter(Boolean).join("; "));
  }
}
