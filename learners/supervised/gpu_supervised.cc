// Implements supervised training and evaluation of text models on a GPU.

#include "learners/supervised/gpu_supervised.h"

#ifndef TROOP_HAS_CUDA

namespace troop {
namespace {

Status NoCuda() {
  return Unavailable("this program was built without CUDA; build it with the preset \"cuda\"");
}

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeGpuSupervised(const TrainingConfig&,
                                                     std::shared_ptr<const ReviewData>,
                                                     const TensorParallelRank&, int) {
  return NoCuda();
}
Result<std::unique_ptr<GpuTextEvaluator>> MakeGpuTextEvaluator(const TrainingConfig&,
                                                               std::span<const float>) {
  return NoCuda();
}

}  // namespace troop

#else

#include <algorithm>
#include <cmath>
#include <utility>

#include "learners/gpu/cuda/text_step.h"
#include "learners/gpu/gpu_algorithm.h"
#include "learners/gpu/tensor_parallel_comm.h"
#include "learners/nonfinite_report.h"
#include "learners/supervised/gpu_text.h"
#include "learners/supervised/model_shard.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// Views into `batch`, valid as long as it is.
cuda::HostTokens TokensOf(const TextBatch& batch) {
  return {.ids = batch.ids,
          .starts = batch.starts,
          .types = batch.types,
          .dropout = batch.dropout,
          .places = batch.places,
          .labels = batch.labels,
          .targets = batch.targets,
          .weights = batch.weights};
}

// Device kernels do not check indices, so the host does.
Status CheckBatch(const TokenBounds& bounds, const cuda::TextStepOptions& step,
                  const TextBatch& batch) {
  const auto outputs = std::size_t(step.model.classes * batch.rows());
  if (step.problem != ProblemType::kSingleLabel && batch.targets.size() != outputs) {
    return InvalidArgument("{} targets for {} outputs of the model", batch.targets.size(), outputs);
  }
  return CheckTokens(bounds, TokenBatch{.ids = batch.ids,
                                        .starts = batch.starts,
                                        .types = batch.types,
                                        .dropout = batch.dropout,
                                        .places = batch.places});
}

// The counts of a batch; loss and correct predictions come from the device.
TextOutcome SizesOf(const TextBatch& batch) {
  return {.rows = batch.rows(),
          .tokens = std::int64_t(batch.ids.size()),
          .sequences = std::int64_t(batch.starts.size()) - 1};
}

// The device counterpart of Supervised: the host packs batches, the device does the rest.
class GpuSupervised final : public GpuAlgorithm,
                            public TensorParallelMember,
                            public BatchPartition,
                            public CostReporting {
 public:
  GpuSupervised(const TrainingConfig& config, std::shared_ptr<const ReviewData> data,
                TextDevice opened, ModelShard model, std::unique_ptr<TrainState> trained)
      : GpuAlgorithm(std::move(opened.device), std::move(trained), opened.ordinal),
        config_(config),
        options_(std::move(opened.step)),
        bounds_(opened.bounds),
        model_(std::move(model)),
        share_(config, std::move(data)),
        step_begin_(device()),
        step_end_(device()) {}

  TensorParallelMember* tensor_parallel() override { return this; }
  BatchPartition* batch_partition() override { return this; }
  CostReporting* cost_reporting() override { return this; }

  void SetRank(int rank, int ranks) override { share_.SetRank(rank, ranks); }
  void SetTrainingProgress(const TrainingProgress& training_progress) override {
    share_.SetTrainingProgress(training_progress);
  }

  // Enqueues all micro-batches, then waits once.
  Result<LossReport> ComputeGradient(const SampleBatch&, std::span<float> priority,
                                     GradientWatch* watch) override {
    TROOP_RETURN_IF_ERROR(MakeReady());
    ++cost_.gradients;
    // Each rank has a part of the layers' weights, so no result exists without the others.
    if (model_.cut() && peers_ == nullptr)
      return FailedPrecondition("no group of the tensor-parallel ranks");
    step_->Begin(stream());
    TextOutcome sum;
    double data_s = 0;
    const Time begin = clock_.Now();
    // Enqueues one micro-batch; the device computes while the host packs the next one.
    const auto add = [&](const TextBatch& text, float scale, bool last) -> Status {
      TROOP_RETURN_IF_ERROR(CheckBatch(bounds_, options_, text));
      cuda::Transformer::Ready ready;
      // Only the last micro-batch completes the gradient, so only its parts may be sent.
      if (last && on_device() && watch != nullptr)
        ready = [watch](std::int64_t from) { watch->GradientReady(from); };
      step_->Add(stream(), TokensOf(text), scale, ready);
      sum += SizesOf(text);
      // The ranks of a tensor-parallel group share the operations of one batch.
      cost_.flops +=
          TrainingFlops(config_, text, LastLayer::kBehindAttention) / double(model_.place().ranks);
      TROOP_RETURN_IF_ERROR(DeviceStatus());
      return tensor_status();
    };
    if (const Status made = share_.ForEach(updates(), &data_s, add); !made.ok()) {
      if (peers_ != nullptr) peers_->Settle();  // blocks, which is allowed in a job
      return made;
    }
    // Packing overlaps with the device, so the next call finds its first batch ready.
    share_.MakeAhead(updates());  // while the device computes
    const cuda::TextStepReport report = step_->Finish(stream());
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    TROOP_RETURN_IF_ERROR(tensor_status());
    NoteGradient(report.gradient_norm);
    // Splits the elapsed time: data, waiting for ranks, the previous step; the rest is compute.
    const double waited = peers_ != nullptr ? peers_->TakeWaited() : 0;
    cost_.data_s += data_s;
    cost_.tensor_s += waited;
    // The previous step ran on the device during this call.
    const double step =
        std::exchange(stepped_, false) ? step_end_.MillisecondsSince(step_begin_) / 1e3 : 0;
    cost_.step_s += step;
    cost_.compute_s += ToSeconds(clock_.Now() - begin) - data_s - waited - step;
    if (model_.place().rank == 0) {  // the other ranks have the same
      cost_.tokens += double(sum.tokens);
      cost_.sequences += double(sum.sequences);
    }
    if (report.finite == 0) return Refuse(report);
    // Priorities have no meaning in supervised mode.
    std::ranges::fill(priority, 0.0f);
    if (watch != nullptr && !on_device()) watch->GradientReady(0);
    const double rows = double(std::max<std::int64_t>(1, sum.rows));
    return LossReport{.loss = report.loss / rows,
                      .gradient_norm = report.gradient_norm,
                      .rows = double(sum.rows),
                      .accuracy = double(report.right) / rows,
                      .sequences = sum.sequences};
  }

  // The step runs asynchronously; the events measure it for the next report.
  void ApplyGradient(double progress, double norm) override {
    const Time begin = clock_.Now();
    step_begin_.Record(stream());
    GpuAlgorithm::ApplyGradient(progress, norm);
    step_end_.Record(stream());
    stepped_ = true;
    cost_.step_s += ToSeconds(clock_.Now() - begin);
  }
  // Rate of the current update, as in Supervised.
  float LearningRate(double) const override {
    return GpuAlgorithm::LearningRate(share_.Progress(updates()));
  }
  // The peers count their traffic in total; the difference since the last call is reported.
  UpdateCost TakeCost() override {
    if (peers_ != nullptr)
      // Totals begin at 0 with each group (SetTensorGroup).
      cost_.tensor_bytes +=
          double(peers_->traffic().bytes - std::exchange(counted_bytes_, peers_->traffic().bytes));
    return std::exchange(cost_, UpdateCost{});
  }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

  // The step drops its pointer before the old group is destroyed.
  void SetTensorGroup(Collective* group, Collective* devices) override {
    if (step_ != nullptr) step_->SetTensorParallelComm(nullptr);
    peers_.reset();
    counted_bytes_ = 0;
    collective_ = group;
    if (group != nullptr)
      peers_ = std::make_unique<GpuTensorParallelComm>(&device(), group, devices);
    tensor_ = group != nullptr ? std::make_unique<TensorGroup>(group) : nullptr;
    if (step_ != nullptr) step_->SetTensorParallelComm(peers_.get());
  }
  // A failed device blocks the other ranks, so it counts as a group error.
  Status tensor_status() const override {
    if (peers_ == nullptr) return Status::Ok();
    TROOP_RETURN_IF_ERROR(DeviceStatus());
    TROOP_RETURN_IF_ERROR(peers_->status());
    return tensor_->status();
  }
  double GradientNorm() override {
    if (!model_.cut() || on_device() || !have_gradient()) return GpuAlgorithm::GradientNorm();
    // The gradient was changed in host memory.
    return model_.Norm(tensor_.get(), gradient());
  }
  Status Gather(bool state) override { return model_.Gather(collective_, *this, state); }
  std::span<const float> WholeValue() const override {
    return model_.cut() ? model_.value() : value();
  }
  TensorFile WholeState() const override { return model_.cut() ? model_.state() : State(); }
  Status SetState(const TensorFile& state) override {
    return GpuAlgorithm::SetState(model_.Begin(state));
  }
  Status RollBack(const TensorFile& state) override {
    return GpuAlgorithm::RollBack(model_.Cut(state));
  }

 private:
  Status MakeReady() override {
    if (step_ != nullptr) return DeviceStatus();
    step_ = std::make_unique<cuda::TextStep>(device(), options_);
    step_->SetTensorParallelComm(peers_.get());
    return Use(step_.get());
  }
  void RunStep(double learning_rate, bool changed) override {
    step_->RunStep(stream(), learning_rate, changed);
  }

  // Searches the origin on the host: a weight, or else a parameter's gradient.
  Status Refuse(const cuda::TextStepReport& report) {
    const std::string what = std::isfinite(report.loss)
                                 ? fmt::format("the gradient norm is {}", report.gradient_norm)
                                 : fmt::format("the loss is {}", report.loss);
    std::string origin;
    if (!on_device()) {  // otherwise it may include other learners' gradients
      origin = CheckFinite().message();
      if (origin.empty()) {
        const std::string parameter = FindNonFiniteParameter(model_.module(), gradient());
        if (!parameter.empty()) origin = "the gradient of " + parameter;
      }
    }
    return DataLoss("update {}: {}{}{}; the batch was skipped", updates() + 1, what,
                    origin.empty() ? "" : ": ", origin);
  }

  const TrainingConfig config_;
  const cuda::TextStepOptions options_;
  const TokenBounds bounds_;
  ModelShard model_;
  DistributedSampler share_;
  const SystemClock clock_;  // only for the report; results do not depend on it
  UpdateCost cost_;
  std::unique_ptr<cuda::TextStep> step_;  // made by the first batch
  cuda::Event step_begin_, step_end_;     // around the last step
  bool stepped_ = false;                  // true after a step, until the next gradient
  // Tensor parallelism; nullptr otherwise.
  Collective* collective_ = nullptr;
  std::unique_ptr<GpuTensorParallelComm> peers_;
  std::unique_ptr<TensorGroup> tensor_;  // for values on the host
  std::uint64_t counted_bytes_ = 0;      // traffic already reported
};

// A device step without gradient or optimizer memory.
class Judging final : public GpuTextEvaluator {
 public:
  Judging(TextDevice opened, std::span<const float> value)
      : device_(std::move(opened.device)),
        options_(std::move(opened.step)),
        bounds_(opened.bounds),
        stream_(*device_),
        step_(*device_, options_) {
    // SetState takes mutable spans, hence the copy.
    std::vector<float> copy(value.begin(), value.end());
    step_.SetState(stream_, {.value = copy});
  }
  Result<TextOutcome> Judge(const TextBatch& batch) override {
    TROOP_RETURN_IF_ERROR(CheckBatch(bounds_, options_, batch));
    const cuda::TextStepReport report = step_.Judge(stream_, TokensOf(batch), &logits_);
    if (!device_->ok()) return Unavailable("{}: {}", device_->info().name, device_->error());
    TextOutcome outcome = SizesOf(batch);
    outcome.loss = report.loss;
    outcome.right = report.right;
    return outcome;
  }
  std::span<const float> logits() const override { return logits_; }

 private:
  const std::unique_ptr<cuda::Device> device_;
  const cuda::TextStepOptions options_;
  const TokenBounds bounds_;
  cuda::Stream stream_;
  cuda::TextStep step_;
  std::vector<float> logits_;  // of the last batch
};

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeGpuSupervised(const TrainingConfig& config,
                                                     std::shared_ptr<const ReviewData> data,
                                                     const TensorParallelRank& tensor,
                                                     int learner) {
  TROOP_ASSIGN_OR_RETURN(TextDevice opened, OpenTextDevice(config, tensor, learner));
  TROOP_ASSIGN_OR_RETURN(ModelShard model, ModelShard::Make(config, tensor));
  // Host and device must lay out the parameters alike.
  TROOP_CHECK(ParameterCount(model.module()) == opened.step.model.parameters,
              "{} parameters on the CPU, but {} on the GPU", ParameterCount(model.module()),
              opened.step.model.parameters);
  TROOP_ASSIGN_OR_RETURN(auto trained, MakeTextTrainState(config, &model.module()));
  TROOP_RETURN_IF_ERROR(BeginPretrained(config, model, trained.get()));
  return std::unique_ptr<Algorithm>(new GpuSupervised(config, std::move(data), std::move(opened),
                                                      std::move(model), std::move(trained)));
}

// Evaluation uses the first GPU, without tensor parallelism.
Result<std::unique_ptr<GpuTextEvaluator>> MakeGpuTextEvaluator(const TrainingConfig& config,
                                                               std::span<const float> value) {
  TROOP_ASSIGN_OR_RETURN(TextDevice opened, OpenTextDevice(config, {}, 0));
  // Without optimizer and gradient, the memory is that of the weights and one batch.
  opened.step.trains = false;
  if (opened.step.model.parameters != std::int64_t(value.size())) {
    return InvalidArgument("{} weights, but the model has {} parameters", value.size(),
                           opened.step.model.parameters);
  }
  return std::unique_ptr<GpuTextEvaluator>(new Judging(std::move(opened), value));
}

}  // namespace troop

#endif
