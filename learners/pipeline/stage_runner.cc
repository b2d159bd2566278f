// Implements the interpreter of a stage's list: memory of each micro-batch, versions of the
// weights, and open messages.
#include "learners/pipeline/stage_runner.h"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "learners/pipeline/schedule_checker.h"

namespace troop {
namespace {

// Weights of a chunk: one version, with the packed form that the kernels prefer.
struct Version {
  Tensor value;
  std::unique_ptr<Packed> packed;
};

// A chunk of this stage.
struct Chunk {
  const Module* module = nullptr;
  std::map<std::int64_t, Plan> plans;        // by rows
  std::map<std::int64_t, Version> versions;  // the newest, and those with later readers
  Version predicted;                         // predicted weights
  Tensor gradient;                           // [P]
  std::span<const float> borrowed;           // [P]; empty: `versions` have the weights
  // Weights of one of the versions.
  std::span<const float> ValueOf(const Version& version) const {
    return borrowed.empty() ? version.value.as<float>() : borrowed;
  }
};

// Tensors of a (chunk, micro-batch) pair, each present as long as an operation needs it.
struct PairData {
  ConstTensor input;
  Tensor output, cache, output_gradient, input_gradient;
};

// Bytes of a pair's tensors.
std::size_t BytesOf(const PairData& data) {
  std::size_t bytes = data.input.empty() ? 0 : data.input.bytes().size();
  for (const Tensor* tensor :
       {&data.output, &data.cache, &data.output_gradient, &data.input_gradient}) {
    if (!tensor->empty()) bytes += tensor->bytes().size();
  }
  return bytes;
}

// Frees what only backward passes read.
void ReleaseActivations(PairData* data) {
  data->input = {};
  data->cache = data->output_gradient = {};
}

using PairKey = std::pair<std::int64_t, std::int64_t>;                // chunk, micro-batch
using ChannelKey = std::pair<std::int64_t, Payload>;                  // peer, payload
using OpenSends = std::deque<std::pair<::troop::Work, ConstTensor>>;  // oldest first

// Aligned memory; a tensor needs at least one element.
Tensor Bytes(std::size_t count) {
  return Tensor::Uninitialized(DType::kU8, {std::int64_t(std::max(count, std::size_t(1)))});
}

}  // namespace

// State of the runner.
class StageRunner::Work {
 public:
  Work(const PipelineStage& stage, StageCallbacks callbacks)
      : stage_(stage), schedule_(*stage.schedule), callbacks_(std::move(callbacks)) {}

  Status Prepare();
  Status Run();
  std::span<float> value(std::int64_t chunk) {
    return chunks_.at(chunk).versions.rbegin()->second.value.as<float>();
  }

  std::vector<OpInterval> intervals;
  std::vector<Tensor> outputs;
  std::size_t held_bytes_max = 0;

 private:
  // Operations of this stage.
  const std::vector<StageOp>& ops() const { return schedule_.stages[std::size_t(stage_.stage)]; }
  bool is_last(const StageOp& op) const { return op.chunk + 1 == schedule_.chunks(); }
  // Tensors of the operation's pair; none at first.
  PairData& Data(const StageOp& op) { return pairs_[{op.chunk, op.micro_batch}]; }
  std::int64_t Rows(const StageOp& op) const { return stage_.rows[std::size_t(op.micro_batch)]; }
  const Plan& PlanOf(const StageOp& op) const { return chunks_.at(op.chunk).plans.at(Rows(op)); }
  TensorSpec InputSpec(const StageOp& op) const {
    return {DType::kF32, stage_.input_shape[std::size_t(op.chunk)].Prepend(Rows(op))};
  }
  // Steps of Prepare.
  Status CheckStage() const;
  Status PrepareChunk(std::int64_t chunk);
  Status Borrow(std::int64_t index, std::int64_t parameters, Chunk* chunk) const;
  void Pack(const Chunk& chunk, Version* version) const;
  StepContext ContextOf(const StageOp& op);

  // One function per kind of operation. `index`: its place in the list.
  Status Execute(const StageOp& op, std::size_t index);
  void Forward(const StageOp& op);
  void Recompute(const StageOp& op);
  void BackwardInput(const StageOp& op, bool with_weights);
  void BackwardWeight(const StageOp& op);
  Status Update(const StageOp& op, bool keep_old);
  Status AddReplicas(Tensor gradient);
  Status Send(const StageOp& op);
  Status Receive(const StageOp& op);
  // Ends of messages.
  Status Finish(Collective* group, ::troop::Work work);
  Result<bool> ReapSends(const Collective* except);
  Collective* Group(Payload payload) const {
    return payload == Payload::kActivation ? stage_.activations : stage_.gradients;
  }

  // Borrowed parts, and what Prepare derives from them.
  const PipelineStage stage_;
  const PipelineSchedule& schedule_;
  const StageCallbacks callbacks_;
  std::vector<StageMemory> changes_;  // [operation]
  std::map<std::int64_t, Chunk> chunks_;
  std::map<PairKey, PairData> pairs_;
  std::map<ChannelKey, OpenSends> sends_;
  Tensor workspace_;
};

// Refuses what this interpreter cannot run, and missing parts.
Status StageRunner::Work::CheckStage() const {
  const auto count = [](std::string_view name, std::size_t size, std::int64_t expected) {
    if (std::int64_t(size) == expected) return Status::Ok();
    return InvalidArgument("pipeline stage: {} has {} entries, must have {}", name, size, expected);
  };
  if (stage_.stage < 0 || stage_.stage >= std::int64_t(schedule_.stages.size())) {
    return InvalidArgument("pipeline stage: there is no stage {}", stage_.stage);
  }
  TROOP_RETURN_IF_ERROR(count("modules", stage_.modules.size(), schedule_.chunks()));
  TROOP_RETURN_IF_ERROR(count("input_shape", stage_.input_shape.size(), schedule_.chunks()));
  TROOP_RETURN_IF_ERROR(count("rows", stage_.rows.size(), schedule_.micro_batches));
  if (schedule_.recurrent) {
    return InvalidArgument(
        "pipeline stage: a recurrent schedule has states between time steps, "
        "which modules do not exchange; use micro-batches");
  }
  if (std::any_of(stage_.rows.begin(), stage_.rows.end(), [](auto rows) { return rows < 1; })) {
    return InvalidArgument("pipeline stage: a micro-batch has no rows");
  }
  // A single stage has no neighbor.
  const bool connected = stage_.activations != nullptr && stage_.gradients != nullptr;
  if (schedule_.stages.size() > 1 && !connected) {
    return InvalidArgument("pipeline stage: the groups are missing");
  }
  const bool replicated = std::ranges::any_of(schedule_.placement, [this](const auto& placed) {
    return placed.size() > 1 && std::ranges::find(placed, stage_.stage) != placed.end();
  });
  if (replicated && stage_.replicas == nullptr) {
    return InvalidArgument("pipeline stage: the group of the replicas is missing");
  }
  if (!stage_.borrowed.empty()) {
    TROOP_RETURN_IF_ERROR(count("borrowed", stage_.borrowed.size(), schedule_.chunks()));
    if (schedule_.weights != WeightPolicy::kCurrent) {
      return InvalidArgument(
          "pipeline stage: an asynchronous schedule has several versions of the weights, which "
          "cannot be borrowed");
    }
  }
  if (stage_.clock == nullptr) return InvalidArgument("pipeline stage: the clock is missing");
  return Status::Ok();
}

// A module without a packed form reads the value itself.
void StageRunner::Work::Pack(const Chunk& chunk, Version* version) const {
  if (version->packed == nullptr) version->packed = chunk.module->MakePacked(Precision::kF32);
  if (version->packed != nullptr)
    chunk.module->Pack(chunk.ValueOf(*version), version->packed.get());
}

// Plans the module for each number of rows, and allocates its weights.
Status StageRunner::Work::PrepareChunk(std::int64_t index) {
  Chunk& chunk = chunks_[index];
  chunk.module = stage_.modules[std::size_t(index)];
  // Which callbacks are needed depends on the chunk and on the schedule.
  const bool no_input = index == 0 && !callbacks_.input;
  const bool no_loss =
      index + 1 == schedule_.chunks() && !callbacks_.loss && !schedule_.forward_only;
  const bool steps = !schedule_.forward_only && stage_.borrowed.empty();
  const bool no_update = !callbacks_.update && steps;
  const bool no_predict = schedule_.weights == WeightPolicy::kPredicted && !callbacks_.predict;
  if (chunk.module == nullptr || no_input || no_loss || no_update || no_predict) {
    return InvalidArgument(
        "pipeline stage: the module of chunk {}, or one of its callbacks, is "
        "missing",
        index);
  }
  // One workspace serves all passes, because they follow each other.
  std::size_t workspace_bytes = workspace_.empty() ? 0 : workspace_.bytes().size();
  for (const std::int64_t rows : stage_.rows) {
    if (chunk.plans.count(rows) > 0) continue;
    const TensorSpec in{DType::kF32, stage_.input_shape[std::size_t(index)].Prepend(rows)};
    TROOP_ASSIGN_OR_RETURN(Plan plan, chunk.module->MakePlan(std::span(&in, 1)));
    if (plan.out.size() != 1) {
      return InvalidArgument("pipeline stage: chunk {} has {} outputs, must have 1", index,
                             plan.out.size());
    }
    workspace_bytes = std::max(workspace_bytes, plan.workspace_bytes);
    chunk.plans.emplace(rows, std::move(plan));
  }
  workspace_ = Bytes(workspace_bytes);
  // The modules' parameters share one flat buffer, [P].
  std::int64_t parameters = 0;
  for (const ParamSpec& spec : chunk.module->params()) {
    parameters = std::max(parameters, spec.offset + spec.shape.elements());
  }
  if (!stage_.borrowed.empty()) return Borrow(index, parameters, &chunk);
  chunk.gradient = Tensor(DType::kF32, {parameters});
  chunk.versions[0].value = Tensor(DType::kF32, {parameters});
  if (schedule_.weights == WeightPolicy::kPredicted)
    chunk.predicted.value = Tensor(DType::kF32, {parameters});
  return Status::Ok();
}

// The buffers may be longer than the parameters, by padding.
Status StageRunner::Work::Borrow(std::int64_t index, std::int64_t parameters, Chunk* chunk) const {
  const PipelineStage::Borrowed& lent = stage_.borrowed[std::size_t(index)];
  if (std::int64_t(std::min(lent.value.size(), lent.gradient.size())) < parameters) {
    return InvalidArgument(
        "pipeline stage: chunk {} has {} parameters, but borrows {} weights and a gradient of {}",
        index, parameters, lent.value.size(), lent.gradient.size());
  }
  chunk->borrowed = lent.value;
  chunk->gradient = Tensor::View(nullptr, std::as_writable_bytes(lent.gradient),
                                 {DType::kF32, {std::int64_t(lent.gradient.size())}});
  chunk->versions[0];  // without values
  return Status::Ok();
}

// The check comes first: later steps rely on a valid schedule.
Status StageRunner::Work::Prepare() {
  TROOP_RETURN_IF_ERROR(CheckSchedule(schedule_));
  TROOP_RETURN_IF_ERROR(CheckStage());
  for (std::int64_t chunk = 0; chunk < schedule_.chunks(); ++chunk) {
    const auto& placed = schedule_.placement[std::size_t(chunk)];
    if (std::ranges::find(placed, stage_.stage) == placed.end()) continue;
    TROOP_RETURN_IF_ERROR(PrepareChunk(chunk));
  }
  changes_ = MemoryChanges(schedule_, stage_.stage);
  return Status::Ok();
}

// Weights that the pass reads. A prediction is made when it is read, from the newest version.
StepContext StageRunner::Work::ContextOf(const StageOp& op) {
  Chunk& chunk = chunks_.at(op.chunk);
  const auto& [newest, version] = *chunk.versions.rbegin();
  const Version* used = &version;
  if (op.version > newest) {
    std::copy_n(version.value.data<float>(), version.value.elements(),
                chunk.predicted.value.data<float>());
    callbacks_.predict(op.chunk, op.version - newest, chunk.predicted.value.as<float>());
    Pack(chunk, &chunk.predicted);
    used = &chunk.predicted;
  } else {
    used = &chunk.versions.at(op.version);
  }
  StepContext context{.value = chunk.ValueOf(*used)};
  context.packed = used->packed.get();
  context.workspace = workspace_.bytes();
  if (callbacks_.prepare) callbacks_.prepare(op, &context);
  return context;
}

// Keeps what the backward pass needs, unless it is computed again.
void StageRunner::Work::Forward(const StageOp& op) {
  PairData& data = Data(op);
  if (op.chunk == 0) data.input = callbacks_.input(op.micro_batch);
  const auto before = pairs_.find({op.chunk - 1, op.micro_batch});
  // On one stage the output of a chunk is the input of the next.
  if (before != pairs_.end() && !before->second.output.empty()) data.input = before->second.output;
  const Plan& plan = PlanOf(op);
  data.output = Tensor::Uninitialized(DType::kF32, plan.out[0].shape);
  // An empty cache means inference, whose normalization and dropout differ.
  const bool trains = !schedule_.forward_only;
  Tensor cache;
  if (trains) cache = Bytes(plan.cache_bytes);
  if (!schedule_.recompute) data.cache = cache;
  const ConstTensor in[] = {data.input};
  const Tensor out[] = {data.output};
  chunks_.at(op.chunk).module->Forward(ContextOf(op), in, out, trains ? cache.bytes() : Cache{});
  if (callbacks_.forwarded) callbacks_.forwarded(op);
  if (!schedule_.forward_only) return;
  if (is_last(op)) outputs[std::size_t(op.micro_batch)] = data.output;
  ReleaseActivations(&data);
}

// The output was sent; only the cache is needed.
void StageRunner::Work::Recompute(const StageOp& op) {
  PairData& data = Data(op);
  data.cache = Bytes(PlanOf(op).cache_bytes);
  data.output = Tensor::Uninitialized(DType::kF32, PlanOf(op).out[0].shape);
  const ConstTensor in[] = {data.input};
  const Tensor out[] = {data.output};
  chunks_.at(op.chunk).module->Forward(ContextOf(op), in, out, data.cache.bytes());
}

// The gradient of the input, and of the weights in the same pass if wanted.
void StageRunner::Work::BackwardInput(const StageOp& op, bool with_weights) {
  PairData& data = Data(op);
  const auto after = pairs_.find({op.chunk + 1, op.micro_batch});
  if (is_last(op)) {
    data.output_gradient = Tensor(DType::kF32, data.output.shape());
    callbacks_.loss(op.micro_batch, data.output, data.output_gradient);
  } else if (after != pairs_.end() && !after->second.input_gradient.empty()) {
    data.output_gradient = std::exchange(after->second.input_gradient, {});
  }
  data.output = {};
  // Nothing precedes chunk 0, so its whole backward pass is that of the weights.
  if (op.chunk == 0 && !with_weights) return;
  if (op.chunk > 0) data.input_gradient = Tensor::Uninitialized(DType::kF32, data.input.shape());
  StepContext context = ContextOf(op);
  if (with_weights) context.gradient = chunks_.at(op.chunk).gradient.as<float>();
  const ConstTensor in[] = {data.input}, out_gradient[] = {data.output_gradient};
  const Tensor in_gradient[] = {data.input_gradient};
  chunks_.at(op.chunk).module->Backward(context, in, out_gradient, data.cache.bytes(), in_gradient);
  if (with_weights) ReleaseActivations(&data);
}

// A second backward pass, for the weights alone, from the same activations.
void StageRunner::Work::BackwardWeight(const StageOp& op) {
  PairData& data = Data(op);
  StepContext context = ContextOf(op);
  context.gradient = chunks_.at(op.chunk).gradient.as<float>();
  const ConstTensor in[] = {data.input}, out_gradient[] = {data.output_gradient};
  const Tensor in_gradient[] = {{}};
  chunks_.at(op.chunk).module->Backward(context, in, out_gradient, data.cache.bytes(), in_gradient);
  ReleaseActivations(&data);
}

// Makes the next version, in place unless a later pass reads the old one.
Status StageRunner::Work::Update(const StageOp& op, bool keep_old) {
  for (auto& [index, chunk] : chunks_) {
    if (stage_.replicas != nullptr) TROOP_RETURN_IF_ERROR(AddReplicas(chunk.gradient));
    if (!chunk.borrowed.empty()) continue;  // Run ends here, and the caller steps
    auto newest = std::prev(chunk.versions.end());
    Version next;
    if (keep_old) {
      next.value = Tensor::Uninitialized(DType::kF32, newest->second.value.shape());
      std::ranges::copy(newest->second.value.as<float>(), next.value.data<float>());
    } else {
      next = std::move(newest->second);
      chunk.versions.erase(newest);
    }
    callbacks_.update(index, chunk.gradient.as<float>(), next.value.as<float>());
    std::ranges::fill(chunk.gradient.as<float>(), 0.0f);
    Pack(chunk, &next);
    chunk.versions.emplace(op.version, std::move(next));
  }
  return Status::Ok();
}

// Replaces the gradient by the sum over the replicas, which is the same on all of them.
Status StageRunner::Work::AddReplicas(Tensor gradient) {
  TROOP_ASSIGN_OR_RETURN(const ::troop::Work work,
                         stage_.replicas->Start({.kind = OpKind::kAllReduce}, gradient, gradient));
  return Finish(stage_.replicas, work);
}

// Removes sends that have ended, and returns true if none are left, except in one group.
Result<bool> StageRunner::Work::ReapSends(const Collective* except) {
  bool all = true;
  for (auto& [channel, open] : sends_) {
    Collective* const group = Group(channel.second);
    if (group == except) continue;
    while (!open.empty()) {
      const std::optional<Status> done = group->Poll(open.front().first);
      if (!done) break;
      TROOP_RETURN_IF_ERROR(*done);
      open.pop_front();
    }
    all = all && open.empty();
  }
  return all;
}

// Waits for one operation. While sends of other groups are open, these must advance, because a peer
// may wait for them; then the thread can sleep.
Status StageRunner::Work::Finish(Collective* group, ::troop::Work work) {
  for (;;) {
    TROOP_ASSIGN_OR_RETURN(const bool alone, ReapSends(group));
    if (alone) return group->Wait(work);
    if (std::optional<Status> done = group->Poll(work)) return *std::move(done);
    std::this_thread::yield();
  }
}

// Starts the message, and waits only while more than the slots are open.
Status StageRunner::Work::Send(const StageOp& op) {
  PairData& data = Data(op);
  const bool activation = op.payload == Payload::kActivation;
  ConstTensor message = activation ? data.output : std::exchange(data.input_gradient, {});
  // The last reader of an output is the message.
  if (activation) data.output = {};
  TROOP_ASSIGN_OR_RETURN(
      const ::troop::Work work,
      Group(op.payload)->Start({.kind = OpKind::kSend, .peer = int(op.peer)}, message, {}));
  OpenSends& open = sends_[{op.peer, op.payload}];
  open.emplace_back(work, std::move(message));
  while (std::int64_t(open.size()) > schedule_.send_slots) {
    TROOP_RETURN_IF_ERROR(Finish(Group(op.payload), open.front().first));
    open.pop_front();
  }
  return Status::Ok();
}

// Waits for the message, which the neighbor may have sent long before.
Status StageRunner::Work::Receive(const StageOp& op) {
  const bool activation = op.payload == Payload::kActivation;
  const Shape shape = activation ? InputSpec(op).shape : PlanOf(op).out[0].shape;
  Tensor message = Tensor::Uninitialized(DType::kF32, shape);
  TROOP_ASSIGN_OR_RETURN(
      const ::troop::Work work,
      Group(op.payload)->Start({.kind = OpKind::kReceive, .peer = int(op.peer)}, {}, message));
  TROOP_RETURN_IF_ERROR(Finish(Group(op.payload), work));
  if (activation) {
    Data(op).input = message;
  } else {
    Data(op).output_gradient = message;
  }
  return Status::Ok();
}

// One operation of the list.
Status StageRunner::Work::Execute(const StageOp& op, std::size_t index) {
  switch (op.kind) {
    case StageOpKind::kForward:
      Forward(op);
      break;
    case StageOpKind::kRecompute:
      Recompute(op);
      break;
    case StageOpKind::kBackward:
    case StageOpKind::kBackwardInput:
      BackwardInput(op, op.kind == StageOpKind::kBackward);
      break;
    case StageOpKind::kBackwardWeight:
      BackwardWeight(op);
      break;
    case StageOpKind::kSend:
      return Send(op);
    case StageOpKind::kReceive:
      return Receive(op);
    case StageOpKind::kUpdate:
      return Update(op, changes_[index].versions > 0);
  }
  // The last reader of an older version frees it.
  if (changes_[index].versions < 0) chunks_.at(op.chunk).versions.erase(op.version);
  return Status::Ok();
}

// Each run begins with version 0, the newest of the run before.
Status StageRunner::Work::Run() {
  pairs_.clear();
  intervals.clear();
  held_bytes_max = 0;
  outputs.assign(schedule_.forward_only ? std::size_t(schedule_.micro_batches) : 0, {});
  for (auto& [index, chunk] : chunks_) {
    Version newest = std::move(chunk.versions.rbegin()->second);
    chunk.versions.clear();
    Pack(chunk, &newest);
    chunk.versions.emplace(0, std::move(newest));
  }
  // Times count from here, so that preparation is left out.
  const Time begin = stage_.clock->Now();
  const auto seconds = [&] { return ToSeconds(stage_.clock->Now() - begin); };
  for (std::size_t i = 0; i < ops().size(); ++i) {
    const double start_s = seconds();
    TROOP_RETURN_IF_ERROR(Execute(ops()[i], i));
    intervals.push_back({start_s, seconds()});
    std::size_t held = 0;
    for (const auto& [pair, data] : pairs_) held += BytesOf(data);
    held_bytes_max = std::max(held_bytes_max, held);
  }
  for (auto& [channel, open] : sends_) {
    for (; !open.empty(); open.pop_front()) {
      TROOP_RETURN_IF_ERROR(Finish(Group(channel.second), open.front().first));
    }
  }
  return Status::Ok();
}

StageRunner::StageRunner(std::unique_ptr<Work> work) : work_(std::move(work)) {}
StageRunner::~StageRunner() = default;

Result<std::unique_ptr<StageRunner>> StageRunner::Make(const PipelineStage& stage,
                                                       StageCallbacks callbacks) {
  if (stage.schedule == nullptr) return InvalidArgument("pipeline stage: the schedule is missing");
  auto work = std::make_unique<Work>(stage, std::move(callbacks));
  TROOP_RETURN_IF_ERROR(work->Prepare());
  return std::unique_ptr<StageRunner>(new StageRunner(std::move(work)));
}

std::span<float> StageRunner::value(std::int64_t chunk) { return work_->value(chunk); }
Status StageRunner::Run() { return work_->Run(); }
const std::vector<OpInterval>& StageRunner::intervals() const { return work_->intervals; }
std::size_t StageRunner::held_bytes_max() const { return work_->held_bytes_max; }
std::span<const Tensor> StageRunner::outputs() const { return work_->outputs; }

}  // namespace troop
