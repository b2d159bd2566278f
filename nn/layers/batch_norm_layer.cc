// Implements batch normalization of channels, and the update of running statistics.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/image_layers.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// The cache holds the output, if there is an activation, then the batch's mean [c],
// 1 / sqrt(variance + epsilon) [c] and number of rows [1]. Loops go over the rows, whose channels
// are adjacent.
class BatchNormLayer final : public Module {
 public:
  explicit BatchNormLayer(const BatchNormOptions& options)
      : options_(options),
        c_(std::size_t(options.channels)),
        params_({Param("weight", 0), Param("bias", 1), Param("running_mean", 2),
                 Param("running_var", 3)}) {
    params_[0].init = params_[3].init = ParamSpec::Init::kOnes;
    params_[2].trained = params_[3].trained = false;
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // The workspace has two f64 sums per channel, and the gradient before the activation.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "batch_norm"));
    const Shape& shape = in[0].shape;
    if (shape.rank() < 2 || shape[shape.rank() - 1] != options_.channels) {
      return InvalidArgument("batch_norm: takes a tensor [B, …, {}], not {}", options_.channels,
                             in[0].ToString());
    }
    const TensorSpec out{DType::kF32, shape};
    const bool keeps = options_.activation != Activation::kNone;
    return Plan{.out = {out},
                .cache_bytes = (keeps ? AlignBytes(out.bytes()) : 0) + StatisticsBytes(),
                .workspace_bytes = 2 * ChannelBytes<double>() + StatisticsBytes() +
                                   AlignBytes((2 * c_ + 1) * sizeof(float)) +
                                   AlignBytes(out.bytes()),
                .cache_begins_with_out = keeps};
  }

  // The parameters are read from the value: they are as few as the packed ones would be.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  // Training: statistics of the batch. Inference: the running ones.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    // Without a cache the statistics of the call are in the workspace.
    Arena workspace(context.workspace);
    Arena kept =
        cache.empty() ? Arena(workspace.Take(StatisticsBytes())) : Arena(Statistics(in[0], cache));
    float* const mean = TakeFloats(kept, options_.channels);
    float* const rstd = TakeFloats(kept, options_.channels);
    if (cache.empty()) {
      const float* const running = context.value.data() + params_[2].offset;
      const float* const variance = context.value.data() + params_[3].offset;
      std::copy_n(running, c_, mean);
      for (std::size_t c = 0; c < c_; ++c) {
        rstd[c] = 1 / std::sqrt(variance[c] + options_.epsilon);
      }
    } else {
      WithElement(in[0].dtype(), [&]<class X>(X*) {
        Measure(ElementsOf<X>(in[0]), context, &workspace, {mean, rstd, TakeFloats(kept, 1)});
      });
    }
    Normalize(context, in[0], mean, rstd, out[0]);
    if (options_.activation == Activation::kNone) return;
    const auto bytes = out[0].bytes();
    ActivationForward(options_.activation, out[0].elements(), bytes.data(), bytes.data(),
                      out[0].dtype());
    if (!cache.empty() && bytes.data() != cache.data())
      std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  // With x̂ = (x - mean) rstd and n rows: dbias = Σ dz, dweight = Σ dz x̂, and
  // dx = weight rstd (dz - dbias / n - x̂ dweight / n), since mean and variance depend on x. With
  // replicas n and the sums in dx are those of all ranks; each rank's gradient is that of its rows.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    Arena kept(Statistics(in[0], cache)), workspace(context.workspace);
    const float* const mean = TakeFloats(kept, options_.channels);
    const float* const rstd = TakeFloats(kept, options_.channels);
    const auto n = double(*TakeFloats(kept, 1));
    const std::span<double> dbias = TakeSums(&workspace), dweight = TakeSums(&workspace);
    float* const dz = TakeFloats(workspace, dout[0].elements());
    ActivationBackward({.activation = options_.activation,
                        .n = dout[0].elements(),
                        .y = cache.data(),
                        .dy = dout[0].bytes().data(),
                        .dtype = dout[0].dtype(),
                        .dz = dz,
                        .dz_dtype = DType::kF32});
    WithElement(in[0].dtype(), [&]<class X>(X*) {
      const std::span<const X> x = ElementsOf<X>(in[0]);
      for (std::size_t row = 0; row < x.size(); row += c_) {
        for (std::size_t c = 0; c < c_; ++c) {
          const double d = double(dz[row + c]);
          dbias[c] += d;
          dweight[c] += d * double((LoadElement(x[row + c]) - mean[c]) * rstd[c]);
        }
      }
      // The sums are complete, and the input's gradient needs them.
      PutGradient(context, dweight, dbias);
      SumOverReplicas(context, &workspace, {dbias, dweight});
      if (din.empty() || din[0].empty()) return;
      WithElement(din[0].dtype(), [&]<class D>(D*) {
        const std::span<D> dx = ElementsOf<D>(din[0]);
        for (std::size_t row = 0; row < x.size(); row += c_) {
          for (std::size_t c = 0; c < c_; ++c) {
            const float normal = (LoadElement(x[row + c]) - mean[c]) * rstd[c];
            const float centered =
                dz[row + c] - float(dbias[c] / n) - normal * float(dweight[c] / n);
            dx[row + c] = StoreElement<D>(context.value[c] * rstd[c] * centered);
          }
        }
      });
    });
  }

 private:
  // The four parameters have equal sizes.
  ParamSpec Param(const char* name, std::int64_t place) const {
    return {.name = name,
            .shape = {options_.channels},
            .offset = place * AlignParams(options_.channels),
            .decays = false};
  }
  template <class T>
  std::size_t ChannelBytes() const {
    return AlignBytes(c_ * sizeof(T));
  }
  // Zeros, one per channel.
  std::span<double> TakeSums(Arena* arena) const {
    const auto bytes = arena->Take(c_ * sizeof(double));
    const std::span<double> sums(reinterpret_cast<double*>(bytes.data()), c_);
    std::ranges::fill(sums, 0.0);
    return sums;
  }
  std::size_t StatisticsBytes() const {
    return 2 * ChannelBytes<float>() + AlignBytes(sizeof(float));
  }
  // Replaces f64 numbers by their sums over the ranks, in one message of f32. A failure shows in
  // the status of the group.
  static void SumOverReplicas(const StepContext& context, Arena* workspace,
                              std::initializer_list<std::span<double>> parts) {
    if (context.replicas == nullptr) return;
    Arena scratch = *workspace;
    std::size_t count = 0;
    for (const std::span<double> part : parts) count += part.size();
    const std::span<float> message(TakeFloats(scratch, std::int64_t(count)), count);
    // There and back.
    auto to = message.begin();
    for (const std::span<double> part : parts)
      to = std::ranges::transform(part, to, [](double x) { return float(x); }).out;
    context.replicas->Sum(message);
    auto from = message.begin();
    for (const std::span<double> part : parts) {
      std::copy_n(from, part.size(), part.begin());
      from += std::ptrdiff_t(part.size());
    }
  }
  // The part of the cache after the output.
  std::span<std::byte> Statistics(const ConstTensor& in, Cache cache) const {
    if (options_.activation == Activation::kNone) return cache;
    return cache.subspan(AlignBytes(std::size_t(in.elements()) * sizeof(float)));
  }

  // The numbers of a batch that Forward keeps.
  struct Kept {
    float* mean;  // [c]
    float* rstd;  // [c]
    float* rows;  // [1]
  };
  // Mean and 1 / sqrt(variance + epsilon) of the rows, in two passes, so that values far from 0
  // keep their digits. Writes context.statistics: empty, or the places of mean and unbiased
  // variance.
  template <class X>
  void Measure(std::span<const X> x, const StepContext& context, Arena* workspace,
               const Kept& kept) const {
    const std::span<float> statistics = context.statistics;
    const std::span<double> sum = TakeSums(workspace), squares = TakeSums(workspace);
    double n = double(x.size() / c_);
    for (std::size_t row = 0; row < x.size(); row += c_) {
      for (std::size_t c = 0; c < c_; ++c) sum[c] += double(LoadElement(x[row + c]));
    }
    SumOverReplicas(context, workspace, {sum, {&n, 1}});
    *kept.rows = float(n);
    for (double& s : sum) s /= n;
    for (std::size_t row = 0; row < x.size(); row += c_) {
      for (std::size_t c = 0; c < c_; ++c) {
        const double d = double(LoadElement(x[row + c])) - sum[c];
        squares[c] += d * d;
      }
    }
    SumOverReplicas(context, workspace, {squares});
    for (std::size_t c = 0; c < c_; ++c) {
      kept.mean[c] = float(sum[c]);
      kept.rstd[c] = float(1 / std::sqrt(squares[c] / n + double(options_.epsilon)));
      if (statistics.empty()) continue;
      statistics[std::size_t(params_[2].offset) + c] = kept.mean[c];
      // One row has no unbiased variance; its deviation is 0.
      statistics[std::size_t(params_[3].offset) + c] = float(squares[c] / std::max(n - 1, 1.0));
    }
  }

  // y = weight (x - mean) rstd + bias.
  void Normalize(const StepContext& context, const ConstTensor& in, const float* mean,
                 const float* rstd, const Tensor& out) const {
    const float* const weight = context.value.data();
    const float* const bias = weight + params_[1].offset;
    WithElement(in.dtype(), [&]<class X>(X*) {
      WithElement(out.dtype(), [&]<class Y>(Y*) {
        const std::span<const X> x = ElementsOf<X>(in);
        const std::span<Y> y = ElementsOf<Y>(out);
        for (std::size_t row = 0; row < x.size(); row += c_) {
          for (std::size_t c = 0; c < c_; ++c) {
            const float normal = (LoadElement(x[row + c]) - mean[c]) * rstd[c];
            y[row + c] = StoreElement<Y>(weight[c] * normal + bias[c]);
          }
        }
      });
    });
  }

  // The gradient of the running statistics stays 0.
  void PutGradient(const StepContext& context, std::span<const double> dweight,
                   std::span<const double> dbias) const {
    if (context.gradient.empty()) return;
    float* const weight = context.gradient.data();
    float* const bias = weight + params_[1].offset;
    for (std::size_t c = 0; c < c_; ++c) {
      weight[c] = float(dweight[c]) + (context.accumulate ? weight[c] : 0);
      bias[c] = float(dbias[c]) + (context.accumulate ? bias[c] : 0);
    }
  }

  const BatchNormOptions options_;
  const std::size_t c_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeBatchNorm(const BatchNormOptions& options) {
  TROOP_CHECK(options.channels > 0, "batch_norm of {} channels", options.channels);
  return std::make_unique<BatchNormLayer>(options);
}

void UpdateRunningStatistics(const Module& module, std::span<const float> statistics,
                             float momentum, std::span<float> value) {
  for (const ParamSpec& spec : module.params()) {
    if (spec.trained) continue;
    const auto first = std::size_t(spec.offset), end = first + std::size_t(spec.shape.elements());
    for (std::size_t i = first; i < end; ++i) value[i] += momentum * (statistics[i] - value[i]);
  }
}

}  // namespace troop
