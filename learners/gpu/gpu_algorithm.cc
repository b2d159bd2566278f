// Implements the common part of algorithms on a GPU: moving state between host and device.

#include "learners/gpu/gpu_algorithm.h"

#ifdef TROOP_HAS_CUDA

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "kernels/cuda/ops/activation.h"
#include "learners/gpu/cuda/optimizer_step.h"

namespace troop {

GpuAlgorithm::GpuAlgorithm(std::unique_ptr<cuda::Device> device, std::unique_ptr<TrainState> host,
                           int ordinal)
    : device_(std::move(device)), host_(std::move(host)), stream_(*device_), ordinal_(ordinal) {
  LogInfo("updates are computed on GPU {}: {}", ordinal, device_->info().name);
}

// Device errors are permanent, hence kUnavailable.
Status GpuAlgorithm::DeviceStatus() const {
  if (device_->ok()) return Status::Ok();
  return Unavailable("{}: {}", device_->info().name, device_->error());
}

// The new step takes over the host's state.
Status GpuAlgorithm::Use(cuda::GpuTrainState* trained) {
  trained_ = trained;
  TROOP_RETURN_IF_ERROR(DeviceStatus());
  return Put();
}

// Marks the host's copies as stale; they are fetched on demand.
void GpuAlgorithm::CountUpdate(double norm) {
  if (ShouldFail(Failpoint::kLearnerDevice)) device_->Fail("failpoint learner.device");
  ++updates_;
  fresh_value_ = fresh_state_ = false;
  norm_ = norm;
}

void GpuAlgorithm::NoteGradient(double norm) {
  have_gradient_ = false;
  norm_ = norm;
}

// Copies once per gradient. The caller may write to the result (see ApplyGradient).
std::span<float> GpuAlgorithm::gradient() {
  if (!have_gradient_ && trained_ != nullptr) {
    CopyOut(stream_, trained_->gradient(), host_->gradient());
    have_gradient_ = true;
  }
  return host_->gradient();
}

// The device has computed the norm; it is recomputed only if the gradient has changed since.
double GpuAlgorithm::GradientNorm() {
  if (on_device_) return trained_ != nullptr ? trained_->GradientNorm(stream_) : 0;
  return have_gradient_ ? Algorithm::GradientNorm() : norm_;
}

// Another learner may start an all-reduce before the first batch arrives here.
std::span<float> GpuAlgorithm::device_values() {
  if (!MakeReady().ok()) return {};
  return {trained_->gradient(), std::size_t(parameters())};
}

void GpuAlgorithm::ClearOnDevice(std::int64_t count) {
  if (count > 0) stream_.Fill(trained_->gradient(), 0, std::size_t(count) * sizeof(float));
}

void GpuAlgorithm::DivideOnDevice(float given) {
  cuda::ConvertScaled(stream_, {.n = parameters(),
                                .from = trained_->gradient(),
                                .scale = 1 / given,
                                .to = trained_->gradient()});
}

void GpuAlgorithm::ApplyGradient(double progress, double) {
  if (trained_ == nullptr) return;
  // A caller that read the gradient may have written to it.
  const bool changed = have_gradient_ || on_device_;
  if (have_gradient_ && !on_device_) CopyIn(stream_, host_->gradient(), trained_->gradient());
  RunStep(LearningRate(progress), changed);
  CountUpdate(norm_);
}

// Goes through the host, whose rules move the target.
void GpuAlgorithm::ReplaceWeights(std::uint64_t updates, std::span<const float> value) {
  if (!Fetch().ok()) return;
  host_->Adopt(updates, value);
  (void)Put();  // the next ComputeGradient reports a failure
}

Optimizer& GpuAlgorithm::optimizer() {
  (void)Fetch();
  return host_->optimizer();
}

// Copies the weights only; Fetch moves the whole state.
std::span<const float> GpuAlgorithm::value() const {
  if (!fresh_value_ && trained_ != nullptr) {
    value_.resize(host_->value().size());
    CopyOut(stream_, trained_->value(), value_);
    fresh_value_ = device_->ok();
    // If the copy failed, NaN prevents that the old weights are published or saved.
    if (!fresh_value_) std::ranges::fill(value_, std::numeric_limits<float>::quiet_NaN());
  }
  return value_.empty() ? host_->value() : std::span<const float>(value_);
}

TensorFile GpuAlgorithm::State() const {
  (void)Fetch();
  return host_->State();
}
// The host validates the state before the device takes it.
Status GpuAlgorithm::SetState(const TensorFile& state) {
  TROOP_RETURN_IF_ERROR(host_->SetState(state));
  return Put();
}
// Fetch first, because the update count continues.
Status GpuAlgorithm::RollBack(const TensorFile& state) {
  TROOP_RETURN_IF_ERROR(Fetch());
  TROOP_RETURN_IF_ERROR(host_->RollBack(state));
  return Put();
}
Status GpuAlgorithm::CheckFinite() const {
  TROOP_RETURN_IF_ERROR(Fetch());
  return host_->CheckFinite();
}

// The slots are the host optimizer's memory, so they need no extra copy.
cuda::GpuTrainState::State GpuAlgorithm::Spans(std::vector<float>* value,
                                               std::vector<float>* target) const {
  cuda::GpuTrainState::State state;
  value->resize(host_->value().size());
  target->resize(host_->target().size());
  state.value = *value;
  state.target = *target;
  for (const Optimizer::Slot& slot : host_->optimizer().slots())
    (slot.name == "v" ? state.v : state.m) = slot.values;
  return state;
}

// Goes through SetState of the host's network, so that the packed form is refreshed as well.
Status GpuAlgorithm::Fetch() const {
  if (trained_ == nullptr || fresh_state_) return DeviceStatus();
  std::vector<float> value, target;
  cuda::GpuTrainState::State state = Spans(&value, &target);
  trained_->GetState(stream_, &state);
  TROOP_RETURN_IF_ERROR(DeviceStatus());
  TensorFile file = host_->State();  // GetState has written the slots already
  const auto tensor = [](std::span<const float> values) {
    return ConstTensor(Buffer::Copy(std::as_bytes(values)),
                       {DType::kF32, {std::int64_t(values.size())}});
  };
  file.tensors["value"] = tensor(value);
  if (!target.empty()) file.tensors["target"] = tensor(target);
  file.metadata["updates"] = std::to_string(updates_);
  file.metadata["optimizer_steps"] = std::to_string(state.steps);
  TROOP_RETURN_IF_ERROR(host_->SetState(file));
  fresh_state_ = true;
  return Status::Ok();
}

// The inverse of Fetch. After it both sides are equal.
Status GpuAlgorithm::Put() {
  updates_ = host_->updates();
  value_.clear();
  fresh_value_ = trained_ == nullptr;
  if (trained_ == nullptr) return Status::Ok();
  std::vector<float> value, target;
  cuda::GpuTrainState::State state = Spans(&value, &target);
  std::ranges::copy(host_->value(), value.begin());
  std::ranges::copy(host_->target(), target.begin());
  state.updates = std::int64_t(host_->updates());
  state.steps = host_->optimizer().steps();
  trained_->SetState(stream_, state);
  fresh_state_ = true;
  return DeviceStatus();
}

}  // namespace troop

#endif
