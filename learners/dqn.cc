#include "learners/dqn.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "core/failpoint.h"
#include "kernels/dqn_loss.h"
#include "kernels/finite.h"
#include "learners/bad_number.h"
#include "nn/model.h"
#include "nn/optimizer.h"

namespace troop {
namespace {

constexpr const char* kSlotPrefix = "optimizer.";

// Floats at a fixed, aligned address.
class FloatArray {
 public:
  explicit FloatArray(std::int64_t count)
      : storage_(MutableBuffer::Zeros(std::size_t(count) * sizeof(float))) {}
  std::span<float> span() { return storage_.as<float>(); }
  std::span<const float> span() const {
    return {reinterpret_cast<const float*>(storage_.data()), storage_.size() / sizeof(float)};
  }

 private:
  MutableBuffer storage_;
};

ConstTensor CopyOf(std::span<const float> values) {
  const TensorSpec spec{DType::kF32, {std::int64_t(values.size())}};
  return ConstTensor(Buffer::Copy(std::as_bytes(values)), spec);
}

void CopyInto(const ConstTensor& from, std::span<float> to) {
  std::memcpy(to.data(), from.bytes().data(), to.size_bytes());
}

// What depends on the batch size: q-values, and what the network keeps and needs.
struct BatchBuffers {
  std::int64_t batch = -1;
  Tensor q, q_next_online, q_next_target, dq;  // [B, A]
  MutableBuffer cache, workspace;
  std::vector<float> priority;  // [B]
};

class Dqn final : public Algorithm {
 public:
  Dqn(const Config& config, const EnvSpec& env, std::unique_ptr<Module> network,
      std::unique_ptr<Optimizer> optimizer, std::int64_t parameters);

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  std::span<float> gradient() override { return gradient_.span(); }
  void ApplyGradient(double progress, double norm) override;
  void AdoptValue(std::uint64_t updates, std::span<const float> value) override;
  double ClipScale(double norm) const override;
  float LearningRate(double progress) const override;
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override { return value_.span(); }
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override;
  Status CheckNumbers() const override;

 private:
  Status CheckBatch(const SampleBatch& batch, std::span<const float> priority) const;
  Status CheckItems(const SampleBatch& batch) const;
  Status PrepareBuffers(std::int64_t batch);
  void Evaluate(std::span<const float> value, const Packed* packed, const Tensor& observation,
                const Tensor& q, bool keep);
  DqnLossSummary ForwardAndLoss(const SampleBatch& batch);
  void Backward(const SampleBatch& batch, GradientWatch* watch);
  void MoveTarget();
  Status Refuse(const SampleBatch& batch, const std::string& what) const;
  Result<std::int64_t> CheckState(const TensorFile& state, const std::string& counter) const;
  Status CheckTensor(const TensorFile& state, const std::string& name) const;

  const Config config_;
  const EnvSpec env_;
  const std::unique_ptr<Module> network_;
  const std::unique_ptr<Optimizer> optimizer_;
  FloatArray value_, target_, gradient_;  // [P]
  std::unique_ptr<Packed> packed_value_, packed_target_;
  BatchBuffers buffers_;
  ConstTensor observation_;  // of the last ComputeGradient
  std::uint64_t updates_ = 0;
};

Dqn::Dqn(const Config& config, const EnvSpec& env, std::unique_ptr<Module> network,
         std::unique_ptr<Optimizer> optimizer, std::int64_t parameters)
    : config_(config), env_(env), network_(std::move(network)), optimizer_(std::move(optimizer)),
      value_(parameters), target_(parameters), gradient_(parameters) {
  const Precision precision =
      config.network.precision == "bf16" ? Precision::kBF16 : Precision::kF32;
  packed_value_ = network_->MakePacked(precision);
  packed_target_ = network_->MakePacked(precision);
  InitParameters(*network_, std::uint64_t(config.seed), value_.span());
  std::ranges::copy(value_.span(), target_.span().begin());
  network_->Pack(value_.span(), packed_value_.get());
  network_->Pack(target_.span(), packed_target_.get());
}

Status Dqn::CheckItems(const SampleBatch& batch) const {
  const std::span<const std::int32_t> action = batch.action.as<std::int32_t>();
  const std::int64_t steps = batch.reward.dim(1);
  for (std::size_t i = 0; i < action.size(); ++i) {
    if (action[i] < 0 || action[i] >= env_.action.count) {
      return InvalidArgument("item {}: action {} is not in [0, {})", i, action[i],
                             env_.action.count);
    }
    if (batch.length[i] < 1 || batch.length[i] > steps) {
      return InvalidArgument("item {}: length {} is not in [1, {}]", i, batch.length[i], steps);
    }
  }
  return Status::Ok();
}

Status Dqn::CheckBatch(const SampleBatch& batch, std::span<const float> priority) const {
  const std::int64_t size = batch.size();
  if (size == 0) return InvalidArgument("the batch is empty");
  const TensorSpec observation{env_.observation.dtype, env_.observation.shape.Prepend(size)};
  const auto check = [](const char* name, const Tensor& tensor, const TensorSpec& want) -> Status {
    if (tensor.spec() == want) return Status::Ok();
    return InvalidArgument("{} is {}, not {}", name, tensor.spec().ToString(), want.ToString());
  };
  TROOP_RETURN_IF_ERROR(check("observation", batch.observation, observation));
  TROOP_RETURN_IF_ERROR(check("next_observation", batch.next_observation, observation));
  TROOP_RETURN_IF_ERROR(check("action", batch.action, {DType::kI32, {size}}));
  if (batch.reward.shape().rank() != 2) {
    return InvalidArgument("reward is {}, not f32[{}, N]", batch.reward.spec().ToString(), size);
  }
  const TensorSpec steps{DType::kF32, {size, batch.reward.dim(1)}};
  TROOP_RETURN_IF_ERROR(check("reward", batch.reward, steps));
  TROOP_RETURN_IF_ERROR(check("discount", batch.discount, steps));
  const std::size_t count = std::size_t(size);
  if (batch.weight.size() != count || batch.length.size() != count || priority.size() != count) {
    return InvalidArgument("{} weights, {} lengths and room for {} priorities for {} items",
                           batch.weight.size(), batch.length.size(), priority.size(), size);
  }
  return CheckItems(batch);
}

Status Dqn::PrepareBuffers(std::int64_t batch) {
  if (buffers_.batch == batch) return Status::Ok();
  const TensorSpec in{env_.observation.dtype, env_.observation.shape.Prepend(batch)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network_->MakePlan({&in, 1}));
  const TensorSpec want{DType::kF32, {batch, env_.action.count}};
  if (plan.out.size() != 1 || !(plan.out[0] == want)) {
    return InvalidArgument("the network gives {}, not {}",
                           plan.out.empty() ? "nothing" : plan.out[0].ToString(), want.ToString());
  }
  buffers_ = BatchBuffers{};
  for (Tensor* t : {&buffers_.q, &buffers_.q_next_online, &buffers_.q_next_target, &buffers_.dq}) {
    *t = Tensor(DType::kF32, want.shape);
  }
  buffers_.cache = MutableBuffer::Zeros(plan.cache_bytes);
  buffers_.workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  buffers_.priority.resize(std::size_t(batch));
  buffers_.batch = batch;
  return Status::Ok();
}

void Dqn::Evaluate(std::span<const float> value, const Packed* packed, const Tensor& observation,
                   const Tensor& q, bool keep) {
  const StepContext context{value, packed, {}, buffers_.workspace.bytes()};
  const ConstTensor in(observation);
  network_->Forward(context, {&in, 1}, {&q, 1}, keep ? buffers_.cache.bytes() : Cache{});
}

DqnLossSummary Dqn::ForwardAndLoss(const SampleBatch& batch) {
  // The target first: then the newest weights stay in the cache from here to the backward pass.
  const bool double_q = config_.learner.double_q;
  Evaluate(target_.span(), packed_target_.get(), batch.next_observation, buffers_.q_next_target,
           false);
  if (double_q) {
    Evaluate(value_.span(), packed_value_.get(), batch.next_observation, buffers_.q_next_online,
             false);
  }
  Evaluate(value_.span(), packed_value_.get(), batch.observation, buffers_.q, true);
  DqnLossInput in;
  in.batch = batch.size();
  in.actions = env_.action.count;
  in.steps = batch.reward.dim(1);
  in.q = buffers_.q.data<float>();
  in.q_next_online = double_q ? buffers_.q_next_online.data<float>() : nullptr;
  in.q_next_target = buffers_.q_next_target.data<float>();
  in.action = batch.action.data<std::int32_t>();
  in.reward = batch.reward.data<float>();
  in.discount = batch.discount.data<float>();
  in.length = batch.length.data();
  in.weight = batch.weight.data();
  in.gamma = config_.learner.gamma;
  in.reward_clip = config_.env.reward_clip;
  in.huber = config_.learner.loss == "huber";
  return DqnLoss(in, {buffers_.dq.data<float>(), buffers_.priority.data()});
}

void Dqn::Backward(const SampleBatch& batch, GradientWatch* watch) {
  const std::span<float> gradient = gradient_.span();
  const StepContext context{.value = value_.span(), .packed = packed_value_.get(),
                            .gradient = gradient, .workspace = buffers_.workspace.bytes(),
                            .accumulate = false,  // the padding stays 0 from the start
                            .watch = watch};
  const ConstTensor in(batch.observation), dout(buffers_.dq);
  const Tensor din;
  network_->Backward(context, {&in, 1}, {&dout, 1}, buffers_.cache.bytes(), {&din, 1});
  if (const auto bad = SpoiledNumber(Failpoint::kLearnerGradient)) gradient[0] = *bad;
}

double Dqn::ClipScale(double norm) const {
  const double limit = config_.learner.max_grad_norm;
  return limit > 0 && norm > limit ? limit / norm : 1;
}

float Dqn::LearningRate(double progress) const {
  const double fraction =
      1 + (config_.optimizer.final_fraction - 1) * std::clamp(progress, 0.0, 1.0);
  return float(config_.optimizer.learning_rate * fraction);
}

void Dqn::ApplyGradient(double progress, double norm) {
  optimizer_->Step(gradient_.span(), float(ClipScale(norm)), LearningRate(progress),
                   value_.span());
  network_->UpdateStatistics(observation_, value_.span());
  if (const auto bad = SpoiledNumber(Failpoint::kLearnerWeight)) value_.span()[0] = *bad;
  network_->Pack(value_.span(), packed_value_.get());
  ++updates_;
  if (updates_ % std::uint64_t(config_.learner.target_update_steps) == 0) MoveTarget();
}

void Dqn::AdoptValue(std::uint64_t updates, std::span<const float> value) {
  std::ranges::copy(value, value_.span().begin());
  network_->Pack(value_.span(), packed_value_.get());
  const auto every = std::uint64_t(config_.learner.target_update_steps);
  const bool moves = updates / every > updates_ / every;
  updates_ = updates;
  if (moves) MoveTarget();
}

void Dqn::MoveTarget() {
  const std::span<const float> value = value_.span();
  const std::span<float> target = target_.span();
  const float tau = float(config_.learner.target_tau);
  if (tau == 1) {
    std::ranges::copy(value, target.begin());
  } else {
    for (std::size_t i = 0; i < target.size(); ++i) target[i] += tau * (value[i] - target[i]);
  }
  network_->Pack(target, packed_target_.get());
}

Result<LossReport> Dqn::ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                        GradientWatch* watch) {
  TROOP_RETURN_IF_ERROR(CheckBatch(batch, priority));
  TROOP_RETURN_IF_ERROR(PrepareBuffers(batch.size()));
  const DqnLossSummary loss = ForwardAndLoss(batch);
  if (!std::isfinite(loss.loss) || !AllFinite(buffers_.priority)) {
    return Refuse(batch, fmt::format("the loss is {}", loss.loss));
  }
  Backward(batch, watch);
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) {
    return Refuse(batch, fmt::format("the gradient's norm is {}", norm));
  }
  observation_ = ConstTensor(batch.observation);
  std::ranges::copy(buffers_.priority, priority.begin());
  return LossReport{loss.loss, loss.td_error_mean, loss.q_mean, norm};
}

// Looks for where it came from: first in what the update was given, then in what it made of that.
Status Dqn::Refuse(const SampleBatch& batch, const std::string& what) const {
  std::string origin = FindBadInBatch(batch);
  if (origin.empty()) origin = CheckNumbers().message();
  if (origin.empty()) {
    origin = FindBadItem(batch, buffers_.priority);
    const std::string gradient =
        origin.empty() ? FindBadParameter(*network_, gradient_.span()) : "";
    if (!gradient.empty()) origin = "the gradient of " + gradient;
    origin += (origin.empty() ? "" : "; ") + DescribeLargest(batch);
  }
  return DataLoss("update {}: {}: {}; the batch was left out", updates_ + 1, what, origin);
}

Status Dqn::CheckNumbers() const {
  const auto check = [this](const std::string& what, std::span<const float> values) -> Status {
    const std::string found = FindBadParameter(*network_, values);
    return found.empty() ? Status::Ok() : DataLoss("{}{}", what, found);
  };
  TROOP_RETURN_IF_ERROR(check("the weight ", value_.span()));
  TROOP_RETURN_IF_ERROR(check("the target network's weight ", target_.span()));
  for (const Optimizer::Slot& slot : optimizer_->slots()) {
    TROOP_RETURN_IF_ERROR(check(fmt::format("the optimizer's {} of ", slot.name), slot.values));
  }
  return Status::Ok();
}

TensorFile Dqn::State() const {
  TensorFile state;
  state.tensors["value"] = CopyOf(value_.span());
  state.tensors["target"] = CopyOf(target_.span());
  for (const Optimizer::Slot& slot : optimizer_->slots()) {
    state.tensors[kSlotPrefix + slot.name] = CopyOf(slot.values);
  }
  state.metadata["algorithm"] = "dqn";
  state.metadata["optimizer"] = config_.optimizer.type;
  state.metadata["updates"] = std::to_string(updates_);
  state.metadata["optimizer_steps"] = std::to_string(optimizer_->steps());
  return state;
}

Status Dqn::CheckTensor(const TensorFile& state, const std::string& name) const {
  const auto found = state.tensors.find(name);
  if (found == state.tensors.end()) return InvalidArgument("the state has no tensor \"{}\"", name);
  const TensorSpec want{DType::kF32, {std::int64_t(value_.span().size())}};
  if (found->second.spec() == want) return Status::Ok();
  return InvalidArgument("\"{}\" of the state is {}, but this network has {}: it was saved with "
                         "another network", name, found->second.spec().ToString(),
                         want.ToString());
}

Result<std::int64_t> Dqn::CheckState(const TensorFile& state, const std::string& counter) const {
  const auto found = state.metadata.find(counter);
  if (found == state.metadata.end()) return InvalidArgument("the state has no \"{}\"", counter);
  const std::string& text = found->second;
  std::int64_t count = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 0) {
    return InvalidArgument("\"{}\" of the state is \"{}\", not a count", counter, text);
  }
  return count;
}

Status Dqn::SetState(const TensorFile& state) {
  for (const auto& [key, want] : {std::pair<std::string, std::string>{"algorithm", "dqn"},
                                  {"optimizer", config_.optimizer.type}}) {
    const auto found = state.metadata.find(key);
    if (found == state.metadata.end() || found->second != want) {
      return InvalidArgument("{} of the state is \"{}\", of the config \"{}\"", key,
                             found == state.metadata.end() ? "" : found->second, want);
    }
  }
  TROOP_ASSIGN_OR_RETURN(const std::int64_t updates, CheckState(state, "updates"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t steps, CheckState(state, "optimizer_steps"));
  TROOP_RETURN_IF_ERROR(CheckTensor(state, "value"));
  TROOP_RETURN_IF_ERROR(CheckTensor(state, "target"));
  const std::vector<Optimizer::Slot> slots = optimizer_->slots();
  for (const Optimizer::Slot& slot : slots) {
    TROOP_RETURN_IF_ERROR(CheckTensor(state, kSlotPrefix + slot.name));
  }
  CopyInto(state.tensors.at("value"), value_.span());
  CopyInto(state.tensors.at("target"), target_.span());
  for (const Optimizer::Slot& slot : slots) {
    CopyInto(state.tensors.at(kSlotPrefix + slot.name), slot.values);
  }
  updates_ = std::uint64_t(updates);
  optimizer_->set_steps(steps);
  network_->Pack(value_.span(), packed_value_.get());
  network_->Pack(target_.span(), packed_target_.get());
  return Status::Ok();
}

Status Dqn::RollBack(const TensorFile& state) {
  const std::uint64_t updates = updates_;
  TROOP_RETURN_IF_ERROR(SetState(state));
  updates_ = updates + 1;
  return Status::Ok();
}

Status CheckConfig(const Config& config, const EnvSpec& env) {
  if (!env.action.discrete() || env.action.count < 1) {
    return InvalidArgument("{}: dqn needs discrete actions; this environment's are not", env.id);
  }
  if (config.learner.loss != "huber" && config.learner.loss != "mse") {
    return InvalidArgument("learner.loss is \"{}\"; known are \"huber\", \"mse\"",
                           config.learner.loss);
  }
  if (config.learner.target_update_steps < 1) {
    return InvalidArgument("learner.target_update_steps is {}; it must be at least 1",
                           config.learner.target_update_steps);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeDqn(const Config& config, const EnvSpec& env,
                                           std::unique_ptr<Module> network) {
  TROOP_RETURN_IF_ERROR(CheckConfig(config, env));
  const TensorSpec in{env.observation.dtype, env.observation.shape.Prepend(1)};
  TROOP_ASSIGN_OR_RETURN(const Plan plan, network->MakePlan({&in, 1}));
  if (plan.out.size() != 1 || !(plan.out[0] == TensorSpec{DType::kF32, {1, env.action.count}})) {
    return InvalidArgument("the network gives {}, but {} has {} actions",
                           plan.out.empty() ? "nothing" : plan.out[0].ToString(), env.id,
                           env.action.count);
  }
  const std::int64_t parameters = ParameterCount(*network);
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer, MakeOptimizer(config, parameters));
  return std::unique_ptr<Algorithm>(
      new Dqn(config, env, std::move(network), std::move(optimizer), parameters));
}

}  // namespace troop
