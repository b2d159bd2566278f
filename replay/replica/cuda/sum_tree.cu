// DeviceSumTree: CUDA kernels for updates and lookups of the sum tree.
#include "replay/replica/cuda/sum_tree.h"

#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {

// Gives the kernels access to DeviceSumTree's private types.
struct SumTreeKernels {
  using Levels = DeviceSumTree::Levels;
  static Levels Of(const DeviceSumTree& tree) { return tree.pointers_; }
};

namespace {

using Levels = SumTreeKernels::Levels;
constexpr int kFan = 64;           // children per node: two per lane of a warp
constexpr int kSetThreads = 1024;  // one block, so that levels can be synchronized
constexpr int kFindThreads = 256;

// Value of child `i` at level `level`, counted over the whole level.
TROOP_DEVICE double Child(const Levels& levels, const float* leaves, int level, std::int64_t i) {
  return level == 0 ? double(leaves[i]) : levels.sums[level - 1][i];
}

// Stores the leaves, then recomputes the touched nodes level by level, a warp per node. Nodes
// touched twice are computed twice, with the same result.
TROOP_KERNEL void __launch_bounds__(kSetThreads)
    SetKernel(Levels levels, float* leaves, std::int64_t n, const std::int32_t* slot,
              const float* priority) {
  for (std::int64_t i = threadIdx.x; i < n; i += kSetThreads) {
    const std::int32_t mine = slot[i];
    bool last = mine >= 0;  // no early exit, so that many loads are in flight
    for (std::int64_t j = i + 1; j < n; ++j) last &= slot[j] != mine;
    if (last) leaves[mine] = priority[i];
  }
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  std::int64_t width = kFan;
  for (int level = 0; level < levels.count; ++level, width *= kFan) {
    __syncthreads();
    for (std::int64_t i = warp; i < n; i += kSetThreads / 32) {
      if (slot[i] < 0) continue;
      const std::int64_t node = slot[i] / width;
      const double sum = WarpSum(Child(levels, leaves, level, node * kFan + 2 * lane) +
                                 Child(levels, leaves, level, node * kFan + 2 * lane + 1));
      if (lane == 0) levels.sums[level][node] = sum;
    }
  }
}

// Descends for one mass per warp; each lane handles two children.
TROOP_KERNEL void FindKernel(Levels levels, const float* leaves, std::int64_t n, const double* mass,
                             std::int32_t* slot, float* priority) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * kFindThreads + threadIdx.x) / 32;
  const int lane = int(threadIdx.x % 32);
  if (i >= n) return;
  double left = mass[i];
  std::int64_t node = 0;
  for (int level = levels.count - 1; level >= 0; --level) {
    const double first = Child(levels, leaves, level, node * kFan + 2 * lane);
    const double second = Child(levels, leaves, level, node * kFan + 2 * lane + 1);
    const double both = first + second;
    double up_to = both;  // inclusive prefix sum over the lanes
    for (unsigned step = 1; step < 32; step *= 2) {
      const double before = __shfl_up_sync(kWholeWarp, up_to, step);
      if (lane >= int(step)) up_to += before;
    }
    // Rounding may put a mass beyond the last part: then the last lane with a positive sum is
    // chosen.
    const unsigned something = __ballot_sync(kWholeWarp, both > 0);
    const unsigned beyond = __ballot_sync(kWholeWarp, both > 0 && up_to > left);
    const int chosen = beyond != 0 ? __ffs(int(beyond)) - 1 : 31 - __clz(int(something));
    const double rest = left - (up_to - both);
    const bool right = second > 0 && (rest >= first || !(first > 0));
    double inside = right ? rest - first : rest;
    inside = inside > 0 ? inside : 0;
    left = __shfl_sync(kWholeWarp, inside, chosen);
    node = node * kFan + 2 * chosen + __shfl_sync(kWholeWarp, right ? 1 : 0, chosen);
  }
  if (lane != 0) return;
  slot[i] = std::int32_t(node);
  priority[i] = leaves[node];
}

}  // namespace

DeviceSumTree::DeviceSumTree(Device& device, std::int64_t slots) : slots_(slots) {
  // Levels are padded to whole nodes of zeros, so that kernels need no bounds checks.
  std::int64_t width = CeilDivide(slots, kFan);
  leaves_ = DeviceArray<float>(device, width * kFan, "replay priorities");
  for (;;) {
    const std::int64_t padded = width == 1 ? 1 : CeilDivide(width, kFan) * kFan;
    levels_.emplace_back(device, padded, "replay priorities' sums");
    if (width == 1) break;
    width = padded / kFan;
  }
  Stream stream(device);
  if (leaves_.data() != nullptr) stream.Fill(leaves_.data(), 0, leaves_.bytes());
  for (const auto& level : levels_) {
    pointers_.sums[pointers_.count++] = level.data();
    if (level.data() != nullptr) stream.Fill(level.data(), 0, level.bytes());
  }
  stream.Synchronize();
}

// One block for the whole batch: levels need a barrier in between.
void DeviceSumTree::Set(Stream& stream, std::int64_t n, const std::int32_t* slot,
                        const float* priority) {
  if (n == 0) return;
  Launch(stream, "SumTreeSet", {dim3(1), dim3(kSetThreads)}, SetKernel, pointers_, leaves_.data(),
         n, slot, priority);
}

void DeviceSumTree::Find(Stream& stream, std::int64_t n, const double* mass, std::int32_t* slot,
                         float* priority) {
  const LaunchShape shape{dim3(unsigned(CeilDivide(n * 32, kFindThreads))), dim3(kFindThreads)};
  Launch(stream, "SumTreeFind", shape, FindKernel, pointers_, leaves_.data(), n, mass, slot,
         priority);
}

}  // namespace troop::cuda
