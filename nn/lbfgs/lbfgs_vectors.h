#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "nn/lbfgs/vector_command.h"

namespace troop {

// The vectors of L-BFGS, or a part of each, which begin at zero. T: float or double; dot products
// are in f64 with a fixed order. One owner thread.
template <class T>
class LbfgsVectors {
 public:
  // history: pairs of changes; size: elements of each vector.
  LbfgsVectors(int history, std::int64_t size)
      : vectors_(std::size_t(VectorName::Count(history)), std::vector<T>(std::size_t(size))) {}

  // Executes commands in order and appends the results of the dot products. O(commands · size).
  // Errors: kInvalidArgument: an unknown operation or vector; nothing was changed then.
  Status Run(std::span<const VectorCommand> commands, std::vector<double>* results);
  // REQUIRES: a name below the number of vectors.
  std::span<T> at(std::uint8_t name) { return vectors_[name]; }
  std::span<const T> at(std::uint8_t name) const { return vectors_[name]; }
  int count() const { return int(vectors_.size()); }

 private:
  std::vector<std::vector<T>> vectors_;
};

extern template class LbfgsVectors<float>;
extern template class LbfgsVectors<double>;

}  // namespace troop
