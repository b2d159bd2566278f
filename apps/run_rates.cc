#include "apps/run_rates.h"

#include <algorithm>
#include <cmath>

namespace troop {
namespace {

constexpr Duration kWindow = Seconds(5);

double Value(const MetricSnapshot& metrics, const std::string& name) {
  const auto it = metrics.find(name);
  return it == metrics.end() ? 0 : it->second.value;
}

std::string Count(double n) {
  if (n >= 1e7) return fmt::format("{:.1f} M", n / 1e6);
  if (n >= 1e5) return fmt::format("{:.0f} k", n / 1e3);
  if (n >= 1e4) return fmt::format("{:.1f} k", n / 1e3);
  return fmt::format("{:.0f}", n);
}

std::string Span(double s) {
  const auto t = std::int64_t(std::lround(s));
  if (t < 60) return fmt::format("{} s", t);
  if (t < 3600) return fmt::format("{} min {:02} s", t / 60, t % 60);
  return fmt::format("{} h {:02} min", t / 3600, t / 60 % 60);
}

std::string Bar(double share, int width) {
  const int full = int(std::clamp(share, 0.0, 1.0) * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  return bar;
}

}  // namespace

RunRates RateMeter::Update(Time now, const RunView& view) {
  if (!start_) start_ = now;
  const MetricSnapshot& m = view.metrics;
  points_.push_back({.time = now,
                     .steps = double(view.steps),
                     .updates = Value(m, "learner/updates"),
                     .episodes = Value(m, "actor/episodes"),
                     .return_sum = Value(m, "actor/return_sum"),
                     .insert_blocked_s = Value(m, "replay/insert_blocked_s"),
                     .sample_blocked_s = Value(m, "replay/sample_blocked_s")});
  while (points_.size() > 2 && now - points_[1].time >= kWindow) points_.pop_front();
  const Point& a = points_.front();
  const Point& b = points_.back();
  const double seconds = std::max(ToSeconds(b.time - a.time), 1e-9);
  RunRates r{.elapsed_s = ToSeconds(now - *start_)};
  if (points_.size() > 1) {
    r.steps_per_s = (b.steps - a.steps) / seconds;
    r.updates_per_s = (b.updates - a.updates) / seconds;
  }
  const double inserts = Value(m, "replay/inserts");
  r.samples_per_insert = inserts > 0 ? Value(m, "replay/samples") / inserts : 0;
  r.replay_fill = Value(m, "replay/fill");
  r.policy_lag = Value(m, "learner/policy_lag");
  if (b.episodes > a.episodes)
    train_return_ = (b.return_sum - a.return_sum) / (b.episodes - a.episodes);
  r.train_return = train_return_;
  if (!view.evaluations.empty()) r.evaluation_return = view.evaluations.back().return_mean;
  if (r.steps_per_s > 0) r.left_s = double(view.steps_total - view.steps) / r.steps_per_s;
  r.bottleneck = Bottleneck(view, a, b);
  return r;
}

// Who waits tells who is too slow. The limiter's clocks say which side it holds back; without them
// the queues do.
std::string RateMeter::Bottleneck(const RunView& view, const Point& a, const Point& b) const {
  if (view.phase == Phase::kDraining) return "learner (experience is complete)";
  if (view.phase != Phase::kRunning) return "evaluator";
  const double seconds = ToSeconds(b.time - a.time);
  if (seconds <= 0 || b.updates <= 0) return "none yet (the replay fills)";
  const double inserts_blocked = (b.insert_blocked_s - a.insert_blocked_s) / seconds;
  const double samples_blocked = (b.sample_blocked_s - a.sample_blocked_s) / seconds;
  const double ready = Value(view.metrics, "learner/ready_batches");
  if (inserts_blocked > 0.2 && inserts_blocked >= samples_blocked) {
    return ready > 0 ? "learner (actors wait for the replay ratio)"
                     : "replay (actors and learner both wait)";
  }
  if (samples_blocked > 0.2) return "actors (the learner waits for the replay ratio)";
  if (ready < 1) {
    return Value(view.metrics, "actor/blocked") > 0.5 ? "replay (actors and learner both wait)"
                                                      : "replay (the learner waits for batches)";
  }
  return "learner (batches wait for it)";
}

std::string ProgressBlock(const std::string& name, const RunView& view, const RunRates& r) {
  const double share = view.steps_total > 0 ? double(view.steps) / double(view.steps_total) : 0;
  std::string out = fmt::format("{}  {}  {} {:3.0f} %  {} elapsed", name, PhaseName(view.phase),
                                Bar(share, 24), 100 * share, Span(r.elapsed_s));
  if (r.left_s && view.phase == Phase::kRunning) out += fmt::format(", {} left", Span(*r.left_s));
  const double updates = Value(view.metrics, "learner/updates");
  out += fmt::format("\n  steps   {:>8} of {:<8} {:>8}/s    updates {:>8} {:>8}/s",
                     Count(double(view.steps)), Count(double(view.steps_total)),
                     Count(r.steps_per_s), Count(updates), Count(r.updates_per_s));
  out +=
      fmt::format("\n  replay  {:>7.0f} % full   {:>6.2f} samples per insert   lag {:.0f} updates",
                  100 * r.replay_fill, r.samples_per_insert, r.policy_lag);
  out += fmt::format("\n  return  {:>8.1f} training", r.train_return);
  if (r.evaluation_return) out += fmt::format("   {:>8.1f} evaluated", *r.evaluation_return);
  out += fmt::format("\n  bottleneck: {}\n", r.bottleneck);
  return out;
}

std::string ProgressLine(const RunView& view, const RunRates& r) {
  std::string out = fmt::format(
      "{} s  {}  steps {}/{} ({}/s)  updates {} ({}/s)  samples/insert {:.2f}  replay {:.0f} %  "
      "lag {:.0f}  "
      "return {:.1f}",
      std::lround(r.elapsed_s), PhaseName(view.phase), view.steps, view.steps_total,
      Count(r.steps_per_s), Count(Value(view.metrics, "learner/updates")), Count(r.updates_per_s),
      r.samples_per_insert, 100 * r.replay_fill, r.policy_lag, r.train_return);
  if (r.evaluation_return) out += fmt::format("  evaluated {:.1f}", *r.evaluation_return);
  if (r.left_s && view.phase == Phase::kRunning) out += fmt::format("  left {}", Span(*r.left_s));
  return out + "  bottleneck: " + r.bottleneck;
}

}  // namespace troop
