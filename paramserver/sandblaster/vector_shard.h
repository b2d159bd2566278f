#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "nn/lbfgs/lbfgs_vectors.h"
#include "paramserver/sandblaster/sandblaster_messages.h"

namespace troop {

// Elements of the shard `index` of `shards` of a vector: [begin, end).
struct ShardSlice {
  std::int64_t begin = 0, end = 0;
};
ShardSlice ShardSliceOf(std::int64_t size, int shards, int index);

// One shard of Sandblaster L-BFGS: its part of the weights, the gradient and the history. Executes
// the coordinator's commands, and sums the gradients of portions in the order of their numbers, so
// that the sum does not depend on the workers, nor on the order of their arrival. Two
// shards that get the same messages have the same bits: a replica is a second shard, and a copy of
// one can replace a dead one. T: float or double; sums are in f64. One owner thread. Memory: the
// vectors of LbfgsVectors, the sum, and the gradients that wait for an earlier portion.
template <class T>
class VectorShard {
 public:
  // weights: this shard's part of the first weights; portions: of each evaluation.
  VectorShard(int history, int portions, std::span<const T> weights);

  // Executes a command, or answers a repeat. Errors: kFailedPrecondition: another term, not the
  // last command or the next one; kInvalidArgument: those of LbfgsVectors::Run; a command before
  // the last evaluation is complete. Nothing was changed then.
  Result<SandblasterReply> Execute(const SandblasterCommand& command);
  // The weights at which the gradient is wanted; valid until the next command. Errors:
  // kFailedPrecondition: command `number` is not an evaluation, or not the last command.
  Result<std::span<const T>> Pull(std::uint64_t number) const;

  // A portion's part of value and gradient.
  struct Part {
    std::uint64_t number = 0;  // of the command that needs it
    std::int32_t portion = 0;
    double value = 0;             // of the portion, in all shards
    std::span<const T> gradient;  // this shard's part
  };
  // Adds it. Returns false if it is not needed: the portion has been counted, or the command is not
  // the last one. Errors: kInvalidArgument: unknown portion, other size.
  Result<bool> Add(const Part& part);

  // Follows a new coordinator: commands of earlier terms, which may still be on their way, are
  // refused from now on. Returns the state from which it continues. Errors: kFailedPrecondition: a
  // later term.
  Result<SandblasterHead> Follow(std::uint64_t term);
  std::span<const T> weights() const { return vectors_.at(VectorName::kWeights); }

 private:
  struct Waiting {
    double value = 0;
    std::vector<T> gradient;
  };
  void Sum(double value, std::span<const T> gradient);
  SandblasterReply Answer() const;
  bool evaluating() const { return last_.evaluate && summed_ < portions_; }

  const std::int32_t portions_;
  LbfgsVectors<T> vectors_;
  std::uint64_t term_ = 0;
  SandblasterCommand last_;
  std::vector<double> dots_;  // results of the last command
  // The evaluation: sums of the first portions, and later ones that have arrived.
  std::vector<double> sum_;
  double value_ = 0;
  std::int32_t summed_ = 0;
  std::map<std::int32_t, Waiting> waiting_;
};

extern template class VectorShard<float>;
extern template class VectorShard<double>;

}  // namespace troop
