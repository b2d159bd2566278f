// Tables of roles, members, queues, logs and runs.

import {$, count, percent, span, bytes, score, text, shown, make, keyed, options, attribute} from "./util.js";

const PAGE = 50;

function cells(row, values) {
  for (const [i, value] of values.entries()) text(row.children[i], value);
}
const row = (kinds) => () =>
  make("tr", {}, ...kinds.map((kind) => make(kind === "h" ? "th" : "td",
    {class: kind === "n" ? "n" : kind === "e" ? "error" : null, scope: kind === "h" ? "row" : null})));

export function updateRoles(view) {
  keyed($("roles").tBodies[0], view.roles, (role) => role.role, row(["h", "n", "n", "n", "n"]),
    (tr, role) => cells(tr, [role.role, view.serial || view.state !== "running" ? "–" : count(role.present),
      count(role.expected), role.hosts ? count(role.hosts) : "–",
      role.present ? span(role.heartbeat_age_max_s) : "–"]));
  const names = view.roles.map((role) => role.role);
  options($("member-role"), ["", ...names], ["all", ...names]);
}

// Queues and limits: shares as bars, other values as numbers.
export function updateQueues(view) {
  const m = view.metrics, r = view.rates;
  const items = [
    ["Replay fill level", m["replay/fill"], "share"],
    ["Actors blocked by the rate limiter", r.insert_blocked, "share"],
    ["Learner blocked by the rate limiter", r.sample_blocked, "share"],
    ["Actors waiting now", m["actor/insert_blocked"], "share"],
    ["Batches ready for the learner", m["learner/ready_batches"], "number"],
    ["Items in the replay", m["replay/items"], "number"],
    ["Samples per insert", m["replay/inserts"] ? m["replay/samples"] / m["replay/inserts"] : undefined, "number"],
    ["Age of a sample, frames", m["learner/sample_age"], "number"],
    ["Lag of the actors' weights, updates", m["run/weights_lag"], "number"],
    ["Pushes held by parameter servers", m["paramserver/pushes_held"], "number"],
  ].filter(([, value]) => value !== undefined).map(([name, value, kind]) => ({name, value, kind}));
  const list = $("queues");
  const parts = items.flatMap((i) => [["dt", i], ["dd", i], ...(i.kind === "share" ? [["bar", i]] : [])])
    .map(([part, item]) => ({part, item}));
  keyed(list, parts, ({part, item}) => part + item.name, ({part, item}) => {
    if (part !== "bar") return make(part);
    return make("dd", {class: "track"}, make("progress", {max: 1, "aria-label": item.name}));
  }, (element, {part, item}) => {
    if (part === "dt") text(element, item.name);
    if (part === "dd") text(element, item.kind === "share" ? percent(item.value) : count(item.value));
    if (part === "bar") element.firstElementChild.value = Math.min(1, item.value ?? 0);
  });
}

export const members = {offset: 0, sort: "role", order: "asc", matching: 0};

export function memberQuery() {
  const query = new URLSearchParams({offset: members.offset, limit: PAGE, sort: members.sort,
                                     order: members.order});
  if ($("member-role").value) query.set("role", $("member-role").value);
  if ($("member-text").value) query.set("text", $("member-text").value);
  return query.toString();
}

export function updateMembers(page, view) {
  members.matching = page.matching;
  if (members.offset >= page.matching) members.offset = 0;
  const last = Math.min(members.offset + page.members.length, page.matching);
  text($("member-count"), page.matching ? `${members.offset + 1}–${last} of ${page.matching}` : "");
  $("member-back").disabled = members.offset === 0;
  $("member-next").disabled = last >= page.matching;
  for (const button of document.querySelectorAll("#members [data-sort]")) {
    const is = button.dataset.sort === members.sort;
    if (is) attribute(button.parentElement, "aria-sort", members.order === "asc" ? "ascending" : "descending");
    else button.parentElement.removeAttribute("aria-sort");
  }
  keyed($("members").tBodies[0], page.members, (m) => m.name, () => {
    const tr = row(["h", "", "n", "n", "n", "n", "n", "e"])();
    tr.firstElementChild.append(make("button", {"data-log": ""}));
    tr.firstElementChild.className = "";
    return tr;
  }, (tr, m) => {
    const link = tr.firstElementChild.firstElementChild;
    text(link, m.name);
    attribute(link, "data-log", m.name + ".log");
    attribute(link, "title", `Log of ${m.name}`);
    const rate = m.rate === undefined ? "–" : `${count(m.rate)} ${m.rate_unit || ""}/s`;
    const rest = [m.host, String(m.process), rate,
      m.lag === undefined ? "–" : count(m.lag), m.restarts === undefined ? "–" : count(m.restarts),
      span(m.heartbeat_age_s) + (m.state && m.state !== "alive" ? ` · ${m.state}` : ""), m.last_error || ""];
    for (const [i, value] of rest.entries()) text(tr.children[i + 1], value);
  });
  const none = page.total > 0 ? (page.matching ? "" : "No member matches this role and name.")
    : view.serial ? "All roles of this run are in one process (fleet.mode = \"serial\")."
      : view.state !== "running" ? "The run has ended; it has no members." : "Waiting for the coordinator.";
  text($("members-none"), none);
  shown($("members-none"), none !== "");
}

export function turnPage(by, state = members) {
  const next = state.offset + by * PAGE;
  if (next >= 0 && next < state.matching) state.offset = next;
}

export function updateLogs(list, wanted) {
  const names = list.logs.map((log) => log.name);
  options($("log-name"), names, list.logs.map((log) => `${log.name} (${bytes(log.bytes)})`));
  if (wanted && names.includes(wanted)) $("log-name").value = wanted;
  if (list.total > names.length) {
    text($("log-size"), `the first ${names.length} of ${list.total} logs; use Find to filter`);
  }
}

export function updateLog(log) {
  const pre = $("log");
  const below = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 30;
  if (pre.textContent === log.text && pre.dataset.name === log.name) return;
  const first = pre.dataset.name !== log.name;
  pre.dataset.name = log.name;
  text(pre, log.text || "(empty)");
  if ($("log-follow").checked && (below || first)) pre.scrollTop = pre.scrollHeight;
  text($("log-size"), log.cut ? `the end of ${bytes(log.bytes)}` : bytes(log.bytes));
}

export const runs = {offset: 0, matching: 0};

// The final score of an ended run, else that of the newest evaluation.
function scoreOf(r) {
  const {final_return_mean: mean, final_return_std: std, final_return_min: low, final_return_max: high} = r.result;
  if (mean === undefined) return r.progress.return_mean === undefined ? "–" : score(r.progress.return_mean) + " so far";
  if (r.supervised) return score(mean) + (high === undefined ? "" : ` (${score(low)} to ${score(high)})`);
  return score(mean) + (std === undefined ? "" : ` ± ${score(std)}`);
}

export function updateRuns(all, chosen, colors) {
  const find = $("runs-text").value.toLowerCase();
  const found = all.filter((r) => (r.name + " " + r.env).toLowerCase().includes(find));
  runs.matching = found.length;
  if (runs.offset >= found.length) runs.offset = 0;
  const page = found.slice(runs.offset, runs.offset + PAGE);
  text($("runs-count"), found.length ? `${runs.offset + 1}–${runs.offset + page.length} of ${found.length}` : "none");
  $("runs-back").disabled = runs.offset === 0;
  $("runs-next").disabled = runs.offset + page.length >= found.length;
  const now = Date.now() / 1000;
  keyed($("runs").tBodies[0], page, (r) => r.name, (r) => {
    const tr = row(["", "h", "", "", "", "n", "n", "n", "n", "n"])();
    tr.firstElementChild.append(make("span", {class: "swatch"}),
      make("input", {type: "checkbox", "data-compare": r.name, "aria-label": `Compare ${r.name}`}));
    tr.children[1].append(make("button", {"data-run": r.name}, r.name));
    tr.children[2].append(make("span", {class: "pill"}));
    return tr;
  }, (tr, r) => {
    const [swatch, box] = tr.firstElementChild.children;
    box.checked = chosen.includes(r.name);
    box.disabled = !box.checked && chosen.length >= 8;
    swatch.style.background = box.checked ? colors[chosen.indexOf(r.name)] : "transparent";
    const pill = tr.children[2].firstElementChild;
    text(pill, r.state);
    attribute(pill, "class", "pill " + r.state);
    const ended = r.result.steps !== undefined;
    const values = [r.env, r.algorithm, String(r.seed),
      ended ? count(r.result.steps) : `${count(r.progress.steps ?? 0)} of ${count(r.steps_total)}`,
      span(ended ? r.result.wall_s : r.progress.wall_s), scoreOf(r),
      r.changed_s > 0 ? span(Math.max(0, now - r.changed_s)) + " ago" : "–"];
    for (const [i, value] of values.entries()) text(tr.children[i + 3], value);
  });
}
