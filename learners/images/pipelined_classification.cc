// Implements the training of one stage of an image classifier.

#include "learners/images/pipelined_classification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/time.h"
#include "learners/images/image_pipeline.h"
#include "learners/images/image_share.h"
#include "learners/images/image_step.h"
#include "learners/images/pipeline_clock.h"
#include "learners/pipeline/stage_runner.h"
#include "learners/supervised/supervised.h"
#include "learners/train_state.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Views for the collective operations, which do not own the bytes.
ConstTensor BytesOf(std::span<const float> x) {
  return ConstTensor::Borrow(std::as_bytes(x), {DType::kF32, {std::int64_t(x.size())}});
}
Tensor BytesOf(std::span<float> x) {
  return Tensor::View(nullptr, std::as_writable_bytes(x), {DType::kF32, {std::int64_t(x.size())}});
}

// The gradient is that of this stage's parameters; TrainState makes the step.
class PipelinedClassification final : public Algorithm,
                                      public TensorParallelMember,
                                      public BatchPartition,
                                      public CostReporting {
 public:
  // Made by the factory, so that the constructor cannot fail.
  struct Parts {
    std::shared_ptr<const ImageData> data;
    ImageTransform transform;
    std::unique_ptr<ImagePipeline> pipeline;
    std::unique_ptr<StageParameters> parameters;
    std::unique_ptr<Module> layout;  // places of `parameters`
    std::unique_ptr<TrainState> trained;
    TensorParallelRank place;
  };
  PipelinedClassification(const TrainingConfig& config, Parts parts)
      : parts_(std::move(parts)),
        share_(config, parts_.data),
        batches_(parts_.transform, parts_.data.get(), std::uint64_t(config.seed)),
        statistics_(trained_->value().size()),
        pipeline_clock_(parts_.pipeline.get()) {}

  TensorParallelMember* tensor_parallel() override { return this; }
  BatchPartition* batch_partition() override { return this; }
  CostReporting* cost_reporting() override { return this; }
  void SetRank(int rank, int ranks) override { share_.SetRank(rank, ranks); }
  void SetTrainingProgress(const TrainingProgress& progress) override {
    share_.SetTrainingProgress(progress);
  }

  // The two halves of an update.
  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  double GradientNorm() override;
  void ApplyGradient(double, double norm) override;

  void SetTensorGroup(Collective* group, Collective*) override;
  Status tensor_status() const override { return status_; }
  Status Gather(bool state) override;
  std::span<const float> WholeValue() const override { return whole_value_; }
  TensorFile WholeState() const override { return whole_state_; }
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

  // The rest forwards to TrainState.
  std::span<float> gradient() override { return trained_->gradient(); }
  float LearningRate(double) const override {
    return trained_->LearningRate(share_.Progress(updates()));
  }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override {
    return trained_->RollBack(parts_.parameters->Cut(state));
  }
  Status CheckFinite() const override { return trained_->CheckFinite(); }

 private:
  Status RunStage();
  Status PrepareRunner(const std::vector<std::int64_t>& rows);
  StageCallbacks Callbacks();
  // The gradient of the loss of a micro-batch, on the last stage.
  void Judge(std::int64_t micro_batch, ConstTensor output, Tensor gradient);
  // Sends this stage's part of a tensor to rank 0, which collects all.
  Status GatherInto(std::span<const float> mine, std::vector<float>* whole);
  // Records the error that ended the groups, and ends them for ranks that have not seen it.
  Status Ended(Status status);

  const Parts parts_;
  TrainState* const trained_ = parts_.trained.get();
  ImageShare share_;
  const ImageCollator batches_;
  std::vector<float> statistics_;  // [P], of a pass, then of the update
  const SystemClock clock_;        // only for the report; results do not depend on it
  UpdateCost cost_;
  // Exchange with the other stages: activations and everything outside the passes in group_,
  // gradients of activations in gradients_.
  Collective* group_ = nullptr;
  std::unique_ptr<Collective> gradients_;
  Status status_;
  // The schedule for the micro-batches of the current update, and its runner.
  std::vector<std::int64_t> rows_;
  PipelineSchedule schedule_;
  std::unique_ptr<StageRunner> runner_;
  PipelineClock pipeline_clock_;
  // The current update.
  ImageShare::Part part_;
  std::vector<ImageBatch> images_;  // [micro-batch]; pixels on the first stage only
  ImageOutcome outcome_;            // on the last stage
  // The whole model as gathered last; empty on other ranks than 0.
  std::vector<float> whole_value_;
  TensorFile whole_state_;
};

// The runner references the groups, so it ends first. Splitting is an operation of all stages.
void PipelinedClassification::SetTensorGroup(Collective* group, Collective*) {
  runner_.reset();
  gradients_.reset();
  group_ = group;
  status_ = Status::Ok();
  if (group == nullptr) return;
  Result<std::unique_ptr<Collective>> split = group->Split(0, group->rank());
  if (split.ok()) {
    gradients_ = *std::move(split);
  } else {
    status_ = split.status();
  }
}

// Other stages may wait in either group.
Status PipelinedClassification::Ended(Status status) {
  if (status.ok()) return status;
  if (status_.ok()) status_ = status;
  for (Collective* const group : {group_, gradients_.get()})
    if (group != nullptr && group->status().ok()) group->Abort(status);
  return status;
}

// A state of the whole model is recognized by the size of its value. Rank 0 keeps it as the
// gathered one, so that a run that ends before its first update still has it.
Status PipelinedClassification::SetState(const TensorFile& state) {
  TROOP_RETURN_IF_ERROR(trained_->SetState(parts_.parameters->Cut(state)));
  const auto value = state.tensors.find("value");
  if (parts_.place.rank > 0 ||
      value->second.spec() != TensorSpec{DType::kF32, {parts_.pipeline->parameters}}) {
    return Status::Ok();
  }
  const auto numbers = value->second.as<float>();
  whole_value_.assign(numbers.begin(), numbers.end());
  whole_state_ = state;
  return Status::Ok();
}

// The SampleBatch is ignored: the images follow from updates().
Result<LossReport> PipelinedClassification::ComputeGradient(const SampleBatch&,
                                                            std::span<float> priority,
                                                            GradientWatch*) {
  ++cost_.gradients;
  TROOP_RETURN_IF_ERROR(Ended(RunStage()));
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) gradient()[0] = *bad;
  // The other stages do not see the loss. A gradient of NaN makes the norm NaN on all of them.
  if (!std::isfinite(outcome_.loss)) {
    gradient()[0] = std::numeric_limits<float>::quiet_NaN();
    outcome_ = {};
  }
  std::ranges::fill(priority, 0.0f);
  cost_.sequences += double(outcome_.rows);
  const double rows = double(std::max<std::int64_t>(1, outcome_.rows));
  return LossReport{.loss = outcome_.loss / rows,
                    .rows = double(outcome_.rows),
                    .accuracy = double(outcome_.right) / rows,
                    .sequences = outcome_.rows};
}

// Runs the stage's list once. The micro-batches of all stages follow from the same order.
Status PipelinedClassification::RunStage() {
  if (group_ == nullptr) return FailedPrecondition("no group of the pipeline's stages");
  TROOP_RETURN_IF_ERROR(status_);
  part_ = share_.PartOf(share_.BatchNumber(updates()));
  outcome_ = {};
  images_.clear();
  std::ranges::fill(gradient(), 0.0f);
  const auto rows =
      MicroBatchRows(std::int64_t(part_.samples.size()), parts_.pipeline->micro_batch_rows);
  // All stages of a worker have the same rows, and none if a small batch leaves it none.
  if (rows.empty()) return Status::Ok();
  std::span<const std::int32_t> samples = part_.samples;
  const Time begin = clock_.Now();
  for (const std::int64_t count : rows) {
    const auto now = samples.first(std::size_t(count));
    // An image that cannot be read ends the update on all stages before it begins.
    if (parts_.place.rank == 0) {
      TROOP_ASSIGN_OR_RETURN(ImageBatch batch, batches_.ForTraining(now, part_.epoch));
      images_.push_back(std::move(batch));
    } else {
      images_.push_back(batches_.WithoutPixels(now, part_.epoch));
    }
    images_.back().weights = share_.WeightsOf(part_, images_.back().labels);
    samples = samples.subspan(std::size_t(count));
  }
  cost_.data_s += ToSeconds(clock_.Now() - begin);
  if (runner_ == nullptr || rows != rows_) TROOP_RETURN_IF_ERROR(PrepareRunner(rows));
  TROOP_RETURN_IF_ERROR(runner_->Run());
  pipeline_clock_.Count(schedule_.stages[std::size_t(parts_.place.rank)], *runner_);
  cost_.compute_s += pipeline_clock_.busy_s();
  cost_.tensor_s += pipeline_clock_.run_s() - pipeline_clock_.busy_s();
  return Status::Ok();
}

// One runner is kept: batches have equal sizes, except the last one of an epoch.
Status PipelinedClassification::PrepareRunner(const std::vector<std::int64_t>& rows) {
  runner_.reset();
  rows_ = rows;
  ScheduleOptions options = parts_.pipeline->schedule;
  options.micro_batches = std::int64_t(rows.size());
  TROOP_ASSIGN_OR_RETURN(schedule_, MakeSchedule(options));
  PipelineStage stage{.schedule = &schedule_,
                      .stage = parts_.place.rank,
                      .modules = {},
                      .input_shape = {},
                      .rows = rows,
                      .borrowed = {},
                      .activations = group_,
                      .gradients = gradients_.get(),
                      .clock = &clock_};
  for (const PipelineChunk& chunk : parts_.pipeline->chunks) {
    stage.modules.push_back(chunk.module.get());
    stage.input_shape.push_back(chunk.input);
  }
  // TrainState owns weights and gradient, since the update follows after all learners have agreed.
  stage.borrowed.resize(stage.modules.size());
  for (const std::int64_t c : parts_.parameters->chunks()) {
    stage.borrowed[std::size_t(c)] = {parts_.parameters->Of(c, trained_->value()),
                                      parts_.parameters->Of(c, gradient())};
  }
  TROOP_ASSIGN_OR_RETURN(runner_, StageRunner::Make(stage, Callbacks()));
  return pipeline_clock_.Plan(schedule_, rows);
}

// The running statistics of each forward pass are added to the gradient, as ImageStep does it.
StageCallbacks PipelinedClassification::Callbacks() {
  StageCallbacks callbacks;
  callbacks.input = [this](std::int64_t m) {
    const ImageBatch& batch = images_[std::size_t(m)];
    return ConstTensor::Borrow(std::as_bytes(std::span(batch.pixels)),
                               {DType::kF32, batches_.ShapeOf(std::ssize(batch.labels))});
  };
  callbacks.loss = [this](std::int64_t m, ConstTensor output, Tensor gradient) {
    Judge(m, std::move(output), std::move(gradient));
  };
  callbacks.prepare = [this](const StageOp& op, StepContext* context) {
    context->dropout = images_[std::size_t(op.micro_batch)].dropout;
    context->statistics = parts_.parameters->Of(op.chunk, std::span(statistics_));
  };
  callbacks.forwarded = [this](const StageOp& op) {
    const std::size_t rows = images_[std::size_t(op.micro_batch)].labels.size();
    AddStatistics(*parts_.pipeline->chunks[std::size_t(op.chunk)].module, part_.scale * float(rows),
                  parts_.parameters->Of(op.chunk, std::span(statistics_)),
                  parts_.parameters->Of(op.chunk, gradient()));
  };
  return callbacks;
}

// The loss of an image has the same factor in every micro-batch.
void PipelinedClassification::Judge(std::int64_t micro_batch, ConstTensor output, Tensor gradient) {
  std::ranges::copy(output.as<float>(), gradient.data<float>());
  outcome_ += JudgeImages(images_[std::size_t(micro_batch)], part_.scale, true, gradient);
}

// All stages have the squares of all parameters, and add them up in the order of the whole model,
// as one device does. The same all-gather has the times of the passes.
double PipelinedClassification::GradientNorm() {
  const auto ranks = std::size_t(parts_.place.ranks);
  // Step 1: the numbers of this stage.
  std::vector<double> mine = pipeline_clock_.Times();
  const std::size_t times = mine.size();
  std::size_t count = times;
  for (const PipelineChunk& chunk : parts_.pipeline->chunks) count += chunk.module->params().size();
  mine.resize(count);
  for (const std::int64_t c : parts_.parameters->chunks()) {
    const PipelineChunk& chunk = parts_.pipeline->chunks[std::size_t(c)];
    const auto squares = SquaresOf(*chunk.module, parts_.parameters->Of(c, gradient()));
    std::ranges::copy(squares, mine.begin() + std::ptrdiff_t(times + chunk.first_parameter));
  }
  // Step 2: one all-gather. Numbers of other stages are zeros here, so that sums are exact.
  std::vector<double> all(count * ranks);
  const auto view = [](std::span<double> x) {
    const auto bytes = std::as_writable_bytes(x);
    return Tensor::View(nullptr, bytes, {DType::kU8, {std::int64_t(bytes.size())}});
  };
  Status status = status_;
  if (status.ok() && group_ == nullptr) status = FailedPrecondition("no group of the stages");
  if (status.ok()) status = RunOp(*group_, {.kind = OpKind::kAllGather}, view(mine), view(all));
  if (!Ended(status).ok()) return std::numeric_limits<double>::quiet_NaN();
  pipeline_clock_.Exchanged(all, {parts_.place, count}, &cost_);
  // Step 3: the sum in the order of the parameters.
  double squares = 0;
  for (std::size_t i = times; i < count; ++i)
    for (std::size_t rank = 0; rank < ranks; ++rank) squares += all[rank * count + i];
  return std::sqrt(squares);
}

// The optimizer sees zeros at the places of the statistics; TrainState hands them to the chunks.
void PipelinedClassification::ApplyGradient(double, double norm) {
  const Time begin = clock_.Now();
  std::ranges::fill(statistics_, 0.0f);
  TakeStatistics(*parts_.layout, gradient(), statistics_);
  trained_->Step(share_.Progress(updates()), norm, BytesOf(std::span<const float>(statistics_)));
  cost_.step_s += ToSeconds(clock_.Now() - begin);
}

Status PipelinedClassification::GatherInto(std::span<const float> mine, std::vector<float>* whole) {
  const OpKind send = OpKind::kSend, receive = OpKind::kReceive;
  if (parts_.place.rank > 0) return RunOp(*group_, {.kind = send, .peer = 0}, BytesOf(mine), {});
  whole->assign(std::size_t(parts_.pipeline->parameters), 0.0f);
  parts_.parameters->Put(mine, *whole);
  for (int rank = 1; rank < parts_.place.ranks; ++rank) {
    const StageParameters stage(parts_.pipeline.get(), rank);
    std::vector<float> theirs(std::size_t(stage.size()));
    TROOP_RETURN_IF_ERROR(
        RunOp(*group_, {.kind = receive, .peer = rank}, {}, BytesOf(std::span(theirs))));
    stage.Put(theirs, *whole);
    cost_.tensor_bytes += double(theirs.size() * sizeof(float));
  }
  return Status::Ok();
}

// Tensors are gathered in the order of their names, which is equal on all ranks.
Status PipelinedClassification::Gather(bool state) {
  if (group_ == nullptr) return FailedPrecondition("no group of the pipeline's stages");
  if (!state) return Ended(GatherInto(value(), &whole_value_));
  // Every rank has the same tensors, because all have the same optimizer.
  TensorFile gathered = State();
  for (auto& [name, tensor] : gathered.tensors) {
    std::vector<float> whole;
    TROOP_RETURN_IF_ERROR(Ended(GatherInto(tensor.as<float>(), &whole)));
    if (name == "value") whole_value_ = whole;
    tensor = ConstTensor(Buffer::Copy(std::as_bytes(std::span(whole))),
                         {DType::kF32, {std::int64_t(whole.size())}});
  }
  if (parts_.place.rank == 0) whole_state_ = std::move(gathered);
  return Status::Ok();
}

}  // namespace

// Each parameter begins as in the whole model, which no process needs for it.
Result<std::unique_ptr<Algorithm>> MakePipelinedClassification(
    const TrainingConfig& config, std::shared_ptr<const ImageData> data,
    const ImageTransform& transform, const TensorParallelRank& place) {
  TROOP_ASSIGN_OR_RETURN(ImagePipeline pipeline, MakeImagePipeline(config));
  PipelinedClassification::Parts parts{
      .data = std::move(data),
      .transform = transform,
      .pipeline = std::make_unique<ImagePipeline>(std::move(pipeline)),
      .parameters = nullptr,
      .layout = nullptr,
      .trained = nullptr,
      .place = place};
  parts.parameters = std::make_unique<StageParameters>(parts.pipeline.get(), place.rank);
  parts.layout = parts.parameters->MakeLayout();
  TROOP_ASSIGN_OR_RETURN(parts.trained, MakeTextTrainState(config, parts.layout.get()));
  std::vector<float> value(std::size_t(parts.parameters->size()));
  for (const std::int64_t c : parts.parameters->chunks()) {
    const PipelineChunk& chunk = parts.pipeline->chunks[std::size_t(c)];
    InitParameters(*chunk.module, std::uint64_t(config.seed),
                   parts.parameters->Of(c, std::span(value)), chunk.first_parameter);
  }
  parts.trained->Begin(value);
  return std::unique_ptr<Algorithm>(new PipelinedClassification(config, std::move(parts)));
}

}  // namespace troop
