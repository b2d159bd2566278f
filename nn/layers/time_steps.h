#pragma once

#include <cstdint>
#include <span>

#include "nn/arena.h"

namespace troop {

// Rows of a packed batch of sequences in time-major order (PyTorch's PackedSequence): the first
// rows of all sequences, then the second ones, and so on. Step t contains the sequences with more
// than t rows, the longest first. So each step needs only one matrix product, and the sequences
// that two adjacent steps have in common are the first rows of both, in either direction of time.
struct TimeSteps {
  std::span<std::int32_t> order;  // [B]: the sequences, longest first; ties in batch order
  std::span<std::int32_t> first;  // [T + 1]: row at which step t < `steps` begins; first[steps] = T
  std::span<std::int32_t> row;    // [T]: row of each token of the batch
  std::int64_t steps = 0;         // length of the longest sequence

  std::int64_t begin(std::int64_t t) const { return first[std::size_t(t)]; }
  std::int64_t rows(std::int64_t t) const { return begin(t + 1) - begin(t); }
  std::int64_t tokens() const { return std::int64_t(row.size()); }
  std::int64_t sequences() const { return std::int64_t(order.size()); }
};
// Takes memory from the arena for the time steps of T tokens in B sequences.
TimeSteps TakeTimeSteps(Arena& arena, std::int64_t tokens, std::int64_t sequences);
// Fills that memory. starts: [B + 1], the first token of each sequence, then T. O(T + B log B).
void FillTimeSteps(std::span<const std::int32_t> starts, TimeSteps* steps);

}  // namespace troop
