// Draw states as pixels.

const GAP = 2;
const BETWEEN = "#3a3f4b";

export const BRIGHTNESS = { dark: "Dark steps scaled", plain: "As sampled", each: "Each image scaled" };

// One of several images (channels, height, width) as ImageData; `white` is the state shown as white.
export function image(model, x, index, white) {
  const [channels, height, width] = model.shape;
  const area = height * width;
  const seen = visible(model, x.subarray(index * channels * area, (index + 1) * channels * area));
  const data = new ImageData(width, height);
  for (let k = 0; k < area; k++) {
    for (let c = 0; c < 3; c++) {
      data.data[4 * k + c] = Math.round((255 * seen[k + (channels === 3 ? c * area : 0)]) / white);
    }
    data.data[4 * k + 3] = 255;
  }
  return data;
}

// The state that is white unless images are scaled.
export function usualWhite(model, x) {
  return model.max_state ?? (highest(visible(model, x)) || 1);
}

// All images of a frame in a grid that is about square. Returns the factor by which a dark step is made brighter, and
// infinity if it is black.
export function drawGrid(canvas, model, x, count, brightness, isLast) {
  const [channels, height, width] = model.shape;
  const columns = Math.ceil(Math.sqrt((count * height) / width));
  const rows = Math.ceil(count / columns);
  const factor = Math.max(1, Math.ceil(640 / (columns * width)));
  canvas.width = columns * (width * factor + GAP) - GAP;
  canvas.height = rows * (height * factor + GAP) - GAP;
  const context = canvas.getContext("2d");
  context.fillStyle = BETWEEN;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = false;
  const usual = usualWhite(model, x);
  const most = brightness === "dark" && !isLast ? Math.min(usual, highest(visible(model, x))) : usual;
  const small = new OffscreenCanvas(width, height);
  for (let k = 0; k < count; k++) {
    const own = x.subarray(k * channels * height * width, (k + 1) * channels * height * width);
    const white = brightness === "each" ? highest(visible(model, own)) : most;
    small.getContext("2d").putImageData(image(model, x, k, white || 1), 0, 0);
    const left = (k % columns) * (width * factor + GAP);
    const top = Math.floor(k / columns) * (height * factor + GAP);
    context.drawImage(small, left, top, width * factor, height * factor);
  }
  return usual / most;
}

// Masked pixels are black.
function visible(model, x) {
  return x.map((value) => (value === model.mask_state ? 0 : value));
}

function highest(x) {
  return x.reduce((a, b) => Math.max(a, b), 0);
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
