#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "nn/parallel/tensor_parallel.h"
#include "tests/collective/ranks.h"
#include "tests/nn/transformer_bench.h"

namespace troop::test {

inline TransformerOptions AtRank(TransformerOptions options, int rank, int ranks) {
  options.tensor = {rank, ranks};
  return options;
}

// A rank's part of a transformer, and its end of the group.
struct TensorRank {
  TensorRank(const TransformerOptions& options, Collective* collective_,
             Precision precision = Precision::kF32)
      : collective(collective_),
        group(collective),
        bench(AtRank(options, collective->rank(), collective->size()), precision) {
    bench.tensor = &group;
  }
  int rank() const { return collective->rank(); }

  Collective* const collective;
  TensorGroup group;
  TransformerBench bench;
};

inline Ranks SimRanks(int size, SimGroup* sim = nullptr) {
  SimGroup own({.size = size});
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back((sim != nullptr ? sim : &own)->Rank(rank));
  return ranks;
}

// f on a thread for each rank of a simulated group.
inline void OnRanks(const TransformerOptions& options, int size,
                    const std::function<void(TensorRank&)>& f,
                    Precision precision = Precision::kF32) {
  const Ranks ranks = SimRanks(size);
  RunRanks(size, [&](int rank) {
    TensorRank mine(options, ranks[std::size_t(rank)].get(), precision);
    f(mine);
  });
}

// |a - b| of vectors, and |a|.
inline double Apart(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
  return std::sqrt(sum);
}
inline double Norm(std::span<const float> a) {
  double sum = 0;
  for (const float x : a) sum += double(x) * x;
  return std::sqrt(sum);
}

}  // namespace troop::test
