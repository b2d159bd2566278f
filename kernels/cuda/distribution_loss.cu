#include "kernels/cuda/distribution_loss.h"

#include "kernels/cuda/launch.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kMost = 1024;  // actions; atoms or quantiles

struct Return {
  double sum = 0, factor = 1;
};
// Of an item of either loss.
template <class Input>
TROOP_DEVICE Return SumSteps(const Input& in, std::int64_t item) {
  Return n;
  for (std::int32_t k = 0; k < in.length[item]; ++k) {
    const double reward = in.reward[item * in.steps + k], limit = in.reward_clip;
    // NaN stays.
    const double clipped = !(limit > 0)      ? reward
                           : reward < -limit ? -limit
                           : limit < reward  ? limit
                                             : reward;
    n.sum += n.factor * clipped;
    n.factor *= in.gamma * double(in.discount[item * in.steps + k]);
  }
  return n;
}

// The same for all threads of the block. `shared`: [kWarps].
TROOP_DEVICE double BlockSum(double x, double* shared) {
  x = WarpSum(x);
  __syncthreads();  // what was there has been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += shared[w];
  return sum;
}

// The first action of the largest mean. mean: [A], shared and written.
TROOP_DEVICE std::int64_t Largest(std::int64_t actions, const double* mean) {
  std::int64_t best = 0;
  for (std::int64_t a = 1; a < actions; ++a)
    if (mean[best] < mean[a]) best = a;
  return best;
}

struct Normalizer {
  double top = 0, sum = 0;  // p_k = exp(x_k - top) / sum
};
// A warp's, of one row.
TROOP_DEVICE Normalizer SoftmaxOf(std::int64_t n, const float* x) {
  const int lane = int(threadIdx.x % 32);
  float top = -INFINITY;
  for (std::int64_t k = lane; k < n; k += 32) top = x[k] > top ? x[k] : top;
  top = WarpMax(top);
  double sum = 0;
  for (std::int64_t k = lane; k < n; k += 32) sum += exp(double(x[k]) - double(top));
  return {double(top), WarpSum(sum)};
}

TROOP_DEVICE double Atom(const ValueSupport& s, std::int64_t k) {
  return s.low + (s.high - s.low) / double(s.atoms - 1) * double(k);
}

// Share of a mass at `value` that atom k takes: the two beside it, by their nearness.
TROOP_DEVICE double Share(const ValueSupport& s, double value, std::int64_t k) {
  const double inside = value < s.low ? s.low : s.high < value ? s.high : value;
  const double at = (inside - s.low) / ((s.high - s.low) / double(s.atoms - 1));
  const std::int64_t last = s.atoms - 2;
  const std::int64_t below = std::int64_t(at) < last ? std::int64_t(at) : last;
  const double above = at - double(below);
  return k == below ? 1 - above : k == below + 1 ? above : 0;
}

// mean [A], of the chooser's distributions: a warp to an action.
TROOP_DEVICE void MeansOf(const CategoricalLossInput& in, const float* chooser, double* mean) {
  const int lane = int(threadIdx.x % 32);
  for (std::int64_t a = threadIdx.x / 32; a < in.actions; a += kWarps) {
    const float* x = chooser + a * in.support.atoms;
    const Normalizer n = SoftmaxOf(in.support.atoms, x);
    double of_lane = 0;
    for (std::int64_t k = lane; k < in.support.atoms; k += 32)
      of_lane += exp(double(x[k]) - n.top) / n.sum * Atom(in.support, k);
    of_lane = WarpSum(of_lane);
    if (lane == 0) mean[a] = of_lane;
  }
  __syncthreads();
}

// What the items' threads keep of a sum over atoms.
struct Sums {
  double loss = 0, td_error = 0, q = 0;
};
TROOP_DEVICE void Tell(std::int64_t item, const Sums& s, double weight, const DqnLossOutput& out,
                       double* partial) {
  if (threadIdx.x != 0) return;
  out.priority[item] = float(s.td_error);
  partial[3 * item] = weight * s.loss;
  partial[3 * item + 1] = s.td_error;
  partial[3 * item + 2] = s.q;
}

TROOP_KERNEL void __launch_bounds__(kThreads)
    CategoricalLossKernel(CategoricalLossInput in, DqnLossOutput out, double* partial) {
  const std::int64_t item = blockIdx.x, atoms = in.support.atoms, all = in.actions * atoms;
  auto* const mean = reinterpret_cast<double*>(DynamicShared());  // [A]
  double* const next = mean + in.actions;                         // [K]
  TROOP_SHARED(double, of_warp, kWarps);
  const Return n = SumSteps(in, item);
  const bool good = isfinite(n.sum) && isfinite(n.factor);
  std::int64_t best = 0;
  if (good && n.factor != 0) {
    if (in.actions > 1) {
      const float* chooser = in.logits_online != nullptr ? in.logits_online : in.logits_target;
      MeansOf(in, chooser + item * all, mean);
      best = Largest(in.actions, mean);
    }
    const float* x = in.logits_target + item * all + best * atoms;
    const Normalizer s = SoftmaxOf(atoms, x);
    for (std::int64_t k = threadIdx.x; k < atoms; k += kThreads)
      next[k] = exp(double(x[k]) - s.top) / s.sum;
    __syncthreads();
  }
  const std::int64_t action = in.action != nullptr ? in.action[item] : 0;
  const float* logits = in.logits + item * all + action * atoms;
  const Normalizer s = SoftmaxOf(atoms, logits);
  const double log_sum = s.top + log(s.sum);
  const double weight = in.weight != nullptr ? in.weight[item] : 1.0;
  double entropy = 0, wanted = 0, q = 0;
  for (std::int64_t k = threadIdx.x; k < atoms; k += kThreads) {
    double target = 0;
    if (good && n.factor == 0) target = Share(in.support, n.sum, k);
    if (good && n.factor != 0) {
      for (std::int64_t j = 0; j < atoms; ++j)
        target += next[j] * Share(in.support, n.sum + n.factor * Atom(in.support, j), k);
    }
    const double p = exp(double(logits[k]) - s.top) / s.sum;
    entropy -= target * (double(logits[k]) - log_sum);
    wanted += target * Atom(in.support, k);
    q += p * Atom(in.support, k);
    out.dq[item * all + action * atoms + k] = float(weight * (p - target) / double(in.batch));
  }
  for (std::int64_t k = threadIdx.x; k < all; k += kThreads)
    if (k / atoms != action) out.dq[item * all + k] = 0;
  entropy = BlockSum(entropy, of_warp);
  wanted = BlockSum(wanted, of_warp);
  q = BlockSum(q, of_warp);
  Tell(item, {good ? entropy : NAN, good ? fabs(wanted - q) : NAN, q}, weight, out, partial);
}

TROOP_DEVICE double WarpMean(std::int64_t n, const float* x) {
  double sum = 0;
  for (std::int64_t k = threadIdx.x % 32; k < n; k += 32) sum += double(x[k]);
  return WarpSum(sum) / double(n);
}

TROOP_KERNEL void __launch_bounds__(kThreads)
    QuantileLossKernel(QuantileLossInput in, DqnLossOutput out, double* partial) {
  const std::int64_t item = blockIdx.x, count = in.quantiles, all = in.actions * count;
  auto* const mean = reinterpret_cast<double*>(DynamicShared());  // [A]
  double* const target = mean + in.actions;                       // [K]
  TROOP_SHARED(double, of_warp, kWarps);
  const Return n = SumSteps(in, item);
  std::int64_t targets = 1;
  if (n.factor == 0) {
    if (threadIdx.x == 0) target[0] = n.sum;
  } else {
    const float* chooser = in.quantile_online != nullptr ? in.quantile_online : in.quantile_target;
    for (std::int64_t a = threadIdx.x / 32; a < in.actions; a += kWarps) {
      const double of_action = WarpMean(count, chooser + item * all + a * count);
      if (threadIdx.x % 32 == 0) mean[a] = of_action;
    }
    __syncthreads();
    const float* next = in.quantile_target + item * all + Largest(in.actions, mean) * count;
    for (std::int64_t j = threadIdx.x; j < count; j += kThreads)
      target[j] = n.sum + n.factor * double(next[j]);
    targets = count;
  }
  __syncthreads();
  const std::int64_t action = in.action != nullptr ? in.action[item] : 0;
  const float* quantile = in.quantile + item * all + action * count;
  const double weight = in.weight != nullptr ? in.weight[item] : 1.0;
  double loss = 0, wanted = 0, q = 0;
  for (std::int64_t j = threadIdx.x; j < targets; j += kThreads)
    wanted += target[j] / double(targets);
  for (std::int64_t k = threadIdx.x; k < count; k += kThreads) {
    const double tau = (double(k) + 0.5) / double(count), theta = quantile[k];
    double slope = 0;
    for (std::int64_t j = 0; j < targets; ++j) {
      const double u = target[j] - theta, size = fabs(u);
      const double side = fabs(tau - (u < 0 ? 1 : 0)) / double(targets);
      const bool bent = size <= in.kappa && in.kappa > 0;
      loss += side * (bent ? u * u / (2 * in.kappa) : size - in.kappa / 2);
      slope += side * (bent ? u / in.kappa : copysign(1.0, u));
    }
    q += theta / double(count);
    out.dq[item * all + action * count + k] = float(-weight * slope / double(in.batch));
  }
  for (std::int64_t k = threadIdx.x; k < all; k += kThreads)
    if (k / count != action) out.dq[item * all + k] = 0;
  loss = BlockSum(loss, of_warp);
  wanted = BlockSum(wanted, of_warp);
  q = BlockSum(q, of_warp);
  Tell(item, {loss, fabs(wanted - q), q}, weight, out, partial);
}

TROOP_KERNEL void __launch_bounds__(kThreads)
    MeansKernel(std::int64_t batch, const double* partial, DqnLossSummary* summary) {
  TROOP_SHARED(double, of_warp, kWarps);
  double sums[3];
  for (int j = 0; j < 3; ++j) {
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < batch; i += kThreads) sum += partial[3 * i + j];
    sums[j] = BlockSum(sum, of_warp);
  }
  const double scale = batch > 0 ? 1.0 / double(batch) : 0;
  if (threadIdx.x == 0) *summary = {sums[0] * scale, sums[1] * scale, sums[2] * scale};
}

template <class Input>
void Run(Stream& stream, const char* name, void (*kernel)(Input, DqnLossOutput, double*),
         const Input& in, std::int64_t values, const DqnLossOutput& out, double* partial,
         DqnLossSummary* summary) {
  if (values < 2 || values > kMost || in.actions > kMost) {
    stream.device().Fail(std::string(name) + ": " + std::to_string(in.actions) + " actions of " +
                         std::to_string(values) + " values; at most 1024, and 2 values at least");
    return;
  }
  const std::size_t shared = std::size_t(in.actions + values) * sizeof(double);
  Launch(stream, name, {dim3(unsigned(in.batch)), dim3(kThreads), shared}, kernel, in, out,
         partial);
  Launch(stream, "Means", {dim3(1), dim3(kThreads)}, MeansKernel, in.batch,
         static_cast<const double*>(partial), summary);
}

}  // namespace

void CategoricalLoss(Stream& stream, const CategoricalLossInput& in, const DqnLossOutput& out,
                     double* partial, DqnLossSummary* summary) {
  Run(stream, "CategoricalLoss", CategoricalLossKernel, in, in.support.atoms, out, partial,
      summary);
}

void QuantileLoss(Stream& stream, const QuantileLossInput& in, const DqnLossOutput& out,
                  double* partial, DqnLossSummary* summary) {
  Run(stream, "QuantileLoss", QuantileLossKernel, in, in.quantiles, out, partial, summary);
}

}  // namespace troop::cuda
