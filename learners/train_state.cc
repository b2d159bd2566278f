// Implements the trained weights: steps, target updates, saving, loading and error origins.

#include "learners/train_state.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/failpoint.h"
#include "learners/nonfinite_report.h"
#include "nn/models/model.h"

namespace troop {
namespace {

constexpr const char* kSlotPrefix = "optimizer.";  // prefix of the slots' tensor names in a state

// A copy, so that later updates do not change a state being written.
ConstTensor CopyOf(std::span<const float> values) {
  return ConstTensor(Buffer::Copy(std::as_bytes(values)),
                     {DType::kF32, {std::int64_t(values.size())}});
}

// REQUIRES: CheckTensor was ok.
void CopyInto(const TensorFile& state, const std::string& name, std::span<float> to) {
  std::ranges::copy(state.tensors.at(name).as<float>(), to.begin());
}

// A non-negative count from the state's metadata.
Result<std::int64_t> ReadCount(const TensorFile& state, const std::string& counter) {
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

}  // namespace

Result<std::uint64_t> UpdatesOfState(const TensorFile& state) {
  TROOP_ASSIGN_OR_RETURN(const std::int64_t updates, ReadCount(state, "updates"));
  return std::uint64_t(updates);
}

// Only MakeOptimizer can fail.
Result<std::unique_ptr<TrainState>> TrainState::Make(const TrainingConfig& config,
                                                     const Module* network, std::string algorithm,
                                                     std::vector<Group> groups, Target target) {
  std::unique_ptr<TrainState> made(
      new TrainState(config, network, std::move(algorithm), std::move(groups), target));
  const auto parameters = std::int64_t(made->value_.size());
  TROOP_ASSIGN_OR_RETURN(made->optimizer_, MakeOptimizer(config.optimizer, parameters));
  return made;
}

// One allocation holds value, target and gradient; it starts at zero, so that paddings stay zero.
TrainState::TrainState(const TrainingConfig& config, const Module* network, std::string algorithm,
                       std::vector<Group> groups, Target target)
    : config_(config),
      network_(network),
      algorithm_(std::move(algorithm)),
      groups_(std::move(groups)),
      schedule_(config),
      rates_(groups_.size()) {
  const auto parameters = std::size_t(ParameterCount(*network));
  TROOP_CHECK(!groups_.empty() && groups_.back().end == std::int64_t(parameters),
              "the last group must end at {}", parameters);
  const bool follows = target == Target::kFollows;
  storage_ = MutableBuffer::Zeros((follows ? 3 : 2) * parameters * sizeof(float));
  const std::span<float> all = storage_.as<float>();
  value_ = all.first(parameters);
  if (follows) target_ = all.subspan(parameters, parameters);
  gradient_ = all.last(parameters);
  const Precision precision =
      config.network.precision == NetworkPrecision::kBf16 ? Precision::kBF16 : Precision::kF32;
  packed_value_ = network->MakePacked(precision);
  if (follows) packed_target_ = network->MakePacked(precision);
  InitParameters(*network, std::uint64_t(config.seed), value_);
  if (follows) std::ranges::copy(value_, target_.begin());
  PackAll();
}

void TrainState::PackAll() {
  network_->Pack(value_, packed_value_.get());
  if (!target_.empty()) network_->Pack(target_, packed_target_.get());
}

void TrainState::Begin(std::span<const float> value) {
  TROOP_CHECK(updates_ == 0, "{} updates were made already", updates_);
  std::ranges::copy(value, value_.begin());
  if (!target_.empty()) std::ranges::copy(value, target_.begin());
  PackAll();
}

double TrainState::ClipScale(double norm) const {
  const double limit = config_.learner.max_grad_norm;
  return limit > 0 && norm > limit ? limit / norm : 1;
}

void TrainState::Clip(double norm, std::span<float> gradient) const {
  const auto scale = float(ClipScale(norm));
  if (scale == 1) return;
  std::int64_t first = 0;
  for (const Group& group : groups_) {
    const auto part = gradient.subspan(std::size_t(first), std::size_t(group.end - first));
    first = group.end;
    if (!group.clips) continue;
    for (float& g : part) g *= scale;
  }
}

// All groups share the schedule; the last group's rate is the reported one.
float TrainState::LearningRate(double progress) const {
  return float(groups_.back().learning_rate * schedule_.Fraction(progress));
}

// The packed form is refreshed after each change of the weights.
void TrainState::Step(double progress, double norm, const ConstTensor& observation) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    rates_[i] = {groups_[i].end - first,
                 float(groups_[i].learning_rate * schedule_.Fraction(progress)), groups_[i].decays,
                 groups_[i].every};
    first = groups_[i].end;
  }
  // The optimizer has one factor for all groups, which saves a pass over the gradient.
  const bool all = std::ranges::all_of(groups_, &Group::clips);
  if (!all) Clip(norm, gradient_);
  optimizer_->StepGroups(gradient_, all ? float(ClipScale(norm)) : 1, rates_, value_);
  network_->UpdateStatistics(observation, value_);
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerWeight)) value_[0] = *bad;
  network_->Pack(value_, packed_value_.get());
  ++updates_;
  if (target_.empty()) return;
  if (updates_ % std::uint64_t(config_.learner.target_update_every_updates) == 0) MoveTarget();
}

// The target moves if the adopted count passes a multiple of target_update_every_updates.
void TrainState::Adopt(std::uint64_t updates, std::span<const float> value) {
  std::ranges::copy(value, value_.begin());
  network_->Pack(value_, packed_value_.get());
  const auto every = std::uint64_t(config_.learner.target_update_every_updates);
  const bool moves = !target_.empty() && updates / every > updates_ / every;
  updates_ = updates;
  if (moves) MoveTarget();
}

// Polyak averaging; tau 1 is the periodic copy of Mnih et al. 2015.
void TrainState::MoveTarget() {
  const float tau = float(config_.learner.target_tau);
  if (tau == 1) {
    std::ranges::copy(value_, target_.begin());
  } else {
    for (std::size_t i = 0; i < target_.size(); ++i) target_[i] += tau * (value_[i] - target_[i]);
  }
  network_->Pack(target_, packed_target_.get());
}

// The arrays of a saved state, by name.
std::vector<std::pair<std::string, std::span<float>>> TrainState::Saved() const {
  std::vector<std::pair<std::string, std::span<float>>> saved = {{"value", value_}};
  if (!target_.empty()) saved.emplace_back("target", target_);
  for (const Optimizer::Slot& slot : optimizer_->slots()) {
    saved.emplace_back(kSlotPrefix + slot.name, slot.values);
  }
  return saved;
}

// Arrays are tensors of f32[P]; names and counters are metadata.
TensorFile TrainState::State() const {
  TensorFile state;
  for (const auto& [name, values] : Saved()) state.tensors[name] = CopyOf(values);
  state.metadata["algorithm"] = algorithm_;
  state.metadata["optimizer"] = EnumName(config_.optimizer.type);
  state.metadata["updates"] = std::to_string(updates_);
  state.metadata["optimizer_steps"] = std::to_string(optimizer_->steps());
  return state;
}

// A wrong size is the sign of another network.
Status TrainState::CheckTensor(const TensorFile& state, const std::string& name) const {
  const auto found = state.tensors.find(name);
  if (found == state.tensors.end()) return InvalidArgument("the state has no tensor \"{}\"", name);
  const TensorSpec want{DType::kF32, {std::int64_t(value_.size())}};
  if (found->second.spec() == want) return Status::Ok();
  return InvalidArgument(
      "\"{}\" of the state is {}, but this network has {}: it was saved with another network", name,
      found->second.spec().ToString(), want.ToString());
}

// A state must come from the same algorithm, optimizer and network.
Status TrainState::SetState(const TensorFile& state) {
  // All checks come before the first change, so that an error leaves the network as it was.
  for (const auto& [key, want] :
       {std::pair<std::string, std::string>{"algorithm", algorithm_},
        std::pair<std::string, std::string>{"optimizer", EnumName(config_.optimizer.type)}}) {
    const auto found = state.metadata.find(key);
    if (found == state.metadata.end() || found->second != want) {
      return InvalidArgument("{} is \"{}\" in the state, but \"{}\" in the config", key,
                             found == state.metadata.end() ? "" : found->second, want);
    }
  }
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, UpdatesOfState(state));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t steps, ReadCount(state, "optimizer_steps"));
  for (const auto& [name, values] : Saved()) TROOP_RETURN_IF_ERROR(CheckTensor(state, name));
  for (const auto& [name, values] : Saved()) CopyInto(state, name, values);
  updates_ = updates;
  optimizer_->set_steps(steps);
  PackAll();
  return Status::Ok();
}

// The count continues, so that later versions are newer than all published ones.
Status TrainState::RollBack(const TensorFile& state) {
  const std::uint64_t updates = updates_;
  TROOP_RETURN_IF_ERROR(SetState(state));
  updates_ = updates + 1;
  return Status::Ok();
}

// Reports the first value found, in this order: value, target, optimizer slots.
Status TrainState::CheckFinite() const {
  const auto check = [this](const std::string& what, std::span<const float> values) -> Status {
    const std::string found = values.empty() ? "" : FindNonFiniteParameter(*network_, values);
    return found.empty() ? Status::Ok() : DataLoss("{}{}", what, found);
  };
  TROOP_RETURN_IF_ERROR(check("the weight ", value_));
  TROOP_RETURN_IF_ERROR(check("the target network's weight ", target_));
  for (const Optimizer::Slot& slot : optimizer_->slots()) {
    TROOP_RETURN_IF_ERROR(check(fmt::format("the optimizer's {} of ", slot.name), slot.values));
  }
  return Status::Ok();
}

// Searches the inputs of the update first, then its results.
Status TrainState::Refuse(const SampleBatch& batch, std::span<const float> priority,
                          const std::string& what) const {
  std::string origin = FindNonFiniteInBatch(batch);
  if (origin.empty()) origin = CheckFinite().message();
  if (origin.empty()) {
    origin = FindNonFiniteItem(batch, priority);
    const std::string gradient = origin.empty() ? FindNonFiniteParameter(*network_, gradient_) : "";
    if (!gradient.empty()) origin = "the gradient of " + gradient;
    origin += (origin.empty() ? "" : "; ") + DescribeLargest(batch);
  }
  return DataLoss("update {}: {}: {}; the batch was skipped", updates_ + 1, what, origin);
}

}  // namespace troop
