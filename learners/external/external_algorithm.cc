// Implements the algorithm whose updates another program computes.
#include "learners/external/external_algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/external/program_channel.h"
#include "learners/nonfinite_report.h"
#include "learners/rl/transition_check.h"
#include "learners/train_state.h"
#include "nn/models/model.h"

namespace troop {
namespace {

constexpr char kName[] = "external";
constexpr char kValue[] = "value", kProgramState[] = "program";  // tensors of a saved state

// A tensor in the shared memory.
struct Field {
  std::string name;
  TensorSpec spec;
  std::size_t offset = 0;
};

class ExternalAlgorithm final : public Algorithm {
 public:
  ExternalAlgorithm(const TrainingConfig& config, const EnvSpec& env,
                    std::unique_ptr<Module> network)
      : config_(config),
        env_(env),
        network_(std::move(network)),
        channel_(config.learner.program_socket, Seconds(config.learner.program_timeout_s)),
        value_(std::size_t(ParameterCount(*network_))),
        change_(value_.size()) {
    InitParameters(*network_, std::uint64_t(config.seed), value_);
    MakeLayout();
  }

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  // The decrease of the weights by the program's update; zeros if it kept them.
  std::span<float> gradient() override { return change_; }
  void ApplyGradient(double, double) override {
    if (!next_.empty()) std::swap(value_, next_);
    next_.clear();
    ++updates_;
  }
  float LearningRate(double) const override { return 0; }  // the program's own
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override { return value_; }
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override {
    const std::uint64_t updates = updates_;
    TROOP_RETURN_IF_ERROR(SetState(state));
    updates_ = updates + 1;
    return Status::Ok();
  }
  Status CheckFinite() const override;

 private:
  void MakeLayout();
  std::string Hello() const;
  Status EnsureReady();
  Status WriteBatch(const SampleBatch& batch);
  Status TakePriorities(const SampleBatch& batch, std::span<float> priority) const;
  Status TakeWeights();
  const Field& FieldOf(std::string_view name) const {
    return *std::ranges::find(fields_, name, &Field::name);
  }
  std::byte* At(std::string_view name) const {
    return channel_.memory().data() + FieldOf(name).offset;
  }
  void Write(std::string_view name, std::span<const std::byte> bytes) const {
    std::ranges::copy(bytes, At(name));
  }

  const TrainingConfig config_;
  const EnvSpec env_;
  const std::unique_ptr<Module> network_;
  std::vector<Field> fields_;
  std::size_t memory_bytes_ = 0;
  mutable ProgramChannel channel_;            // State requests the part of the program
  bool loaded_ = false;                       // the program has the weights and its state
  Status lost_;                               // why the connection ended
  std::vector<float> value_, change_, next_;  // [P]; next_: the program's weights, or empty
  Buffer program_state_;                      // of the state that was set last
  std::uint64_t updates_ = 0;
};

// Each tensor begins at a multiple of the cache line.
void ExternalAlgorithm::MakeLayout() {
  // Inputs first, then the results, which the program writes.
  const std::int64_t size = config_.learner.batch_size, steps = config_.n_step;
  const TensorSpec action = env_.action.tensor();
  const TensorSpec observation{env_.observation.dtype, env_.observation.shape.Prepend(size)};
  fields_ = {{"observation", observation},
             {"next_observation", observation},
             {"action", {action.dtype, action.shape.Prepend(size)}},
             {"reward", {DType::kF32, {size, steps}}},
             {"discount", {DType::kF32, {size, steps}}},
             {"length", {DType::kI32, {size}}},
             {"weight", {DType::kF32, {size}}},
             {"priority", {DType::kF32, {size}}},
             {"weights", {DType::kF32, {std::int64_t(value_.size())}}}};
  for (Field& field : fields_) {
    field.offset = memory_bytes_;
    memory_bytes_ += (field.spec.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
}

// Fields and parameters with their places, so that the program needs no other description.
std::string ExternalAlgorithm::Hello() const {
  // Offsets of fields are bytes of the memory, those of parameters elements of the weights.
  JsonArray fields, parameters;
  for (const Field& field : fields_) {
    fields.Add(JsonObject()
                   .Add("name", field.name)
                   .Add("dtype", DTypeName(field.spec.dtype))
                   .Add("shape", JsonArray::Of(field.spec.shape.dims()))
                   .Add("offset", field.offset));
  }
  for (const ParamSpec& param : network_->params()) {
    parameters.Add(JsonObject()
                       .Add("name", param.name)
                       .Add("shape", JsonArray::Of(param.shape.dims()))
                       .Add("offset", param.offset));
  }
  return JsonObject()
      .Add("type", "hello")
      .Add("protocol", 1)
      .Add("bytes", memory_bytes_)
      .Add("fields", fields)
      .Add("parameters", parameters)
      .Add("actions", env_.action.discrete() ? env_.action.count : 0)
      .Add("config", config_.config_toml)
      .str();
}

// Connects, and gives the program the weights and its state if it does not have them.
Status ExternalAlgorithm::EnsureReady() {
  if (!channel_.connected()) {
    loaded_ = false;
    TROOP_RETURN_IF_ERROR(channel_.Connect(Hello(), memory_bytes_));
  }
  if (loaded_) return Status::Ok();
  Write("weights", std::as_bytes(std::span(value_)));
  const std::string load = JsonObject().Add("type", "load").Add("updates", updates_).str();
  TROOP_ASSIGN_OR_RETURN(const ProgramChannel::Answer answer,
                         channel_.Call(load, program_state_.bytes()));
  const Result<std::string> type = answer.message.String("type");
  if (!type.ok() || *type != "loaded")
    return Unavailable("the program cannot load the state of update {}", updates_);
  loaded_ = true;
  return Status::Ok();
}

// The layout is fixed when the connection is made, so all batches have the same sizes.
Status ExternalAlgorithm::WriteBatch(const SampleBatch& batch) {
  if (batch.size() != config_.learner.batch_size || batch.reward.dim(1) != config_.n_step) {
    return InvalidArgument("a batch of {} items with {} steps, but the config has {} and {}",
                           batch.size(), batch.reward.dim(1), config_.learner.batch_size,
                           config_.n_step);
  }
  // CheckTransitions has compared the sizes of all tensors with these fields.
  Write("observation", batch.observation.bytes());
  Write("next_observation", batch.next_observation.bytes());
  Write("action", batch.action.bytes());
  Write("reward", batch.reward.bytes());
  // Troop's own losses clip rewards too.
  if (const auto clip = float(config_.reward_clip); clip > 0) {
    auto* const reward = reinterpret_cast<float*>(At("reward"));
    for (std::int64_t i = 0; i < batch.reward.elements(); ++i)
      reward[i] = std::clamp(reward[i], -clip, clip);
  }
  Write("discount", batch.discount.bytes());
  Write("length", std::as_bytes(std::span(batch.length)));
  Write("weight", std::as_bytes(std::span(batch.weight)));
  return Status::Ok();
}

// A copy first: the program may change the memory at any time.
Status ExternalAlgorithm::TakePriorities(const SampleBatch& batch,
                                         std::span<float> priority) const {
  std::memcpy(priority.data(), At("priority"), priority.size_bytes());
  const auto bad =
      std::ranges::find_if(priority, [](float p) { return !std::isfinite(p) || p < 0; });
  if (bad == priority.end()) return Status::Ok();
  const std::string item = FindNonFiniteItem(batch, priority);
  return DataLoss(
      "update {}: the program returned the priority {} for item {}{}{}; the batch was "
      "skipped",
      updates_ + 1, *bad, bad - priority.begin(), item.empty() ? "" : ": ", item);
}

// The weights take effect in ApplyGradient; until then the old ones are complete.
Status ExternalAlgorithm::TakeWeights() {
  next_.resize(value_.size());
  std::memcpy(next_.data(), At("weights"), next_.size() * sizeof(float));
  const std::string bad = FindNonFiniteParameter(*network_, next_);
  if (!bad.empty()) {
    next_.clear();
    return DataLoss("update {}: the program returned the weight {}; the batch was skipped",
                    updates_ + 1, bad);
  }
  for (std::size_t i = 0; i < value_.size(); ++i) change_[i] = value_[i] - next_[i];
  return Status::Ok();
}

// One request per batch: a repeated one would be a second update in the program.
Result<LossReport> ExternalAlgorithm::ComputeGradient(const SampleBatch& batch,
                                                      std::span<float> priority, GradientWatch*) {
  TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priority.size()));
  lost_ = EnsureReady();
  if (!lost_.ok()) return lost_;
  TROOP_RETURN_IF_ERROR(WriteBatch(batch));
  // 1. The program computes the update.
  const Result<ProgramChannel::Answer> answer =
      channel_.Call(JsonObject().Add("type", "batch").Add("updates", updates_).str());
  lost_ = answer.status();
  if (!lost_.ok()) return lost_;
  const JsonValue& message = answer->message;
  const Result<std::string> type = message.String("type");
  if (type.ok() && *type == "refused") {
    const Result<std::string> reason = message.String("message");
    return Cancelled("update {}: the program refused the batch: {}", updates_ + 1,
                     reason.ok() ? *reason : "no reason");
  }
  const JsonValue* const loss = message.Find("loss");
  if (!type.ok() || *type != "done" || loss == nullptr || loss->kind != JsonValue::Kind::kNumber ||
      !std::isfinite(loss->number)) {
    return DataLoss("update {}: the program returned no finite loss; the batch was skipped",
                    updates_ + 1);
  }
  // 2. Its results, all of them checked before anything changes.
  const Result<bool> weights = message.BooleanOr("weights", false);
  const Result<double> q_mean = message.NumberOr("q_mean", 0);
  const Status& wrong = weights.ok() ? q_mean.status() : weights.status();
  if (!wrong.ok()) {
    return DataLoss("update {}: in the program's answer, {}; the batch was skipped", updates_ + 1,
                    wrong.message());
  }
  TROOP_RETURN_IF_ERROR(TakePriorities(batch, priority));
  std::ranges::fill(change_, 0.0f);
  // Without new weights the update counts all the same: the priorities are new.
  if (*weights) TROOP_RETURN_IF_ERROR(TakeWeights());
  double sum = 0;
  for (const float p : priority) sum += double(p);
  return LossReport{.loss = loss->number,
                    .td_error_mean = sum / double(priority.size()),
                    .q_mean = *q_mean,
                    .gradient_norm = GradientNorm(),
                    .rows = double(batch.size())};
}

// Without an answer the checkpoint has no state of the program, whose optimizer then begins again.
TensorFile ExternalAlgorithm::State() const {
  Buffer program = program_state_;
  if (loaded_ && channel_.connected()) {
    Result<ProgramChannel::Answer> answer = channel_.Call(JsonObject().Add("type", "save").str());
    const bool saved = answer.ok() && answer->message.String("type").ok() &&
                       *answer->message.String("type") == "saved";
    if (!saved) {
      LogWarning("a checkpoint without the state of the program: {}",
                 answer.ok() ? "it could not save it" : answer.status().message());
    }
    program = saved ? std::move(answer->file) : Buffer();
  }
  TensorFile state;
  state.tensors[kValue] = ConstTensor(Buffer::Copy(std::as_bytes(std::span(value_))),
                                      {DType::kF32, {std::int64_t(value_.size())}});
  if (!program.empty())
    state.tensors[kProgramState] =
        ConstTensor(program, {DType::kU8, {std::int64_t(program.size())}});
  state.metadata["algorithm"] = kName;
  state.metadata["updates"] = std::to_string(updates_);
  return state;
}

// All checks come before the first change. The program gets the state with the next batch.
Status ExternalAlgorithm::SetState(const TensorFile& state) {
  const auto algorithm = state.metadata.find("algorithm");
  if (algorithm == state.metadata.end() || algorithm->second != kName) {
    return InvalidArgument("algorithm is \"{}\" in the state, but \"{}\" in the config",
                           algorithm == state.metadata.end() ? "" : algorithm->second, kName);
  }
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, UpdatesOfState(state));
  const auto value = state.tensors.find(kValue), program = state.tensors.find(kProgramState);
  const TensorSpec want{DType::kF32, {std::int64_t(value_.size())}};
  if (value == state.tensors.end() || !(value->second.spec() == want)) {
    return InvalidArgument("\"{}\" of the state is not {}: it was saved with another network",
                           kValue, want.ToString());
  }
  // A missing state of the program is valid: not every program has one.
  std::ranges::copy(value->second.as<float>(), value_.begin());
  program_state_ =
      program == state.tensors.end() ? Buffer() : Buffer::Copy(program->second.bytes());
  updates_ = updates;
  loaded_ = false;
  return Status::Ok();
}

// A lost program comes first: its last weights say nothing about the reason.
Status ExternalAlgorithm::CheckFinite() const {
  if (!lost_.ok()) return lost_;
  const std::string bad = FindNonFiniteParameter(*network_, value_);
  return bad.empty() ? Status::Ok() : DataLoss("the weight {}", bad);
}

}  // namespace

// No connection yet: a plan or a rollback makes algorithms that never update.
Result<std::unique_ptr<Algorithm>> MakeExternalAlgorithm(const TrainingConfig& config,
                                                         const EnvSpec& env,
                                                         std::unique_ptr<Module> network) {
  if (config.learner.program_socket.empty())
    return InvalidArgument("learner.program_socket is empty; name the socket of the program");
  return std::unique_ptr<Algorithm>(new ExternalAlgorithm(config, env, std::move(network)));
}

}  // namespace troop
