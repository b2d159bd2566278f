#pragma once

#ifdef TROOP_HAS_CUDA

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/runtime/device.h"
#include "learners/algorithm.h"
#include "learners/gpu/cuda/train_state.h"
#include "learners/train_state.h"

namespace troop {

// Base of the algorithms that compute on a GPU. Weights, gradient and optimizer state live in
// device memory; value(), gradient() and State() copy them to the host on demand.
class GpuAlgorithm : public Algorithm, public DeviceGradient, public ExternalOptimizer {
 public:
  std::span<float> gradient() override;
  double GradientNorm() override;
  void ApplyGradient(double progress, double norm) override;
  int device_ordinal() const override { return ordinal_; }
  DeviceGradient* device_gradient() override { return this; }
  std::span<float> device_values() override;
  void ReduceOnDevice(bool there) override { on_device_ = there; }
  void* gradient_stream() override { return stream_.Share(); }
  void ClearOnDevice(std::int64_t count) override;
  void DivideOnDevice(float given) override;
  ExternalOptimizer* external_optimizer() override { return this; }
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) override;
  Optimizer& optimizer() override;
  double ClipScale(double norm) const override { return host_->ClipScale(norm); }
  float LearningRate(double progress) const override { return host_->LearningRate(progress); }
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override;
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override;
  Status CheckFinite() const override;

 protected:
  GpuAlgorithm(std::unique_ptr<cuda::Device> device, std::unique_ptr<TrainState> host, int ordinal);

  // Creates the device-side step if there is none yet, with the batch sizes of the config.
  virtual Status MakeReady() = 0;
  // Enqueues the optimizer step. changed: the gradient was written since it was computed.
  virtual void RunStep(double learning_rate, bool changed) = 0;

  // Makes `trained` the owner of the current weights. REQUIRES: Fetch, before it replaces another
  // one.
  Status Use(cuda::GpuTrainState* trained);
  // Bookkeeping after an optimizer step with a gradient of that norm.
  void CountUpdate(double norm);
  void NoteGradient(double norm);  // records that the device has computed a new gradient
  Status DeviceStatus() const;
  Status Fetch() const;  // copies the device's state to host()

  cuda::Device& device() const { return *device_; }
  cuda::Stream& stream() const { return stream_; }
  TrainState& host() const { return *host_; }
  bool on_device() const { return on_device_; }          // the gradient is all-reduced there
  bool have_gradient() const { return have_gradient_; }  // the host's copy is current

 private:
  std::int64_t parameters() const { return std::int64_t(host_->value().size()); }
  // Host buffers for GetState and SetState; value and target are resized to [P].
  cuda::GpuTrainState::State Spans(std::vector<float>* value, std::vector<float>* target) const;
  Status Put();  // copies host_ to the device

  const std::unique_ptr<cuda::Device> device_;
  const std::unique_ptr<TrainState> host_;  // copy for State(), and the schedules
  mutable cuda::Stream stream_;
  cuda::GpuTrainState* trained_ = nullptr;  // set by the first batch
  const int ordinal_;
  bool on_device_ = false;
  // Counts on the host, so that updates() does not wait for the device.
  std::uint64_t updates_ = 0;
  double norm_ = 0;
  bool have_gradient_ = false;
  // True while the host's copy is current: of the value alone, and of the whole state.
  mutable bool fresh_value_ = true, fresh_state_ = true;
  mutable std::vector<float> value_;
};

}  // namespace troop

#endif
