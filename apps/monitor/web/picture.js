// The diagram of the fleet: data flows between roles, their rates, and the bottleneck.

import {count, percent, text, attribute} from "./util.js";

const NS = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const WIDTH = 210, HEIGHT = 82;
const PLACES = {
  actor: [20, 30], replay: [385, 30], learner: [750, 30],
  paramserver: [385, 216], evaluator: [20, 216],
};
// Layout with inference servers: these in the middle, the parameter server below.
const ASKED_PLACES = {...PLACES, inference: [385, 168], paramserver: [385, 306], evaluator: [20, 306]};
const NAMES = {actor: "Actors", replay: "Replay", learner: "Learner", paramserver: "Weights",
               evaluator: "Evaluator", inference: "Inference", coordinator: "Coordinator"};
// Edges: from, to, SVG path, position of the label, and its alignment.
const EDGES = {
  experience: ["actor", "replay", "M230 58H381", 305, 46, "middle"],
  batches: ["replay", "learner", "M595 58H746", 670, 46, "middle"],
  priorities: ["learner", "replay", "M750 92H599", 674, 112, "middle"],
  updates: ["learner", "paramserver", "M855 112V257H599", 724, 245, "middle"],
  weights: ["paramserver", "actor", "M430 216V168H125V116", 277, 157, "middle"],
  judged: ["paramserver", "evaluator", "M385 257H234", 309, 245, "middle"],
};
const ASKED_EDGES = {
  experience: EDGES.experience, batches: EDGES.batches, priorities: EDGES.priorities,
  observations: ["actor", "inference", "M150 112V194H381", 262, 182, "middle"],
  actions: ["inference", "actor", "M385 228H100V116", 262, 246, "middle"],
  updates: ["learner", "paramserver", "M855 112V347H599", 724, 335, "middle"],
  weights: ["paramserver", "inference", "M490 306V254", 502, 284, "start"],
  judged: ["paramserver", "evaluator", "M385 347H234", 309, 335, "middle"],
};
const placesOf = (known) => known.nodes.inference ? ASKED_PLACES : PLACES;
const edgesOf = (known) => known.nodes.inference ? ASKED_EDGES : EDGES;

// Labels of the edges ([rate, noun, unit]) and the two text lines of each node.
function what(view) {
  const {rates, metrics} = view;
  const plays = !view.supervised && !view.offline;
  const edges = {
    updates: [rates.publishes ?? rates.updates, "weights", "/s"],
    judged: [null, "weights"],
  };
  if (plays) {
    edges.experience = [rates.inserts, "items", "/s"];
    edges.batches = [rates.samples, "samples", "/s"];
    edges.priorities = [rates.priorities, "priorities", "/s"];
    edges.weights = [rates.snapshots, "weights", "/s"];
  }
  const nodes = {
    learner: [`${count(rates.updates)} updates/s`,
      metrics["learner/ready_batches"] === undefined ? ""
        : `${count(metrics["learner/ready_batches"])} batches ready`],
    paramserver: ["publishes weights", metrics["run/weights_lag"] === undefined ? ""
      : `actors lag ${count(metrics["run/weights_lag"])} updates`],
    evaluator: [view.evaluated.return_mean === undefined ? "no score yet"
      : `score ${view.evaluated.return_mean.toFixed(1)}`, ""],
  };
  if (plays) {
    nodes.actor = [`${count(rates.steps)} steps/s`,
      rates.insert_blocked > 0.02 ? `blocked ${percent(rates.insert_blocked)} of the time` : ""];
    nodes.replay = [`${percent(metrics["replay/fill"])} full`,
      metrics["replay/items"] === undefined ? "" : `${count(metrics["replay/items"])} items`];
  }
  if (view.roles.some((role) => role.role === "inference")) {
    edges.observations = [null, "observations"];
    edges.actions = [rates.actions, "actions", "/s"];
    nodes.inference = [rates.batches > 0 ? `${count(rates.actions / rates.batches)} per batch` : "",
      metrics["inference/waiting_requests"] === undefined ? ""
        : `${count(metrics["inference/waiting_requests"])} waiting`];
  }
  return {edges, nodes};
}

// The node of a bottleneck text: "learner (batches wait for it)" is "learner".
export function bottleneckOf(view) {
  const word = (view.bottleneck || "").split(" ")[0];
  if (view.state !== "running") return "";
  if (word === "actors") return "actor";
  return ["learner", "replay", "evaluator", "paramserver", "inference"].includes(word) ? word : "";
}

// Creates the SVG; updatePicture only changes its texts while the set of nodes stays the same.
function draw(parent, known) {
  const root = svg("svg", {viewBox: `0 0 980 ${known.nodes.inference ? 402 : 312}`, role: "img"});
  const marker = svg("marker", {id: "arrow", viewBox: "0 0 10 10", refX: 8, refY: 5,
                                markerWidth: 7, markerHeight: 7, orient: "auto"},
                     svg("path", {d: "M0 0L10 5L0 10z", class: "head"}));
  root.append(svg("title", {}), svg("defs", {}, svg("g", {class: "edge"}, marker)));
  for (const [name, [, , path, x, y, anchor]] of Object.entries(edgesOf(known))) {
    if (!known.edges[name]) continue;
    root.append(svg("g", {class: "edge", "data-edge": name},
      svg("path", {d: path, "marker-end": "url(#arrow)"}),
      svg("text", {x, y: y, "text-anchor": anchor}, svg("tspan", {class: "rate"}),
          svg("tspan", {class: "what"}))));
  }
  for (const [name, [x, y]] of Object.entries(placesOf(known))) {
    if (!known.nodes[name]) continue;
    root.append(svg("g", {class: "node", "data-node": name, transform: `translate(${x} ${y})`},
      svg("rect", {width: WIDTH, height: HEIGHT, rx: 13}),
      svg("text", {class: "name", x: 16, y: 27}),
      svg("text", {class: "line", x: 16, y: 48}), svg("text", {class: "line", x: 16, y: 68}),
      svg("text", {class: "flag", x: WIDTH / 2, y: -8, "text-anchor": "middle"})));
  }
  parent.replaceChildren(root);
}

export function updatePicture(parent, view) {
  const known = what(view);
  const roles = Object.fromEntries(view.roles.map((role) => [role.role, role]));
  if (!roles.evaluator) {
    delete known.nodes.evaluator;
    delete known.edges.judged;
  }
  const shape = Object.keys(known.nodes).join() + Object.keys(known.edges).join();
  if (parent.dataset.shape !== shape) {
    draw(parent, known);
    parent.dataset.shape = shape;
  }
  const live = view.state === "running" && !view.serial;
  const hot = bottleneckOf(view);
  for (const group of parent.querySelectorAll(".node")) {
    const name = group.dataset.node, role = roles[name];
    const [title, first, second, flag] = group.querySelectorAll("text");
    const many = role ? (live ? ` ${role.present} of ${role.expected}` : ` ${role.expected}`) : "";
    text(title, NAMES[name] + many);
    text(first, known.nodes[name][0]);
    text(second, known.nodes[name][1]);
    text(flag, name === hot ? "▲ bottleneck" : "");
    attribute(group, "class", name === hot ? "node hot" : "node");
  }
  const words = [];
  for (const group of parent.querySelectorAll(".edge[data-edge]")) {
    const [rate, thing, unit] = known.edges[group.dataset.edge];
    const number = rate === null || rate === undefined ? "" : count(rate);
    text(group.querySelector(".rate"), number);
    text(group.querySelector(".what"), number === "" ? thing : ` ${thing}${unit}`);
    attribute(group, "class", rate === 0 ? "edge idle" : "edge");
    const [from, to] = edgesOf(known)[group.dataset.edge];
    if (number !== "") words.push(`${NAMES[from]} to ${NAMES[to]}: ${number} ${thing} per second`);
  }
  text(parent.querySelector("title"), `The fleet. ${words.join("; ")}.`);
}
