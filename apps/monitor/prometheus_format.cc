// Prometheus text of a run: run gauges, role series, and the fleet's metrics by family.
#include "apps/monitor/prometheus_format.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "apps/monitor/prometheus_writer.h"

namespace troop {
namespace {

// Series of the run as a whole.
void WriteRun(const PrometheusState& s, PrometheusWriter* out) {
  const RunView& v = s.view;
  out->Begin("troop_run_info", "gauge", "Name, problem and version of the run; always 1.");
  // Constant 1, with the text in labels: the usual form of an info metric.
  out->Sample({{"name", s.name}, {"problem", s.problem}, {"version", s.version}}, 1);
  out->Begin("troop_run_phase", "gauge", "1 for the current phase, else 0.");
  for (const Phase phase : {Phase::kRunning, Phase::kDraining, Phase::kEvaluating, Phase::kDone}) {
    out->Sample({{"phase", PhaseName(phase)}}, v.phase == phase ? 1 : 0);
  }
  const char* const steps = v.supervised ? "Reviews trained on."
                            : v.offline  ? "Samples trained on."
                                         : "Agent steps done.";
  out->Counter("troop_run_steps_total", steps, double(v.steps));
  out->Gauge("troop_run_steps_budget", "Steps after which the run ends.", double(v.steps_total));
  out->Gauge("troop_run_elapsed_seconds", "Time since the launcher started.", s.rates.elapsed_s);
  out->Gauge("troop_run_steps_per_second", "Step rate over the last seconds.", s.rates.steps_per_s);
  out->Gauge("troop_run_updates_per_second", "Update rate over the last seconds.",
             s.rates.updates_per_s);
  // Unknown values have no sample; 0 would be read as a measured value.
  if (s.rates.left_s) {
    out->Gauge("troop_run_eta_seconds", "Estimated time until the step budget is spent.",
               *s.rates.left_s);
  }
  if (s.rates.weights_lag) {
    out->Gauge("troop_run_weights_lag_updates",
               "Updates between the actors' and learner's weights.", *s.rates.weights_lag);
  }
  if (s.rates.episode_return_mean) {
    out->Gauge("troop_run_episode_return_mean", "Mean return of the actors' recent episodes.",
               *s.rates.episode_return_mean);
  }
  if (!v.evaluations.empty()) {
    out->Gauge("troop_run_evaluation_return", "Mean return of the newest evaluation.",
               v.evaluations.back().return_mean);
  }
  out->Gauge("troop_run_checkpoint_updates", "Updates in the newest complete checkpoint.",
             double(v.checkpoint_updates));
  // The first word of the bottleneck text names the part (RunThroughput::bottleneck).
  out->Begin("troop_run_bottleneck", "gauge", "1 for the part that limits the others, else 0.");
  const std::string part = s.rates.bottleneck.substr(0, s.rates.bottleneck.find(' '));
  for (const char* name :
       {"actors", "replay", "learner", "evaluator", "paramserver", "inference", "none"}) {
    out->Sample({{"part", name}}, part == name ? 1 : 0);
  }
  if (v.shards > 0) {
    out->Gauge("troop_run_parameter_shards", "Active parameter shards.", double(v.shards));
  }
}

// Roles by kind and state, and restarts by kind.
void WriteRoleCounts(const std::vector<RoleView>& roles, PrometheusWriter* out) {
  // All states, in the order of the output.
  using State = RoleView::State;
  constexpr State kStates[] = {State::kAlive,   State::kSilent,    State::kDead,
                               State::kMissing, State::kFinished,  State::kAwaited,
                               State::kBlocked, State::kRestarting};
  // Ordered maps, so that two scrapes list the series in the same order.
  std::map<std::string, std::map<State, int>> counts;
  std::map<std::string, std::int64_t> restarts;
  for (const RoleView& r : roles) {
    const std::string name(RoleName(r.role));
    ++counts[name][r.state];
    restarts[name] += r.restarts;
  }
  out->Begin("troop_roles", "gauge", "Roles by state.");
  // Every state has a sample, so that a series does not vanish when its count drops to 0.
  for (auto& [name, by_state] : counts) {
    for (const State state : kStates) {
      out->Sample({{"role", name}, {"state", StateName(state)}}, by_state[state]);
    }
  }
  out->Begin("troop_role_restarts_total", "counter", "Restarts of roles.");
  for (const auto& [name, n] : restarts) out->Sample({{"role", name}}, double(n));
}

// Series per role, for the first kRoleSeriesMax roles.
void WriteRoles(const std::vector<RoleView>& roles, PrometheusWriter* out) {
  // A large fleet would make each scrape large, so later roles are only counted.
  const std::span<const RoleView> shown(roles.data(), std::min(roles.size(), kRoleSeriesMax));
  const auto labels = [](const RoleView& r) {
    return PrometheusLabels{{"role", std::string(RoleName(r.role))},
                            {"index", std::to_string(r.index)}};
  };
  out->Begin("troop_role_up", "gauge", "1 if the role sends heartbeats, else 0.");
  // A blocked role still sends heartbeats.
  for (const RoleView& r : shown) {
    const bool up = r.state == RoleView::State::kAlive || r.state == RoleView::State::kBlocked;
    out->Sample(labels(r), up ? 1 : 0);
  }
  out->Begin("troop_role_heartbeat_age_seconds", "gauge", "Time since a role's last heartbeat.");
  for (const RoleView& r : shown) {
    // Incarnation 0: the role has never joined.
    if (r.incarnation != 0) out->Sample(labels(r), r.heartbeat_age_s);
  }
  out->Begin("troop_role_incarnation", "gauge", "Grows with each start of a role.");
  for (const RoleView& r : shown) {
    if (r.incarnation != 0) out->Sample(labels(r), double(r.incarnation));
  }
  out->Begin("troop_role_work_total", "counter",
             "Work of this incarnation: steps of an actor, items of a replay, updates of a learner "
             "or parameter server, episodes of an evaluator.");
  for (const RoleView& r : shown) {
    if (r.incarnation != 0) out->Sample(labels(r), r.work);
  }
  out->Begin("troop_role_weights_lag_updates", "gauge", "Age of an actor's weights in updates.");
  for (const RoleView& r : shown) {
    if (r.lag_updates) out->Sample(labels(r), *r.lag_updates);
  }
  out->Gauge("troop_roles_not_exported",
             "Roles without their own series, because there are too many.",
             double(roles.size() - shown.size()));
}

// The Prometheus family of a metric, and the replay table for the label.
struct Family {
  std::string name, table, type;
  bool operator<(const Family& other) const { return name < other.name; }
};

// Applies the Prometheus naming rules: a table becomes a label, "_s" becomes "_seconds", counters
// end in "_total".
Family FamilyOf(const std::string& metric, MetricKind kind) {
  Family family;
  std::string path = metric;
  // "replay/<table>/items": a table other than the first.
  const std::size_t first = path.find('/'), last = path.rfind('/');
  if (first != last && path.starts_with("replay/")) {
    family.table = path.substr(first + 1, last - first - 1);
    path.erase(first, last - first);
  }
  // Names may only have letters, digits and underscores.
  for (char& c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  if (path.ends_with("_s")) path += "econds";
  family.name = "troop_" + path;
  const bool falls =
      metric == "actor/episode_return_sum";  // may decrease, so it can't be a counter
  if (falls) family.name = "troop_actor_returns";
  const bool counts = kind == MetricKind::kCounter && !falls;
  if (counts) family.name += "_total";
  family.type = counts ? "counter" : kind == MetricKind::kHistogram ? "histogram" : "gauge";
  return family;
}

// HELP texts of the known metrics, by their names without a table.
std::string_view HelpOf(std::string_view metric) {
  constexpr std::pair<std::string_view, std::string_view> kHelp[] = {
      {"actor/steps", "Agent steps of all actors, acknowledged or not."},
      {"actor/episodes", "Episodes that ended in actors."},
      {"actor/episode_return_sum", "Sum of the returns of the actors' episodes."},
      {"actor/insert_blocked", "Share of the actors that wait for the replay."},
      {"actor/inflight_inserts", "Pushes to the replay that are not acknowledged yet."},
      {"actor/env_faults", "Faults of environments."},
      {"actor/nonfinite_values", "Observations, rewards and values that were not finite."},
      {"actor/suspect_values", "Steps with a value of 1e9 or more."},
      {"actor/weights_version", "Updates in the actors' weights, on average."},
      {"replay/items", "Items in the replay."},
      {"replay/bytes", "Bytes of the items in the replay."},
      {"replay/fill", "Items divided by the capacity, over all shards."},
      {"replay/inserts", "Items inserted."},
      {"replay/samples", "Items sampled."},
      {"replay/evicted", "Items evicted."},
      {"replay/insert_blocked_s", "Time in which the rate limiter blocked inserts."},
      {"replay/sample_blocked_s", "Time in which the rate limiter blocked samples."},
      {"replay/samples_per_insert", "Samples divided by inserts, over all shards."},
      {"replay/age", "Inserts between the insert of an item and its sampling."},
      {"replay/policy_age", "Updates between the weights that acted in an item and its sampling."},
      {"learner/updates", "Updates made, including those repeated after a failure."},
      {"learner/version", "Updates in the learner's weights."},
      {"learner/busy_s", "Time within updates; the rest is spent waiting for batches."},
      {"learner/loss", "Mean loss over the last batch of all learners."},
      {"learner/accuracy", "Accuracy on the last batch of all learners."},
      {"learner/grad_norm",
       "Gradient norm before clipping; with parameter shards the mean over learners."},
      {"learner/ready_batches", "Batches ready for the learners."},
      {"learner/sample_age", "Updates since the weights that acted in the last batch."},
      {"learner/tokens", "Tokens trained on."},
      {"learner/skipped_updates", "Updates skipped because of non-finite values."},
      {"learner/quarantined_items", "Items excluded from sampling because of non-finite values."},
      {"learner/rollbacks", "Rollbacks to a checkpoint."},
      {"learner/checkpoint_failures", "Checkpoints that were not written."},
      {"paramserver/staleness", "Updates applied between the pull and the push of a gradient."},
      {"paramserver/version", "Updates in the newest weights."},
      {"evaluator/episodes", "Episodes evaluated."},
  };
  for (const auto& [name, help] : kHelp) {
    if (name == metric) return help;
  }
  return {};
}

// The fleet's metrics. Tables of one metric share a family, whose samples must be adjacent.
void WriteMetrics(const MetricSnapshot& metrics, PrometheusWriter* out) {
  // Step 1: group metrics by family; step 2: write each family with one sample per table.
  std::map<Family, std::vector<std::pair<std::string, const MetricValue*>>> families;
  std::map<std::string, std::string> help;
  for (const auto& [name, value] : metrics) {
    const Family family = FamilyOf(name, value.kind);
    std::string plain = name;
    if (!family.table.empty()) plain.erase(plain.find('/'), family.table.size() + 1);
    families[family].emplace_back(family.table, &value);
    const std::string_view known = HelpOf(plain);
    help[family.name] = known.empty() ? "The run's metric " + plain + "." : std::string(known);
  }
  for (const auto& [family, values] : families) {
    out->Begin(family.name, family.type, help[family.name]);
    for (const auto& [table, value] : values) {
      const PrometheusLabels labels =
          table.empty() ? PrometheusLabels{} : PrometheusLabels{{"table", table}};
      if (family.type != "histogram") {
        out->Sample(labels, value->value);
      } else if (value->kind == MetricKind::kHistogram) {
        out->HistogramSamples(labels, value->histogram);
      }
    }
  }
}

}  // namespace

std::string PrometheusText(const PrometheusState& state) {
  PrometheusWriter text;
  WriteRun(state, &text);
  WriteRoleCounts(state.roles, &text);
  WriteRoles(state.roles, &text);
  WriteMetrics(state.view.metrics, &text);
  return text.Take();
}

}  // namespace troop
