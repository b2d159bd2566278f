// n-step double Q-learning loss: one block, one item per thread.
#include "kernels/cuda/loss/dqn_loss.h"

#include "kernels/cuda/loss/td_loss_device.h"
#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

// One item per thread at the usual batch size, and 16 warps to hide memory latency.
constexpr int kThreads = 512;

// q of the target network at the last observation, for the action that the chooser prefers. Its
// advantages suffice for the choice, since v and mean(a) are equal for all actions.
TROOP_DEVICE double Bootstrap(const DqnLossInput& in, const DuelingValues& values,
                              std::int64_t item) {
  const float* target = in.q_next_target + item * in.actions;
  const float* chooser =
      in.q_next_online != nullptr ? in.q_next_online + item * in.actions : target;
  std::int64_t best = 0;
  for (std::int64_t a = 1; a < in.actions; ++a)
    if (chooser[best] < chooser[a]) best = a;
  return target[best] + DuelingBase(values.last_target, in.q_next_target, in.actions, 1, item, 0);
}

// Loss, gradients and priorities per item; then the sums over lanes, warps and the block.
template <class T>
TROOP_KERNEL void __launch_bounds__(kThreads)
    DqnLossKernel(DqnLossInput in, LossOutput out, DuelingValues values) {
  double loss = 0, td_error = 0, q_sum = 0;
  for (std::int64_t i = threadIdx.x; i < in.batch; i += kThreads) {
    const std::int64_t action = in.action[i];
    const double q =
        in.q[i * in.actions + action] + DuelingBase(values.first, in.q, in.actions, 1, i, 0);
    const Return n = SumSteps(in, i);
    const double target = n.factor == 0 ? n.sum : n.sum + n.factor * Bootstrap(in, values, i);
    const double td = target - q;
    const double size = fabs(td);
    const double weight = in.weight != nullptr ? in.weight[i] : 1.0;
    const bool linear = in.huber && size > 1;
    loss += weight * (linear ? size - 0.5 : 0.5 * td * td);
    td_error += size;
    q_sum += q;
    const double slope = linear ? copysign(1.0, td) : td;
    PutGradient<T>(out, in.actions, 1, i, action, 0, -weight * slope / double(in.batch));
    out.priority[i] = float(size);
  }
  // Sums in a fixed order: lanes, then warps.
  TROOP_SHARED(double, sums, 3 * (kThreads / 32));
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  const double of_warp[3] = {WarpSum(loss), WarpSum(td_error), WarpSum(q_sum)};
  if (lane == 0) {
    for (int j = 0; j < 3; ++j) sums[warp * 3 + j] = of_warp[j];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double all[3] = {};
  for (int w = 0; w < kThreads / 32; ++w)
    for (int j = 0; j < 3; ++j) all[j] += sums[w * 3 + j];
  const double scale = in.batch > 0 ? 1.0 / double(in.batch) : 0;
  *out.summary = {all[0] * scale, all[1] * scale, all[2] * scale};
}

}  // namespace

void DqnLoss(Stream& stream, const DqnLossInput& in, const LossOutput& out,
             const DuelingValues& values) {
  Launch(stream, "DqnLoss", {dim3(1), dim3(kThreads)},
         out.dtype == DType::kBF16 ? DqnLossKernel<BF16> : DqnLossKernel<float>, in, out, values);
}

}  // namespace troop::cuda
