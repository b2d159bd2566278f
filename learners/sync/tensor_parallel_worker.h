#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "learners/algorithm.h"

// A tensor-parallel model as one worker of the parameter shards (the partitioned replica of
// Downpour SGD, Dean et al. 2012). Rank 0 leads: it sends the other ranks their orders and the
// values of their parts, and receives the gradients of their slices. Bytes per update, with P
// parameters and N ranks: at most 4 P (N - 1) / N to rank 0; from rank 0 the same plus the
// parameters replicated on each rank. One group of the parts
// (TensorParallelMember::SetTensorGroup); every wait is bounded by its timeouts.
namespace troop {

// Rank 0's side. For the code that pulls and pushes (MakeParamserverUpdater) it is an algorithm of
// the whole model.
class TensorParallelReplica : public Algorithm,
                              public ExternalOptimizer,
                              public TensorParallelMember,
                              public BatchPartition,
                              public CostReporting {
 public:
  // part: rank 0's part of the model, which computes its share.
  static Result<std::unique_ptr<TensorParallelReplica>> Make(const TrainingConfig& config,
                                                             int ranks,
                                                             std::unique_ptr<Algorithm> part);
  ExternalOptimizer* external_optimizer() override { return this; }
  TensorParallelMember* tensor_parallel() override { return this; }
  BatchPartition* batch_partition() override { return this; }
  CostReporting* cost_reporting() override { return this; }
  // Sends the other ranks an order that is not an update; they wait for one no longer than the
  // group's timeout. over: no more updates follow. Runs in a job. Errors: the one that ended the
  // group.
  virtual Status Tell(bool over) = 0;
  // True if the group has ended. Thread-safe.
  virtual bool broken() const = 0;
};

// True if an algorithm supports the interfaces that a part needs on any rank.
bool CanBePart(Algorithm& algorithm);

// Side of the other ranks: executes one order of rank 0 per call. Blocks, at most for the group's
// timeout.
class TensorParallelWorker {
 public:
  enum class Did { kNothing, kGradient, kOver };
  struct Outcome {
    Did did = Did::kNothing;
    Result<LossReport> report = LossReport{};  // of kGradient; not ok: skipped on all ranks
  };
  // Both must outlive this. module: the module of that part. REQUIRES: CanBePart(part).
  TensorParallelWorker(Algorithm* part, const Module* module);
  // Receives and executes one order. group: as in SetTensorGroup. Errors: the one that ended it.
  Result<Outcome> Follow(Collective& group, const SampleBatch& batch, std::span<float> priority);

 private:
  Algorithm* const part_;
  // Interfaces of part_.
  ExternalOptimizer* const weights_;
  BatchPartition* const batches_;
  TensorParallelMember* const member_;
  const Module* const module_;
  std::vector<float> value_, slices_;
};

}  // namespace troop
