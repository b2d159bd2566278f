#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics/metrics.h"
#include "fleet/run/run_state.h"
#include "net/control/evaluation_report.h"
#include "net/control/heartbeat_request.h"

namespace troop {

// The results of a run that outlive the members which reported them: the newest checkpoint, the
// evaluations, the number of updates, and the counters of replaced incarnations.
//
// Invariant: each evaluation counts once, and counters never decrease when a member is replaced.
// Owner: the coordinator.
class RunResults {
 public:
  // The state at the checkpoint that the run resumes from; empty fields: a fresh run.
  RunResults(std::string checkpoint, std::uint64_t updates);

  // Takes over the checkpoint of a learner's heartbeat, if it has one.
  void RecordCheckpoint(const HeartbeatRequest& beat);
  // Adds an evaluation. False if it is present already: a heartbeat whose reply was lost is sent
  // again with the same evaluations. O(evaluations).
  bool AddEvaluation(const EvaluationReport& evaluation);
  // Takes the newest version of the learners' weights; other values leave the number as it is.
  void RecordUpdates(double newest);
  // Keeps the counters of a replaced incarnation in the sums.
  void RetireMetrics(const MetricSnapshot& metrics);

  const std::string& checkpoint() const { return checkpoint_; }
  const MetricSnapshot& retired_counters() const { return retired_counters_; }
  // The newest evaluation; nullptr before the first.
  const EvaluationReport* last_evaluation() const;
  // Number of evaluations after the best one so far, without the final one; 0 before the first.
  // O(1).
  std::int64_t evaluations_since_best() const { return since_best_; }
  // Fills the checkpoint, evaluations and updates of `view`.
  void Fill(RunView* view) const;

 private:
  std::vector<EvaluationReport> evaluations_;
  std::optional<double> best_;  // mean return (or score) of the best evaluation
  std::int64_t since_best_ = 0;
  std::string checkpoint_;  // path in the run folder
  std::uint64_t checkpoint_updates_ = 0;
  bool checkpoint_final_ = false;
  std::uint64_t updates_ = 0;  // kept when the learners leave
  MetricSnapshot retired_counters_;
};

// The counters and histograms of `metrics`: they stay in the fleet's sums after a role died.
MetricSnapshot CountersOf(const MetricSnapshot& metrics);

}  // namespace troop
