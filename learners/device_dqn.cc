#include "learners/device_dqn.h"

#ifndef TROOP_HAS_CUDA

namespace troop {

Result<std::unique_ptr<Algorithm>> MakeDeviceDqn(const Config&, const EnvSpec&,
                                                 std::unique_ptr<Module>, int) {
  return Unavailable("this program was built without CUDA: build it with the preset \"cuda\"");
}

}  // namespace troop

#else

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/log.h"
#include "kernels/cuda/activation.h"
#include "kernels/finite.h"
#include "learners/batch_check.h"
#include "learners/cuda/dqn_step.h"
#include "learners/device_batches.h"
#include "learners/device_replay.h"
#include "learners/dqn.h"
#include "learners/trained_network.h"
#include "nn/model.h"
#include "nn/q_network_spec.h"
#include "nn/trunk.h"
#include "nn/value_form.h"

namespace troop {
namespace {

using cuda::DqnStepOptions;
using cuda::QNetworkSpec;

DqnStepOptions OptionsOf(const Config& config, QNetworkSpec network, cuda::Precision precision,
                         std::int64_t batch, std::int64_t steps) {
  using Rule = DqnStepOptions::Rule;
  DqnStepOptions o;
  o.network = std::move(network);
  o.precision = precision;
  o.batch = batch;
  o.steps = steps;
  o.gamma = config.learner.gamma;
  o.reward_clip = config.env.reward_clip;
  o.huber = config.learner.loss == "huber";
  o.double_q = config.learner.double_q;
  using Values = DqnStepOptions::Values;
  const ValueForm form = ValueFormOf(config);
  o.values = form.kind == ValueForm::Kind::kCategorical ? Values::kCategorical
             : form.kind == ValueForm::Kind::kQuantile  ? Values::kQuantile
                                                        : Values::kScalar;
  o.v_min = form.low;
  o.v_max = form.high;
  o.max_grad_norm = config.learner.max_grad_norm;
  o.rule = config.optimizer.type == "adam"      ? Rule::kAdam
           : config.optimizer.type == "rmsprop" ? Rule::kRmsProp
                                                : Rule::kSgd;
  o.beta1 = config.optimizer.beta1;
  o.beta2 = config.optimizer.beta2;
  o.decay = config.optimizer.decay;
  o.centered = config.optimizer.centered;
  o.momentum = config.optimizer.momentum;
  o.epsilon = config.optimizer.epsilon;
  o.weight_decay = config.optimizer.weight_decay;
  o.target_update_steps = config.learner.target_update_steps;
  o.target_tau = config.learner.target_tau;
  return o;
}

class DeviceDqn final : public Algorithm {
 public:
  DeviceDqn(const Config& config, const EnvSpec& env, std::unique_ptr<Module> network,
            std::unique_ptr<TrainedNetwork> host, std::unique_ptr<cuda::Device> device,
            QNetworkSpec spec, std::optional<PictureStack> pictures,
            std::unique_ptr<DeviceReplay> replay, int ordinal)
      : config_(config),
        env_(env),
        network_(std::move(network)),
        host_(std::move(host)),
        device_(std::move(device)),
        spec_(std::move(spec)),
        stream_(*device_),
        batches_(device_.get(), pictures),
        done_(*device_),
        replay_(std::move(replay)),
        ordinal_(ordinal) {}

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override {
    if (replay_ != nullptr) {
      return FailedPrecondition("batches are drawn on the device: Update makes whole updates");
    }
    TROOP_RETURN_IF_ERROR(Take(batch, priority.size()));
    cuda::QNetwork::Ready ready;
    if (on_device_ && watch != nullptr) {
      ready = [watch](std::int64_t from) { watch->GradientReady(from); };
    }
    step_->RunGradient(stream_, ready);
    stream_.CopyToHost(priority_.data(), step_->batch().priority, priority_.bytes());
    const cuda::DqnStepReport report = step_->NextReport();
    stream_.Synchronize();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    const std::span<const float> found(priority_.data(), priority.size());
    have_gradient_ = false;
    if (report.finite == 0) {
      if (on_device_) {  // others may have added to it by now: where it comes from can't be seen
        return DataLoss("update {}: the loss is {}, the gradient's norm {}", updates_ + 1,
                        report.loss, report.gradient_norm);
      }
      return Refusal(batch, report, found);
    }
    std::ranges::copy(found, priority.begin());
    norm_ = report.gradient_norm;
    if (watch != nullptr && !ready) watch->GradientReady(0);
    return LossReport{report.loss, report.td_error_mean, report.q_mean, report.gradient_norm};
  }

  void ExpectNext(const SampleBatch* batch) override { next_ = batch; }

  // All of it as one graph. The batch behind it is copied meanwhile.
  Result<LossReport> Update(const SampleBatch& batch, double progress,
                            std::span<float> priority) override {
    const SampleBatch* const next = std::exchange(next_, nullptr);
    if (replay_ != nullptr) return UpdateOfDrawn(batch, progress, priority);
    TROOP_RETURN_IF_ERROR(Take(batch, priority.size()));
    step_->Run(stream_, host_->LearningRate(progress));
    stream_.CopyToHost(priority_.data(), step_->batch().priority, priority_.bytes());
    done_.Record(stream_);
    if (next != nullptr && next->size() == items_ &&
        CheckTransitions(*next, env_, next->key.size()).ok()) {
      batches_.Stage(*next);
    }
    const cuda::DqnStepReport report = step_->NextReport();
    done_.Synchronize();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    have_gradient_ = false;
    const std::span<const float> found(priority_.data(), priority.size());
    if (report.finite == 0) return Refusal(batch, report, found);
    CountUpdate(report);
    std::ranges::copy(found, priority.begin());
    return LossReport{report.loss, report.td_error_mean, report.q_mean, report.gradient_norm};
  }

  // Drawn here. What the batch brings is copied meanwhile.
  Result<LossReport> UpdateOfDrawn(const SampleBatch& batch, double progress,
                                   std::span<float> priority) {
    drawn_.clear();
    const bool first = !replay_->can_draw() || DeviceReplay::Anew(batch);
    if (first) TROOP_RETURN_IF_ERROR(TakeExperience(batch));
    if (!experience_.ok()) return experience_;
    if (!replay_->can_draw())
      return DataLoss("an update was granted, and there is nothing to draw");
    TROOP_RETURN_IF_ERROR(Prepare(std::int64_t(priority.size()), config_.actor.n_step));
    replay_->BeginUpdate();
    step_->Run(stream_, host_->LearningRate(progress));
    stream_.CopyToHost(priority_.data(), step_->batch().priority, priority_.bytes());
    stream_.CopyToHost(slots_.data(), replay_->table()->drawn_slots(), slots_.bytes());
    done_.Record(stream_);
    const Status taken = first ? Status::Ok() : TakeExperience(batch);
    const cuda::DqnStepReport report = step_->NextReport();
    done_.Synchronize();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    TROOP_RETURN_IF_ERROR(taken);
    have_gradient_ = false;
    if (report.finite == 0) {
      return DataLoss("update {}: the loss is {}, the gradient's norm {}", updates_ + 1,
                      report.loss, report.gradient_norm);
    }
    CountUpdate(report);
    std::copy_n(priority_.data(), priority.size(), priority.data());
    replay_->DrawnItems({slots_.data(), priority.size()}, &drawn_);
    return LossReport{report.loss, report.td_error_mean, report.q_mean, report.gradient_norm};
  }

  Status TakeExperience(const SampleBatch& batch) override {
    if (replay_ == nullptr) return Algorithm::TakeExperience(batch);
    if (DeviceReplay::Anew(batch)) experience_ = Status::Ok();
    if (!experience_.ok()) return experience_;
    experience_ = replay_->Take(batch, updates_, stream_);
    return experience_;
  }
  std::span<const DrawnItem> drawn() const override { return drawn_; }

  std::span<float> gradient() override {
    if (!have_gradient_ && step_ != nullptr) {
      Copy(step_->gradient(), host_->gradient());
      have_gradient_ = true;
    }
    return host_->gradient();
  }

  double GradientNorm() override {
    if (on_device_) return step_ != nullptr ? step_->GradientNorm(stream_) : 0;
    return have_gradient_ ? Algorithm::GradientNorm() : norm_;
  }

  std::span<float> device_gradient() override {
    if (replay_ != nullptr || !Prepare(config_.learner.batch_size, config_.actor.n_step).ok())
      return {};
    return {step_->gradient(), std::size_t(spec_.parameters)};
  }
  void AgreeOnDevice(bool there) override { on_device_ = there; }
  void* gradient_stream() override { return stream_.Share(); }
  int device_ordinal() const override { return ordinal_; }
  void ClearGradient(std::int64_t count) override {
    if (!on_device_) return Algorithm::ClearGradient(count);
    if (count > 0) stream_.Fill(step_->gradient(), 0, std::size_t(count) * sizeof(float));
  }
  void DivideGradient(float given) override {
    if (!on_device_) return Algorithm::DivideGradient(given);
    cuda::ConvertScaled(stream_, spec_.parameters, step_->gradient(), DType::kF32, 1 / given,
                        step_->gradient(), DType::kF32);
  }

  void ApplyGradient(double progress, double) override {
    if (step_ == nullptr) return;
    // Whoever looked at it may have changed it.
    const bool changed = have_gradient_ || on_device_;
    if (have_gradient_ && !on_device_) {
      std::ranges::copy(host_->gradient(), staging_.data());
      stream_.CopyToDevice(step_->gradient(), staging_.data(), staging_.bytes());
    }
    step_->RunStep(stream_, host_->LearningRate(progress), changed);
    stream_.Synchronize();
    ++updates_;
    fresh_value_ = fresh_state_ = false;
  }

  void AdoptValue(std::uint64_t updates, std::span<const float> value) override {
    if (!Fetch().ok()) return;
    host_->Adopt(updates, value);
    (void)Put();  // a failure is told by the next ComputeGradient
  }

  Optimizer& optimizer() override {
    (void)Fetch();
    return host_->optimizer();
  }
  double ClipScale(double norm) const override { return host_->ClipScale(norm); }
  float LearningRate(double progress) const override { return host_->LearningRate(progress); }
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override {
    if (!fresh_value_ && step_ != nullptr) {
      value_.resize(host_->value().size());
      Copy(step_->value(), value_);
      fresh_value_ = true;
    }
    return value_.empty() ? host_->value() : std::span<const float>(value_);
  }
  TensorFile State() const override {
    (void)Fetch();
    return host_->State();
  }
  Status SetState(const TensorFile& state) override {
    TROOP_RETURN_IF_ERROR(host_->SetState(state));
    return Put();
  }
  Status RollBack(const TensorFile& state) override {
    TROOP_RETURN_IF_ERROR(Fetch());
    TROOP_RETURN_IF_ERROR(host_->RollBack(state));
    return Put();
  }
  Status CheckNumbers() const override {
    TROOP_RETURN_IF_ERROR(Fetch());
    return host_->CheckNumbers();
  }

 private:
  void CountUpdate(const cuda::DqnStepReport& report) {
    ++updates_;
    fresh_value_ = fresh_state_ = false;
    norm_ = report.gradient_norm;
  }

  Status DeviceStatus() const {
    if (device_->ok()) return Status::Ok();
    return Unavailable("{}: {}", device_->info().name, device_->error());
  }

  // For batches of this size; the weights go to the device with the first one.
  Status Prepare(std::int64_t items, std::int64_t steps) {
    const int tables = replay_ != nullptr ? replay_->tables() : 0;
    if (step_ != nullptr && items == items_ && steps == steps_ && tables == tables_)
      return Status::Ok();
    TROOP_RETURN_IF_ERROR(Fetch());
    step_ = std::make_unique<cuda::DqnStep>(
        *device_,
        OptionsOf(config_, spec_, *DevicePrecisionOf(config_, device_->info()), items, steps));
    items_ = items;
    steps_ = steps;
    tables_ = tables;
    priority_ = cuda::PinnedArray<float>(*device_, items, "a batch's priorities");
    staging_ = cuda::PinnedArray<float>(*device_, spec_.parameters, "a copy of parameters");
    if (replay_ != nullptr && replay_->table() != nullptr) {
      slots_ = cuda::PinnedArray<std::int32_t>(*device_, items, "a batch's items");
      const cuda::DqnBatch& to = step_->batch();
      step_->Surround(
          [table = replay_->table(),
           sample = cuda::DeviceSample{to.observation, to.action, to.reward, to.discount, to.length,
                                       to.weight}](cuda::Stream& s) { table->Draw(s, sample); },
          [table = replay_->table(), td_error = to.priority](cuda::Stream& s) {
            table->UpdatePriorities(s, td_error);
          });
    }
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    return Put();
  }

  Status Take(const SampleBatch& batch, std::size_t priorities) {
    TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priorities));
    TROOP_RETURN_IF_ERROR(Prepare(batch.size(), batch.reward.dim(1)));
    if (!batches_.holds(batch)) batches_.Stage(batch);
    batches_.Place(stream_, step_->batch());
    return DeviceStatus();
  }

  Status Refusal(const SampleBatch& batch, const cuda::DqnStepReport& report,
                 std::span<const float> priority) {
    TROOP_RETURN_IF_ERROR(Fetch());
    gradient();
    return host_->Refuse(batch, priority,
                         std::isfinite(report.loss) && AllFinite(priority)
                             ? fmt::format("the gradient's norm is {}", report.gradient_norm)
                             : fmt::format("the loss is {}", report.loss));
  }

  void Copy(const float* from, std::span<float> to) const {
    stream_.CopyToHost(staging_.data(), from, to.size_bytes());
    stream_.Synchronize();
    if (device_->ok()) std::copy_n(staging_.data(), to.size(), to.data());
  }

  cuda::DqnStep::State Spans(std::vector<float>* value, std::vector<float>* target) const {
    cuda::DqnStep::State state;
    value->resize(host_->value().size());
    target->resize(value->size());
    state.value = *value;
    state.target = *target;
    for (const Optimizer::Slot& slot : host_->optimizer().slots())
      (slot.name == "v" ? state.v : state.m) = slot.values;
    return state;
  }

  // host_ becomes what the device has.
  Status Fetch() const {
    if (step_ == nullptr || fresh_state_) return DeviceStatus();
    std::vector<float> value, target;
    cuda::DqnStep::State state = Spans(&value, &target);
    step_->GetState(stream_, &state);
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    TensorFile file = host_->State();  // the slots are there already
    const auto tensor = [](std::span<const float> values) {
      return ConstTensor(Buffer::Copy(std::as_bytes(values)),
                         {DType::kF32, {std::int64_t(values.size())}});
    };
    file.tensors["value"] = tensor(value);
    file.tensors["target"] = tensor(target);
    file.metadata["updates"] = std::to_string(state.updates);
    file.metadata["optimizer_steps"] = std::to_string(state.steps);
    TROOP_RETURN_IF_ERROR(host_->SetState(file));
    fresh_state_ = true;
    return Status::Ok();
  }

  // The device becomes what host_ has.
  Status Put() {
    updates_ = host_->updates();
    value_.clear();
    fresh_value_ = step_ == nullptr;
    if (step_ == nullptr) return Status::Ok();
    std::vector<float> value, target;
    cuda::DqnStep::State state = Spans(&value, &target);
    std::ranges::copy(host_->value(), value.begin());
    std::ranges::copy(host_->target(), target.begin());
    state.updates = std::int64_t(host_->updates());
    state.steps = host_->optimizer().steps();
    step_->SetState(stream_, state);
    fresh_state_ = true;
    return DeviceStatus();
  }

  const Config config_;
  const EnvSpec env_;
  const std::unique_ptr<Module> network_;
  const std::unique_ptr<TrainedNetwork> host_;  // what is saved, and its rules
  const std::unique_ptr<cuda::Device> device_;
  const QNetworkSpec spec_;
  mutable cuda::Stream stream_;
  std::unique_ptr<cuda::DqnStep> step_;  // from the first batch on
  std::int64_t items_ = 0, steps_ = 0;
  int tables_ = 0;  // of replay_, when step_ was made: its graph is of that one
  DeviceBatches batches_;
  const SampleBatch* next_ = nullptr;  // of the update behind this one, as was said
  cuda::PinnedArray<float> priority_, staging_;
  cuda::PinnedArray<std::int32_t> slots_;
  cuda::Event done_;
  const std::unique_ptr<DeviceReplay> replay_;  // nullptr: batches come from host memory
  Status experience_;                           // what is wrong with the copy of the replay
  std::vector<DrawnItem> drawn_;
  const int ordinal_;
  bool on_device_ = false;  // learners agree on the gradient there
  std::uint64_t updates_ = 0;
  double norm_ = 0;
  bool have_gradient_ = false;  // host_->gradient() is the device's, or newer
  mutable bool fresh_value_ = true, fresh_state_ = true;
  mutable std::vector<float> value_;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeDeviceDqn(const Config& config, const EnvSpec& env,
                                                 std::unique_ptr<Module> network, int learner) {
  std::string error;
  const int ordinal = learner % std::max(1, cuda::Device::Count());
  auto device = cuda::Device::Open(ordinal, &error);
  if (device == nullptr) return Unavailable("{}", error);
  const auto only_cpu = [](std::string_view key) {
    return InvalidArgument("{} is computed on the CPU alone: set learner.device = \"cpu\"", key);
  };
  if (config.optimizer.type == "adagrad") return only_cpu("optimizer.type = \"adagrad\"");
  if (config.learner.hogwild_threads > 1) return only_cpu("learner.hogwild_threads");
  TROOP_RETURN_IF_ERROR(DevicePrecisionOf(config, device->info()).status());
  EnvSpec seen = env;  // batches hold what the network takes
  seen.observation = NetworkInput(config, env);
  TROOP_RETURN_IF_ERROR(CheckDqn(config, seen, *network));
  TROOP_ASSIGN_OR_RETURN(QNetworkSpec spec, QNetworkSpecOf(config, env, *network));
  TROOP_ASSIGN_OR_RETURN(
      auto host,
      TrainedNetwork::Make(config, network.get(), "dqn",
                           {{ParameterCount(*network), config.optimizer.learning_rate}}));
  const std::optional<PictureStack> pictures = PicturesOf(config, env, LayersOf(config)[0]);
  std::unique_ptr<DeviceReplay> replay;
  if (config.replay.placement == "gpu") {
    replay = std::make_unique<DeviceReplay>(device.get(), config, env, pictures,
                                            config.learner.batch_size);
  }
  return std::unique_ptr<Algorithm>(new DeviceDqn(config, seen, std::move(network), std::move(host),
                                                  std::move(device), std::move(spec), pictures,
                                                  std::move(replay), ordinal));
}

}  // namespace troop

#endif
