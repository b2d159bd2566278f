#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/time.h"
#include "fleet/run/run_state.h"

namespace troop {

// Prefix of RunThroughput::bottleneck before the first update.
constexpr std::string_view kNoneYet = "none yet";

// Human-readable key figures of a run. Rates are Δcounter / Δtime over the last 5 seconds.
struct RunThroughput {
  double elapsed_s = 0;
  double steps_per_s = 0, updates_per_s = 0;
  std::optional<double> samples_per_insert;  // nullopt: nothing was inserted yet
  double replay_fill = 0;                    // share of the capacity; > 1 with a soft capacity
  std::optional<double> weights_lag;         // updates from the actors' weights to the learner's
  // Mean over the actors' recent episodes (with exploration); nullopt: none has ended yet.
  std::optional<double> episode_return_mean;
  std::optional<double> episode_len_mean;  // agent steps of the same episodes
  std::optional<double> evaluation_return;
  double tokens_per_s = 0;       // supervised
  std::optional<double> left_s;  // seconds until the step budget is spent
  std::string bottleneck;  // "actors …", "learner …", "replay …", "evaluator", "none …"; a blocked
                           // or restarting role takes precedence
};

// Derives rates from successive views of a run.
class ThroughputMeter {
 public:
  // Adds a view; rates cover the last 5 seconds of views.
  RunThroughput Update(Time now, const RunView& view);

 private:
  struct Point {
    Time time;
    double steps, updates, made, tokens, episodes, return_sum, length_sum, insert_blocked_s,
        sample_blocked_s;
    double ready_batches, actors_blocked;  // gauges at that time
    std::optional<double> lag;
    double lag_skew_s = 0;  // age of the learner's version minus that of the actors'
  };
  static Point PointOf(Time now, const RunView& view);
  double CountMade(const RunView& view);
  std::optional<double> WeightsLag(double updates_per_s) const;
  std::string Bottleneck(const RunView& view);

  std::optional<Time> start_;
  std::deque<Point> points_;
  // These keep their last values when the reporting roles have left.
  std::optional<double> episode_return_mean_, episode_len_mean_;
  double replay_fill_ = 0;
  // Last RunView::updates, and the number of updates made, which counts repeated ones.
  double updates_ = 0, made_ = 0;
  bool learner_starves_ = false;  // its batch queue is empty most of the time
};

// The live progress block: lines of at most `columns` characters, most important items first;
// `notice` is the last line.
std::string ProgressBlock(const std::string& name, const RunView& view, const RunThroughput& rates,
                          int columns, const std::string& notice = "");
// The progress as one line for plain output.
std::string ProgressLine(const RunView& view, const RunThroughput& rates);
// Formats a duration: "12 s", "3 min 05 s", "15 h 33 min".
std::string Span(double seconds);

}  // namespace troop
