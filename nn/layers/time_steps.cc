// Implements the time-major order of packed sequences.
#include "nn/layers/time_steps.h"

#include <algorithm>
#include <numeric>

namespace troop {

// `first` has room for one entry per token: a batch of one sequence has as many steps.
TimeSteps TakeTimeSteps(Arena& arena, std::int64_t tokens, std::int64_t sequences) {
  return {TakeInts(arena, sequences), TakeInts(arena, tokens + 1), TakeInts(arena, tokens)};
}

// Sorts the sequences by length, then numbers the rows step by step.
void FillTimeSteps(std::span<const std::int32_t> starts, TimeSteps* steps) {
  const auto length = [&](std::int32_t s) {
    return starts[std::size_t(s) + 1] - starts[std::size_t(s)];
  };
  std::iota(steps->order.begin(), steps->order.end(), 0);
  std::ranges::sort(steps->order, [&](std::int32_t a, std::int32_t b) {
    return length(a) != length(b) ? length(a) > length(b) : a < b;
  });
  steps->steps = length(steps->order[0]);
  std::size_t running = steps->order.size();
  std::int32_t row = 0;
  for (std::int32_t t = 0; t < steps->steps; ++t) {
    while (length(steps->order[running - 1]) <= t) --running;
    steps->first[std::size_t(t)] = row;
    for (std::size_t r = 0; r < running; ++r) {
      const std::int32_t first = starts[std::size_t(steps->order[r])];
      steps->row[std::size_t(first) + std::size_t(t)] = row++;
    }
  }
  steps->first[std::size_t(steps->steps)] = row;
}

}  // namespace troop
