#pragma once

#ifdef TROOP_HAS_CUDA

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/device.h"
#include "learners/algorithm.h"
#include "learners/cuda/trained_on_device.h"
#include "learners/trained_network.h"

namespace troop {

// What algorithms that compute on a GPU have in common: weights, gradient and optimizer live there,
// and value(), gradient() and State() fetch them when they are asked for.
class DeviceAlgorithm : public Algorithm {
 public:
  std::span<float> gradient() override;
  double GradientNorm() override;
  std::span<float> device_gradient() override;
  void AgreeOnDevice(bool there) override { on_device_ = there; }
  void* gradient_stream() override { return stream_.Share(); }
  int device_ordinal() const override { return ordinal_; }
  void ClearGradient(std::int64_t count) override;
  void DivideGradient(float given) override;
  void ApplyGradient(double progress, double norm) override;
  void AdoptValue(std::uint64_t updates, std::span<const float> value) override;
  Optimizer& optimizer() override;
  double ClipScale(double norm) const override { return host_->ClipScale(norm); }
  float LearningRate(double progress) const override { return host_->LearningRate(progress); }
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override;
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override;
  Status CheckNumbers() const override;

 protected:
  DeviceAlgorithm(std::unique_ptr<cuda::Device> device, std::unique_ptr<TrainedNetwork> host,
                  int ordinal);

  // Makes what trains on the device, where there is none yet: for batches as the config has them.
  virtual Status MakeReady() = 0;
  virtual void RunStep(double learning_rate, bool changed) = 0;

  // The weights are `trained`'s from now on. REQUIRES: Fetch, before it takes another's place.
  Status Use(cuda::TrainedOnDevice* trained);
  void CountUpdate(double norm);
  void NoteGradient(double norm);  // the device has made another one
  Status DeviceStatus() const;
  Status Fetch() const;  // host() becomes what the device has

  cuda::Device& device() const { return *device_; }
  cuda::Stream& stream() const { return stream_; }
  TrainedNetwork& host() const { return *host_; }
  bool on_device() const { return on_device_; }          // learners agree on the gradient there
  bool have_gradient() const { return have_gradient_; }  // the host's is the device's, or newer

 private:
  std::int64_t parameters() const { return std::int64_t(host_->value().size()); }
  cuda::TrainedOnDevice::State Spans(std::vector<float>* value, std::vector<float>* target) const;
  Status Put();  // the device becomes what host_ has

  const std::unique_ptr<cuda::Device> device_;
  const std::unique_ptr<TrainedNetwork> host_;  // what is saved, and its rules
  mutable cuda::Stream stream_;
  cuda::TrainedOnDevice* trained_ = nullptr;  // from the first batch on
  const int ordinal_;
  bool on_device_ = false;
  std::uint64_t updates_ = 0;
  double norm_ = 0;
  bool have_gradient_ = false;
  mutable bool fresh_value_ = true, fresh_state_ = true;
  mutable std::vector<float> value_;
};

}  // namespace troop

#endif
