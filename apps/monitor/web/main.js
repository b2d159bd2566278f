// The page: the selected run and view, and the polling of the API.

import {$, count, percent, score, span, text, shown, attribute, make, keyed, options, series} from "./util.js";
import * as api from "./api.js";
import {updatePicture, bottleneckOf} from "./picture.js";
import * as charts from "./charts.js";
import * as tables from "./tables.js";

const EVERY_MS = 1500, IDLE_MS = 6000;
const VIEWS = ["overview", "fleet", "logs", "episode", "runs", "config"];
const page = {run: "", tab: "overview", runs: [], view: null, turn: 0, wantedLog: "", compare: null,
              episode: 0, video: "", compared: ""};
let timer = 0, busy = false, again = false;

// The selection is kept in the URL fragment, so that it can be linked and reloaded.
function readHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  page.tab = VIEWS.includes(hash.get("view")) ? hash.get("view") : "overview";
  if (hash.has("run")) page.run = hash.get("run");
  if (hash.has("log")) page.wantedLog = hash.get("log");
}
function writeHash() {
  const hash = new URLSearchParams({run: page.run, view: page.tab});
  history.replaceState(null, "", "#" + hash);
}
function showTab() {
  for (const name of VIEWS) {
    const tab = $("tab-" + name), is = name === page.tab;
    attribute(tab, "aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    shown($("panel-" + name), is);
  }
}
function choose(tab) {
  page.tab = tab;
  writeHash();
  showTab();
  soon();
}
function chooseRun(name) {
  if (name === page.run) return;
  page.run = name;
  page.view = null;
  page.wantedLog = "";
  tables.members.offset = 0;
  forgetEpisode();
  forgetVideo();
  writeHash();
  soon();
}

// The key figures at the top of the overview.
function tiles(view) {
  const r = view.rates, e = view.evaluated, m = view.metrics;
  const share = view.steps_total > 0 ? view.steps / view.steps_total : 0;
  const live = view.state === "running";
  const left = live && r.steps > 0 && view.phase === "running" ? (view.steps_total - view.steps) / r.steps : NaN;
  const list = [
    {key: "steps", k: view.supervised ? "Reviews" : view.offline ? "Samples" : "Agent steps", v: count(view.steps), s: `${percent(share)} of ${count(view.steps_total)}`, bar: share},
    view.supervised || view.offline
      ? {key: "loss", k: "Loss", v: m["learner/loss"] === undefined ? "–" : m["learner/loss"].toFixed(4), s: "training"}
      : {key: "return", k: "Return", v: score(m.episode_return_mean), s: "training, with exploration"},
    {key: "evaluated", k: view.supervised ? "Accuracy" : "Evaluated return",
     v: e.return_mean === undefined ? "–" : score(e.return_mean) + (view.supervised ? " %" : ""),
     s: e.return_mean === undefined ? "none yet" : (view.supervised ? "held-out examples"
       : `${score(e.return_min)} to ${score(e.return_max)}`) + (view.best ? `, best ${score(view.best.score)}` : "")},
    {key: "steps_s", k: view.supervised ? "Reviews" : view.offline ? "Samples" : "Steps", v: live ? count(r.steps) + " /s" : "–",
     s: r.tokens === undefined ? "" : count(r.tokens) + " tokens/s"},
    {key: "updates_s", k: "Updates", v: live ? count(r.updates) + " /s" : "–",
     s: count(m.updates ?? m["learner/updates"]) + " in total"},
    {key: "time", k: live ? "Time left" : "Duration", v: live ? span(left) : span(view.wall_s),
     s: live ? span(view.wall_s) + " so far" : ""},
  ];
  keyed($("tiles"), list, (t) => t.key, (t) => {
    const tile = make("div", {class: "tile"}, make("div", {class: "k"}), make("div", {class: "v"}), make("div", {class: "s"}));
    if (t.bar !== undefined) tile.append(make("progress", {max: 1, "aria-label": "Done"}));
    return tile;
  }, (tile, t) => {
    text(tile.children[0], t.k);
    text(tile.children[1], t.v);
    text(tile.children[2], t.s);
    if (t.bar !== undefined) tile.children[3].value = Math.min(1, t.bar);
  });
}

function header(view) {
  const name = view.state === "running" ? view.phase || "starting" : view.state;
  text($("state"), name);
  attribute($("state"), "class", "pill " + view.state);
  text($("problem"), `${view.problem || ""} · ${view.algorithm || ""}`);
  text($("stale"), view.status_error ? "the coordinator does not respond" : "");
  attribute($("stale"), "title", view.status_error);
  shown($("stale"), view.status_error !== "");
  document.title = `${page.run} · Troop`;
}

// Each show function fetches its data and returns a function that draws it, so that nothing is
// drawn if the user has moved on in the meantime.
async function showOverview(view) {
  const axis = $("axis").value;
  options($("more"), ["", ...view.curves], ["choose a metric", ...view.curves]);
  const names = charts.wantedNames().map(encodeURIComponent).join(",");
  const curves = await api.get(api.run(page.run, `curves?points=400&names=${names}`));
  return () => {
    tiles(view);
    text($("bottleneck"), view.state !== "running" ? "The run has ended; these are its last values."
      : `Bottleneck: ${view.bottleneck || "not known yet"}`);
    attribute($("bottleneck"), "data-role", bottleneckOf(view));
    updatePicture($("picture"), view);
    charts.updateCurves(curves, view, axis);
  };
}

async function showFleet(view) {
  const found = await api.get(api.run(page.run, "members?" + tables.memberQuery()));
  return () => {
    tables.updateQueues(view);
    tables.updateRoles(view);
    charts.updateHistograms(view);
    tables.updateMembers(found, view);
  };
}

async function showLogs() {
  const find = $("log-text").value;
  const list = await api.get(api.run(page.run, "logs" + (find ? "?text=" + encodeURIComponent(find) : "")));
  tables.updateLogs(list, page.wantedLog);
  page.wantedLog = "";
  const name = $("log-name").value;
  if (!name) return () => tables.updateLog({name: "", text: "", bytes: 0});
  const log = await api.get(api.run(page.run, `logs/${encodeURIComponent(name)}?bytes=${$("log-bytes").value}`));
  return () => tables.updateLog(log);
}

function forgetVideo() {
  const image = $("video");
  if (image.src) URL.revokeObjectURL(image.src);
  image.removeAttribute("src");
  shown($("video-card"), false);
  page.video = "";
}

// Loads the newest evaluation video of the run, unless it is shown already.
async function loadVideo() {
  const run = page.run;
  const video = await api.get(api.run(run, "video"));
  if (video.name === "" || page.video === video.name) return;
  const picture = await api.picture(api.run(run, "video.gif"));
  if (page.run !== run) return;  // another run was chosen meanwhile
  forgetVideo();
  page.video = video.name;
  $("video").src = URL.createObjectURL(picture);
  const updates = `after ${parseInt(video.name, 10)} updates`;
  attribute($("video"), "alt", `Episodes of an evaluation ${updates}`);
  text($("video-text"), updates);
  shown($("video-card"), true);
}

function forgetEpisode() {
  const image = $("episode");
  if (image.src) URL.revokeObjectURL(image.src);
  image.removeAttribute("src");
  shown(image, false);
  page.episode = 0;
}

async function showEpisode() {
  await loadVideo();
  const episode = await api.get(api.run(page.run, "episode"));
  const words = {none: "no episode recorded yet", recording: "recording …", ready: episode.text,
                 failed: `recording failed: ${episode.text}`}[episode.state];
  if (episode.state === "ready" && page.episode !== episode.number) {
    const picture = await api.picture(api.run(page.run, "episode.gif"));
    forgetEpisode();
    page.episode = episode.number;
    $("episode").src = URL.createObjectURL(picture);
    attribute($("episode"), "alt", `A recorded episode: ${episode.text}`);
    shown($("episode"), true);
  }
  return () => {
    text($("episode-text"), words);
    $("record").disabled = episode.state === "recording";
  };
}

async function showRuns() {
  if (page.compare === null) page.compare = page.runs.slice(0, 4).map((r) => r.name);
  const names = page.compare.filter((name) => page.runs.some((r) => r.name === name));
  const all = await Promise.all(names.map((name) =>
    api.get(api.run(name, "curves?points=300&names=episode_return_mean"))));
  return () => {
    const colors = names.map((_, i) => series(i));
    tables.updateRuns(page.runs, names, colors);
    const lines = names.map((name, i) => {
      const evaluated = all[i].evaluations.return_mean;
      return {label: name, color: colors[i], dots: true,
              x: evaluated ? all[i].evaluations.steps : all[i].steps,
              y: evaluated || all[i].series.episode_return_mean || []};
    });
    charts.plotLines($("compare"), lines, "steps", "steps");
  };
}

async function showConfig() {
  const config = await api.get(api.run(page.run, "config"));
  return () => text($("config"), config.text);
}

const SHOW = {overview: showOverview, fleet: showFleet, logs: showLogs, episode: showEpisode,
              runs: showRuns, config: showConfig};

// Fetches and draws the selected view; the list of runs is refreshed every fourth time.
async function update() {
  if (page.turn++ % 4 === 0 || page.runs.length === 0) {
    page.runs = (await api.get("runs")).runs;
    options($("run"), page.runs.map((r) => r.name));
  }
  if (!page.runs.some((r) => r.name === page.run)) page.run = page.runs.length ? page.runs[0].name : "";
  if (!page.run) throw new api.Refused(404, "there are no runs in this folder yet");
  if ($("run").value !== page.run) $("run").value = page.run;
  const name = page.run, tab = page.tab;
  const view = await api.get(api.run(name));
  const draw = await SHOW[tab](view);
  if (name !== page.run || tab !== page.tab) return;  // the user has selected another view
  page.view = view;
  const begin = performance.now();
  header(view);
  draw();
  charts.sweepCharts();
  document.body.dataset.updateMs = (performance.now() - begin).toFixed(1);
  document.body.dataset.shown = `${name} ${tab}`;
}

function fail(error) {
  shown($("token-form"), error.status === 401);
  for (const name of VIEWS) if (error.status === 401) shown($("panel-" + name), false);
  text($("error"), error.message);
  shown($("error"), true);
  if (!(error instanceof api.Refused)) console.error(error);
}

// The polling loop. A request during an update runs another one right after it.
async function tick() {
  clearTimeout(timer);
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    await update();
    shown($("error"), false);
    shown($("token-form"), false);
    showTab();
  } catch (error) {
    fail(error);
  }
  busy = false;
  const quick = again;
  again = false;
  const live = page.view && page.view.state === "running";
  const following = page.tab !== "episode" || $("record").disabled;
  const wait = quick ? 0 : document.hidden ? 4 * IDLE_MS : live && following ? EVERY_MS
    : $("record").disabled ? 500 : IDLE_MS;
  timer = setTimeout(tick, wait);
}
const soon = () => { tick(); };

function listen() {
  const tabs = document.querySelector("[role=tablist]");
  tabs.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) choose(tab.id.slice(4));
  });
  tabs.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    choose(VIEWS[(VIEWS.indexOf(page.tab) + step + VIEWS.length) % VIEWS.length]);
    $("tab-" + page.tab).focus();
  });
  $("run").addEventListener("change", () => chooseRun($("run").value));
  $("axis").addEventListener("change", soon);
  $("more").addEventListener("change", () => {
    charts.addCurve($("more").value);
    $("more").value = "";
    soon();
  });
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    api.setToken($("token").value.trim());
    $("token").value = "";
    soon();
  });
  for (const id of ["member-role", "member-text"]) {
    $(id).addEventListener("input", () => {
      tables.members.offset = 0;
      soon();
    });
  }
  $("member-back").addEventListener("click", () => { tables.turnPage(-1); soon(); });
  $("member-next").addEventListener("click", () => { tables.turnPage(1); soon(); });
  $("members").addEventListener("click", (event) => {
    const sort = event.target.closest("[data-sort]"), log = event.target.closest("[data-log]");
    if (sort) {
      const m = tables.members;
      m.order = m.sort === sort.dataset.sort && m.order === "asc" ? "desc" : "asc";
      m.sort = sort.dataset.sort;
      m.offset = 0;
      soon();
    }
    if (log) {
      $("log-text").value = log.dataset.log.replace(/\.log$/, "");
      page.wantedLog = log.dataset.log;
      choose("logs");
    }
  });
  for (const id of ["log-text", "log-name", "log-bytes"]) $(id).addEventListener("input", soon);
  $("record").addEventListener("click", async () => {
    $("record").disabled = true;
    try {
      await api.post(api.run(page.run, "episode"));
    } catch (error) {
      fail(error);
      $("record").disabled = false;
    }
    soon();
  });
  $("runs-text").addEventListener("input", soon);
  $("runs-back").addEventListener("click", () => { tables.turnPage(-1, tables.runs); soon(); });
  $("runs-next").addEventListener("click", () => { tables.turnPage(1, tables.runs); soon(); });
  $("runs").addEventListener("click", (event) => {
    const box = event.target.closest("[data-compare]"), run = event.target.closest("[data-run]");
    if (box) {
      const name = box.dataset.compare;
      page.compare = box.checked ? [...page.compare, name] : page.compare.filter((n) => n !== name);
      soon();
    }
    if (run) {
      chooseRun(run.dataset.run);
      choose("overview");
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    charts.forgetCharts();
    soon();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
  addEventListener("hashchange", () => { readHash(); soon(); });
}

readHash();
showTab();
listen();
tick();
