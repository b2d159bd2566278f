// Losses of categorical and quantile values: one block per item, then one block for the sums.
#include "kernels/cuda/loss/distributional_loss.h"

#include "kernels/cuda/loss/td_loss_device.h"
#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kMost = 1024;  // actions; atoms or quantiles: limits shared memory

// Sum over the block; all threads get it. `shared`: [kWarps], reusable.
TROOP_DEVICE double BlockSum(double x, double* shared) {
  x = WarpSum(x);
  __syncthreads();  // the previous sum has been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += shared[w];
  return sum;
}

// The first action with the largest mean. mean: [A], complete in shared memory.
TROOP_DEVICE std::int64_t Largest(std::int64_t actions, const double* mean) {
  std::int64_t best = 0;
  for (std::int64_t a = 1; a < actions; ++a)
    if (mean[best] < mean[a]) best = a;
  return best;
}

// The K values of an action: x, plus in a dueling network the part that is common to all actions
// (base, in shared memory).
struct Row {
  const float* x = nullptr;
  const double* base = nullptr;  // [K]; nullptr: 0
  TROOP_DEVICE double operator[](std::int64_t k) const {
    return base != nullptr ? double(x[k]) + base[k] : double(x[k]);
  }
};
// The rows of all actions of an observation.
struct Rows {
  Row first;
  std::int64_t numbers = 0;
  TROOP_DEVICE Row at(std::int64_t action) const {
    return {first.x + action * numbers, first.base};
  }
};
// Rows of an item, from heads [B, K] and [B, A, K]. With dueling heads it writes `base`, with
// barriers: all threads must call it, and earlier contents of `base` are lost.
TROOP_DEVICE Rows RowsOf(const float* value, const float* x, std::int64_t actions,
                         std::int64_t numbers, std::int64_t item, double* base) {
  const Rows plain{{x + item * actions * numbers, nullptr}, numbers};
  if (value == nullptr) return plain;
  __syncthreads();
  for (std::int64_t k = threadIdx.x; k < numbers; k += kThreads)
    base[k] = DuelingBase(value, x, actions, numbers, item, k);
  __syncthreads();
  return {{plain.first.x, base}, numbers};
}

// Softmax of a row.
struct Normalizer {
  double top = 0, sum = 0;  // p_k = exp(x_k - top) / sum
};
// Computed by a warp; all its lanes get it.
TROOP_DEVICE Normalizer SoftmaxOf(std::int64_t n, const Row& x) {
  const int lane = int(threadIdx.x % 32);
  double top = -INFINITY;
  for (std::int64_t k = lane; k < n; k += 32) top = x[k] > top ? x[k] : top;
  top = WarpMax(top);
  double sum = 0;
  for (std::int64_t k = lane; k < n; k += 32) sum += exp(x[k] - top);
  return {top, WarpSum(sum)};
}

// Value of atom k of the support.
TROOP_DEVICE double Atom(const ValueSupport& s, std::int64_t k) {
  return s.low + (s.high - s.low) / double(s.atoms - 1) * double(k);
}

// Share of a mass at `value` that atom k gets: only the two nearest atoms get one, in inverse
// proportion to their distances. `value` is clipped to the support.
TROOP_DEVICE double Share(const ValueSupport& s, double value, std::int64_t k) {
  const double inside = value < s.low ? s.low : s.high < value ? s.high : value;
  const double at = (inside - s.low) / ((s.high - s.low) / double(s.atoms - 1));
  const std::int64_t last = s.atoms - 2;
  const std::int64_t below = std::int64_t(at) < last ? std::int64_t(at) : last;
  const double above = at - double(below);
  return k == below ? 1 - above : k == below + 1 ? above : 0;
}

// mean [A] of the chooser's distributions, one warp per action.
TROOP_DEVICE void MeansOf(const CategoricalLossInput& in, const Rows& chooser, double* mean) {
  const int lane = int(threadIdx.x % 32);
  for (std::int64_t a = threadIdx.x / 32; a < in.actions; a += kWarps) {
    const Row x = chooser.at(a);
    const Normalizer n = SoftmaxOf(in.support.atoms, x);
    double of_lane = 0;
    for (std::int64_t k = lane; k < in.support.atoms; k += 32)
      of_lane += exp(x[k] - n.top) / n.sum * Atom(in.support, k);
    of_lane = WarpSum(of_lane);
    if (lane == 0) mean[a] = of_lane;
  }
  __syncthreads();
}

// Dynamic shared memory of a block, in this order.
struct Scratch {
  double* mean;  // [A] of the chooser
  double* next;  // [K] of the last observation: probabilities, or targets
  double* base;  // [K], see RowsOf
};
TROOP_DEVICE Scratch ScratchOf(std::int64_t actions, std::int64_t numbers) {
  auto* const begin = reinterpret_cast<double*>(DynamicShared());
  return {begin, begin + actions, begin + actions + numbers};
}

// next = the target network's distribution for the selected action of the last observation.
TROOP_DEVICE void NextOf(const CategoricalLossInput& in, const DuelingValues& values,
                         std::int64_t item, const Scratch& scratch) {
  const std::int64_t atoms = in.support.atoms;
  std::int64_t best = 0;
  if (in.actions > 1) {
    const bool online = in.logits_online != nullptr;
    MeansOf(
        in,
        RowsOf(online ? values.last_online : values.last_target,
               online ? in.logits_online : in.logits_target, in.actions, atoms, item, scratch.base),
        scratch.mean);
    best = Largest(in.actions, scratch.mean);
  }
  const Row x =
      RowsOf(values.last_target, in.logits_target, in.actions, atoms, item, scratch.base).at(best);
  const Normalizer s = SoftmaxOf(atoms, x);
  for (std::int64_t k = threadIdx.x; k < atoms; k += kThreads)
    scratch.next[k] = exp(x[k] - s.top) / s.sum;
  __syncthreads();
}

// Results of an item: loss, |TD error| and q.
struct Sums {
  double loss = 0, td_error = 0, q = 0;
};
// Thread 0 stores the priority, and the item's terms of the three batch sums.
TROOP_DEVICE void Tell(std::int64_t item, const Sums& s, double weight, const LossOutput& out) {
  if (threadIdx.x != 0) return;
  out.priority[item] = float(s.td_error);
  out.partial[3 * item] = weight * s.loss;
  out.partial[3 * item + 1] = s.td_error;
  out.partial[3 * item + 2] = s.q;
}

// Each thread handles some atoms k of the target: it gathers the projected mass from all atoms j,
// instead of scattering with atomics. O(K²) per item, deterministic.
template <class T>
TROOP_KERNEL void __launch_bounds__(kThreads)
    CategoricalLossKernel(CategoricalLossInput in, LossOutput out, DuelingValues values) {
  const std::int64_t item = blockIdx.x, atoms = in.support.atoms;
  const Scratch scratch = ScratchOf(in.actions, atoms);
  TROOP_SHARED(double, of_warp, kWarps);
  // A return that is not finite gives a target of 0 and NaN as loss and priority.
  const Return n = SumSteps(in, item);
  const bool good = isfinite(n.sum) && isfinite(n.factor);
  if (good && n.factor != 0) NextOf(in, values, item, scratch);
  const std::int64_t action = in.action != nullptr ? in.action[item] : 0;
  const Row logits =
      RowsOf(values.first, in.logits, in.actions, atoms, item, scratch.base).at(action);
  const Normalizer s = SoftmaxOf(atoms, logits);
  const double log_sum = s.top + log(s.sum);
  // importance weight
  const double weight = in.weight != nullptr ? in.weight[item] : 1.0;
  double entropy = 0, wanted = 0, q = 0;
  for (std::int64_t k = threadIdx.x; k < atoms; k += kThreads) {
    double target = 0;
    if (good && n.factor == 0) target = Share(in.support, n.sum, k);
    if (good && n.factor != 0) {
      for (std::int64_t j = 0; j < atoms; ++j)
        target += scratch.next[j] * Share(in.support, n.sum + n.factor * Atom(in.support, j), k);
    }
    const double p = exp(logits[k] - s.top) / s.sum;
    entropy -= target * (logits[k] - log_sum);
    wanted += target * Atom(in.support, k);
    q += p * Atom(in.support, k);
    PutGradient<T>(out, in.actions, atoms, item, action, k,
                   weight * (p - target) / double(in.batch));
  }
  // Cross entropy, mean of the target and mean of the prediction.
  entropy = BlockSum(entropy, of_warp);
  wanted = BlockSum(wanted, of_warp);
  q = BlockSum(q, of_warp);
  Tell(item, {good ? entropy : NAN, good ? fabs(wanted - q) : NAN, q}, weight, out);
}

// Mean of n values, computed by a warp; all its lanes get it.
TROOP_DEVICE double WarpMean(std::int64_t n, const float* x) {
  double sum = 0;
  for (std::int64_t k = threadIdx.x % 32; k < n; k += 32) sum += double(x[k]);
  return WarpSum(sum) / double(n);
}

// next = the target values of an item: from the quantiles of the selected action, or only the
// return after a termination. Returns their number.
TROOP_DEVICE std::int64_t NextOf(const QuantileLossInput& in, const DuelingValues& values,
                                 std::int64_t item, const Return& n, const Scratch& scratch) {
  const std::int64_t count = in.quantiles;
  if (n.factor == 0) {
    if (threadIdx.x == 0) scratch.next[0] = n.sum;
    __syncthreads();
    return 1;
  }
  // The common part of dueling heads does not change which mean is the largest.
  const float* chooser = in.quantile_online != nullptr ? in.quantile_online : in.quantile_target;
  chooser += item * in.actions * count;
  for (std::int64_t a = threadIdx.x / 32; a < in.actions; a += kWarps) {
    const double of_action = WarpMean(count, chooser + a * count);
    if (threadIdx.x % 32 == 0) scratch.mean[a] = of_action;
  }
  __syncthreads();
  const std::int64_t best = Largest(in.actions, scratch.mean);
  const Row next =
      RowsOf(values.last_target, in.quantile_target, in.actions, count, item, scratch.base)
          .at(best);
  for (std::int64_t j = threadIdx.x; j < count; j += kThreads)
    scratch.next[j] = n.sum + n.factor * next[j];
  __syncthreads();
  return count;
}

// Each thread handles some quantiles k and loops over the targets.
template <class T>
TROOP_KERNEL void __launch_bounds__(kThreads)
    QuantileLossKernel(QuantileLossInput in, LossOutput out, DuelingValues values) {
  const std::int64_t item = blockIdx.x, count = in.quantiles;
  const Scratch scratch = ScratchOf(in.actions, count);
  const double* const target = scratch.next;
  TROOP_SHARED(double, of_warp, kWarps);
  const std::int64_t targets = NextOf(in, values, item, SumSteps(in, item), scratch);
  const std::int64_t action = in.action != nullptr ? in.action[item] : 0;
  const Row quantile =
      RowsOf(values.first, in.quantile, in.actions, count, item, scratch.base).at(action);
  const double weight = in.weight != nullptr ? in.weight[item] : 1.0;
  double loss = 0, wanted = 0, q = 0;
  for (std::int64_t j = threadIdx.x; j < targets; j += kThreads)
    wanted += target[j] / double(targets);
  for (std::int64_t k = threadIdx.x; k < count; k += kThreads) {
    const double tau = (double(k) + 0.5) / double(count), theta = quantile[k];
    // Derivative of the loss with respect to u, summed over the targets.
    double slope = 0;
    for (std::int64_t j = 0; j < targets; ++j) {
      const double u = target[j] - theta, size = fabs(u);
      const double side = fabs(tau - (u < 0 ? 1 : 0)) / double(targets);
      // Inside the quadratic part of the Huber loss.
      const bool bent = size <= in.kappa && in.kappa > 0;
      loss += side * (bent ? u * u / (2 * in.kappa) : size - in.kappa / 2);
      slope += side * (bent ? u / in.kappa : copysign(1.0, u));
    }
    q += theta / double(count);
    PutGradient<T>(out, in.actions, count, item, action, k, -weight * slope / double(in.batch));
  }
  loss = BlockSum(loss, of_warp);
  wanted = BlockSum(wanted, of_warp);
  q = BlockSum(q, of_warp);
  Tell(item, {loss, fabs(wanted - q), q}, weight, out);
}

// Batch means for the summary.
TROOP_KERNEL void __launch_bounds__(kThreads)
    MeansKernel(std::int64_t batch, const double* partial, DqnLossSummary* summary) {
  TROOP_SHARED(double, of_warp, kWarps);
  double sums[3];
  // loss, |TD error|, q
  for (int j = 0; j < 3; ++j) {
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < batch; i += kThreads) sum += partial[3 * i + j];
    sums[j] = BlockSum(sum, of_warp);
  }
  const double scale = batch > 0 ? 1.0 / double(batch) : 0;
  if (threadIdx.x == 0) *summary = {sums[0] * scale, sums[1] * scale, sums[2] * scale};
}

// Values per action, K.
std::int64_t NumbersOf(const CategoricalLossInput& in) { return in.support.atoms; }
std::int64_t NumbersOf(const QuantileLossInput& in) { return in.quantiles; }

// The kernel of a loss, and its name in errors and profiles.
template <class Input>
struct LossKernel {
  const char* name;
  void (*run)(Input, LossOutput, DuelingValues);
};

// Checks the sizes and launches both kernels.
template <class Input>
void Run(Stream& stream, const LossKernel<Input>& kernel, const Input& in, const LossOutput& out,
         const DuelingValues& values) {
  const std::int64_t numbers = NumbersOf(in);
  if (numbers < 2 || numbers > kMost || in.actions > kMost) {
    stream.device().Fail(std::string(kernel.name) + ": " + std::to_string(in.actions) +
                         " actions of " + std::to_string(numbers) +
                         " values; at most 1024 actions and 2 to 1024 values are supported");
    return;
  }
  // mean [A], next [K], base [K]
  const std::size_t shared = std::size_t(in.actions + 2 * numbers) * sizeof(double);
  Launch(stream, kernel.name, {dim3(unsigned(in.batch)), dim3(kThreads), shared}, kernel.run, in,
         out, values);
  Launch(stream, "Means", {dim3(1), dim3(kThreads)}, MeansKernel, in.batch,
         static_cast<const double*>(out.partial), out.summary);
}

}  // namespace

void CategoricalLoss(Stream& stream, const CategoricalLossInput& in, const LossOutput& out,
                     const DuelingValues& values) {
  const bool halves = out.dtype == DType::kBF16;
  const LossKernel<CategoricalLossInput> kernel{
      "CategoricalLoss", halves ? CategoricalLossKernel<BF16> : CategoricalLossKernel<float>};
  Run(stream, kernel, in, out, values);
}

void QuantileLoss(Stream& stream, const QuantileLossInput& in, const LossOutput& out,
                  const DuelingValues& values) {
  const bool halves = out.dtype == DType::kBF16;
  const LossKernel<QuantileLossInput> kernel{
      "QuantileLoss", halves ? QuantileLossKernel<BF16> : QuantileLossKernel<float>};
  Run(stream, kernel, in, out, values);
}

}  // namespace troop::cuda
