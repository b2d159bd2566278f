#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "core/base/time.h"
#include "learners/algorithm.h"
#include "learners/sync/row_exchange.h"

namespace troop {

// Copies the algorithm state of the rank with the most updates (the lowest such rank) to all ranks.
// Driven by Poll or by Wait on the group's owner thread; group and algorithm must outlive it.
class StateExchange {
 public:
  StateExchange(Collective* group, Algorithm* algorithm) : group_(group), algorithm_(algorithm) {}
  // The result, once; nullopt: still running. Errors: the one that ended the group; kDataLoss,
  // kInvalidArgument: a state that this algorithm cannot load.
  // Blocks until the exchange has finished. Errors: as Poll.
  std::optional<Status> Poll();
  Status Wait();

 private:
  struct Offer {
    std::uint64_t updates = 0, bytes = 0;
  };
  Status StartOffers();
  Status StartState();
  Status TakeState();
  // Called after each operation: starts the next one, or returns the result.
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

// One update of synchronous SGD. Each learner contributes the gradient of its batch, or
// nothing; all step with the mean of the contributed gradients and get the same bits. The result is
// that of one learner with all the batches (importance weights are normalized per batch). The
// gradients of an algorithm with row_gradients() are exchanged as rows (RowExchange).
class AllReduceStep final : public GradientWatch {
 public:
  struct Outcome {
    Status update;  // not ok: skipped, because of this rank's batch or on all ranks
    // If applied: over all ranks' batches, except `sequences`, which counts this rank's alone.
    LossReport report;
    int given = 0;  // number of gradients contributed
    bool applied = false;
    bool all_exhausted = false;
    bool gathered = false;  // the whole state was gathered
  };
  struct Options {
    // The ranks that hold the same part of the model and all-reduce its gradient; nullptr: the
    // whole group.
    Collective* gradients = nullptr;
    // Device group of these ranks, if all have a device: the gradient is all-reduced there
    // (ReduceOnDevice).
    Collective* devices = nullptr;
    // With tensor parallelism (TensorParallelMember::Gather): this rank requests the whole value,
    // or the whole state, after this update. After update `last` all ranks get the state.
    bool want_value = false, want_state = false;
    std::uint64_t last = 0;  // 0: no limit
  };
  AllReduceStep(Collective* group, Algorithm* algorithm)
      : AllReduceStep(group, algorithm, Options{}) {}
  AllReduceStep(Collective* group, Algorithm* algorithm, const Options& options)
      : group_(group),
        gradients_(options.devices != nullptr     ? options.devices
                   : options.gradients != nullptr ? options.gradients
                                                  : group),
        algorithm_(algorithm),
        device_(options.devices != nullptr ? algorithm->device_gradient() : nullptr),
        member_(algorithm->tensor_parallel()),
        options_(options) {
    if (algorithm->row_gradients() != nullptr) rows_.emplace(group, algorithm->row_gradients());
  }

  // Computes the gradient and starts its all-reduce, bucket by bucket during backward. batch:
  // nullptr: this rank contributes nothing. priority: [B]. Errors: the one that ended the group.
  Status Begin(const SampleBatch* batch, double progress, bool exhausted,
               std::span<float> priority);
  // Advances the round; at its end the algorithm steps. nullopt: still running. Errors: the one
  // that ended the group. The algorithm is unchanged then, or has made the update if the error came
  // while gathering the parts.
  // Blocks until the round has finished. Errors: as Poll.
  std::optional<Result<Outcome>> Poll();
  Result<Outcome> Wait();
  // Called by backward: the gradient from index `from` on is final.

  void GradientReady(std::int64_t from) override;

 private:
  // Scalars that are all-reduced with the gradients (sums over ranks).
  enum Word : std::size_t {
    kGiven,
    kExhausted,
    kProgress,
    kWantValue,
    kWantState,
    // LossReport: the rows, and each mean times the rows.
    kRows,
    kLoss,
    kTdError,
    kQ,
    kRight,
    kEntropy,
    kPolicyLoss,
    kValueLoss,
    kDivergence,
    kClipped,
    kStopped,
    kWords = 16
  };
  void SumReports();
  void StartRows();
  bool AdvanceRows();
  double GradientBytes() const;
  // Both start one all-reduce: of gradient[from, given_from_), and of words_.
  void StartBucket(std::int64_t from);
  void StartWords(bool exhausted, double progress);
  // The buffer that is all-reduced, with the latest gradient.
  std::span<float> Gradient() const {
    return device_ != nullptr ? device_->device_values() : algorithm_->gradient();
  }
  // These two change it where it is all-reduced.
  void ClearGradient(std::int64_t count);
  void DivideGradient(float given);
  Status tensor_status() const {
    return member_ != nullptr ? member_->tensor_status() : Status::Ok();
  }
  Status Failure() const { return failed_.ok() ? group_->status() : failed_; }
  Result<Outcome> Finish();
  Status Gather();

  // A pending operation and its group.
  struct Open {
    Collective* group = nullptr;
    Work work = 0;
  };
  Collective* const group_;
  Collective* const gradients_;
  Algorithm* const algorithm_;
  // Interfaces of algorithm_. device_: nullptr if the gradient is all-reduced on the host.
  DeviceGradient* const device_;
  TensorParallelMember* const member_;
  const Options options_;
  std::array<float, kWords> words_{};
  std::int64_t given_from_ = 0;  // gradient[given_from_, P) has been submitted
  std::optional<RowExchange> rows_;
  std::vector<Open> works_;  // pending, in submission order
  Status failed_;
  Outcome outcome_;
  const SystemClock clock_;  // only for CostReporting::CountAllReduce
  Time waits_since_{}, travels_since_{};
};

}  // namespace troop
