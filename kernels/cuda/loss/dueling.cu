// q-values of a dueling network from its two heads.
#include "kernels/cuda/loss/dueling.h"

#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

// Small blocks, so that a few thousand rows fill a few dozen multiprocessors.
constexpr int kThreads = 128;

// One thread for each of the K values of a row. With K = 1, 18 actions are one or two cache lines;
// with distributions, the threads of a row read adjacent elements.
TROOP_KERNEL void DuelingKernel(std::int64_t rows, std::int64_t actions, std::int64_t numbers,
                                const float* value, const float* advantage, float* q) {
  const std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * numbers) return;
  const std::int64_t first = at / numbers * actions * numbers + at % numbers;
  const float* a = advantage + first;
  float sum = 0;
  for (std::int64_t i = 0; i < actions; ++i) sum += a[i * numbers];
  const float base = value[at] - sum / float(actions);
  for (std::int64_t i = 0; i < actions; ++i) q[first + i * numbers] = base + a[i * numbers];
}

}  // namespace

void CombineDueling(Stream& stream, const CombineDuelingArgs& args) {
  const LaunchShape shape{dim3(unsigned(CeilDivide(args.rows * args.numbers, kThreads))),
                          dim3(kThreads)};
  Launch(stream, "Dueling", shape, DuelingKernel, args.rows, args.actions, args.numbers, args.value,
         args.advantage, args.q);
}

}  // namespace troop::cuda
