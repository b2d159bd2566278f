// Implements DQN updates on a GPU, with batches from host memory or from the GPU replay.

#include "learners/rl/gpu_dqn.h"

#ifndef TROOP_HAS_CUDA

namespace troop {

Result<std::unique_ptr<Algorithm>> MakeGpuDqn(const TrainingConfig&, const EnvSpec&,
                                              std::unique_ptr<Module>, int) {
  return Unavailable("this program was built without CUDA; build it with the preset \"cuda\"");
}

}  // namespace troop

#else

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "kernels/cuda/ops/activation.h"
#include "kernels/elementwise/is_finite.h"
#include "learners/gpu/batch_uploader.h"
#include "learners/gpu/cuda/dqn_step.h"
#include "learners/gpu/gpu_algorithm.h"
#include "learners/gpu/gpu_replay.h"
#include "learners/gpu/optimizer_rule.h"
#include "learners/rl/dqn.h"
#include "learners/rl/transition_check.h"
#include "learners/train_state.h"
#include "nn/models/model.h"
#include "nn/models/q_network_spec.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

using cuda::DqnStepOptions;
using cuda::QNetworkSpec;

// Options of the device step that correspond to the config.
DqnStepOptions OptionsOf(const TrainingConfig& config, QNetworkSpec network,
                         cuda::Precision precision, std::int64_t batch, std::int64_t steps) {
  DqnStepOptions o;
  o.network = std::move(network);
  o.precision = precision;
  o.batch = batch;
  o.steps = steps;
  o.gamma = config.learner.gamma;
  o.reward_clip = config.reward_clip;
  o.huber = config.learner.loss == TdLoss::kHuber;
  o.double_q = config.learner.double_q;
  using Values = DqnStepOptions::Values;
  const ValueHead form = GetValueHead(ModelSetupOf(config));
  o.values = form.kind == ValueHead::Kind::kCategorical ? Values::kCategorical
             : form.kind == ValueHead::Kind::kQuantile  ? Values::kQuantile
                                                        : Values::kScalar;
  o.v_min = form.low;
  o.v_max = form.high;
  o.rule = MakeOptimizerRule(config);
  o.target_update_every_updates = config.learner.target_update_every_updates;
  o.target_tau = config.learner.target_tau;
  return o;
}

LossReport ReportOf(const cuda::DqnStepReport& report, std::size_t items) {
  return {.loss = report.loss,
          .td_error_mean = report.td_error_mean,
          .q_mean = report.q_mean,
          .gradient_norm = report.gradient_norm,
          .rows = double(items)};
}

// One DqnStep at a time, made for the current batch size and replay table.
class GpuDqn final : public GpuAlgorithm, public FusedUpdate, public GpuReplayConsumer {
 public:
  GpuDqn(const TrainingConfig& config, const EnvSpec& env, std::unique_ptr<Module> network,
         std::unique_ptr<TrainState> host, std::unique_ptr<cuda::Device> device, QNetworkSpec spec,
         std::optional<PictureStack> pictures, std::unique_ptr<GpuReplay> replay, int ordinal)
      : GpuAlgorithm(std::move(device), std::move(host), ordinal),
        config_(config),
        env_(env),
        network_(std::move(network)),
        spec_(std::move(spec)),
        batches_(&this->device(), pictures),
        done_(this->device()),
        replay_(std::move(replay)) {}

  // First half, for learners that all-reduce between the halves.
  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override {
    if (replay_ != nullptr) {
      return FailedPrecondition("batches are sampled on the device; only Update is supported");
    }
    TROOP_RETURN_IF_ERROR(Take(batch, priority.size()));
    // With an all-reduce on the device, `watch` is called as parts become final; otherwise once.
    cuda::QNetwork::Ready ready;
    if (on_device() && watch != nullptr) {
      ready = [watch](std::int64_t from) { watch->GradientReady(from); };
    }
    step_->RunGradient(stream(), ready);
    stream().CopyToHost(priority_.data(), step_->batch().priority, priority_.bytes());
    const cuda::DqnStepReport report = step_->NextReport();
    stream().Synchronize();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    const std::span<const float> found(priority_.data(), priority.size());
    NoteGradient(report.gradient_norm);
    if (report.finite == 0) {
      if (on_device()) {  // the gradient may include other learners', so the origin is unknown
        return DataLoss("update {}: the loss is {}, the gradient norm {}", updates() + 1,
                        report.loss, report.gradient_norm);
      }
      return Refusal(batch, report, found);
    }
    std::ranges::copy(found, priority.begin());
    if (watch != nullptr && !ready) watch->GradientReady(0);
    return ReportOf(report, priority.size());
  }

  FusedUpdate* fused_update() override { return this; }
  GpuReplayConsumer* gpu_replay() override { return replay_ != nullptr ? this : nullptr; }

  void ExpectNext(const SampleBatch* batch) override { next_ = batch; }

  // The whole update as one CUDA graph. The next batch is copied meanwhile.
  Result<LossReport> RunUpdate(const SampleBatch& batch, double progress,
                               std::span<float> priority) override {
    const SampleBatch* const next = std::exchange(next_, nullptr);
    if (replay_ != nullptr) return UpdateOfDrawn(batch, progress, priority);
    TROOP_RETURN_IF_ERROR(Take(batch, priority.size()));
    step_->Run(stream(), host().LearningRate(progress));
    done_.Record(stream());
    // A batch of another size needs another step, so it is not staged ahead.
    if (next != nullptr && next->size() == items_ &&
        CheckTransitions(*next, env_, next->key.size()).ok()) {
      batches_.Stage(*next);
    }
    const cuda::DqnStepReport report = step_->NextReport();
    done_.Synchronize();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    NoteGradient(report.gradient_norm);
    const std::span<const float> found(priority_.data(), priority.size());
    if (report.finite == 0) return Refusal(batch, report, found);
    CountUpdate(report.gradient_norm);
    std::ranges::copy(found, priority.begin());
    return ReportOf(report, priority.size());
  }

  // An update with a batch sampled on the device. The batch argument's experience is copied
  // meanwhile.
  Result<LossReport> UpdateOfDrawn(const SampleBatch& batch, double progress,
                                   std::span<float> priority) {
    sampled_.clear();
    // The graph refers to the table, so the first experience, which creates the table, is applied
    // before the graph is recorded.
    const bool first = !replay_->can_draw() || GpuReplay::Anew(batch);
    if (first) TROOP_RETURN_IF_ERROR(ApplyTableDelta(batch));
    if (!experience_.ok()) return experience_;
    if (!replay_->can_draw())
      return DataLoss("an update was granted, but there is nothing to sample");
    TROOP_RETURN_IF_ERROR(Prepare(std::int64_t(priority.size()), config_.n_step));
    replay_->BeginUpdate();
    replay_->table()->SetBeta(stream(), batch.beta);
    step_->Run(stream(), host().LearningRate(progress));
    done_.Record(stream());
    // The update is enqueued already, so it samples from the table without this experience.
    const Status taken = first ? Status::Ok() : ApplyTableDelta(batch);
    const cuda::DqnStepReport report = step_->NextReport();
    done_.Synchronize();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    TROOP_RETURN_IF_ERROR(taken);
    NoteGradient(report.gradient_norm);
    if (report.finite == 0) {
      return DataLoss("update {}: the loss is {}, the gradient norm {}", updates() + 1, report.loss,
                      report.gradient_norm);
    }
    CountUpdate(report.gradient_norm);
    std::copy_n(priority_.data(), priority.size(), priority.data());
    replay_->DrawnItems({slots_.data(), priority.size()}, &sampled_);
    return ReportOf(report, priority.size());
  }

  // The first error is kept, and returned by every later update.
  // REQUIRES: replay_ exists, as for gpu_replay().
  Status ApplyTableDelta(const SampleBatch& batch) override {
    // After an error the replica is invalid until a batch replaces it.
    if (GpuReplay::Anew(batch)) experience_ = Status::Ok();
    if (!experience_.ok()) return experience_;
    experience_ = replay_->Take(batch, updates(), stream());
    return experience_;
  }
  std::span<const SampledItem> sampled() const override { return sampled_; }

 private:
  // For an all-reduce before the first batch; the sizes come from the config.
  Status MakeReady() override {
    if (replay_ != nullptr)
      return FailedPrecondition("batches are sampled on the device; all-reduce is not supported");
    return Prepare(config_.learner.batch_size, config_.n_step);
  }
  void RunStep(double learning_rate, bool changed) override {
    step_->RunStep(stream(), learning_rate, changed);
  }

  // Makes the step for these batch sizes, and moves the weights to it.
  Status Prepare(std::int64_t items, std::int64_t steps) {
    // A new table has other addresses, so the graph must be recorded again.
    const int tables = replay_ != nullptr ? replay_->tables() : 0;
    if (step_ != nullptr && items == items_ && steps == steps_ && tables == tables_)
      return Status::Ok();
    TROOP_RETURN_IF_ERROR(Fetch());
    step_ = std::make_unique<cuda::DqnStep>(
        device(),
        OptionsOf(config_, spec_, *DevicePrecisionOf(ModelSetupOf(config_), device().info()), items,
                  steps));
    items_ = items;
    steps_ = steps;
    tables_ = tables;
    priority_ = cuda::PinnedArray<float>(device(), items, "a batch's priorities");
    // Part of the update's graph: sampling before the update, and the results that the host needs.
    const cuda::DqnBatch& to = step_->batch();
    const auto tell = [this, from = to.priority](cuda::Stream& s) {
      s.CopyToHost(priority_.data(), from, priority_.bytes());
    };
    cuda::DeviceTable* const table = replay_ != nullptr ? replay_->table() : nullptr;
    if (table == nullptr) {
      step_->Surround({}, tell);
    } else {
      slots_ = cuda::PinnedArray<std::int32_t>(device(), items, "a batch's items");
      step_->Surround([table, sample = cuda::DeviceSample{to.observation, to.action, to.reward,
                                                          to.discount, to.length, to.weight}](
                          cuda::Stream& s) { table->Draw(s, sample); },
                      [this, table, tell, td_error = to.priority](cuda::Stream& s) {
                        table->UpdatePriorities(s, td_error);
                        tell(s);
                        s.CopyToHost(slots_.data(), table->drawn_slots(), slots_.bytes());
                      });
    }
    return Use(step_.get());
  }

  // Stages the batch, unless ExpectNext has done so already.
  Status Take(const SampleBatch& batch, std::size_t priorities) {
    TROOP_RETURN_IF_ERROR(CheckTransitions(batch, env_, priorities));
    TROOP_RETURN_IF_ERROR(Prepare(batch.size(), batch.reward.dim(1)));
    if (!batches_.holds(batch)) batches_.Stage(batch);
    batches_.Place(stream(), step_->batch());
    return DeviceStatus();
  }

  // Copies the state to the host, where the origin of the error is searched.
  Status Refusal(const SampleBatch& batch, const cuda::DqnStepReport& report,
                 std::span<const float> priority) {
    TROOP_RETURN_IF_ERROR(Fetch());
    gradient();
    return host().Refuse(batch, priority,
                         std::isfinite(report.loss) && AllFinite(priority)
                             ? fmt::format("the gradient norm is {}", report.gradient_norm)
                             : fmt::format("the loss is {}", report.loss));
  }

  const TrainingConfig config_;
  const EnvSpec env_;
  const std::unique_ptr<Module> network_;
  const QNetworkSpec spec_;
  std::unique_ptr<cuda::DqnStep> step_;  // made by the first batch
  // The batch sizes of step_.
  std::int64_t items_ = 0, steps_ = 0;
  int tables_ = 0;  // tables() of replay_ when step_ was made, whose graph refers to it
  BatchUploader batches_;
  const SampleBatch* next_ = nullptr;  // the announced batch of the following update
  // Results of the update's graph: priorities, and the sampled slots.
  cuda::PinnedArray<float> priority_;
  cuda::PinnedArray<std::int32_t> slots_;
  cuda::Event done_;
  const std::unique_ptr<GpuReplay> replay_;  // nullptr: batches come from host memory
  Status experience_;                        // error of the replay replica
  std::vector<SampledItem> sampled_;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeGpuDqn(const TrainingConfig& config, const EnvSpec& env,
                                              std::unique_ptr<Module> network, int learner) {
  std::string error;
  // Learners share the GPUs round-robin.
  const int ordinal = learner % std::max(1, cuda::Device::Count());
  auto device = cuda::Device::Open(ordinal, &error);
  if (device == nullptr) return Unavailable("{}", error);
  const auto only_cpu = [](std::string_view key) {
    return InvalidArgument("{} only runs on the CPU; set learner.device = \"cpu\"", key);
  };
  if (config.optimizer.type == OptimizerType::kAdaGrad)
    return only_cpu("optimizer.type = \"adagrad\"");
  if (config.learner.hogwild_threads > 1) return only_cpu("learner.hogwild_threads");
  const ModelSetup setup = ModelSetupOf(config);
  TROOP_RETURN_IF_ERROR(DevicePrecisionOf(setup, device->info()).status());
  EnvSpec seen = env;  // batches hold the network's inputs
  seen.observation = NetworkInput(setup, env);
  TROOP_RETURN_IF_ERROR(CheckDqn(config, seen, *network));
  TROOP_ASSIGN_OR_RETURN(QNetworkSpec spec, QNetworkSpecOf(setup, env, *network));
  TROOP_ASSIGN_OR_RETURN(
      auto host, TrainState::Make(config, network.get(), "dqn",
                                  {{ParameterCount(*network), config.optimizer.learning_rate}}));
  // The host's network defines the initial weights and the checkpoint format.
  const std::optional<PictureStack> pictures = PicturesOf(setup, env, LayersOf(setup)[0]);
  std::unique_ptr<GpuReplay> replay;
  // The replica belongs to the learner's own GPU.
  if (config.replay.placement == ReplayPlacement::kGpu) {
    replay =
        std::make_unique<GpuReplay>(device.get(), config, env, pictures, config.learner.batch_size);
  }
  return std::unique_ptr<Algorithm>(new GpuDqn(config, seen, std::move(network), std::move(host),
                                               std::move(device), std::move(spec), pictures,
                                               std::move(replay), ordinal));
}

}  // namespace troop

#endif
