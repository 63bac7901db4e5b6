// A sentence or two for each picture: its equation in words, with the numbers of this moment.

import { number } from "./theory-draw.js";

export function sentences(answer, now) {
  return {
    law: "Draw it with the mouse or a finger, or with the arrow keys. Its sum does not matter: it is made one.",
    forward: forward(answer),
    lawNow: "Bars: your law, carried forward to this time. Circles: the law at t = 15, taken back to this time by reverse "
      + `steps alone. At all times the two differ by ${number(answer.gap, 1)} at most.`,
    moves: moves(answer, now),
    posterior: posterior(answer, now),
    bridge: bridge(answer),
  };
}

function forward({ processes, process }) {
  const { sentence } = processes[process];
  return `${sentence[0].toUpperCase()}${sentence.slice(1)}. P(X_t = m) adds up, over all starts o, your law at o times the `
    + "chance of o to have become m. Lines: walks back, each an exact draw. Click where the process is seen.";
}

function moves({ process, rates, score, xt, forward: law }, now) {
  const to = process === "pure-death" ? "m + 1" : "m′";
  const both = rates.down.some((row) => row.some((rate) => rate));
  const text = `Bars: κ, the rate at which the reverse process jumps from m to ${to}. It is ν (white), the forward rate `
    + `from ${to} to m, times P(X_t = ${to}) / P(X_t = m)${both ? ", added up over jumps up and over jumps down" : ""}. `
    + "The score is κ − ν: positive where the jump leads to a more probable state. ";
  if (now === 0) return `${text}At t = 0 nothing is left to reverse.`;
  if (rates.up[now][xt] === null) return `${text}X_t = ${xt} cannot be reached.`;
  const side = (name) => `κ = ${number(rates[name][now][xt])}, score ${number(score[name][now][xt])}`;
  const rare = law[now][xt] < 1e-3 ? " (a rare state)" : "";
  return `${text}At m = ${xt}${rare}: ${both ? `up ${side("up")}; down ${side("down")}` : side("up")}.`;
}

function posterior({ process, posterior: given, difference, xt }, now) {
  const text = "P(X_0 = o | X_t = m) is your law at o (dashed) times the chance of o to become m, made to sum to one. ";
  if (given[now][xt] === null) return `${text}X_t = ${xt} cannot be reached at this time.`;
  const learned = process === "pure-death" ? ", what the network learns; κ = y e^{−t} / (1 − e^{−t})" : "";
  return `${text}Arrow: y = E[X_0 − X_t | X_t = ${xt}] = ${number(difference[now][xt])}${learned}. Click a start.`;
}

function bridge({ process, x0, xt, k, times }) {
  const law = process === "pure-death"
    ? "Of the x_0 − x_t units that die by t, each still lives at s with probability (e^{−s} − e^{−t}) / (1 − e^{−t})."
    : "The chance of X_s = m is that of x_0 to become m by s, times that of m to become x_t in the rest, over that of "
      + "x_0 to become x_t.";
  return `Begun in x_0 = ${x0} and seen in x_t = ${xt} at t = ${number(times[k])}. ${law} After t the start is forgotten. `
    + "At the right: the law at this time.";
}
