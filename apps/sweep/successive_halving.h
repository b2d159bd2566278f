#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"

namespace troop {

// Unit in which a trial's budget is counted.
enum class HalvingResource { kSteps, kUpdates };  // run.total_steps, run.max_updates
constexpr auto EnumNames(HalvingResource) {
  return std::to_array<std::string_view>({"steps", "updates"});
}

// Parameters of asynchronous successive halving, with the symbols of Li et al. 2020.
struct HalvingSettings {
  HalvingResource resource = HalvingResource::kSteps;
  std::int64_t min_resource = 0;         // r
  std::int64_t max_resource = 0;         // R
  std::int64_t reduction_factor = 4;     // eta
  std::int64_t early_stopping_rate = 0;  // s
  bool operator==(const HalvingSettings&) const = default;
};
// Errors: kInvalidArgument: a value out of range, or fewer than two rungs.
Status CheckHalving(const HalvingSettings& settings);

// Asynchronous successive halving (ASHA): Li et al. 2020, "A System for Massively Parallel
// Hyperparameter Tuning" (arXiv:1810.05934), algorithm 2. Decides which trial is trained next, and
// up to which rung. A pure state machine: the same calls in the same order give the same decisions.
// One owner thread.
//
// Rungs are counted from 0; rung k has a budget of r * eta^(s + k), up to the largest one within R.
// A trial of rung k is promoted to rung k + 1 if it is among the best floor(n / eta) of the n
// trials that completed rung k, and was not promoted before. Differences to the paper: trials are
// finite (NextJob returns nothing when no more can be started), a failed trial counts among the n
// as the worst and is never promoted, and equal scores are ordered by trial.
class SuccessiveHalving {
 public:
  // A trial, and the rung up to which it is trained.
  struct Job {
    std::size_t trial = 0;
    std::size_t rung = 0;
    bool operator==(const Job&) const = default;
  };
  // REQUIRES: CheckHalving(settings) is ok.
  SuccessiveHalving(const HalvingSettings& settings, std::size_t trials);

  // The next job that can start now (get_job of the paper): a promotion into the highest possible
  // rung, else the next new trial; nullopt if there is neither. Changes nothing. O(trials log
  // trials).
  std::optional<Job> NextJob() const;
  // Records that a job has started. REQUIRES: it is NextJob().
  void Begin(const Job& job);
  // Records the score of a completed job; nullopt or NaN: it failed. REQUIRES: it has begun and has
  // not ended.
  void End(const Job& job, std::optional<double> score);

  // Jobs that have begun and not ended, in the order of their start.
  const std::vector<Job>& open() const { return open_; }
  std::size_t rungs() const { return rungs_.size(); }
  // Budget of a rung: r * eta^(s + rung).
  std::int64_t ResourceOf(std::size_t rung) const { return resources_[rung]; }
  // Number of trials that completed a rung, failed ones included.
  std::size_t CompletedIn(std::size_t rung) const { return rungs_[rung].size(); }
  // Resource of all completed jobs. A promoted trial continues, so its job costs only the
  // difference of the budgets.
  std::int64_t resource_used() const { return resource_used_; }

 private:
  // A trial that completed a rung.
  struct Completed {
    std::size_t trial = 0;
    std::optional<double> score;  // nullopt: failed
    bool promoted = false;
  };
  // The best promotable trial of a rung.
  std::optional<std::size_t> PromotableIn(std::size_t rung) const;

  const std::int64_t reduction_factor_;
  const std::size_t trials_;
  std::vector<std::int64_t> resources_;
  std::vector<std::vector<Completed>> rungs_;  // in the order of completion
  std::vector<Job> open_;
  std::size_t begun_ = 0;  // trials 0 to begun_ - 1 have started
  std::int64_t resource_used_ = 0;
};

}  // namespace troop
