// Implements the checks of a stage's list. The state of each (chunk, micro-batch) pair says which
// operations it has had; each pair is on one stage, so one table serves all stages.
#include "learners/pipeline/stage_checker.h"

#include <fmt/core.h>

#include <string>

namespace troop {
namespace {

// Events in the life of a pair on its stage.
enum Event : std::uint8_t {
  kHasInput = 1,     // the activation of the previous chunk was received
  kForwardDone = 2,  //
  kOutputSent = 4,   //
  kHasGradient = 8,  // the gradient of the next chunk was received
  kRecomputed = 16,  //
  kInputDone = 32,   // gradient of the input
  kWeightDone = 64,  // gradient of the weights
  kGradientSent = 128,
};
struct Pair {
  std::uint8_t events = 0;
  std::int64_t version = 0;  // that forward has read
};

// Checks the lists of all stages, one after the other. A reason that is empty means: valid.
class StageChecker {
 public:
  explicit StageChecker(const PipelineSchedule& schedule)
      : schedule_(schedule),
        micro_batches_(schedule.micro_batches),
        last_chunk_(schedule.chunks() - 1),
        pairs_(std::size_t(schedule.chunks() * schedule.micro_batches)),
        chunks_of_(schedule.stages.size()),
        replica_of_(schedule.stages.size()) {
    for (std::int64_t chunk = 0; chunk <= last_chunk_; ++chunk) {
      const auto& placed = schedule.placement[std::size_t(chunk)];
      for (std::size_t replica = 0; replica < placed.size(); ++replica) {
        chunks_of_[std::size_t(placed[replica])].push_back(chunk);
        replica_of_[std::size_t(placed[replica])] = std::int64_t(replica);
      }
    }
  }

  Status Check();

 private:
  Pair& PairOf(std::int64_t chunk, std::int64_t micro_batch) {
    return pairs_[std::size_t(chunk * micro_batches_ + micro_batch)];
  }
  bool Has(std::int64_t chunk, std::int64_t micro_batch, Event event) {
    return (PairOf(chunk, micro_batch).events & event) != 0;
  }
  // True if the neighboring chunk exists and is on another stage.
  bool IsRemote(std::int64_t chunk, std::int64_t micro_batch) const {
    return chunk >= 0 && chunk <= last_chunk_ && schedule_.StageOf(chunk, micro_batch) != stage_;
  }
  bool asynchronous() const { return schedule_.weights != WeightPolicy::kCurrent; }

  void ReadEntryVersions();
  Status CheckStage(std::int64_t stage);
  std::string CheckFields(const StageOp& op) const;
  std::string CheckOp(const StageOp& op);
  std::string CheckForward(const StageOp& op);
  std::string CheckRecompute(const StageOp& op);
  std::string CheckInputGradient(const StageOp& op);
  std::string CheckWeightGradient(const StageOp& op);
  std::string CheckReadVersion(const StageOp& op);
  std::string CheckSend(const StageOp& op);
  std::string CheckReceive(const StageOp& op);
  std::string CheckUpdate(const StageOp& op);
  std::string CheckComplete();
  std::string MarkOnce(const StageOp& op, Event event);

  const PipelineSchedule& schedule_;
  const std::int64_t micro_batches_, last_chunk_;
  std::vector<Pair> pairs_;  // [chunk, micro-batch]
  std::vector<std::int64_t>
      entry_version_;  // [micro-batch]: that chunk 0 reads; vertical sync only
  std::vector<std::vector<std::int64_t>> chunks_of_;  // [stage]
  std::vector<std::int64_t> replica_of_;              // [stage]: its place among the replicas
  std::int64_t first_gradients_ = 0;  // micro-batches whose gradient of chunk 0's output is there
  // Values of the stage that is checked.
  std::int64_t stage_ = 0;
  std::int64_t stage_chunks_ = 0, replicas_ = 1, replica_ = 0;
  std::int64_t newest_ = 0;   // weight version
  std::int64_t pending_ = 0;  // weight gradients since the last update
};

// Range of each field that the kind uses; the others must be 0, because they would be ignored.
std::string StageChecker::CheckFields(const StageOp& op) const {
  const auto within = [](auto value, std::size_t size) {
    return std::int64_t(value) >= 0 && std::int64_t(value) < std::int64_t(size);
  };
  if (!within(op.kind, EnumNames(StageOpKind{}).size())) return "this kind does not exist";
  if (!within(op.payload, EnumNames(Payload{}).size())) return "this payload does not exist";
  const bool update = op.kind == StageOpKind::kUpdate;
  const bool message = op.kind == StageOpKind::kSend || op.kind == StageOpKind::kReceive;
  const bool unused = (update && (op.micro_batch != 0 || op.chunk != 0)) ||
                      (!message && (op.peer != 0 || op.payload != Payload::kActivation)) ||
                      (message && op.version != 0);
  if (unused) return "a field that this kind does not use is not 0";
  // An update belongs to no pair.
  if (update) return "";
  if (!within(op.micro_batch, std::size_t(micro_batches_))) {
    return fmt::format("there are {} micro-batches", micro_batches_);
  }
  if (!within(op.chunk, schedule_.placement.size())) {
    return fmt::format("there are {} chunks", schedule_.chunks());
  }
  const std::int64_t owner = schedule_.StageOf(op.chunk, op.micro_batch);
  return owner == stage_ ? "" : fmt::format("this pair is placed on stage {}", owner);
}

// Records an event that may occur once.
std::string StageChecker::MarkOnce(const StageOp& op, Event event) {
  Pair& pair = PairOf(op.chunk, op.micro_batch);
  if ((pair.events & event) != 0) return "it occurs twice";
  pair.events = std::uint8_t(pair.events | event);
  return "";
}

// Its input comes from another stage by a message, or from an earlier pass of this one; a recurrent
// chunk reads its state of the time step before, too.
std::string StageChecker::CheckForward(const StageOp& op) {
  const std::int64_t before = op.chunk - 1;
  if (IsRemote(before, op.micro_batch)) {
    if (!Has(op.chunk, op.micro_batch, kHasInput)) return "its input was not received";
  } else if (before >= 0) {
    // Outputs of a bidirectional chunk are complete after its last step.
    const bool whole = schedule_.bidirectional_first && before == 0;
    if (!Has(before, whole ? micro_batches_ - 1 : op.micro_batch, kForwardDone)) {
      return "the previous chunk's output is missing";
    }
  }
  if (schedule_.recurrent && op.micro_batch > 0 &&
      !Has(op.chunk, op.micro_batch - 1, kForwardDone)) {
    return "the time step before it is missing";
  }
  // The version must be one that the policy permits at this place.
  PairOf(op.chunk, op.micro_batch).version = op.version;
  const bool predicted = schedule_.weights == WeightPolicy::kPredicted;
  const bool vertical = schedule_.weights == WeightPolicy::kVerticalSync;
  if (vertical && op.version != entry_version_[std::size_t(op.micro_batch)]) {
    return fmt::format("the micro-batch entered with version {}",
                       entry_version_[std::size_t(op.micro_batch)]);
  }
  const bool newest = op.version == newest_;
  const bool old = vertical && op.chunk > 0 && op.version >= 0 && op.version < newest_;
  const bool future = predicted && op.version > newest_ && op.version <= micro_batches_;
  if (!newest && !old && !future) return fmt::format("the newest version is {}", newest_);
  return MarkOnce(op, kForwardDone);
}

// Backward passes read what forward has read.
std::string StageChecker::CheckReadVersion(const StageOp& op) {
  if (schedule_.forward_only) return "the schedule is forward_only";
  if (!Has(op.chunk, op.micro_batch, kForwardDone)) return "its forward pass is missing";
  const std::int64_t version = PairOf(op.chunk, op.micro_batch).version;
  if (op.version != version) return fmt::format("its forward pass reads version {}", version);
  const bool kept = schedule_.weights == WeightPolicy::kStashed ||
                    schedule_.weights == WeightPolicy::kVerticalSync;
  if (!kept && op.version != newest_) return fmt::format("the newest version is {}", newest_);
  return "";
}

// Recomputation reads the weights of the forward pass that it repeats.
std::string StageChecker::CheckRecompute(const StageOp& op) {
  if (!schedule_.recompute) return "the schedule declares no recomputation";
  if (std::string reason = CheckReadVersion(op); !reason.empty()) return reason;
  return MarkOnce(op, kRecomputed);
}

// The gradient of the output comes by a message, or from the next chunk on this stage. The last
// chunk has it from the loss.
std::string StageChecker::CheckInputGradient(const StageOp& op) {
  if (std::string reason = CheckReadVersion(op); !reason.empty()) return reason;
  if (schedule_.recompute && !Has(op.chunk, op.micro_batch, kRecomputed)) {
    return "its recomputation is missing";
  }
  const std::int64_t after = op.chunk + 1;
  if (IsRemote(after, op.micro_batch)) {
    if (!Has(op.chunk, op.micro_batch, kHasGradient)) return "its gradient was not received";
  } else if (after <= last_chunk_ && !Has(after, op.micro_batch, kInputDone)) {
    return "the next chunk's gradient is missing";
  }
  // A pass of a bidirectional chunk goes through both ends of the sequence.
  if (schedule_.bidirectional_first && op.chunk == 0 && last_chunk_ > 0 &&
      first_gradients_ < micro_batches_) {
    return "gradients of other time steps are missing";
  }
  if (schedule_.recurrent && op.micro_batch + 1 < micro_batches_ &&
      !Has(op.chunk, op.micro_batch + 1, kInputDone)) {
    return "the backward pass of the time step after it is missing";
  }
  if (op.chunk == 1 && !IsRemote(0, op.micro_batch)) ++first_gradients_;
  return MarkOnce(op, kInputDone);
}

// In an asynchronous schedule each gradient belongs to one update.
std::string StageChecker::CheckWeightGradient(const StageOp& op) {
  if (std::string reason = CheckReadVersion(op); !reason.empty()) return reason;
  if (!Has(op.chunk, op.micro_batch, kInputDone)) return "its backward_input is missing";
  const std::int64_t round = op.micro_batch / replicas_;
  if (asynchronous() && round != newest_) {
    return fmt::format("its gradient belongs to version {}, the next one is {}", round + 1,
                       newest_ + 1);
  }
  ++pending_;
  return MarkOnce(op, kWeightDone);
}

// Neighbor to which, or from which, a payload flows.
std::int64_t Neighbor(const StageOp& op) {
  const bool next = (op.kind == StageOpKind::kSend) == (op.payload == Payload::kActivation);
  return next ? op.chunk + 1 : op.chunk - 1;
}

// A result leaves after its pass, to the stage that runs the neighboring chunk.
std::string StageChecker::CheckSend(const StageOp& op) {
  const bool activation = op.payload == Payload::kActivation;
  if (!IsRemote(Neighbor(op), op.micro_batch))
    return "the neighboring chunk is not on another stage";
  const std::int64_t peer = schedule_.StageOf(Neighbor(op), op.micro_batch);
  if (op.peer != peer) return fmt::format("its reader is stage {}", peer);
  const bool whole = activation && op.chunk == 0 && schedule_.bidirectional_first;
  const std::int64_t needed = whole ? micro_batches_ - 1 : op.micro_batch;
  if (!Has(op.chunk, needed, activation ? kForwardDone : kInputDone)) return "its pass is missing";
  return MarkOnce(op, activation ? kOutputSent : kGradientSent);
}

// The order of the messages of a channel is checked when all stages are (CheckSchedule).
std::string StageChecker::CheckReceive(const StageOp& op) {
  const bool activation = op.payload == Payload::kActivation;
  if (!activation && schedule_.forward_only) return "the schedule is forward_only";
  if (!IsRemote(Neighbor(op), op.micro_batch))
    return "the neighboring chunk is not on another stage";
  const std::int64_t peer = schedule_.StageOf(Neighbor(op), op.micro_batch);
  if (op.peer != peer) return fmt::format("its sender is stage {}", peer);
  if (!activation && op.chunk == 0) ++first_gradients_;
  return MarkOnce(op, activation ? kHasInput : kHasGradient);
}

// The gradients of an update must be complete: see the contract of CheckSchedule.
std::string StageChecker::CheckUpdate(const StageOp& op) {
  if (schedule_.forward_only) return "the schedule is forward_only";
  if (op.version != newest_ + 1) return fmt::format("the next version is {}", newest_ + 1);
  const auto of_replica = [this](std::int64_t n) {  // micro-batches below n on this stage
    return (n + replicas_ - 1 - replica_) / replicas_;
  };
  std::int64_t expected = of_replica(micro_batches_);
  if (asynchronous()) {
    if (newest_ * replicas_ >= micro_batches_) return "there is no micro-batch for it";
    expected = newest_ * replicas_ + replica_ < micro_batches_ ? 1 : 0;
  }
  if (pending_ != expected * stage_chunks_) {
    return fmt::format("it follows {} weight gradients, must follow {}", pending_,
                       expected * stage_chunks_);
  }
  if (!asynchronous() && newest_ > 0) return "a synchronous schedule has one update";
  pending_ = 0;
  ++newest_;
  return "";
}

// A combined backward pass is both of its parts. Each check records the event when it has no
// reason.
std::string StageChecker::CheckOp(const StageOp& op) {
  switch (op.kind) {
    case StageOpKind::kForward:
      return CheckForward(op);
    case StageOpKind::kRecompute:
      return CheckRecompute(op);
    case StageOpKind::kBackward: {
      std::string reason = CheckInputGradient(op);
      return reason.empty() ? CheckWeightGradient(op) : reason;
    }
    case StageOpKind::kBackwardInput:
      return CheckInputGradient(op);
    case StageOpKind::kBackwardWeight:
      return CheckWeightGradient(op);
    case StageOpKind::kSend:
      return CheckSend(op);
    case StageOpKind::kReceive:
      return CheckReceive(op);
    case StageOpKind::kUpdate:
      return CheckUpdate(op);
  }
  return "this kind does not exist";
}

// Finds what is missing at the end of the list, the earliest event of a pair first.
std::string StageChecker::CheckComplete() {
  for (const std::int64_t chunk : chunks_of_[std::size_t(stage_)]) {
    for (std::int64_t m = replica_; m < micro_batches_; m += replicas_) {
      // Receives need no place here: a pass without its message was refused before.
      int needed = kForwardDone;
      if (IsRemote(chunk + 1, m)) needed |= kOutputSent;
      if (!schedule_.forward_only) {
        needed |= kInputDone | kWeightDone;
        if (IsRemote(chunk - 1, m)) needed |= kGradientSent;
      }
      const int missing = needed & ~PairOf(chunk, m).events;
      if (missing == 0) continue;
      const std::string_view name = (missing & kForwardDone) != 0  ? "forward"
                                    : (missing & kOutputSent) != 0 ? "send of the activation"
                                    : (missing & kInputDone) != 0  ? "backward"
                                    : (missing & kWeightDone) != 0 ? "backward_weight"
                                                                   : "send of the gradient";
      return fmt::format("{} of micro-batch {}, chunk {}", name, m, chunk);
    }
  }
  const std::int64_t rounds = (micro_batches_ + replicas_ - 1) / replicas_;
  const std::int64_t updates = schedule_.forward_only ? 0 : asynchronous() ? rounds : 1;
  return newest_ == updates ? "" : fmt::format("update to version {}", newest_ + 1);
}

// Goes through the list once; the first reason ends it.
Status StageChecker::CheckStage(std::int64_t stage) {
  const auto& chunks = chunks_of_[std::size_t(stage)];
  stage_ = stage;
  newest_ = pending_ = 0;
  stage_chunks_ = std::int64_t(chunks.size());
  replicas_ = std::int64_t(schedule_.placement[std::size_t(chunks[0])].size());
  replica_ = replica_of_[std::size_t(stage)];
  const auto& ops = schedule_.stages[std::size_t(stage)];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::string reason = CheckFields(ops[i]);
    const bool named = reason.empty();  // its names exist
    if (named) reason = CheckOp(ops[i]);
    if (reason.empty()) continue;
    if (!named) {
      return InvalidArgument("stage {}, operation {} (kind {}, micro-batch {}, chunk {}): {}",
                             stage, i, int(ops[i].kind), ops[i].micro_batch, ops[i].chunk, reason);
    }
    return InvalidArgument("stage {}, operation {} ({}): {}", stage, i, ToString(ops[i]), reason);
  }
  const std::string missing = CheckComplete();
  if (missing.empty()) return Status::Ok();
  return InvalidArgument("stage {}, operation {} (end of the list): missing is {}", stage,
                         ops.size(), missing);
}

// Chunk 0 decides the version of a micro-batch.
void StageChecker::ReadEntryVersions() {
  entry_version_.assign(std::size_t(micro_batches_), 0);
  for (const auto& ops : schedule_.stages) {
    for (const StageOp& op : ops) {
      if (op.kind == StageOpKind::kForward && op.chunk == 0 && op.micro_batch >= 0 &&
          op.micro_batch < micro_batches_) {
        entry_version_[std::size_t(op.micro_batch)] = op.version;
      }
    }
  }
}

// Stages share no state but the versions of chunk 0, so their order does not matter.
Status StageChecker::Check() {
  if (schedule_.weights == WeightPolicy::kVerticalSync) ReadEntryVersions();
  for (std::size_t stage = 0; stage < schedule_.stages.size(); ++stage) {
    TROOP_RETURN_IF_ERROR(CheckStage(std::int64_t(stage)));
  }
  return Status::Ok();
}

}  // namespace

Status CheckStages(const PipelineSchedule& schedule) { return StageChecker(schedule).Check(); }

}  // namespace troop
