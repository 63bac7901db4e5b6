// Captions of the plots: the equation in words, with the numbers at the current time.

import { number } from "./theory-draw.js";

export function captions(data, now) {
  return {
    initial: "Draw with the mouse, by touch, or with the arrow keys. The weights are normalised.",
    forward: forward(data),
    marginal: "Bars: the initial distribution, carried forward to this time. Circles: the distribution at the last time, taken "
      + `back by reverse steps only. The two differ by at most ${number(data.max_difference, 1)} at all times.`,
    rates: rates(data, now),
    posterior: posterior(data, now),
    bridge: bridge(data),
  };
}

function forward({ processes, process }) {
  return `${process}: ${processes[process]}. P(X_t = m) is the sum over o of P(X_0 = o) times the probability of the `
    + "transition from o to m. Lines: reverse trajectories, sampled exactly. Click to choose the observed state.";
}

function rates({ mean_suffices: death, rates: kappa, score, xt, forward: probs }, now) {
  const to = death ? "m + 1" : "m′";
  const both = kappa.down.some((row) => row.some((rate) => rate));
  const text = `Bars: κ, the rate at which the reverse process jumps from m to ${to}: ν (white), the forward rate from ${to} `
    + `to m, times P(X_t = ${to}) / P(X_t = m)${both ? ", summed over jumps up and over jumps down" : ""}. `
    + "The score is κ − ν, positive for jumps to more probable states. ";
  if (now === 0) return `${text}At t = 0 the reverse process has ended.`;
  if (kappa.up[now][xt] === null) return `${text}X_t = ${xt} cannot be reached.`;
  const side = (name) => `κ = ${number(kappa[name][now][xt])}, score ${number(score[name][now][xt])}`;
  const rare = probs[now][xt] < 1e-3 ? " (improbable)" : "";
  return `${text}At m = ${xt}${rare}: ${both ? `up ${side("up")}; down ${side("down")}` : side("up")}.`;
}

function posterior({ mean_suffices: death, posterior: probs, difference, xt }, now) {
  const text = "P(X_0 = o | X_t = m) is P(X_0 = o), dashed, times the probability of the transition from o to m, normalised. ";
  if (probs[now][xt] === null) return `${text}X_t = ${xt} cannot be reached at this time.`;
  const target = death ? ", the target of the network; κ = y e^{−t} / (1 − e^{−t})" : "";
  return `${text}Arrow: y = E[X_0 − X_t | X_t = ${xt}] = ${number(difference[now][xt])}${target}. Click to choose x_0.`;
}

function bridge({ mean_suffices: death, x0, xt, k, times }) {
  const text = death
    ? "Of the x_0 − x_t units that die before t, each is alive at s with probability (e^{−s} − e^{−t}) / (1 − e^{−t})."
    : "P(X_s = m) is the probability of the transition from x_0 to m until s, times that from m to x_t until t, divided by "
      + "that from x_0 to x_t.";
  return `Started in x_0 = ${x0}, observed in x_t = ${xt} at t = ${number(times[k])}. ${text} After t it does not depend on `
    + "x_0. Right: the distribution at the current time.";
}
