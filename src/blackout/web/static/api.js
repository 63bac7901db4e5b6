// Requests to the server. Every failure is an Error with a message of one line.

// A browser opens six connections per server, for all tabs together, and a sampling job holds one until it ends: with
// six jobs no page would load.
const MAX_JOBS = 4;

const BROKEN = "The connection to the server was lost.";

export async function get(path) {
  return parse(await send(path, {}));
}

export async function post(path, values) {
  return parse(await send(path, json(values)));
}

export async function upload(path, file) {
  return parse(await send(path, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } }));
}

// Run a sampling job: `handle(event)` for each event. Resolves to the last one; aborting the signal stops the job.
export async function sample(values, handle, signal) {
  const run = () => stream(values, handle, signal);
  const locks = Array.from({ length: MAX_JOBS }, (_, k) => `blackout-job-${k}`);
  for (const name of locks) {
    const held = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => lock && { last: await run() });
    if (held) return held.last;
  }
  handle({ event: "browser-limit" });
  return navigator.locks.request(locks[Math.floor(Math.random() * MAX_JOBS)], { signal }, run);
}

async function stream(values, handle, signal) {
  const response = await send("/api/sample", { ...json(values), signal });
  if (!response.ok) await parse(response);
  let last = null;
  for await (const event of lines(response.body)) {
    last = event;
    if (event.event === "error") throw new Error(event.error);
    handle(event);
  }
  if (!["done", "stopped"].includes(last?.event)) throw new Error(BROKEN);
  return last;
}

export function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// States as the server packs them.
export function states(model, text) {
  return model.bytes === 1 ? bytes(text) : new Int32Array(bytes(text).buffer);
}

function json(values) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values) };
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not respond; is `blackout web` still running?");
  }
}

async function parse(response) {
  const values = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(values.error ?? `The server responded with status ${response.status}.`);
  return values;
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Error(BROKEN);
    });
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}
