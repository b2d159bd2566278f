#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "learners/algorithm.h"
#include "learners/external_optimizer.h"
#include "learners/train_state.h"
#include "nn/module.h"

namespace troop {

// Base of the algorithms that train one network by one TrainState on the CPU: all that concerns
// only weights, optimizer and saved states. A derived class computes the gradient, and passes the
// observations of its last batch to Step.
class TrainedAlgorithm : public Algorithm, public ExternalOptimizer {
 public:
  std::span<float> gradient() final { return trained_->gradient(); }
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) final {
    trained_->Adopt(updates, value);
  }
  ExternalOptimizer* external_optimizer() final { return this; }
  Optimizer& optimizer() final { return trained_->optimizer(); }
  double ClipScale(double norm) const final { return trained_->ClipScale(norm); }
  void Clip(double norm, std::span<float> gradient) const final { trained_->Clip(norm, gradient); }
  float LearningRate(double progress) const final { return trained_->LearningRate(progress); }
  std::uint64_t updates() const final { return trained_->updates(); }
  std::span<const float> value() const final { return trained_->value(); }
  TensorFile State() const final { return trained_->State(); }
  Status SetState(const TensorFile& state) final { return trained_->SetState(state); }
  Status RollBack(const TensorFile& state) final { return trained_->RollBack(state); }
  Status CheckFinite() const final { return trained_->CheckFinite(); }

 protected:
  // `trained` refers to `network`.
  TrainedAlgorithm(std::unique_ptr<Module> network, std::unique_ptr<TrainState> trained)
      : network_(std::move(network)), trained_(std::move(trained)) {}
  const Module& network() const { return *network_; }
  TrainState& trained() { return *trained_; }
  const TrainState& trained() const { return *trained_; }

 private:
  const std::unique_ptr<Module> network_;
  const std::unique_ptr<TrainState> trained_;
};

}  // namespace troop
