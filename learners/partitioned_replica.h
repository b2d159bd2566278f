#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "learners/algorithm.h"

// A model in parts as one worker of the parameter shards (the partitioned replica under Downpour
// SGD of Dean et al. 2012). The first rank speaks for all: it tells the others what to do, gives
// each the numbers of its part, and takes back the gradients of their slices. Bytes an update, of P
// parameters and N ranks: at most 4 P (N - 1) / N up, and that and what is whole on each rank down.
// One group of the parts (Algorithm::SetTensorGroup); every wait ends with its timeouts.
namespace troop {

// The first rank's: to who pulls and pushes (MakeShardUpdater), an algorithm of the whole model.
class PartitionedReplica : public Algorithm {
 public:
  // Rank 0's part of the model, as its share of the work.
  static Result<std::unique_ptr<PartitionedReplica>> Make(const Config& config, int ranks,
                                                          std::unique_ptr<Algorithm> part);
  // A word to the others, who wait for one no longer than their group's timeout. over: no more
  // updates are made. In a job. Errors: what ended the group.
  virtual Status Tell(bool over) = 0;
  // The group has ended. Thread safe.
  virtual bool broken() const = 0;
};

// Another rank's, once: does what the first one says. Blocks, at most for the group's timeout.
class ReplicaPart {
 public:
  enum class Did { kNothing, kGradient, kOver };
  struct Outcome {
    Did did = Did::kNothing;
    Result<LossReport> report = LossReport{};  // of kGradient; not ok: it was left out by all
  };
  // Both outlive it. module: of that part.
  ReplicaPart(Algorithm* part, const Module* module) : part_(part), module_(module) {}
  // group: of SetTensorGroup. Errors: what ended it.
  Result<Outcome> Follow(Collective& group, const SampleBatch& batch, std::span<float> priority);

 private:
  Algorithm* const part_;
  const Module* const module_;
  std::vector<float> value_, slices_;
};

}  // namespace troop
