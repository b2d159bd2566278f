// Rates, bottleneck and progress lines of a run.
#include "fleet/run/throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "net/control/peer_info.h"

namespace troop {
namespace {

constexpr Duration kWindow = Seconds(5);

double Value(const MetricSnapshot& metrics, const std::string& name) {
  const auto it = metrics.find(name);
  return it == metrics.end() ? 0 : it->second.value;
}

// A number with a unit prefix, at most six columns wide.
std::string Count(double n) {
  if (n >= 1e7) return fmt::format("{:.1f} M", n / 1e6);
  if (n >= 1e5) return fmt::format("{:.0f} k", n / 1e3);
  if (n >= 1e4) return fmt::format("{:.1f} k", n / 1e3);
  return fmt::format("{:.0f}", n);
}

std::string Bar(double share, int width) {
  const int full = int(std::clamp(share, 0.0, 1.0) * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  return bar;
}

// Display width of UTF-8 text without wide characters: one column per code point.
std::size_t Columns(std::string_view text) {
  return std::size_t(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Shortens to `columns`, ending with an ellipsis; never splits a code point.
std::string Cut(std::string_view text, int columns) {
  if (Columns(text) <= std::size_t(columns)) return std::string(text);
  std::size_t bytes = 0;
  for (int left = columns; bytes < text.size(); ++bytes) {
    if ((text[bytes] & 0xC0) != 0x80 && --left < 1) break;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

// Joins items, the most important one first, up to the first that does not fit.
std::string Fit(const std::vector<std::string>& items, int columns) {
  std::string line = Cut(items[0], columns);
  for (std::size_t i = 1; i < items.size(); ++i) {
    if (Columns(line) + 2 + Columns(items[i]) > std::size_t(columns)) break;
    line += "  " + items[i];
  }
  return line;
}

// Name, phase, share of the steps, time; a bar in the remaining columns.
std::string FirstLine(const std::string& name, const RunView& view, const RunThroughput& r,
                      int columns) {
  constexpr int kNameMin = 8, kBarMin = 6, kBarMax = 24;
  const double share = view.steps_total > 0 ? double(view.steps) / double(view.steps_total) : 0;
  const std::string phase = PhaseName(view.phase), percent = fmt::format("{:3.0f} %", 100 * share);
  const int room = columns - int(phase.size() + percent.size()) - 4;
  const std::string head = Cut(name, std::max(kNameMin, room)) + "  " + phase;
  std::vector<std::string> tail{percent};
  if (r.left_s && view.phase == Phase::kRunning) tail.push_back(Span(*r.left_s) + " left");
  tail.push_back(Span(r.elapsed_s) + " elapsed");
  std::vector<std::string> items{head};
  items.insert(items.end(), tail.begin(), tail.end());
  const std::string line = Fit(items, columns);
  const int bar = std::min(kBarMax, columns - int(Columns(line)) - 2);
  if (bar < kBarMin) return line;
  return head + "  " + Bar(share, bar) + line.substr(head.size() + 1);
}

// Age of the learners' last heartbeat minus that of the actors', on average: members report at
// different times. 0 in serial mode, where ages are in virtual time (members have no process).
double LagSkew(const RunView& view) {
  double actors_s = 0, actors = 0, learner_s = 0, learners = 0;
  for (const MemberView& m : view.members) {
    if (m.process == 0) continue;
    if (m.role == Role::kActor) actors_s += m.heartbeat_age_s, ++actors;
    if (m.role == Role::kLearner) learner_s += m.heartbeat_age_s, ++learners;
  }
  return actors > 0 && learners > 0 ? learner_s / learners - actors_s / actors : 0;
}

// Bottleneck text of a stalled role: "replay (replay-0 is blocked: …)".
std::string DescribeConditions(const std::vector<RoleCondition>& conditions) {
  const RoleCondition& first = conditions.front();
  const std::string part =
      first.role == Role::kActor ? "actors" : std::string(RoleName(first.role));
  const std::string more =
      conditions.size() > 1 ? fmt::format("; and {} more", conditions.size() - 1) : "";
  return fmt::format("{} ({} is {}: {}{})", part, PeerName(first.role, first.index),
                     StateName(first.state), first.reason, more);
}

}  // namespace

// A duration in its two largest units.
std::string Span(double s) {
  const auto t = std::int64_t(std::lround(s));
  if (t < 60) return fmt::format("{} s", t);
  if (t < 3600) return fmt::format("{} min {:02} s", t / 60, t % 60);
  return fmt::format("{} h {:02} min", t / 3600, t / 60 % 60);
}

// Extracts the counters and gauges that the rates need.
ThroughputMeter::Point ThroughputMeter::PointOf(Time now, const RunView& view) {
  const MetricSnapshot& m = view.metrics;
  Point point{.time = now,
              .steps = double(view.steps),
              .updates = double(view.updates),
              .tokens = Value(m, "learner/tokens"),
              .episodes = Value(m, "actor/episodes"),
              .return_sum = Value(m, "actor/episode_return_sum"),
              .length_sum = Value(m, "actor/episode_len_sum"),
              .insert_blocked_s = Value(m, "replay/insert_blocked_s"),
              .sample_blocked_s = Value(m, "replay/sample_blocked_s"),
              .ready_batches = Value(m, "learner/ready_batches"),
              .actors_blocked = Value(m, "actor/insert_blocked"),
              .lag = {}};
  if (m.contains("learner/version") && m.contains("actor/weights_version")) {
    point.lag = Value(m, "learner/version") - Value(m, "actor/weights_version");
  }
  point.lag_skew_s = LagSkew(view);
  return point;
}

// A learner that returns to a checkpoint lowers `updates`; only increases count as updates made.
double ThroughputMeter::CountMade(const RunView& view) {
  made_ += std::max(0.0, double(view.updates) - updates_);
  updates_ = double(view.updates);
  return made_;
}

// Keeps the points of the window, and at least two.
RunThroughput ThroughputMeter::Update(Time now, const RunView& view) {
  if (!start_) start_ = now;
  points_.push_back(PointOf(now, view));
  points_.back().made = CountMade(view);
  while (points_.size() > 2 && now - points_[1].time >= kWindow) points_.pop_front();
  const Point& a = points_.front();
  const Point& b = points_.back();
  const double seconds = std::max(ToSeconds(b.time - a.time), 1e-9);
  RunThroughput r{.elapsed_s = ToSeconds(now - *start_)};
  if (points_.size() > 1) {
    r.steps_per_s = (b.steps - a.steps) / seconds;
    r.updates_per_s = (b.made - a.made) / seconds;
    r.tokens_per_s = (b.tokens - a.tokens) / seconds;
  }
  const double inserts = Value(view.metrics, "replay/inserts");
  if (inserts > 0) r.samples_per_insert = Value(view.metrics, "replay/samples") / inserts;
  if (view.metrics.contains("replay/fill")) replay_fill_ = Value(view.metrics, "replay/fill");
  r.replay_fill = replay_fill_;
  r.weights_lag = WeightsLag(r.updates_per_s);
  if (b.episodes > a.episodes) {
    episode_return_mean_ = (b.return_sum - a.return_sum) / (b.episodes - a.episodes);
    if (view.metrics.contains("actor/episode_len_sum")) {
      episode_len_mean_ = (b.length_sum - a.length_sum) / (b.episodes - a.episodes);
    }
  }
  r.episode_return_mean = episode_return_mean_;
  r.episode_len_mean = episode_len_mean_;
  if (!view.evaluations.empty()) r.evaluation_return = view.evaluations.back().return_mean;
  if (r.steps_per_s > 0) r.left_s = double(view.steps_total - view.steps) / r.steps_per_s;
  r.bottleneck = Bottleneck(view);
  return r;
}

// Mean lag over the window. Learner and actors report versions at different times, so the older
// report is extrapolated with the update rate.
std::optional<double> ThroughputMeter::WeightsLag(double updates_per_s) const {
  double sum = 0, count = 0;
  for (const Point& p : points_) {
    if (!p.lag) continue;
    sum += *p.lag + p.lag_skew_s * updates_per_s;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return std::max(0.0, sum / count);
}

// The bottleneck is the component that others wait for:
// 1. Conditions and phases decide first.
// 2. The rate limiter's blocked times show which side it holds back.
// 3. Otherwise the occupancy of the learner's batch queue over the window decides; a single sample
//    would not, since a healthy queue is empty now and then.
std::string ThroughputMeter::Bottleneck(const RunView& view) {
  if (view.phase == Phase::kDone) return "none";
  if (!view.conditions.empty()) return DescribeConditions(view.conditions);
  if (view.phase == Phase::kDraining) return "learner (experience is complete)";
  if (view.phase != Phase::kRunning) return "evaluator";
  if (view.supervised || view.offline) {
    return view.updates > 0 ? "learner" : std::string(kNoneYet) + " (learners are loading data)";
  }
  const Point& a = points_.front();
  const Point& b = points_.back();
  const double seconds = ToSeconds(b.time - a.time);
  if (seconds <= 0 || b.updates <= 0) return std::string(kNoneYet) + " (replay is filling)";
  double looks = 0, empty = 0, blocked = 0;
  for (const Point& p : points_) {
    if (p.updates <= 0) continue;
    ++looks;
    empty += p.ready_batches < 1 ? 1 : 0;
    blocked += p.actors_blocked;
  }
  // Hysteresis around one half.
  learner_starves_ = empty / looks > (learner_starves_ ? 0.4 : 0.6);
  const double inserts_blocked = (b.insert_blocked_s - a.insert_blocked_s) / seconds;
  const double samples_blocked = (b.sample_blocked_s - a.sample_blocked_s) / seconds;
  if (inserts_blocked > 0.2 && inserts_blocked >= samples_blocked) {
    return learner_starves_ ? "replay (actors and learner both wait)"
                            : "learner (actors wait for the replay ratio)";
  }
  if (samples_blocked > 0.2) return "actors (the learner waits for the replay ratio)";
  if (!learner_starves_) return "learner (batches wait for it)";
  return blocked / looks > 0.5 ? "replay (actors and learner both wait)"
                               : "replay (the learner waits for batches)";
}

namespace {

// Formats a value; an unknown one is a dash, never a zero.
std::string Known(const std::optional<double>& value, int digits, int width = 0) {
  const std::string text = value ? fmt::format("{:.{}f}", *value, digits) : "–";
  return fmt::format("{:>{}}", text, width);
}

// Progress items of a supervised or offline run, the most important first.
std::vector<std::string> LearningItems(const RunView& view, const RunThroughput& r) {
  std::vector<std::string> items;
  if (view.metrics.contains("learner/loss")) {  // absent once the learners have left
    items.push_back(fmt::format("loss {:.4f}", Value(view.metrics, "learner/loss")));
  }
  // Absent where values are learned.
  if (view.metrics.contains("learner/accuracy")) {
    items.push_back(
        fmt::format("accuracy {:.1f} %", 100 * Value(view.metrics, "learner/accuracy")));
  }
  if (view.offline) {
    items.push_back("evaluated " + Known(r.evaluation_return, 1));
    return items;
  }
  if (r.evaluation_return) items.push_back(fmt::format("evaluated {:.2f} %", *r.evaluation_return));
  // Images have no tokens.
  const bool images =
      Value(view.metrics, "learner/sequences") > 0 && Value(view.metrics, "learner/tokens") == 0;
  if (!images) items.push_back(fmt::format("{} tokens/s", Count(r.tokens_per_s)));
  return items;
}

// The word for the steps of a run.
const char* ProgressWord(const RunView& view) {
  return view.supervised ? "examples" : view.offline ? "samples" : "steps";
}

// In a supervised or offline run the bottleneck is always the learner after the first update,
// unless a role failed, so it is hidden then.
bool ShowsBottleneck(const RunView& view, const RunThroughput& r) {
  return !view.conditions.empty() || r.bottleneck.starts_with(kNoneYet);
}

}  // namespace

// Lines: name and phase, steps and updates, replay, returns, bottleneck, notice. A supervised
// or offline run has loss and accuracy instead of replay and returns.
std::string ProgressBlock(const std::string& name, const RunView& view, const RunThroughput& r,
                          int columns, const std::string& notice) {
  std::string out = FirstLine(name, view, r, columns) + "\n";
  out += Fit({fmt::format("  {:<7}{:>6} of {:<6} {:>6}/s", ProgressWord(view),
                          Count(double(view.steps)), Count(double(view.steps_total)),
                          Count(r.steps_per_s)),
              fmt::format("updates {:>6}", Count(double(view.updates))),
              fmt::format("{:>6}/s", Count(r.updates_per_s))},
             columns) +
         "\n";
  if (view.supervised || view.offline) {
    std::vector<std::string> items = LearningItems(view, r);
    items[0] = "  " + items[0];
    out += Fit(items, columns) + "\n";
    if (ShowsBottleneck(view, r)) out += Cut("  bottleneck: " + r.bottleneck, columns) + "\n";
    if (!notice.empty()) out += Cut(notice, columns) + "\n";
    return out;
  }
  std::vector<std::string> replay{fmt::format("  replay {:>3.0f} % full", 100 * r.replay_fill),
                                  Known(r.samples_per_insert, 2) + " samples/insert"};
  if (r.weights_lag) replay.push_back(fmt::format("lag {} updates", Count(*r.weights_lag)));
  out += Fit(replay, columns) + "\n";
  std::vector<std::string> returns{
      fmt::format("  return {} training", Known(r.episode_return_mean, 1, 8))};
  if (r.evaluation_return) {
    returns.push_back(fmt::format("{:>8.1f} evaluated", *r.evaluation_return));
  }
  out += Fit(returns, columns) + "\n";
  out += Cut("  bottleneck: " + r.bottleneck, columns) + "\n";
  if (!notice.empty()) out += Cut(notice, columns) + "\n";
  return out;
}

// For output without a terminal: all key figures in a fixed order.
std::string ProgressLine(const RunView& view, const RunThroughput& r) {
  if (view.supervised || view.offline) {
    std::string line =
        fmt::format("{} s  {}  {} {}/{} ({}/s)  updates {} ({}/s)", std::lround(r.elapsed_s),
                    PhaseName(view.phase), ProgressWord(view), view.steps, view.steps_total,
                    Count(r.steps_per_s), Count(double(view.updates)), Count(r.updates_per_s));
    for (const std::string& item : LearningItems(view, r)) line += "  " + item;
    if (r.left_s && view.phase == Phase::kRunning) line += "  left " + Span(*r.left_s);
    if (ShowsBottleneck(view, r)) line += "  bottleneck: " + r.bottleneck;
    return line;
  }
  std::string out = fmt::format(
      "{} s  {}  steps {}/{} ({}/s)  updates {} ({}/s)  samples/insert {}  replay {:.0f} %",
      std::lround(r.elapsed_s), PhaseName(view.phase), view.steps, view.steps_total,
      Count(r.steps_per_s), Count(double(view.updates)), Count(r.updates_per_s),
      Known(r.samples_per_insert, 2), 100 * r.replay_fill);
  if (r.weights_lag) out += fmt::format("  lag {:.0f}", *r.weights_lag);
  out += "  return " + Known(r.episode_return_mean, 1);
  if (r.evaluation_return) out += fmt::format("  evaluated {:.1f}", *r.evaluation_return);
  if (r.left_s && view.phase == Phase::kRunning) out += fmt::format("  left {}", Span(*r.left_s));
  return out + "  bottleneck: " + r.bottleneck;
}

}  // namespace troop
