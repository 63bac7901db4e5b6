// Draw states as pixels.

const GAP = 2;

// One of several images (channels, height, width) as ImageData; with `normalised`, its largest state is white.
export function image(model, x, index, normalised) {
  const [channels, height, width] = model.shape;
  const area = height * width;
  const part = x.subarray(index * channels * area, (index + 1) * channels * area);
  const data = new ImageData(width, height);
  const seen = part.map((value) => (value === model.mask_state ? 0 : value)); // masked pixels are black
  const highest = seen.reduce((a, b) => Math.max(a, b), 0);
  const white = normalised || model.max_state === null ? highest || 1 : model.max_state;
  for (let k = 0; k < area; k++) {
    for (let c = 0; c < 3; c++) {
      data.data[4 * k + c] = Math.round((255 * seen[k + (channels === 3 ? c * area : 0)]) / white);
    }
    data.data[4 * k + 3] = 255;
  }
  return data;
}

// All images of a frame in a grid that is about square.
export function drawGrid(canvas, model, x, count, normalised) {
  const [, height, width] = model.shape;
  const columns = Math.ceil(Math.sqrt((count * height) / width));
  const rows = Math.ceil(count / columns);
  const factor = Math.max(1, Math.ceil(640 / (columns * width)));
  canvas.width = columns * (width * factor + GAP) - GAP;
  canvas.height = rows * (height * factor + GAP) - GAP;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  const small = new OffscreenCanvas(width, height);
  for (let k = 0; k < count; k++) {
    small.getContext("2d").putImageData(image(model, x, k, normalised), 0, 0);
    const left = (k % columns) * (width * factor + GAP);
    const top = Math.floor(k / columns) * (height * factor + GAP);
    context.drawImage(small, left, top, width * factor, height * factor);
  }
}

// A standard deviation, from dark over amber to white: increasing lightness is visible to colour-blind users.
export function drawStd(canvas, model, levels) {
  const [, height, width] = model.shape;
  canvas.width = width;
  canvas.height = height;
  const data = new ImageData(width, height);
  levels.forEach((level, k) => {
    const v = level / 255;
    data.data.set([14 + 241 * Math.min(1, 1.4 * v), 16 + 225 * v ** 1.6, 44 * (1 - v) + 225 * v ** 6, 255], 4 * k);
  });
  canvas.getContext("2d").putImageData(data, 0, 0);
}
