// The plots of the theory tab: each takes the data from the server and the index of the current time.

import { svg } from "./dom.js";
import { ceiling, frame, heat, linearTicks, number, position, stateTicks, timeTicks } from "./theory-draw.js";

const RARE = 1e-3; // a state less probable than this does not affect the scale of the rates

const titled = (tag, attributes, title) => svg(tag, attributes, svg("title", {}, title));
const across = ({ initial }) => ({ x: [-0.6, initial.length - 0.4], xticks: stateTicks(initial.length) });

function bar(plot, m, to, attributes, title) {
  const width = plot.X(0.8) - plot.X(0);
  const [low, high] = [Math.min(0, to), Math.max(0, to)];
  const place = { x: plot.X(m) - width / 2, width, y: plot.Y(high), height: plot.Y(low) - plot.Y(high) };
  plot.root.append(titled("rect", { ...place, "data-state": m, ...attributes }, title));
}

function line(plot, x1, y1, x2, y2, attributes) {
  plot.root.append(svg("line", { x1, y1, x2, y2, "pointer-events": "none", ...attributes }));
}

function highlight(plot, m) {
  const { X, box, colours } = plot;
  const place = { x: X(m - 0.5), width: X(1) - X(0), y: box.top, height: box.bottom - box.top };
  plot.root.append(svg("rect", { class: "observed", ...place, fill: colours.ink, "fill-opacity": 0.09 }));
}

// A heat map has more than a thousand cells. They and the axes are drawn when the table or the width changes; while
// time moves, only the layer above them is. `root` of the plot is that layer.
const maps = new WeakMap();

function heatMap(root, table, axes, colours, label) {
  const cached = maps.get(root);
  if (cached?.table === table && cached.width === root.getAttribute("width")) {
    cached.plot.root.replaceChildren();
    return cached.plot;
  }
  const [times, count] = [table.length, table[0].length];
  const ranges = { x: [-0.5, times - 0.5], y: [-0.5, count - 0.5], yticks: stateTicks(count), ylabel: "state", height: 290 };
  const plot = frame(root, { ...ranges, ...axes }, colours);
  const { X, Y, box } = plot;
  const cells = svg("g", { class: "cells", "shape-rendering": "crispEdges" });
  const background = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
  cells.append(svg("rect", { ...background, fill: heat(0, colours) }));
  const size = { width: X(1) - X(0) + 0.4, height: Y(0) - Y(1) + 0.4 };
  table.forEach((probs, k) => probs.forEach((p, m) => {
    if (p < 1e-5) return;
    const cell = { x: X(k - 0.5), y: Y(m + 0.5), ...size, fill: heat(p, colours), "data-cell": `${k},${m}` };
    cells.append(titled("rect", cell, label(k, m, p)));
  }));
  const above = svg("g");
  root.append(cells, above);
  const layered = { ...plot, root: above };
  maps.set(root, { table, width: root.getAttribute("width"), plot: layered });
  return layered;
}

function cursor(plot, now) {
  const { X, box, colours } = plot;
  line(plot, X(now), box.top, X(now), box.bottom, { class: "now", stroke: colours.ink, "stroke-width": 1.5 });
}

function pin(plot, k, m) {
  const ring = { cx: plot.X(k), cy: plot.Y(m), r: 6, fill: "none" };
  plot.root.append(svg("circle", { ...ring, stroke: plot.colours.ramp[0], "stroke-width": 5 }));
  plot.root.append(svg("circle", { ...ring, class: "pin", stroke: plot.colours.ink, "stroke-width": 2 }));
}

export function forward(root, data, now, colours) {
  const { times } = data;
  const name = "distribution of X at every time, and reverse trajectories";
  const label = (k, m, p) => `P(X = ${m}) = ${number(p)} at t = ${number(times[k])}`;
  const plot = heatMap(root, data.forward, { xticks: timeTicks(times), xlabel: "time t", name }, colours, label);
  trajectories(plot, data, now);
  cursor(plot, now);
  pin(plot, data.k, data.xt);
  return plot;
}

// Bright from the last time down to the current one, faint before it.
function trajectories(plot, data, now) {
  const { root, X, Y, colours } = plot;
  const at = data.trajectory_times.map((t) => position(data.times, t));
  const here = at.findLastIndex((k) => k <= now);
  const stroke = { fill: "none", stroke: colours.accent2, "stroke-width": 1.4, "stroke-linejoin": "round" };
  data.trajectories.forEach((states, i) => {
    const y = (m) => Y(m + (i - (data.trajectories.length - 1) / 2) * 0.15).toFixed(1); // an offset, so that all are visible
    const steps = (from) => {
      const first = at.findLastIndex((k) => k <= from);
      const corners = states.slice(first).map((m, j) => [X(Math.max(from, at[first + j])).toFixed(1), y(m)]).reverse();
      return corners.map((corner, j) => (j ? `H${corner[0]}V${corner[1]}` : `M${corner}`)).join("");
    };
    root.append(svg("path", { ...stroke, d: steps(0), "stroke-opacity": 0.28 }));
    root.append(svg("path", { ...stroke, d: steps(now), stroke: colours.ramp[0], "stroke-width": 3, "stroke-opacity": 0.5 }));
    root.append(svg("path", { ...stroke, d: steps(now), class: "trajectory" }));
    root.append(svg("circle", { cx: X(now), cy: y(states[here]), r: 2.5, fill: colours.accent2 }));
  });
}

export function marginal(root, data, now, colours) {
  const [probs, back] = [data.forward[now], data.reverse[now]];
  const top = ceiling(Math.max(...probs, ...back));
  const axes = { ...across(data), y: [0, top], yticks: linearTicks(0, top), xlabel: "state m", ylabel: "probability" };
  const name = `forward and reverse distribution at t = ${number(data.times[now])}`;
  const plot = frame(root, { ...axes, name }, colours);
  highlight(plot, data.xt);
  const style = { class: "forward", fill: colours.accent, "fill-opacity": 0.75 };
  probs.forEach((p, m) => bar(plot, m, p, style, `forward: P(X = ${m}) = ${number(p, 4)}`));
  const ring = { class: "reverse", r: 4, fill: "none", stroke: colours.accent2, "stroke-width": 2 };
  back.forEach((p, m) => root.append(titled("circle", { ...ring, cx: plot.X(m), cy: plot.Y(p), "data-state": m },
    `reverse: P(X = ${m}) = ${number(p, 4)}`)));
  return plot;
}

export function rates(root, data, now, colours) {
  const usual = data.forward[now].map((p) => p >= RARE);
  const [up, down] = ["up", "down"].map((name) => {
    const kappa = data.rates[name][now];
    const nu = kappa.map((rate, m) => (rate === null ? null : rate - data.score[name][now][m]));
    return { name, kappa, nu, most: Math.max(0, ...nu, ...kappa.filter((_, m) => usual[m])) };
  });
  const [low, high] = [down.most > 0 ? -ceiling(down.most) : 0, ceiling(Math.max(up.most, 0.1))];
  const labels = { xlabel: "state m", ylabel: low ? "rate down, up" : "rate" };
  const axes = { ...across(data), ...labels, y: [low, high], yticks: linearTicks(low, high) };
  const plot = frame(root, { ...axes, name: `reverse rates and score at t = ${number(data.times[now])}` }, colours);
  highlight(plot, data.xt);
  rateBars(plot, up, high, usual);
  if (low) rateBars(plot, down, low, usual);
  line(plot, plot.box.left, plot.Y(0), plot.box.right, plot.Y(0), { stroke: colours.dim });
  return plot;
}

// Bars up to κ, a mark at ν, and the score between the two. Bars that are too tall are cut at the frame.
function rateBars(plot, { name, kappa, nu }, end, usual) {
  const { X, Y, colours } = plot;
  const sign = Math.sign(end);
  const half = (X(0.8) - X(0)) / 2;
  kappa.forEach((rate, m) => {
    if (rate === null) return;
    const [shown, mark] = [sign * Math.min(rate, Math.abs(end)), sign * nu[m]];
    const score = rate - nu[m];
    const style = { class: name, fill: colours.accent, "fill-opacity": usual[m] ? 0.45 : 0.18 };
    bar(plot, m, shown, style, `${name} from ${m}: κ = ${number(rate)}, ν = ${number(nu[m])}, score ${number(score)}`);
    const stroke = { class: "score", stroke: score < 0 ? colours.accent2 : colours.accent, "stroke-width": 3 };
    line(plot, X(m), Y(mark), X(m), Y(shown), { ...stroke, "stroke-opacity": usual[m] ? 1 : 0.4 });
    line(plot, X(m) - half, Y(mark), X(m) + half, Y(mark), { stroke: colours.ink, "stroke-width": 1.5 });
  });
}

export function posterior(root, data, now, colours) {
  const { xt, x0, initial, times } = data;
  const probs = data.posterior[now].map((p) => p ?? 0);
  const top = ceiling(Math.max(...probs, ...initial));
  const labels = { xlabel: "state o at time 0", ylabel: "probability", height: 290 };
  const axes = { ...across(data), ...labels, y: [0, top], yticks: linearTicks(0, top) };
  const plot = frame(root, { ...axes, name: `X at time 0, given ${xt} at t = ${number(times[now])}` }, colours);
  highlight(plot, xt);
  probs.forEach((p, o) => {
    const style = { class: "posterior", fill: colours.accent, "fill-opacity": 0.75, "stroke-width": 2 };
    bar(plot, o, p, { ...style, stroke: o === x0 ? colours.ink : "none" }, `posterior at ${o}: ${number(p, 4)}`);
    const dashes = { fill: "none", stroke: colours.dim, "stroke-dasharray": "3 2", "pointer-events": "none" };
    bar(plot, o, initial[o], dashes, `initial distribution at ${o}: ${number(initial[o], 4)}`);
  });
  const y = data.difference[now][xt];
  if (y !== null) {
    const [from, to] = [plot.X(xt), plot.X(xt + y)];
    const tip = Math.sign(to - from) * Math.min(6, Math.abs(to - from));
    const d = `M${from},${plot.box.top + 6}H${to}m${-tip},-4l${tip},4l${-tip},4`;
    root.append(svg("path", { class: "mean", d, fill: "none", stroke: colours.accent2, "stroke-width": 2 }));
  }
  return plot;
}

export function bridge(root, data, now, colours) {
  const { times, bridge: table } = data;
  const axes = { xticks: timeTicks(times), xlabel: "time s", name: "distribution of the bridge", right: 76 };
  const label = (k, m, p) => `P(X = ${m}) = ${number(p)} at s = ${number(times[k])}`;
  const plot = heatMap(root, table, axes, colours, label);
  cursor(plot, now);
  pin(plot, 0, data.x0);
  pin(plot, data.k, data.xt);
  const height = plot.Y(0) - plot.Y(0.8);
  const style = { class: "slice", x: plot.box.right + 8, height, fill: colours.accent, "fill-opacity": 0.75 };
  const scale = 60 / Math.max(...table[now]);
  table[now].forEach((p, m) => {
    const place = { y: plot.Y(m) - height / 2, width: scale * p, "data-state": m };
    plot.root.append(titled("rect", { ...style, ...place }, label(now, m, p)));
  });
  return plot;
}
