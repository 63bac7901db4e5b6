// What the page asks of the server. Every refusal is an Error with one line.

// One tab is one visitor; the id says nothing about anybody.
const visitor = crypto.randomUUID();

// A browser opens six connections to one server, for all tabs together, and a walk holds one until it ends: with six
// walks no page would load.
const WALKS = 4;

const BROKEN = "The server stopped answering.";

export async function get(path) {
  return answer(await send(path, {}));
}

export async function post(path, values) {
  const headers = { "Content-Type": "application/json" };
  return answer(await send(path, { method: "POST", headers, body: JSON.stringify(values) }));
}

export async function upload(path, file) {
  return answer(await send(path, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } }));
}

// A walk: `heard(event)` for each event as it comes. Returns the last one; aborting the signal stops the work.
export async function walk(values, heard, signal) {
  const take = () => takeWalk(values, heard, signal);
  const locks = Array.from({ length: WALKS }, (_, k) => `blackout-walk-${k}`);
  for (const name of locks) {
    const taken = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => lock && { last: await take() });
    if (taken) return taken.last;
  }
  heard({ event: "full" });
  return navigator.locks.request(locks[Math.floor(Math.random() * WALKS)], { signal }, take);
}

async function takeWalk(values, heard, signal) {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ ...values, visitor });
  const response = await send("/api/walk", { method: "POST", headers, body, signal });
  if (!response.ok) await answer(response);
  let last = null;
  for await (const event of lines(response.body)) {
    last = event;
    if (event.event === "error") throw new Error(event.error);
    heard(event);
  }
  if (last === null || !["done", "stopped"].includes(last.event)) throw new Error(BROKEN);
  return last;
}

export function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is `blackout web` still running?");
  }
}

async function answer(response) {
  let values;
  try {
    values = await response.json();
  } catch {
    throw new Error(`The server answered with status ${response.status}.`);
  }
  if (!response.ok) throw new Error(values.error ?? `The server answered with status ${response.status}.`);
  return values;
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
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
