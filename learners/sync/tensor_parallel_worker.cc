// Implements the two sides of a tensor-parallel model that is one parameter-server worker.

#include "learners/sync/tensor_parallel_worker.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/config/enum_format.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// Orders that rank 0 broadcasts to the other ranks.
enum What : std::uint64_t { kWait = 0, kCompute = 1, kOver = 2 };
using Order = std::array<std::uint64_t, 3>;  // order, updates of the value, batches before it

Tensor BytesOf(std::span<float> x) {
  return Tensor::View(nullptr, std::as_writable_bytes(x), {DType::kF32, {std::int64_t(x.size())}});
}

Tensor BytesOf(Order& order) {
  return Tensor::View(nullptr, std::as_writable_bytes(std::span(order)),
                      {DType::kU64, {std::int64_t(order.size())}});
}

// Calls f(offset in the part, count) for each slice that no other rank holds.
template <class F>
void ForSlices(const Module& part, F f) {
  for (const ParamSpec& spec : part.params()) {
    if (!IsWhole(spec)) f(spec.offset, spec.shape.elements());
  }
}

// Number of values that ForSlices visits.
std::size_t SlicesOf(const Module& part) {
  std::int64_t n = 0;
  ForSlices(part, [&](std::int64_t, std::int64_t count) { n += count; });
  return std::size_t(n);
}

// Rank 0. An update: broadcast the order, send each rank its value, compute the own part, and
// collect the gradient slices into gradient_ [P].
class Replica final : public TensorParallelReplica {
 public:
  Replica(std::unique_ptr<Module> whole, std::vector<std::unique_ptr<Module>> modules,
          std::unique_ptr<Algorithm> part)
      : whole_(std::move(whole)),
        modules_(std::move(modules)),
        part_(std::move(part)),
        weights_(*part_->external_optimizer()),
        member_(*part_->tensor_parallel()),
        batches_(*part_->batch_partition()),
        costs_(*part_->cost_reporting()),
        gradient_(std::size_t(ParameterCount(*whole_))) {
    for (const auto& module : modules_) parts_.emplace_back(std::size_t(ParameterCount(*module)));
    for (const auto& module : modules_) slices_.emplace_back(SlicesOf(*module));
  }

  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  std::span<float> gradient() override { return gradient_; }
  void ApplyGradient(double, double) override {
    TROOP_CHECK(false, "parameter shards apply the updates");
  }
  // Rank 0's part follows at once; the other ranks receive theirs with the next order.
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) override {
    value_.assign(value.begin(), value.end());
    updates_ = updates;
    TakeSlice(*whole_, *modules_[0], value_, parts_[0]);
    weights_.ReplaceWeights(updates, parts_[0]);
  }
  void SetTrainingProgress(const TrainingProgress& training_progress) override {
    training_progress_ = training_progress;
    batches_.SetTrainingProgress(training_progress);
  }
  int device_ordinal() const override { return part_->device_ordinal(); }
  void SetRank(int rank, int ranks) override { batches_.SetRank(rank, ranks); }
  void SetTensorGroup(Collective* group, Collective* devices) override {
    group_ = group;
    member_.SetTensorGroup(group, devices);
    status_ = Status::Ok();
    broken_ = false;
  }
  Status tensor_status() const override { return status_; }
  // Rank 0 holds the whole value already.
  Status Gather(bool) override { return Status::Ok(); }
  std::span<const float> WholeValue() const override { return value_; }
  TensorFile WholeState() const override { return State(); }
  // The part's own cost plus the traffic of values and slices.
  UpdateCost TakeCost() override {
    UpdateCost cost = costs_.TakeCost();
    cost += std::exchange(cost_, {});
    return cost;
  }
  // These are the part's: all ranks have the same schedules.
  void CountAllReduce(const AllReduceStats& stats) override { costs_.CountAllReduce(stats); }
  Optimizer& optimizer() override { return weights_.optimizer(); }
  double ClipScale(double norm) const override { return weights_.ClipScale(norm); }
  float LearningRate(double progress) const override { return part_->LearningRate(progress); }
  std::uint64_t updates() const override { return part_->updates(); }
  std::span<const float> value() const override { return value_; }
  // The shards hold the optimizer's slots; here they keep their initial values.
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override { return SetState(state); }
  Status CheckFinite() const override { return part_->CheckFinite(); }
  Status Tell(bool over) override { return Ended(GiveOrder(over ? kOver : kWait)); }
  bool broken() const override { return broken_; }

 private:
  Status GiveOrder(What what);
  Status GiveParts();
  Status TakeSlices();
  Status RunAll(OpKind kind, std::vector<std::vector<float>>* parts);
  // Records the error that ended the group, and aborts the group for ranks that have not seen it.
  Status Ended(Status status);

  const std::unique_ptr<Module> whole_;
  const std::vector<std::unique_ptr<Module>> modules_;  // by rank
  const std::unique_ptr<Algorithm> part_;
  // Interfaces of part_.
  ExternalOptimizer& weights_;
  TensorParallelMember& member_;
  BatchPartition& batches_;
  CostReporting& costs_;
  Collective* group_ = nullptr;
  Status status_;
  std::atomic<bool> broken_ = false;
  std::vector<float> gradient_, value_;             // [P]; value_ is empty before ReplaceWeights
  std::vector<std::vector<float>> parts_, slices_;  // by rank
  std::uint64_t updates_ = 0;
  std::optional<TrainingProgress> training_progress_;
  UpdateCost cost_;
};

Status Replica::Ended(Status status) {
  if (status.ok()) return status;
  if (status_.ok()) status_ = status;
  if (group_ != nullptr && group_->status().ok()) group_->Abort(status);
  broken_ = true;
  return status;
}

// The order carries version and batch count, which the other ranks need to pick their batch.
Status Replica::GiveOrder(What what) {
  if (group_ == nullptr) return FailedPrecondition("no group of the tensor-parallel ranks");
  TROOP_RETURN_IF_ERROR(status_);
  Order order{what, updates_, training_progress_ ? training_progress_->batches : updates_};
  return RunOp(*group_, {.kind = OpKind::kBroadcast, .peer = 0}, BytesOf(order), BytesOf(order));
}

// Sends to, or receives from, all other ranks concurrently.
// The first error is kept; later operations are still awaited.
Status Replica::RunAll(OpKind kind, std::vector<std::vector<float>>* parts) {
  std::vector<Work> works;
  Status status;
  for (int rank = 1; rank < group_->size() && status.ok(); ++rank) {
    const Tensor all = BytesOf((*parts)[std::size_t(rank)]);
    const bool sends = kind == OpKind::kSend;
    const auto work = group_->Start({.kind = kind, .peer = rank}, sends ? all : ConstTensor(),
                                    sends ? Tensor() : all);
    cost_.tensor_bytes += double(all.bytes().size());
    if (work.ok()) works.push_back(*work);
    status = work.status();
  }
  if (!status.ok())
    group_->Abort(status);  // the group may use the buffers until its operations end
  for (const Work work : works) {
    const Status ended = group_->Wait(work);
    if (status.ok()) status = ended;
  }
  return status;
}

// Sends every other rank its slice of the current value.
Status Replica::GiveParts() {
  for (std::size_t rank = 1; rank < modules_.size(); ++rank) {
    TakeSlice(*whole_, *modules_[rank], value_, parts_[rank]);
  }
  return RunAll(OpKind::kSend, &parts_);
}

// Assembles the whole gradient from the ranks' slices.
Status Replica::TakeSlices() {
  TROOP_RETURN_IF_ERROR(RunAll(OpKind::kReceive, &slices_));
  for (std::size_t rank = 1; rank < modules_.size(); ++rank) {
    auto from = slices_[rank].begin();
    ForSlices(*modules_[rank], [&](std::int64_t at, std::int64_t n) {
      std::copy_n(from, n, parts_[rank].begin() + at);
      from += n;
    });
    PutSlice(*whole_, *modules_[rank], parts_[rank], gradient_);
  }
  // Rank 0's part comes last, because it holds the replicated parameters.
  PutSlice(*whole_, *modules_[0], part_->gradient(), gradient_);
  return Status::Ok();
}

// Follows the order of TensorParallelWorker::Follow: order, values, computation, slices.
Result<LossReport> Replica::ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                            GradientWatch*) {
  TROOP_RETURN_IF_ERROR(Ended(GiveOrder(kCompute)));
  TROOP_RETURN_IF_ERROR(Ended(GiveParts()));
  Result<LossReport> report = part_->ComputeGradient(batch, priority);
  TROOP_RETURN_IF_ERROR(Ended(member_.tensor_status()));
  TROOP_RETURN_IF_ERROR(Ended(TakeSlices()));
  if (!report.ok()) return report;
  report->gradient_norm = GradientNorm();
  if (std::isfinite(report->gradient_norm)) return report;
  return DataLoss(
      "update {}: the gradient norm of {} tensor-parallel parts is {}; the batch was skipped",
      updates_ + 1, modules_.size(), report->gradient_norm);
}

// State of the whole model: the whole value, and zeros for what other ranks would hold.
TensorFile Replica::State() const {
  TensorFile state;
  if (value_.empty()) return state;
  state = part_->State();
  const auto mine = ParameterCount(*modules_[0]), all = ParameterCount(*whole_);
  for (auto& [name, tensor] : state.tensors) {
    if (tensor.spec() != TensorSpec{DType::kF32, {mine}}) continue;
    std::vector<float> whole(static_cast<std::size_t>(all));
    PutSlice(*whole_, *modules_[0], tensor.as<float>(), whole);
    const std::span<const float> from = name == "value" ? value_ : whole;
    tensor = ConstTensor(Buffer::Copy(std::as_bytes(from)), {DType::kF32, {all}});
  }
  return state;
}

// Keeps the whole value, since the part holds only its slice.
Status Replica::SetState(const TensorFile& state) {
  TROOP_RETURN_IF_ERROR(part_->SetState(state));
  const auto value = state.tensors.find("value");
  if (value == state.tensors.end() ||
      value->second.spec() != TensorSpec{DType::kF32, {ParameterCount(*whole_)}}) {
    return InvalidArgument("the state has no value of the whole model");
  }
  const auto from = value->second.as<float>();
  value_.assign(from.begin(), from.end());
  updates_ = part_->updates();
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<TensorParallelReplica>> TensorParallelReplica::Make(
    const TrainingConfig& config, int ranks, std::unique_ptr<Algorithm> part) {
  if (!CanBePart(*part)) {
    return InvalidArgument("learner.algorithm = \"{}\" does not support tensor parallelism",
                           AlgorithmName(config.learner));
  }
  const ModelSetup setup = ModelSetupOf(config);
  TROOP_ASSIGN_OR_RETURN(auto whole, MakeTextModel(setup));
  // The modules of the other ranks serve only for their parameter layouts.
  std::vector<std::unique_ptr<Module>> modules;
  for (int rank = 0; rank < ranks; ++rank) {
    TROOP_ASSIGN_OR_RETURN(auto module, MakeTextModel(setup, {.rank = rank, .ranks = ranks}));
    modules.push_back(std::move(module));
  }
  return std::unique_ptr<TensorParallelReplica>(
      std::make_unique<Replica>(std::move(whole), std::move(modules), std::move(part)));
}

bool CanBePart(Algorithm& algorithm) {
  return algorithm.external_optimizer() != nullptr && algorithm.tensor_parallel() != nullptr &&
         algorithm.batch_partition() != nullptr && algorithm.cost_reporting() != nullptr;
}

TensorParallelWorker::TensorParallelWorker(Algorithm* part, const Module* module)
    : part_(part),
      weights_(part->external_optimizer()),
      batches_(part->batch_partition()),
      member_(part->tensor_parallel()),
      module_(module) {
  TROOP_CHECK(CanBePart(*part), "the algorithm does not support tensor parallelism");
}

// The other ranks' side of Replica::ComputeGradient.
Result<TensorParallelWorker::Outcome> TensorParallelWorker::Follow(Collective& group,
                                                                   const SampleBatch& batch,
                                                                   std::span<float> priority) {
  Order order{};
  TROOP_RETURN_IF_ERROR(
      RunOp(group, {.kind = OpKind::kBroadcast, .peer = 0}, BytesOf(order), BytesOf(order)));
  if (order[0] != kCompute) {
    return Outcome{.did = order[0] == kOver ? Did::kOver : Did::kNothing};
  }
  value_.resize(std::size_t(ParameterCount(*module_)));
  TROOP_RETURN_IF_ERROR(
      RunOp(group, {.kind = OpKind::kReceive, .peer = 0}, ConstTensor(), BytesOf(value_)));
  weights_->ReplaceWeights(order[1], value_);
  batches_->SetTrainingProgress({.batches = order[2]});  // rank 0 decides the learning rate
  Outcome outcome{.did = Did::kGradient, .report = part_->ComputeGradient(batch, priority)};
  // An error of the group is not the batch's fault, so it is not reported as a skipped update.
  if (Status ended = member_->tensor_status(); !ended.ok()) {
    group.Abort(ended);
    return ended;
  }
  slices_.clear();
  const std::span<const float> gradient = part_->gradient();
  ForSlices(*module_, [&](std::int64_t at, std::int64_t n) {
    slices_.insert(slices_.end(), gradient.begin() + at, gradient.begin() + at + n);
  });
  // Marks a failed gradient with NaN, so that rank 0's norm check fails and all ranks skip the
  // update.
  if (!outcome.report.ok()) {
    std::ranges::fill(slices_, std::numeric_limits<float>::quiet_NaN());
  }
  TROOP_RETURN_IF_ERROR(
      RunOp(group, {.kind = OpKind::kSend, .peer = 0}, BytesOf(slices_), Tensor()));
  return outcome;
}

}  // namespace troop
