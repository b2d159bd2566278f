// Implements the results of a run that outlive the members that reported them.
#include "fleet/coordinator/run_results.h"

#include <algorithm>
#include <utility>

#include "core/tensor/trajectory.h"

namespace troop {

// Gauges describe a moment of a live process, so only values that grow are kept.
MetricSnapshot CountersOf(const MetricSnapshot& metrics) {
  MetricSnapshot counters;
  for (const auto& [name, value] : metrics) {
    const bool grows = value.kind == MetricKind::kCounter || value.kind == MetricKind::kHistogram;
    if (grows) counters.emplace(name, value);
  }
  return counters;
}

RunResults::RunResults(std::string checkpoint, std::uint64_t updates)
    : checkpoint_(std::move(checkpoint)), checkpoint_updates_(updates), updates_(updates) {
  // The counter of a resumed run continues at the update of its checkpoint.
  retired_counters_["learner/updates"].value = double(updates);
}

void RunResults::RecordCheckpoint(const HeartbeatRequest& beat) {
  if (beat.checkpoint.empty()) return;
  checkpoint_ = beat.checkpoint;
  checkpoint_updates_ = beat.checkpoint_updates;
  checkpoint_final_ = beat.checkpoint_final;
}

// Heartbeats repeat an evaluation until they are acknowledged, so duplicates are normal.
bool RunResults::AddEvaluation(const EvaluationReport& evaluation) {
  if (std::ranges::find(evaluations_, evaluation) != evaluations_.end()) return false;
  evaluations_.push_back(evaluation);
  // The final evaluation is on other examples or episodes.
  if (evaluation.final) return true;
  if (!best_ || evaluation.return_mean > *best_) {
    best_ = evaluation.return_mean;
    since_best_ = 0;
  } else {
    ++since_best_;
  }
  return true;
}

void RunResults::RecordUpdates(double newest) {
  constexpr double kUpdatesMax = 1e15;  // below 2^53, up to which doubles count exactly
  if (newest >= 0 && newest < kUpdatesMax) updates_ = std::uint64_t(newest);
}

// Merged at once, so that the memory does not grow with the number of restarts.
void RunResults::RetireMetrics(const MetricSnapshot& metrics) {
  retired_counters_ = MergeMetrics({retired_counters_, CountersOf(metrics)});
}

const EvaluationReport* RunResults::last_evaluation() const {
  return evaluations_.empty() ? nullptr : &evaluations_.back();
}

// The final weights of parameter shards include pushes that no learner has pulled.
void RunResults::Fill(RunView* view) const {
  view->updates = updates_;
  view->evaluations = evaluations_;
  view->checkpoint = checkpoint_;
  view->checkpoint_updates = checkpoint_updates_;
  view->checkpoint_final = checkpoint_final_;
  if (!evaluations_.empty() && evaluations_.back().final) {
    view->updates = std::max(view->updates, UpdatesOf(evaluations_.back().weights_version));
  }
  if (checkpoint_final_) view->updates = std::max(view->updates, checkpoint_updates_);
}

}  // namespace troop
