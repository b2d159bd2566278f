// Line charts and histograms with Chart.js. A chart is created once and then only receives new
// data, so that unchanged parts do not move.

import {$, count, span, make, text, keyed, color, series, shown} from "./util.js";

const charts = new Map();  // canvas → chart
const AXES = {steps: "agent steps", updates: "updates", wall_s: "time"};
const tick = (axis) => (value) => (axis === "wall_s" ? span(value) : count(value));

// Axis colors and ticks of the current color scheme.
function look() {
  const grid = color("line"), words = color("muted");
  return {grid: {color: grid, borderColor: grid}, ticks: {color: words, maxTicksLimit: 7,
                                                          maxRotation: 0, font: {size: 12}}};
}

function lineChart(canvas) {
  return new window.Chart(canvas, {
    type: "line",
    data: {datasets: []},
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, parsing: false,
      normalized: true, spanGaps: true,
      interaction: {mode: "index", intersect: false, axis: "x"},
      elements: {point: {radius: 0, hitRadius: 8}, line: {borderWidth: 1.8, tension: 0}},
      scales: {x: {type: "linear", ...look(), title: {display: true, color: color("muted")}},
               y: {...look()}},
      plugins: {
        legend: {display: true, position: "top", align: "end",
                 labels: {color: color("text"), boxWidth: 10, boxHeight: 10,
                          filter: (item) => !item.text.startsWith("_")}},
        tooltip: {filter: (item) => !item.dataset.label.startsWith("_")},
      },
    },
  });
}

// Draws lines: [{label, x: [], y: [], color, dots}]. Labels that begin with "_" are hidden (the
// edges of a band). The last values become the aria-label for screen readers.
export function plotLines(canvas, lines, axis, stepsName) {
  let chart = charts.get(canvas);
  if (!chart) charts.set(canvas, (chart = lineChart(canvas)));
  chart.data.datasets = lines.map((line, i) => {
    const data = [];
    for (let k = 0; k < line.x.length; ++k) {
      if (line.x[k] !== null && line.y[k] !== null) data.push({x: line.x[k], y: line.y[k]});
    }
    data.sort((a, b) => a.x - b.x);
    const paint = line.color || series(i);
    return {label: line.label, data, borderColor: paint, backgroundColor: line.band || paint,
            fill: line.fill ?? false, pointRadius: line.dots && data.length < 60 ? 2.5 : 0,
            borderWidth: line.fill ? 0 : 1.8};
  });
  const {x, y} = chart.options.scales;
  x.title.text = axis === "steps" ? stepsName : AXES[axis];
  x.ticks.callback = tick(axis);
  y.ticks.callback = count;
  chart.update("none");
  canvas.dataset.points = Math.max(0, ...chart.data.datasets.map((d) => d.data.length));
  const ends = lines.filter((l) => !l.label.startsWith("_") && l.y.length)
    .map((l) => `${l.label} ${count(l.y.findLast((v) => v !== null))}`);
  canvas.setAttribute("aria-label", `${canvas.dataset.title || "Curve"}: ${ends.join(", ")}`);
}

// Draws a histogram with one bar per octave.
function plotBars(canvas, histogram) {
  let chart = charts.get(canvas);
  const octaves = histogram.octaves;
  const labels = [];
  const values = [];
  for (let i = 0; i < octaves.length; ++i) {
    const [low, number] = octaves[i];
    labels.push(low === 0 ? "0" : count(low));
    values.push(number);
    // The server sends non-empty octaves only; fills the gaps between them.
    let next = low === 0 ? null : 2 * low;
    for (; next && i + 1 < octaves.length && next < octaves[i + 1][0] && labels.length < 80; next *= 2) {
      labels.push(count(next));
      values.push(0);
    }
  }
  if (!chart) {
    chart = new window.Chart(canvas, {
      type: "bar",
      data: {labels, datasets: [{data: [], backgroundColor: color("c1"), borderRadius: 3,
                                 barPercentage: 1, categoryPercentage: .92}]},
      options: {animation: false, responsive: true, maintainAspectRatio: false,
                scales: {x: {...look(), title: {display: true, text: "at least", color: color("muted")}},
                         y: {...look(), beginAtZero: true}},
                plugins: {legend: {display: false}}},
    });
    chart.options.scales.y.ticks.callback = count;
    charts.set(canvas, chart);
  }
  chart.data.labels = labels;
  chart.data.datasets[0].data = values;
  chart.update("none");
  canvas.dataset.points = values.length;
}

const HISTOGRAMS = {
  "replay/age": ["Replay age", "frames between the insert of an item and its sampling"],
  "replay/policy_age": ["Policy age", "updates between the weights that acted and the learner's"],
  "paramserver/staleness": ["Gradient staleness", "updates between the pull and the push of a gradient"],
};

export function updateHistograms(view) {
  const known = Object.entries(view.histograms).filter(([, h]) => h.count > 0)
    .map(([name, h]) => ({name, h}));
  keyed($("histograms"), known, (item) => item.name, ({name}) => {
    const [title, meaning] = HISTOGRAMS[name] || [name, ""];
    return make("div", {class: "card"}, make("h2", {}, title),
      make("div", {class: "caption"}, meaning),
      make("div", {class: "plot low"}, make("canvas", {role: "img"})),
      make("div", {class: "caption", role: "note"}));
  }, (card, {name, h}) => {
    const words = `half below ${count(h.p50)}, 90 % below ${count(h.p90)}, 99 % below ${count(h.p99)}; ` +
      `over the newest ${count(h.count)}`;
    text(card.lastElementChild, words);
    const canvas = card.querySelector("canvas");
    canvas.setAttribute("aria-label", `${name}: ${words}`);
    plotBars(canvas, h);
  });
}

// The cards of curves: metric names and their labels.
const CARDS = [
  {key: "return", title: "Return", names: {"episode_return_mean": "training"}, evaluated: true},
  {key: "loss", title: "Loss", names: {"learner/loss": "loss"}},
  {key: "speed", title: "Speed", names: {"steps_per_s": "steps/s", "updates_per_s": "updates/s"}},
  {key: "lag", title: "Lag of the actors' weights", names: {"run/weights_lag": "updates"}},
  {key: "age", title: "Replay age", names: {"replay/age.p50": "half below", "replay/age.p90": "90 % below"}},
  {key: "fill", title: "Replay", names: {"replay/fill": "fill level"}},
];
const extra = [];
let cards = CARDS;

export function addCurve(name) {
  if (!name || extra.includes(name)) return;
  extra.push(name);
  if (extra.length > 6) extra.shift();
}
export function wantedNames() {
  return [...new Set([...CARDS.flatMap((card) => Object.keys(card.names)), ...extra])].slice(0, 16);
}

export function updateCurves(curves, view, axis) {
  const has = (card) => Object.keys(card.names).some((n) => curves.series[n]) ||
    (card.evaluated && curves.evaluations.return_mean);
  cards = [...CARDS, ...extra.map((name) => ({key: "extra " + name, title: name,
                                              names: {[name]: name}, extra: name}))].filter(has);
  keyed($("curves"), cards, (card) => card.key, (card) => {
    const title = view.supervised && card.key === "return" ? "Accuracy, %" : card.title;
    const head = make("div", {class: "bar"}, make("h2", {}, title), make("span", {class: "grow"}));
    if (card.extra) {
      const gone = make("button", {"aria-label": `Remove ${card.extra}`}, "×");
      gone.addEventListener("click", () => {
        extra.splice(extra.indexOf(card.extra), 1);
        gone.closest(".card").remove();
      });
      head.append(gone);
    }
    return make("div", {class: "card", "data-card": card.key}, head,
      make("div", {class: "plot"}, make("canvas", {role: "img", "data-title": title})));
  }, (element, card) => {
    const x = curves[axis];
    const lines = [];
    if (card.evaluated && curves.evaluations.return_mean) {
      const e = curves.evaluations;
      lines.push({label: "evaluated", x: e[axis], y: e.return_mean, color: color("c1"), dots: true});
      if (e.return_min && !view.supervised) {
        const band = color("c1") + "22";
        lines.push({label: "_max", x: e[axis], y: e.return_max, color: color("c1"), fill: "+1", band});
        lines.push({label: "_min", x: e[axis], y: e.return_min, color: color("c1")});
        lines.at(-1).fill = false;
        lines.at(-1).color = "transparent";
      }
    }
    for (const [name, label] of Object.entries(card.names)) {
      if (view.supervised && name === "episode_return_mean") continue;
      const y = curves.series[name];
      if (y) lines.push({label, x, y, color: card.evaluated ? color("c2") : undefined});
    }
    plotLines(element.querySelector("canvas"), lines, axis, view.steps_name);
  });
  shown($("curves"), cards.length > 0);
}

// Destroys all charts; they are recreated with the colors of the current scheme.
export function forgetCharts() {
  for (const chart of charts.values()) chart.destroy();
  charts.clear();
}
// Destroys charts whose canvas was removed from the page.
export function sweepCharts() {
  for (const [canvas, chart] of charts) {
    if (!canvas.isConnected) {
      chart.destroy();
      charts.delete(canvas);
    }
  }
}
