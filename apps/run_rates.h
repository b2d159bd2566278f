#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "apps/run_state.h"
#include "core/time.h"

namespace troop {

// The beginning of RunRates::bottleneck before the first update.
constexpr std::string_view kNoneYet = "none yet";

// What a person wants to know of a run right now. Rates are Δcounter / Δtime over the last seconds.
struct RunRates {
  double elapsed_s = 0;
  double steps_per_s = 0, updates_per_s = 0;
  std::optional<double> samples_per_insert;  // nullopt: nothing was inserted yet
  double replay_fill = 0;                    // of the capacity, [0, 1] (above 1: soft capacity)
  std::optional<double> weights_lag;         // updates from the actors' weights to the learner's
  // Mean over the actors' episodes (with exploration) of late; nullopt: none has ended yet.
  std::optional<double> train_return;
  std::optional<double> train_length;  // agent steps of the same episodes
  std::optional<double> evaluation_return;
  double tokens_per_s = 0;       // supervised
  std::optional<double> left_s;  // till the step budget is spent
  std::string bottleneck;  // "actors …", "learner …", "replay …", "evaluator", "none …"; a blocked
                           // or restarting role comes before all
};

class RateMeter {
 public:
  // Adds a point; rates look back over about `window`.
  RunRates Update(Time now, const RunView& view);

 private:
  struct Point {
    Time time;
    double steps, updates, made, tokens, episodes, return_sum, length_sum, insert_blocked_s,
        sample_blocked_s;
    double ready_batches, actors_blocked;  // levels at that moment
    std::optional<double> lag;
    double lag_skew_s = 0;  // how much earlier than the actors' the learner's version was told
  };
  static Point PointOf(Time now, const RunView& view);
  double CountMade(const RunView& view);
  std::optional<double> WeightsLag(double updates_per_s) const;
  std::string Bottleneck(const RunView& view);

  std::optional<Time> start_;
  std::deque<Point> points_;
  // They stay as they are once the roles that report them have left.
  std::optional<double> train_return_, train_length_;
  double replay_fill_ = 0;
  // Updates of the run's weights, each as often as it was made while this meter looked.
  double updates_ = 0, made_ = 0;
  bool learner_starves_ = false;  // its queue of batches is empty most of the time
};

// The live block: several lines of at most `columns` each, the most important items first; `notice`
// is its last line. And the plain line.
std::string ProgressBlock(const std::string& name, const RunView& view, const RunRates& rates,
                          int columns, const std::string& notice = "");
std::string ProgressLine(const RunView& view, const RunRates& rates);
// A duration: "12 s", "3 min 05 s", "15 h 33 min".
std::string Span(double seconds);

}  // namespace troop
