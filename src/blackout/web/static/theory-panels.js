// The pictures of the theory room: each is given the answer of the server, and the number of the time that is looked at.

import { ceiling, frame, heat, linearTicks, number, position, STATE_TICKS, svg, timeTicks } from "./theory-draw.js";

const RARE = 1e-3; // a state less probable than this does not set the scale of the rates
const ACROSS = { x: [-0.6, 20.6], xticks: STATE_TICKS };
const MAP = { x: [-0.5, 80.5], y: [-0.5, 20.5], yticks: STATE_TICKS, ylabel: "state", height: 290 };

const titled = (tag, attributes, title) => svg(tag, attributes, svg("title", {}, title));

function bar(plot, m, to, attributes, title) {
  const width = plot.X(0.8) - plot.X(0);
  const [low, high] = [Math.min(0, to), Math.max(0, to)];
  const place = { x: plot.X(m) - width / 2, width, y: plot.Y(high), height: plot.Y(low) - plot.Y(high) };
  plot.root.append(titled("rect", { ...place, "data-state": m, ...attributes }, title));
}

function line(plot, x1, y1, x2, y2, attributes) {
  plot.root.append(svg("line", { x1, y1, x2, y2, "pointer-events": "none", ...attributes }));
}

function chosen(plot, m) {
  const { X, box, colours } = plot;
  const place = { x: X(m - 0.5), width: X(1) - X(0), y: box.top, height: box.bottom - box.top };
  plot.root.append(svg("rect", { class: "chosen", ...place, fill: colours.ink, "fill-opacity": 0.09 }));
}

// A map has some thousand cells. They and the axes are drawn anew when the law or the width changes; while time moves,
// only what lies above them is. `root` of the plot is that layer.
const maps = new WeakMap();

function map(root, table, axes, colours, label) {
  const known = maps.get(root);
  if (known?.table === table && known.width === root.getAttribute("width")) {
    known.plot.root.replaceChildren();
    return known.plot;
  }
  const plot = frame(root, { ...MAP, ...axes }, colours);
  const { X, Y, box } = plot;
  const cells = svg("g", { class: "cells", "shape-rendering": "crispEdges" });
  const whole = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
  cells.append(svg("rect", { ...whole, fill: heat(0, colours) }));
  const size = { width: X(1) - X(0) + 0.4, height: Y(0) - Y(1) + 0.4 };
  table.forEach((law, k) => law.forEach((p, m) => {
    if (p < 1e-5) return;
    const cell = { x: X(k - 0.5), y: Y(m + 0.5), ...size, fill: heat(p, colours), "data-cell": `${k},${m}` };
    cells.append(titled("rect", cell, label(k, m, p)));
  }));
  const above = svg("g");
  root.append(cells, above);
  const made = { ...plot, root: above };
  maps.set(root, { table, width: root.getAttribute("width"), plot: made });
  return made;
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

export function forward(root, answer, now, colours) {
  const { times } = answer;
  const axes = { xticks: timeTicks(times), xlabel: "time t", name: "the law of X at every time, and walks back" };
  const label = (k, m, p) => `P(X = ${m}) = ${number(p)} at t = ${number(times[k])}`;
  const plot = map(root, answer.forward, axes, colours, label);
  walks(plot, answer, now);
  cursor(plot, now);
  pin(plot, answer.k, answer.xt);
  return plot;
}

// Bright from the last time down to this one, faint where they have yet to go.
function walks(plot, { times, paths, path_times: clock }, now) {
  const { root, X, Y, colours } = plot;
  const at = clock.map((t) => position(times, t));
  const here = at.findLastIndex((k) => k <= now);
  const stroke = { fill: "none", stroke: colours.accent2, "stroke-width": 1.4, "stroke-linejoin": "round" };
  paths.forEach((path, i) => {
    const y = (m) => Y(m + (i - (paths.length - 1) / 2) * 0.15).toFixed(1); // so that none hides another
    const steps = (from) => {
      const first = at.findLastIndex((k) => k <= from);
      const corners = path.slice(first).map((m, j) => [X(Math.max(from, at[first + j])).toFixed(1), y(m)]).reverse();
      return corners.map((corner, j) => (j ? `H${corner[0]}V${corner[1]}` : `M${corner}`)).join("");
    };
    root.append(svg("path", { ...stroke, d: steps(0), "stroke-opacity": 0.28 }));
    root.append(svg("path", { ...stroke, d: steps(now), stroke: colours.ramp[0], "stroke-width": 3, "stroke-opacity": 0.5 }));
    root.append(svg("path", { ...stroke, d: steps(now), class: "walk" }));
    root.append(svg("circle", { cx: X(now), cy: y(path[here]), r: 2.5, fill: colours.accent2 }));
  });
}

export function lawNow(root, answer, now, colours) {
  const [law, back] = [answer.forward[now], answer.reverse[now]];
  const top = ceiling(Math.max(...law, ...back));
  const axes = { ...ACROSS, y: [0, top], yticks: linearTicks(0, top), xlabel: "state m", ylabel: "probability" };
  const plot = frame(root, { ...axes, name: `forward and reverse law at t = ${number(answer.times[now])}` }, colours);
  chosen(plot, answer.xt);
  const look = { class: "forward", fill: colours.accent, "fill-opacity": 0.75 };
  law.forEach((p, m) => bar(plot, m, p, look, `forward: P(X = ${m}) = ${number(p, 4)}`));
  const ring = { class: "reverse", r: 4, fill: "none", stroke: colours.accent2, "stroke-width": 2 };
  back.forEach((p, m) => root.append(titled("circle", { ...ring, cx: plot.X(m), cy: plot.Y(p), "data-state": m },
    `reverse: P(X = ${m}) = ${number(p, 4)}`)));
  return plot;
}

export function moves(root, answer, now, colours) {
  const usual = answer.forward[now].map((p) => p >= RARE);
  const [up, down] = ["up", "down"].map((name) => {
    const rates = answer.rates[name][now];
    const arrivals = rates.map((rate, m) => (rate === null ? null : rate - answer.score[name][now][m]));
    return { name, rates, arrivals, most: Math.max(0, ...arrivals, ...rates.filter((_, m) => usual[m])) };
  });
  const [low, high] = [down.most > 0 ? -ceiling(down.most) : 0, ceiling(Math.max(up.most, 0.1))];
  const labels = { xlabel: "state m", ylabel: low ? "rate down, up" : "rate" };
  const axes = { ...ACROSS, ...labels, y: [low, high], yticks: linearTicks(low, high) };
  const plot = frame(root, { ...axes, name: `reverse rates and score at t = ${number(answer.times[now])}` }, colours);
  chosen(plot, answer.xt);
  rates(plot, up, high, usual);
  if (low) rates(plot, down, low, usual);
  line(plot, plot.box.left, plot.Y(0), plot.box.right, plot.Y(0), { stroke: colours.dim });
  return plot;
}

// Bars that end at κ, a mark at ν, and the score from the one to the other. What is too tall ends at the frame.
function rates(plot, { name, rates: kappa, arrivals }, end, usual) {
  const { X, Y, colours } = plot;
  const sign = Math.sign(end);
  const half = (X(0.8) - X(0)) / 2;
  kappa.forEach((rate, m) => {
    if (rate === null) return;
    const [shown, nu] = [sign * Math.min(rate, Math.abs(end)), sign * arrivals[m]];
    const score = rate - arrivals[m];
    const look = { class: name, fill: colours.accent, "fill-opacity": usual[m] ? 0.45 : 0.18 };
    const text = `κ = ${number(rate)}, ν = ${number(arrivals[m])}, score ${number(score)}`;
    bar(plot, m, shown, look, `${name} from ${m}: ${text}`);
    const stroke = { class: "score", stroke: score < 0 ? colours.accent2 : colours.accent, "stroke-width": 3 };
    line(plot, X(m), Y(nu), X(m), Y(shown), { ...stroke, "stroke-opacity": usual[m] ? 1 : 0.4 });
    line(plot, X(m) - half, Y(nu), X(m) + half, Y(nu), { stroke: colours.ink, "stroke-width": 1.5 });
  });
}

export function posterior(root, answer, now, colours) {
  const { xt, x0, law, times } = answer;
  const given = answer.posterior[now].map((p) => p ?? 0);
  const top = ceiling(Math.max(...given, ...law));
  const labels = { xlabel: "state o at time 0", ylabel: "probability", height: 290 };
  const axes = { ...ACROSS, ...labels, y: [0, top], yticks: linearTicks(0, top) };
  const plot = frame(root, { ...axes, name: `X at time 0, given ${xt} at t = ${number(times[now])}` }, colours);
  chosen(plot, xt);
  given.forEach((p, o) => {
    const look = { class: "posterior", fill: colours.accent, "fill-opacity": 0.75, "stroke-width": 2 };
    bar(plot, o, p, { ...look, stroke: o === x0 ? colours.ink : "none" }, `start ${o}: ${number(p, 4)}`);
    const dashes = { fill: "none", stroke: colours.dim, "stroke-dasharray": "3 2", "pointer-events": "none" };
    bar(plot, o, law[o], dashes, `your law at ${o}: ${number(law[o], 4)}`);
  });
  const y = answer.difference[now][xt];
  if (y !== null) {
    const [from, to] = [plot.X(xt), plot.X(xt + y)];
    const tip = Math.sign(to - from) * Math.min(6, Math.abs(to - from));
    const d = `M${from},${plot.box.top + 6}H${to}m${-tip},-4l${tip},4l${-tip},4`;
    root.append(svg("path", { class: "mean", d, fill: "none", stroke: colours.accent2, "stroke-width": 2 }));
  }
  return plot;
}

export function bridge(root, answer, now, colours) {
  const { times, bridge: law } = answer;
  const axes = { xticks: timeTicks(times), xlabel: "time s", name: "the law between the start and the sight", right: 76 };
  const label = (k, m, p) => `P(X = ${m}) = ${number(p)} at s = ${number(times[k])}`;
  const plot = map(root, law, axes, colours, label);
  cursor(plot, now);
  pin(plot, 0, answer.x0);
  pin(plot, answer.k, answer.xt);
  const height = plot.Y(0) - plot.Y(0.8);
  const look = { class: "slice", x: plot.box.right + 8, height, fill: colours.accent, "fill-opacity": 0.75 };
  const scale = 60 / Math.max(...law[now]);
  law[now].forEach((p, m) => {
    const place = { y: plot.Y(m) - height / 2, width: scale * p, "data-state": m };
    plot.root.append(titled("rect", { ...look, ...place }, `P(X = ${m}) = ${number(p, 4)} at s = ${number(times[now])}`));
  });
  return plot;
}
