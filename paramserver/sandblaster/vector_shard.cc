// Implements a shard of Sandblaster L-BFGS.

#include "paramserver/sandblaster/vector_shard.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace troop {

ShardSlice ShardSliceOf(std::int64_t size, int shards, int index) {
  TROOP_CHECK(index >= 0 && index < shards, "shard {} of {}", index, shards);
  return {size * index / shards, size * (index + 1) / shards};
}

// The other vectors begin at zero.
template <class T>
VectorShard<T>::VectorShard(int history, int portions, std::span<const T> weights)
    : portions_(portions), vectors_(history, std::ssize(weights)), sum_(weights.size()) {
  std::ranges::copy(weights, vectors_.at(VectorName::kWeights).begin());
}

template <class T>
Result<SandblasterHead> VectorShard<T>::Follow(std::uint64_t term) {
  if (term < term_)
    return FailedPrecondition("the coordinator of term {} was replaced in term {}", term, term_);
  term_ = term;
  return SandblasterHead{last_};
}

// A new command begins only when the last one is complete, since it may change the weights.
template <class T>
Result<SandblasterReply> VectorShard<T>::Execute(const SandblasterCommand& command) {
  if (command.term != term_) {
    return FailedPrecondition("a command of term {}, but the coordinator is that of term {}",
                              command.term, term_);
  }
  if (command.number == last_.number && command.number > 0) return Answer();
  if (command.number != last_.number + 1) {
    return FailedPrecondition("command {} does not follow command {}", command.number,
                              last_.number);
  }
  if (evaluating()) {
    return InvalidArgument("command {} came when {} of {} portions had arrived", command.number,
                           summed_, portions_);
  }
  // Results of a refused command are not kept.
  std::vector<double> dots;
  TROOP_RETURN_IF_ERROR(vectors_.Run(command.vectors, &dots));
  dots_ = std::move(dots);
  last_ = command;
  // The parts of an earlier evaluation are obsolete.
  if (last_.evaluate) {
    std::ranges::fill(sum_, 0.0);
    value_ = 0;
    summed_ = 0;
    waiting_.clear();
  }
  return Answer();
}

// Portions that wait have arrived.
template <class T>
SandblasterReply VectorShard<T>::Answer() const {
  SandblasterReply reply{.number = last_.number, .results = dots_};
  if (!last_.evaluate) return reply;
  for (std::int32_t i = summed_; i < portions_; ++i) {
    if (!waiting_.contains(i)) reply.missing.push_back(i);
  }
  if (reply.missing.empty()) reply.results.push_back(value_);
  return reply;
}

// Weights of a line search change with the next command.
template <class T>
Result<std::span<const T>> VectorShard<T>::Pull(std::uint64_t number) const {
  if (!last_.evaluate || number != last_.number) {
    return FailedPrecondition("the weights of command {} are not available: the last one is {}",
                              number, last_.number);
  }
  return weights();
}

// In f64, so that many portions lose no bits.
template <class T>
void VectorShard<T>::Sum(double value, std::span<const T> gradient) {
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += double(gradient[i]);
  value_ += value;
  ++summed_;
}

// A portion that comes early waits for the earlier ones.
template <class T>
Result<bool> VectorShard<T>::Add(const Part& part) {
  if (part.portion < 0 || part.portion >= portions_ || part.gradient.size() != sum_.size()) {
    return InvalidArgument("portion {} with {} numbers: there are {} portions of {} numbers",
                           part.portion, part.gradient.size(), portions_, sum_.size());
  }
  // Copies are expected: of backups, and of workers that continue after the evaluation.
  if (!evaluating() || part.number != last_.number || part.portion < summed_) return false;
  if (part.portion > summed_) {
    return waiting_
        .try_emplace(part.portion,
                     Waiting{part.value, {part.gradient.begin(), part.gradient.end()}})
        .second;
  }
  Sum(part.value, part.gradient);
  for (auto next = waiting_.find(summed_); next != waiting_.end(); next = waiting_.find(summed_)) {
    Sum(next->second.value, next->second.gradient);
    waiting_.erase(next);
  }
  // The gradient replaces that of the last evaluation, which the history may still use until now.
  if (summed_ == portions_) {
    std::ranges::transform(sum_, vectors_.at(VectorName::kGradient).begin(),
                           [](double g) { return T(g); });
  }
  return true;
}

template class VectorShard<float>;
template class VectorShard<double>;

}  // namespace troop
