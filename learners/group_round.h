#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "core/time.h"
#include "learners/algorithm.h"

namespace troop {

// Gives all ranks the algorithm's state of the one with the most updates (of several, the first).
// Driven by Poll or by Wait, by the group's owner thread; both outlive it.
class StateExchange {
 public:
  StateExchange(Collective* group, Algorithm* algorithm) : group_(group), algorithm_(algorithm) {}
  // How it ended, once; nullopt: it goes on. Errors: what ended the group; kDataLoss,
  // kInvalidArgument: a state that is none of ours.
  std::optional<Status> Poll();
  Status Wait();

 private:
  struct Offer {
    std::uint64_t updates = 0, bytes = 0;
  };
  Status StartOffers();
  Status StartState();
  Status TakeState();
  // After each operation: the next one, or the end.
  std::optional<Status> Advance(const Status& ended);

  Collective* const group_;
  Algorithm* const algorithm_;
  enum class At { kStart, kOffers, kState } at_ = At::kStart;
  Work work_ = 0;
  std::vector<Offer> offers_;
  Offer mine_;
  int root_ = 0;
  Buffer state_;
  Tensor received_;
};

// One update of learners in step: each gives the gradient of its own batch, or nothing; all step
// with the mean over those that gave one. Same bits on all ranks. Synchronous SGD; what several
// learners do with their batches is what one does with all of them (the weights of the items are
// each batch's own).
class GroupRound final : public GradientWatch {
 public:
  struct Outcome {
    Status update;  // not ok: it was left out, by this rank's batch or by all
    // Where it was applied, of all ranks' batches, but for what is this rank's alone (sequences).
    LossReport report;
    int given = 0;  // gradients
    bool applied = false;
    bool all_exhausted = false;
    bool gathered = false;  // the whole state
  };
  struct Options {
    // Those who have the same part of the model, and agree on its gradient; nullptr: the group.
    Collective* gradients = nullptr;
    // The same ranks, of whom all have a device: they agree on what is there (AgreeOnDevice).
    Collective* devices = nullptr;
    // Of parts (Algorithm::Gather): this rank wants the whole value, or the whole state, behind
    // this update. After update `last` all get the state.
    bool want_value = false, want_state = false;
    std::uint64_t last = 0;  // 0: there is none
  };
  GroupRound(Collective* group, Algorithm* algorithm) : GroupRound(group, algorithm, Options{}) {}
  GroupRound(Collective* group, Algorithm* algorithm, const Options& options)
      : group_(group),
        gradients_(options.devices != nullptr     ? options.devices
                   : options.gradients != nullptr ? options.gradients
                                                  : group),
        algorithm_(algorithm),
        options_(options) {}

  // Computes the gradient and gives it, in buckets as backward gets them ready. batch: nullptr:
  // none. priority: [B]. Errors: what ended the group.
  Status Begin(const SampleBatch* batch, double progress, bool exhausted,
               std::span<float> priority);
  // Drives it; the end steps the algorithm. nullopt: it goes on. Errors: what ended the group: the
  // algorithm is as before, or, where that was while its parts came together, an update on.
  std::optional<Result<Outcome>> Poll();
  Result<Outcome> Wait();

  void GradientReady(std::int64_t from) override;

 private:
  // What ranks tell beside their gradients; summed.
  enum Word : std::size_t {
    kGiven,
    kExhausted,
    kProgress,
    kWantValue,
    kWantState,
    // Of LossReport: the rows, and each mean times the rows.
    kRows,
    kLoss,
    kTdError,
    kQ,
    kRight,
    kWords = 16
  };
  void SumReports();
  void StartBucket(std::int64_t from);
  void StartWords(bool exhausted, double progress);
  // Where it is agreed on; the newest.
  std::span<float> Gradient() const {
    return options_.devices != nullptr ? algorithm_->device_gradient() : algorithm_->gradient();
  }
  Status Failure() const { return failed_.ok() ? group_->status() : failed_; }
  Result<Outcome> Finish();
  Status Gather();

  // An operation, and whose it is.
  struct Open {
    Collective* group = nullptr;
    Work work = 0;
  };
  Collective* const group_;
  Collective* const gradients_;
  Algorithm* const algorithm_;
  const Options options_;
  std::array<float, kWords> words_{};
  std::int64_t given_from_ = 0;  // gradient[given_from_, P) is on its way
  std::vector<Open> works_;      // not ended yet, in their order
  Status failed_;
  Outcome outcome_;
  const SystemClock clock_;  // for Algorithm::CountAgreement alone
  Time waits_since_{}, travels_since_{};
};

}  // namespace troop
