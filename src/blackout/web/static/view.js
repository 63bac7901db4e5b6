// A walk as one sees it: the images, where the chain is, and what one can take away.

import { bytes, walk } from "./api.js";
import { Chart } from "./chart.js";
import { alertLine, make, message, tick } from "./dom.js";
import { drawGrid } from "./pixels.js";
import { takeAway } from "./takeaway.js";

export class View {
  constructor(prefix, empty) {
    this.canvas = make("canvas", { width: 640, height: 640, role: "img", "aria-label": empty });
    this.empty = make("p", { className: "empty" }, empty);
    this.status = make("p", { className: "status", role: "status" });
    this.alert = alertLine();
    this.bar = make("progress", { max: 1, value: 0, "aria-label": "Steps taken" });
    this.scrubber = make("input", {
      type: "range", id: `${prefix}-step`, min: 0, max: 0, value: 0, disabled: true, oninput: () => this.scrub(),
    });
    this.play = make("button", { type: "button", className: "small", disabled: true, onclick: () => this.replay() }, "Replay");
    this.mean = new Chart("Mean intensity", "per component");
    this.births = new Chart("Births per step", "per image", "deaths");
    this.charts = make("div", { className: "charts" }, this.mean.element, this.births.element);
    this.away = make("div", { className: "away" });
    this.scaled = false;
    this.running = null;
    this.frames = [];
    const scaling = tick("Scale each image to its own brightness", `${prefix}-scaled`, (on) => {
      this.scaled = on;
      this.draw();
    });
    this.element = make("div", { className: "view" },
      make("div", { className: "stage" }, make("div", { className: "canvas" }, this.canvas, this.empty),
        this.bar, this.status, this.alert,
        make("div", { className: "time" },
          make("label", { htmlFor: this.scrubber.id }, "Step"), this.scrubber, this.play), scaling),
      this.charts, this.away);
  }

  // Take a walk and show it; resolves to the last event, or to null if it was refused or has failed.
  async run(model, values) {
    this.stop();
    const control = (this.running = new AbortController());
    const current = () => this.running === control;
    for (const { href } of this.away.querySelectorAll("a")) URL.revokeObjectURL(href);
    this.away.replaceChildren();
    message(this.alert, "");
    this.say("Asking …");
    if (matchMedia("(max-width: 720px)").matches) this.canvas.scrollIntoView({ block: "nearest" });
    try {
      const last = await walk({ ...values, model: model.name }, (event) => current() && this.hear(model, values, event), control.signal);
      return current() && last.event === "done" ? last : null;
    } catch (error) {
      if (error.name !== "AbortError") message(this.alert, error.message);
      if (current()) this.say(error.name === "AbortError" ? "Stopped." : "");
      return null;
    } finally {
      if (current()) this.running = null;
    }
  }

  stop() {
    // The request ends with the signal, and the server stops at the network's next pass.
    const control = this.running;
    this.running = null;
    cancelAnimationFrame(this.replaying);
    if (control) {
      control.abort();
      this.say("Stopped.");
    }
  }

  say(text) {
    this.status.textContent = text;
  }

  hear(model, values, event) {
    if (event.event === "place") {
      this.say(event.ahead === 0 ? "Your turn." : event.ahead === 1 ? "One walk is ahead of yours." : `${event.ahead} walks are ahead of yours.`);
    } else if (event.event === "full") this.say("Other tabs of this browser walk or wait; this one follows.");
    else if (event.event === "start") this.begin(model, values, event);
    else if (event.event === "step") this.step(event);
    else if (event.event === "done") this.done(event);
    else if (event.event === "stopped") this.say("Stopped by the server.");
  }

  begin(model, values, event) {
    Object.assign(this, { model, count: values.num, times: event.times, frames: [] });
    this.steps = event.times.length - 1;
    this.scrubber.max = String(this.steps);
    this.scrubber.value = "0";
    this.scrubber.disabled = false;
    this.mean.clear(this.steps);
    this.births.clear(this.steps);
    this.empty.hidden = true;
    this.bar.value = 0;
    this.canvas.setAttribute("aria-label", `${values.num} images`);
    this.keep(0, event.frame);
  }

  step(event) {
    this.mean.add(event.step, event.mean);
    this.births.add(event.step, event.births, event.deaths);
    this.bar.value = event.step / this.steps;
    if (event.frame) this.keep(event.step, event.frame);
  }

  keep(step, frame) {
    const x = this.model.bytes === 1 ? bytes(frame) : new Int32Array(bytes(frame).buffer);
    const following = Number(this.scrubber.value) >= (this.frames.at(-1)?.step ?? 0);
    this.frames.push({ step, x });
    if (following) this.scrubber.value = String(step);
    this.draw();
  }

  done(event) {
    this.bar.value = 1;
    this.play.disabled = false;
    this.away.replaceChildren(takeAway(event, () => this.canvas));
    this.draw();
    this.say(`Done: ${this.steps} ${this.steps === 1 ? "step" : "steps"}.`);
  }

  scrub() {
    cancelAnimationFrame(this.replaying);
    this.draw();
  }

  replay() {
    cancelAnimationFrame(this.replaying);
    let frame = 0;
    const next = () => {
      this.scrubber.value = String(this.frames[Math.min(Math.floor(frame), this.frames.length - 1)].step);
      this.draw();
      frame += 0.4;
      if (frame < this.frames.length) this.replaying = requestAnimationFrame(next);
    };
    next();
  }

  draw() {
    const frame = this.frames.findLast((kept) => kept.step <= Number(this.scrubber.value));
    if (!frame) return;
    drawGrid(this.canvas, this.model, frame.x, this.count, this.scaled);
    this.mean.draw(frame.step);
    this.births.draw(frame.step);
    const time = this.times[frame.step];
    this.say(`Step ${frame.step} of ${this.steps}, t = ${time < 0.01 && time > 0 ? time.toExponential(1) : time.toFixed(2)}`);
  }
}
