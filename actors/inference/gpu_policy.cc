// Implements the policy for discrete actions on a GPU.

#include "actors/inference/gpu_policy.h"

#ifndef TROOP_HAS_CUDA

namespace troop {

Result<std::unique_ptr<Policy>> MakeGpuPolicy(const ActingConfig&, const EnvSpec&, int) {
  return Unavailable("this program was built without CUDA; build it with the preset \"cuda\"");
}

}  // namespace troop

#else

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "kernels/cuda/conv/nchw_to_nhwc.h"
#include "kernels/cuda/ops/activation.h"
#include "nn/models/model.h"
#include "nn/models/q_network_spec.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

// Synchronous: Submit computes the output, Poll returns it.
class GpuPolicy final : public Policy {
 public:
  GpuPolicy(const ActingConfig& config, cuda::Precision precision,
            std::unique_ptr<cuda::Device> device, const cuda::QNetworkSpec& spec,
            std::optional<PictureStack> pictures, int size)
      : seed_(std::uint64_t(config.seed)),
        bf16_(precision == cuda::Precision::kBF16),
        form_(GetValueHead(config.model)),
        row_bytes_(std::int64_t(DTypeSize(spec.input)) * spec.input_elements),
        pictures_(pictures),
        device_(std::move(device)),
        stream_(*device_),
        plans_(*device_),
        network_(*device_, plans_, spec, {.precision = precision, .rows = size}),
        staged_(*device_, row_bytes_ * size, "observations"),
        observation_(*device_, staged_.size(), "observations"),
        planes_(*device_, pictures ? staged_.size() : 0, "stacked frames"),
        value_(*device_, spec.parameters, "weights"),
        rounded_(*device_, bf16_ ? spec.parameters : 0, "weights in bf16"),
        staged_value_(*device_, spec.parameters, "a copy of weights"),
        device_out_(*device_, size * spec.outputs(), "q-values"),
        staged_out_(*device_, size * spec.outputs(), "q-values"),
        q_(DType::kF32, {size, spec.actions}),
        q_taken_(DType::kF32, {size}),
        q_max_(DType::kF32, {size}),
        action_(DType::kI32, {size}) {}

  // A GPU failure appears as NaN q-values: such steps are dropped, and the next SetWeights returns
  // the error.
  void Submit(ConstTensor observation, std::span<const ExploreKey> keys) override {
    const auto rows = std::int64_t(keys.size());
    const Tensor q = q_.Rows(0, rows);
    std::ranges::copy(observation.bytes(), staged_.data());
    std::byte* const first = pictures_ ? planes_.data() : observation_.data();
    stream_.CopyToDevice(first, staged_.data(), observation.bytes().size());
    // The first layer reads interleaved stacks of frames.
    if (pictures_) {
      cuda::FrameStackToNhwc(stream_, {.rows = rows,
                                       .stack = pictures_->stack,
                                       .pixels = pictures_->height * pictures_->width,
                                       .channels = pictures_->channels,
                                       .dtype = network_.spec().input,
                                       .from = planes_.data(),
                                       .to = observation_.data()});
    }
    network_.Forward(stream_,
                     {.weights = {value_.data(), rounded_.data()},
                      .rows = rows,
                      .observation = observation_.data()},
                     false, device_out_.data());
    const auto outputs = std::size_t(rows * network_.spec().outputs());
    stream_.CopyToHost(staged_out_.data(), device_out_.data(), outputs * sizeof(float));
    stream_.Synchronize();
    if (device_->ok()) {
      ExpectedValues(form_, {staged_out_.data(), outputs}, q.as<float>());
    } else {
      std::ranges::fill(q.as<float>(), std::numeric_limits<float>::quiet_NaN());
    }
    // Exploration runs on the host, by the same code as LocalPolicy's.
    ChooseActions(seed_, keys, q,
                  {action_.as<std::int32_t>(), q_taken_.as<float>(), q_max_.as<float>()});
    output_ = {action_.Rows(0, rows), q, q_taken_.Rows(0, rows), q_max_.Rows(0, rows), version_};
    ready_ = true;
  }

  const PolicyOutput* Poll() override { return std::exchange(ready_, false) ? &output_ : nullptr; }

  // Copies through pinned memory; the device rounds to bf16.
  Status SetWeights(std::uint64_t version, std::span<const float> value) override {
    TROOP_RETURN_IF_ERROR(DeviceStatus());  // includes a lack of memory at construction
    TROOP_RETURN_IF_ERROR(CheckWeightCount(value.size(), std::size_t(value_.size())));
    std::ranges::copy(value, staged_value_.data());
    stream_.CopyToDevice(value_.data(), staged_value_.data(), value_.bytes());
    if (bf16_) {
      cuda::ConvertScaled(stream_, {.n = value_.size(),
                                    .from = value_.data(),
                                    .to = rounded_.data(),
                                    .to_dtype = DType::kBF16});
    }
    stream_.Synchronize();
    version_ = version;
    return DeviceStatus();
  }

 private:
  Status DeviceStatus() const {
    if (device_->ok()) return Status::Ok();
    return Unavailable("{}: {}", device_->info().name, device_->error());
  }

  // Settings, then device memory with its pinned counterparts, then the output.
  const std::uint64_t seed_;
  const bool bf16_;
  const ValueHead form_;
  const std::int64_t row_bytes_;  // per observation
  const std::optional<PictureStack> pictures_;
  const std::unique_ptr<cuda::Device> device_;
  cuda::Stream stream_;
  cuda::MatMulPlans plans_;
  cuda::QNetwork network_;
  cuda::PinnedArray<std::byte> staged_;
  cuda::DeviceArray<std::byte> observation_, planes_;
  cuda::DeviceArray<float> value_;
  cuda::DeviceArray<BF16> rounded_;
  cuda::PinnedArray<float> staged_value_;
  cuda::DeviceArray<float> device_out_;  // [N, A K]
  cuda::PinnedArray<float> staged_out_;
  Tensor q_, q_taken_, q_max_, action_;
  PolicyOutput output_;
  std::uint64_t version_ = 0;
  bool ready_ = false;
};

}  // namespace

// Errors of the device come before errors of the config.
Result<std::unique_ptr<Policy>> MakeGpuPolicy(const ActingConfig& config, const EnvSpec& env,
                                              int size) {
  std::string error;
  // Inference uses the first GPU.
  auto device = cuda::Device::Open(0, &error);
  if (device == nullptr) return Unavailable("{}", error);
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeNetwork(config.model, env));
  TROOP_ASSIGN_OR_RETURN(const auto spec, QNetworkSpecOf(config.model, env, *network));
  const cuda::DeviceInfo info = device->info();
  TROOP_ASSIGN_OR_RETURN(const cuda::Precision precision, DevicePrecisionOf(config.model, info));
  auto policy =
      std::make_unique<GpuPolicy>(config, precision, std::move(device), spec,
                                  PicturesOf(config.model, env, LayersOf(config.model)[0]), size);
  // The weights start at the run's initial ones, as in LocalPolicy.
  std::vector<float> initial(std::size_t(ParameterCount(*network)));
  InitParameters(*network, std::uint64_t(config.seed), initial);
  TROOP_RETURN_IF_ERROR(policy->SetWeights(0, initial));
  LogInfo("actions are computed on {}", info.name);
  return std::unique_ptr<Policy>(std::move(policy));
}

}  // namespace troop

#endif
