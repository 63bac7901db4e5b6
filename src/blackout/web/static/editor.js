// An image to draw on and to erase from: its states, and which pixels are observed.

import { make } from "./dom.js";
import { image, usualWhite } from "./pixels.js";

const CELL = 16; // canvas pixels per image pixel, at most

export class Editor {
  constructor(changed) {
    this.changed = changed;
    this.tool = "erase";
    this.size = 4;
    this.colour = [1, 1, 1]; // fractions of the largest state
    this.cursor = null;
    this.canvas = make("canvas", {
      tabIndex: 0, role: "application", width: 448, height: 448,
      "aria-label": "Image. Paint with the mouse, or move with the arrow keys and paint with the space bar.",
      onpointerdown: (event) => this.press(event),
      onpointermove: (event) => this.move(event),
      onpointerup: () => (this.last = null),
      onpointercancel: () => (this.last = null),
      onkeydown: (event) => this.key(event),
      onblur: () => this.point(null),
    });
    this.canvas.classList.add("editor");
  }

  // A blank image, all of it observed.
  setModel(model) {
    this.model = model;
    const [channels, height, width] = model.shape;
    this.x = new Int32Array(channels * height * width);
    this.observed = new Uint8Array(height * width).fill(1);
    const factor = Math.max(2, Math.ceil(CELL * Math.min(1, 28 / Math.max(height, width))));
    this.canvas.width = width * factor;
    this.canvas.height = height * factor;
    this.factor = factor;
    this.draw();
  }

  setImage(x) {
    this.x = Int32Array.from(x);
    this.observed.fill(1);
    this.draw();
  }

  invert() {
    const max = this.model.max_state ?? this.x.reduce((a, b) => Math.max(a, b), 0);
    this.x = this.x.map((value) => max - value);
    this.draw();
  }

  // Erase where `erased(row, column)` is true, in fractions of height and width; the rest is observed.
  setMask(erased) {
    const [, height, width] = this.model.shape;
    this.observed = this.observed.map((_, k) => (erased(Math.floor(k / width) / height, (k % width) / width) ? 0 : 1));
    this.draw();
  }

  draw() {
    const [, height, width] = this.model.shape;
    const context = this.canvas.getContext("2d");
    const small = new OffscreenCanvas(width, height);
    small.getContext("2d").putImageData(image(this.model, this.x, 0, usualWhite(this.model, this.x)), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
    const f = this.factor;
    for (let k = 0; k < this.observed.length; k++) {
      if (this.observed[k]) continue;
      const [left, top] = [(k % width) * f, Math.floor(k / width) * f];
      context.fillStyle = "#3b2d16";
      context.fillRect(left, top, f, f);
      context.fillStyle = "#f2b65a";
      context.fillRect(left + f / 2 - 1, top + f / 2 - 1, 2, 2);
    }
    if (this.cursor) {
      const [row, column] = this.cursor;
      context.strokeStyle = "#5fb8c9";
      context.lineWidth = 2;
      context.strokeRect((column - this.size / 2 + 0.5) * f, (row - this.size / 2 + 0.5) * f, this.size * f, this.size * f);
    }
    this.changed(this);
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const [, height, width] = this.model.shape;
    return [((event.clientY - box.top) / box.height) * height - 0.5, ((event.clientX - box.left) / box.width) * width - 0.5];
  }

  press(event) {
    event.preventDefault();
    this.canvas.focus();
    this.canvas.setPointerCapture(event.pointerId);
    this.last = this.place(event);
    this.stroke(this.last, this.last);
  }

  move(event) {
    if (!this.model) return;
    const now = this.place(event);
    this.cursor = now.map(Math.round);
    if (this.last) {
      this.stroke(this.last, now);
      this.last = now;
    } else this.draw();
  }

  point(cursor) {
    this.cursor = cursor;
    if (this.model) this.draw();
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const [, height, width] = this.model.shape;
    const at = this.cursor ?? [Math.floor(height / 2), Math.floor(width / 2)];
    if (moves[event.key]) {
      const [down, right] = moves[event.key];
      this.point([Math.min(height - 1, Math.max(0, at[0] + down)), Math.min(width - 1, Math.max(0, at[1] + right))]);
    } else if (event.key === " " || event.key === "Enter") this.stroke(at, at);
    else return;
    event.preventDefault();
  }

  // Paint along a line, so that fast pointer moves leave no gaps.
  stroke(from, to) {
    const count = Math.max(1, Math.ceil(2 * Math.hypot(to[0] - from[0], to[1] - from[1])));
    for (let k = 0; k <= count; k++) {
      const at = (axis) => from[axis] + ((to[axis] - from[axis]) * k) / count;
      this.dab(at(0), at(1));
    }
    this.draw();
  }

  dab(row, column) {
    const [channels, height, width] = this.model.shape;
    const radius = this.size / 2;
    for (let i = Math.max(0, Math.ceil(row - radius)); i <= Math.min(height - 1, row + radius); i++) {
      for (let j = Math.max(0, Math.ceil(column - radius)); j <= Math.min(width - 1, column + radius); j++) {
        if (this.size > 1 && Math.hypot(i - row, j - column) > radius) continue;
        const k = i * width + j;
        this.observed[k] = this.tool === "erase" ? 0 : 1;
        if (this.tool === "draw") {
          const max = this.model.max_state ?? 255;
          for (let c = 0; c < channels; c++) this.x[c * height * width + k] = Math.round(this.colour[c] * max);
        }
      }
    }
  }
}
