// Implements the rendezvous of learners: apart, meeting, joining, formed.

#include "learners/sync/learner_group.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/storage/crc32c.h"

namespace troop {
namespace {

// Poll interval for the member list, and how long a list must stay the same before learners act on
// it, so that all of them have received it.
constexpr Duration kAskEvery = Milliseconds(20);
constexpr Duration kSteady = Milliseconds(60);
constexpr Duration kRetry = Milliseconds(50);  // between attempts to open an address
// Deadline of the state exchange in the simulator, where operations have no timeout: other learners
// may have another list and never join. Equal to SocketRendezvousOptions::timeout.
constexpr Duration kJoinMax = Seconds(10);
constexpr std::size_t kUsedUpMax = 1024;  // bounds memory; older addresses are never reused

// Epoch of a group: equal lists give the same epoch, and different lists different ones.
std::uint64_t EpochOf(std::span<const std::string> addresses) {
  std::uint32_t low = 0, high = 0x5bd1e995;
  for (const std::string& address : addresses) {
    const auto bytes = std::as_bytes(std::span(address.c_str(), address.size() + 1));
    low = Crc32c(bytes, low);
    high = Crc32c(bytes, high);
  }
  return (std::uint64_t{high} << 32) | low;
}

Tensor NumbersOf(std::span<std::uint64_t> numbers) {
  return Tensor::View(nullptr, std::as_writable_bytes(numbers),
                      {DType::kU64, {std::int64_t(numbers.size())}});
}

}  // namespace

LearnerGroup::LearnerGroup(const Options& options)
    : options_(options),
      device_gradient_(options.algorithm->device_gradient()),
      member_(options.algorithm->tensor_parallel()) {
  TROOP_CHECK(options.parts == 1 || member_ != nullptr,
              "the algorithm does not support tensor parallelism");
}

// Selects where the gradient is all-reduced; without one on a device it is the host.
void LearnerGroup::ReduceOnDevice(bool there) const {
  if (device_gradient_ != nullptr) device_gradient_->ReduceOnDevice(there);
}

// Publishes a new address with the next heartbeat; an address serves one attempt.
void LearnerGroup::Open(Time now) {
  if (now < retry_) return;
  retry_ = now + kRetry;
  Result<std::string> address = options_.rendezvous->Open();
  if (!address.ok()) {
    LogWarning("cannot open an address for the learner group: {}", address.status().message());
    return;
  }
  address_ = *address;
  options_.member->report().endpoint = address_;
  options_.member->SendHeartbeatSoon();
  seen_.clear();
  opened_ = now;
  state_ = State::kMeeting;
}

// `troop scale` changes the number during a run.
int LearnerGroup::learners() const {
  const std::int32_t now = options_.member->fleet().learners;
  return now > 0 ? now : options_.learners;
}

// Used addresses are skipped: their learners have not opened a new one yet.
std::vector<LearnerGroup::Slot> LearnerGroup::Present(bool* all) const {
  const FleetMember& member = *options_.member;
  std::vector<Slot> slots;
  // Parameter-server workers: only the ranks of this learner's model form the group.
  const bool one = options_.model >= 0;
  const int first = one ? options_.model * options_.parts : 0;
  const int learners =
      one ? options_.parts : std::max(this->learners(), member.options().index + 1);
  for (int index = first; index < first + learners; ++index) {
    Slot slot{member.Incarnation(Role::kLearner, index), member.Endpoint(Role::kLearner, index)};
    if (index == member.options().index) slot = {member.options().incarnation, address_};
    if (slot.address.empty() || used_up_.contains(slot.address)) continue;
    slots.push_back(std::move(slot));
  }
  *all = int(slots.size()) == learners;
  return slots;
}

// Joins once the list is stable and either complete, or old enough to give up on missing learners.
void LearnerGroup::Meet(Time now) {
  bool all = false;
  std::vector<Slot> present = Present(&all);
  if (present != seen_) {
    seen_ = std::move(present);
    seen_since_ = now;
  }
  // Time is measured by what the coordinator has confirmed. Without it a learner would see no
  // others and continue alone. At the end of a run it may have exited.
  const bool ends = options_.member->phase() == Phase::kDone || options_.member->stop();
  const Time known = ends ? now : options_.member->last_known();
  const bool enough = all || (options_.parts == 1 && known - opened_ >= options_.wait);
  if (known - seen_since_ >= kSteady && enough) return Join();
  // Rate-limited: a request with each reply would poll in a busy loop.
  if (now >= next_ask_) {
    options_.member->SendHeartbeatSoon();
    next_ask_ = now + kAskEvery;
  }
  next_poll_ = next_ask_;
}

// Rank order is the order of the list, so all learners derive the same ranks.
void LearnerGroup::Join() {
  slots_ = seen_;
  std::vector<std::string> addresses;
  int rank = 0;
  for (const Slot& slot : slots_) {
    if (slot.address == address_) rank = int(addresses.size());
    addresses.push_back(slot.address);
  }
  if (used_up_.size() > kUsedUpMax) used_up_.clear();
  used_up_.insert(addresses.begin(), addresses.end());
  const std::uint64_t epoch = EpochOf(addresses);
  join_ = std::make_unique<JoinJob>();
  const auto work = [this, job = join_.get(), rank, epoch, addresses] {
    Result<std::unique_ptr<Collective>> group = options_.rendezvous->Join(rank, epoch, addresses);
    job->status = group.status();
    if (!group.ok()) return;
    job->group = std::move(*group);
    if (options_.parts > 1) {
      job->status = BecomeParts(job);
    } else if (options_.rendezvous->waits()) {
      job->status = StateExchange(job->group.get(), options_.algorithm).Wait();
    } else {
      return;
    }
    if (job->status.ok()) job->status = JoinDevices(job);
    if (job->status.ok()) job->status = JoinBatch(job);
  };
  Result<Executor::Job> id = options_.executor->Submit("join", work);
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  join_->id = *id;
  state_ = State::kJoining;
}

// Splits the group along its axes, and brings all parts of the model to the same update: from ranks
// that hold the same part, or else from the newest checkpoint.
Status LearnerGroup::BecomeParts(JoinJob* job) const {
  Collective& all = *job->group;
  if (!has_parts()) return Status::Ok();
  const int part = all.rank() % options_.parts, model = all.rank() / options_.parts;
  TROOP_ASSIGN_OR_RETURN(job->axes.same_part, all.Split(part, model));
  TROOP_ASSIGN_OR_RETURN(job->axes.same_model, all.Split(model, part));
  TROOP_RETURN_IF_ERROR(StateExchange(job->axes.same_part.get(), options_.algorithm).Wait());
  bool equal = false;
  // First try: the parts as they are. Second try: all load the checkpoint.
  for (int i = 0; i < 2 && !equal; ++i) {
    if (i > 0) TROOP_RETURN_IF_ERROR(options_.go_back());
    std::vector<std::uint64_t> updates(std::size_t(all.size()));
    std::uint64_t mine = options_.algorithm->updates();
    TROOP_RETURN_IF_ERROR(
        RunOp(all, {.kind = OpKind::kAllGather}, NumbersOf({&mine, 1}), NumbersOf(updates)));
    equal = std::ranges::count(updates, updates[0]) == all.size();
  }
  if (!equal) return Aborted("the tensor-parallel ranks have different checkpoints");
  return Status::Ok();
}

// made: over the ranks of `from`; nullptr on all of them if NCCL fails on any.
Status LearnerGroup::MakeDeviceGroup(Collective* from, std::unique_ptr<Collective>* made) const {
  TROOP_ASSIGN_OR_RETURN(auto host, from->Split(0, from->rank()));
  NcclOptions nccl = *options_.nccl;
  nccl.device = options_.algorithm->device_ordinal();
  Result<std::unique_ptr<Collective>> group = MakeNcclGroup(std::move(host), nccl);
  if (group.ok()) {
    *made = std::move(*group);
  } else {
    LogInfo("NCCL is not available, all-reducing through host memory: {}",
            group.status().message());
  }
  return from->status();
}

// Decides whether gradients, and what tensor-parallel ranks exchange, stay on devices. All ranks
// take the same path: NCCL only if every rank can use it.
Status LearnerGroup::JoinDevices(JoinJob* job) const {
  Algorithm& algorithm = *options_.algorithm;
  Collective& all = *job->group;
  Axes& axes = job->axes;
  Collective* const parts = options_.parts == 1 ? nullptr
                            : has_parts()       ? axes.same_model.get()
                                                : &all;
  // Step 1: every rank announces its capability.
  enum Has : std::uint64_t { kNoDevice = 0, kDevice = 1, kNccl = 2 };
  const bool reaches =
      options_.nccl && (options_.model >= 0 || (device_gradient_ != nullptr &&
                                                !device_gradient_->device_values().empty()));
  std::uint64_t mine = algorithm.device_ordinal() < 0 ? kNoDevice : reaches ? kNccl : kDevice;
  std::vector<std::uint64_t> wants(std::size_t(all.size()));
  TROOP_RETURN_IF_ERROR(
      RunOp(all, {.kind = OpKind::kAllGather}, NumbersOf({&mine, 1}), NumbersOf(wants)));
  ReduceOnDevice(false);
  if (parts != nullptr && std::ranges::count(wants, std::uint64_t{kNoDevice}) % all.size() != 0) {
    job->hopeless = true;
    return FailedPrecondition(
        "tensor-parallel ranks of one model use both GPU and CPU; set learner.device to \"cpu\", "
        "or give each learner a GPU");
  }
  // Step 2: form the NCCL groups, if all ranks can.
  if (std::ranges::count(wants, std::uint64_t{kNccl}) == all.size()) {
    if (parts != nullptr) TROOP_RETURN_IF_ERROR(MakeDeviceGroup(parts, &axes.model_devices));
    // Parameter-server workers need the gradient on the host.
    if (options_.model < 0) {
      Collective* const agree = has_parts() ? axes.same_part.get() : &all;
      TROOP_RETURN_IF_ERROR(MakeDeviceGroup(agree, &axes.devices));
    }
    // Step 3: keep them only if every rank succeeded.
    const bool made = (parts == nullptr || axes.model_devices != nullptr) &&
                      (options_.model >= 0 || axes.devices != nullptr);
    mine = made ? kNccl : kDevice;
    TROOP_RETURN_IF_ERROR(
        RunOp(all, {.kind = OpKind::kAllGather}, NumbersOf({&mine, 1}), NumbersOf(wants)));
    if (std::ranges::count(wants, std::uint64_t{kNccl}) < all.size()) {
      axes.devices.reset();
      axes.model_devices.reset();
    }
    ReduceOnDevice(axes.devices != nullptr);
  }
  if (parts != nullptr) member_->SetTensorGroup(parts, axes.model_devices.get());
  return Status::Ok();
}

// A separate group, because the gradient is all-reduced while the backward pass still exchanges
// statistics.
Status LearnerGroup::JoinBatch(JoinJob* job) const {
  BatchPartition* const partition = options_.algorithm->batch_partition();
  if (partition == nullptr || !partition->needs_group()) return Status::Ok();
  Collective& from = has_parts() ? *job->axes.same_part : *job->group;
  TROOP_ASSIGN_OR_RETURN(job->axes.batch, from.Split(0, from.rank()));
  partition->SetGroup(job->axes.batch.get());
  return Status::Ok();
}

// The simulator exchanges states by polling; otherwise the join job has done it.
void LearnerGroup::CollectJoin(Time now) {
  if (join_) {
    if (!options_.executor->TakeDone(join_->id)) return;
    const std::unique_ptr<JoinJob> job = std::move(join_);
    group_ = std::move(job->group);
    axes_ = std::move(job->axes);
    if (job->hopeless) failure_ = job->status;
    if (!job->status.ok() || options_.rendezvous->waits()) return Enter(job->status);
    exchange_ = std::make_unique<StateExchange>(group_.get(), options_.algorithm);
    exchanging_since_ = now;
  }
  if (const std::optional<Status> end = exchange_->Poll()) return Enter(*end);
  if (now - exchanging_since_ > kJoinMax) {
    return Enter(
        DeadlineExceeded("the other learners did not join within {:.0f} s", ToSeconds(kJoinMax)));
  }
  next_poll_ = now + kAskEvery;
}

// Makes the joined group current, or starts over after an error.
void LearnerGroup::Enter(Status status) {
  exchange_.reset();
  if (!status.ok()) {
    LogInfo("no group of {} learners yet: {}", slots_.size(), status.message());
    return Ended(Status::Ok());
  }
  state_ = State::kInStep;
  regroup_ = false;
  // Clears the published address, which accepts no more connections.
  options_.member->report().endpoint.clear();
  options_.member->SendHeartbeatSoon();
  size_ = group_->size();
  is_leader_ = group_->rank() == 0;
  for (const Slot& slot : slots_) generation_ = std::max(generation_, slot.incarnation);
  LogInfo("formed a group of {} of {} learners{}, as rank {}, at update {}", size_, learners(),
          axes_.devices != nullptr || axes_.model_devices != nullptr ? " over NCCL" : "",
          group_->rank(), options_.algorithm->updates());
}

// Drops the group; the next Poll opens a new address.
void LearnerGroup::Ended(const Status& why) {
  if (!why.ok()) LogInfo("the group of {} learners has ended: {}", size_, why.message());
  if (member_ != nullptr) member_->SetTensorGroup(nullptr, nullptr);
  if (axes_.batch != nullptr) options_.algorithm->batch_partition()->SetGroup(nullptr);
  ReduceOnDevice(false);
  for (std::unique_ptr<Collective>* const over : {&axes_.devices, &axes_.model_devices}) {
    if (*over == nullptr) continue;
    // Destroyed in a job, because NCCL may take long to close.
    auto group = std::make_shared<std::unique_ptr<Collective>>(std::move(*over));
    const auto job = options_.executor->Submit("leave", [group] { group->reset(); });
    TROOP_CHECK(job.ok(), "{}", job.status().ToString());
    left_.push_back(*job);
  }
  axes_ = {};
  group_.reset();
  address_.clear();
  state_ = State::kApart;
}

void LearnerGroup::Poll(Time now) {
  std::erase_if(left_, [this](Executor::Job job) { return options_.executor->TakeDone(job); });
  next_poll_ = kForever;
  if (state_ == State::kApart) Open(now);
  if (state_ == State::kApart) next_poll_ = retry_;
  if (state_ == State::kMeeting) Meet(now);
  if (state_ == State::kJoining) CollectJoin(now);
  if (state_ != State::kInStep) return;
  if (now < next_look_) {
    next_poll_ = next_look_;
    return;
  }
  // In step: check at intervals for learners that wait to join.
  next_look_ = now + kAskEvery;
  bool all = false;
  // An address that no group has used belongs to a learner that waits.
  regroup_ = regroup_ || Present(&all).size() > 0;
}

}  // namespace troop
