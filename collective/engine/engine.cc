// Implements the Collective over sockets and shared memory: operations become flows of bytes and
// shared-memory tasks, which Step advances without blocking.
#include "collective/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troop {
namespace {

// Bytes per system call: what a connection within a machine holds (LimitBytesInFlight), so that two
// ranks seldom wake each other; small enough that received data is still in the second-level cache
// when it is forwarded. The best of 64 KB to 1 MB for 100 MB between two ranks.
constexpr std::size_t kPieceBytes = 512 * 1024;
// System calls per Poll and direction: at most 4 MB, so that Poll returns soon.
constexpr int kRoundsPerPoll = 8;
// Sleep of a rank that waits in shared memory, before it checks whether the others are alive;
// shorter if flows over sockets must progress too.
constexpr Duration kSleep = Milliseconds(2);
constexpr Duration kSleepBesideFlows = std::chrono::microseconds(200);

}  // namespace

Engine::Engine(std::unique_ptr<Wire> wire, EngineOptions options)
    : wire_(std::move(wire)),
      options_(std::move(options)),
      slab_(options_.hosts.slab.get()),
      rank_(wire_->rank()),
      size_(wire_->size()),
      outgoing_(std::size_t(size_)),
      incoming_(std::size_t(size_)),
      sends_(std::size_t(size_)),
      receives_(std::size_t(size_)),
      staging_(kPieceBytes) {
  for (int rank = 0; rank < size_; ++rank) ranks_.push_back(rank);
}

// The others must not wait for an operation that this rank has abandoned.
Engine::~Engine() {
  const bool open =
      std::ranges::any_of(works_, [](const auto& entry) { return entry.second->open > 0; });
  if (open) Abort(Cancelled("the rank left during an operation"));
}

// Sequence number that both ends count equally: per pair for kSend and kReceive, per group
// otherwise.
std::uint64_t Engine::NumberOf(const Op& op) {
  if (op.kind == OpKind::kSend) return ++sends_[std::size_t(op.peer)];
  if (op.kind == OpKind::kReceive) return ++receives_[std::size_t(op.peer)];
  return ++started_;
}

// Advances once before returning, so that small operations leave at once.
Result<Work> Engine::Start(const Op& op, ConstTensor in, Tensor out, Stream stream) {
  if (failure_) return failure_->status;
  if (stream.handle != nullptr) {
    return InvalidArgument("{}: a stream was given, but this group is for host memory",
                           options_.name);
  }
  TROOP_RETURN_IF_ERROR(CheckOp(op, in, out, rank_, size_).WithContext(options_.name));
  if (works_.size() >= kWorksMax) {
    return ResourceExhausted("{}: {} works are open, which is the limit; poll some to their end",
                             options_.name, works_.size());
  }
  auto running =
      std::make_unique<Running>(Running{.op = op, .in = std::move(in), .out = std::move(out)});
  running->header = HeaderOf(op, running->in, running->out, NumberOf(op));
  running->header_bytes = EncodeOpHeader(running->header);
  running->deadline =
      wire_->Now() + (op.timeout > Duration::zero() ? op.timeout : options_.timeout);
  MakeSteps(running.get());
  Enqueue(running.get());
  works_.emplace(next_, std::move(running));
  StepUnlessFailed();
  return next_++;
}

// Chooses the path: shared memory only (one host), by hosts (all-reduce, broadcast, barrier on
// several hosts), or flows between all ranks.
void Engine::MakeSteps(Running* running) {
  TransferPlanInput input{.op = running->op,
                          .dtype = running->header.dtype,
                          .in = running->in.bytes(),
                          .out = running->out.bytes(),
                          .ranks = ranks_,
                          .self = rank_};
  const OpKind kind = running->op.kind;
  const HostTopology& hosts = options_.hosts;
  const bool point = kind == OpKind::kSend || kind == OpKind::kReceive;
  const bool by_hosts =
      kind == OpKind::kAllReduce || kind == OpKind::kBroadcast || kind == OpKind::kBarrier;
  if (hosts.ranks.size() == 1 && !point) {
    running->before.emplace(running->header, running->op, input.in, input.out);
  } else if (hosts.ranks.size() > 1 && by_hosts) {
    MakeHostSteps(running, &input);
  } else {
    running->plan = MakeTransferPlan(input);
  }
}

// Plans an operation in three steps: a shared-memory task, flows between one rank of each host, and
// a second task that spreads the result. The rank that represents a host is its first one, or the
// root of a broadcast.
void Engine::MakeHostSteps(Running* running, TransferPlanInput* input) {
  const HostTopology& hosts = options_.hosts;
  const OpKind kind = running->op.kind;
  const int home = hosts.host_of[std::size_t(rank_)];
  const int root_host =
      kind == OpKind::kBroadcast ? hosts.host_of[std::size_t(running->op.peer)] : -1;
  // The representative of each host, by host.
  std::vector<int> speakers;
  for (int host = 0; host < int(hosts.ranks.size()); ++host) {
    speakers.push_back(host == root_host ? running->op.peer
                                         : hosts.ranks[std::size_t(host)].front());
  }
  const std::vector<int>& local = hosts.ranks[std::size_t(home)];
  const int speaker = speakers[std::size_t(home)];
  // Shared-memory tasks before and after the flows; a broadcast needs only the second.
  if (slab_ != nullptr) {
    if (kind != OpKind::kBroadcast) {
      running->before.emplace(running->header, running->op, input->in, input->out);
    }
    Op spread{.kind = kind == OpKind::kBarrier ? kind : OpKind::kBroadcast};
    spread.peer = int(std::ranges::find(local, speaker) - local.begin());
    running->after.emplace(running->header, spread, input->out, input->out);
  }
  // Other ranks of the host take no part in the flows.
  if (rank_ != speaker) return;
  // The host's sum is in `out`.
  if (running->before) input->in = input->out;
  if (kind == OpKind::kBroadcast) input->op.peer = root_host;
  input->ranks = speakers;
  input->self = home;
  running->plan = MakeTransferPlan(*input);
}

// True if the flows of an operation may run: its first shared-memory task has ended and its local
// copies are done.
bool Engine::MayBegin(Running* running) {
  if (running->begun) return true;
  if (running->before && !running->before->ended()) return false;
  for (const LocalCopy& copy : running->plan.copies) {
    std::memmove(copy.to, copy.from, copy.bytes);
  }
  running->begun = true;
  return true;
}

// Appends the flows and tasks to the queues, in the order of Start.
void Engine::Enqueue(Running* running) {
  const std::vector<Flow>& flows = running->plan.flows;
  running->cursors.resize(flows.size());
  running->open = flows.size() + std::size_t(running->before.has_value()) +
                  std::size_t(running->after.has_value());
  if (running->before) slab_queue_.push_back({running, &*running->before});
  if (running->after) slab_queue_.push_back({running, &*running->after});
  if (!running->before) MayBegin(running);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    auto& queues = flows[i].outgoing ? outgoing_ : incoming_;
    queues[std::size_t(flows[i].peer)].push_back({running, i});
  }
}

// Result of an operation, which is then forgotten; nullopt while it runs.
std::optional<Status> Engine::Ended(Work work) {
  const auto found = works_.find(work);
  TROOP_CHECK(found != works_.end(), "{}: no work {} is open", options_.name, work);
  std::optional<Status> status;
  if (found->second->open == 0) {
    status = Status::Ok();
  } else if (failure_) {
    status = failure_->status;
  }
  if (status) works_.erase(found);
  return status;
}

// Polls the wire only if nothing moved: a failure may have arrived.
Status Engine::Progress() {
  if (!StepUnlessFailed() && !failure_) {
    wire_->Idle(Time::min());
    StepUnlessFailed();
  }
  CheckDeadlines();
  return status();
}

std::optional<Status> Engine::Poll(Work work) {
  static_cast<void>(Progress());
  return Ended(work);
}

// Sleeps until the next deadline at most, so that a silent rank is detected.
Status Engine::Wait(Work work) {
  for (;;) {
    const bool moved = StepUnlessFailed();
    if (std::optional<Status> status = Ended(work)) return *status;
    if (moved) continue;
    Time until = kForever;
    for (const auto& [id, running] : works_) until = std::min(until, running->deadline);
    Idle(until);
    CheckDeadlines();
  }
}

// Sleeps in shared memory if the first task waits there, in the wire otherwise. Ranks that share
// memory use sockets only to report failures, so the wire is polled now and then.
void Engine::Idle(Time until) {
  // Without a waiting shared-memory task, the wire can sleep in epoll.
  const std::uint32_t awaited = slab_queue_.empty() ? 0 : slab_queue_.front().second->awaited();
  if (awaited == 0) return wire_->Idle(until);
  const auto busy = [](const auto& queue) { return !queue.empty(); };
  const bool flows = std::ranges::any_of(outgoing_, busy) || std::ranges::any_of(incoming_, busy);
  const bool come = slab_->Idle(awaited, flows ? kSleepBesideFlows : kSleep);
  if (!come || flows) wire_->Idle(Time::min());
}

// Advances the first task of the queue. The task after the flows runs only once they have ended.
bool Engine::StepSlab() {
  if (slab_queue_.empty()) return false;
  const auto [running, task] = slab_queue_.front();
  const bool first = running->before && task == &*running->before;
  if (!first && (running->open > 1 || !MayBegin(running))) return false;
  const bool moved = task->Step(*slab_, &phases_);
  if (const auto& mismatch = task->mismatch()) {
    const int host = options_.hosts.host_of[std::size_t(rank_)];
    const int peer = options_.hosts.ranks[std::size_t(host)][std::size_t(mismatch->place)];
    Refuse(*running, mismatch->theirs, peer);
    return false;
  }
  if (task->ended()) {
    --running->open;
    slab_queue_.pop_front();
    if (first && running->after) MayBegin(running);
  }
  return moved;
}

// Runs a bounded number of rounds, so that Poll returns soon. Returns true on progress.
bool Engine::StepUnlessFailed() {
  if (failure_) return false;
  bool moved = false;
  for (int round = 0; round < kRoundsPerPoll && !failure_ && Step(); ++round) moved = true;
  if (!failure_) {
    if (const std::optional<Failure> failure = wire_->failure()) Fail(*failure, false);
  }
  return moved;
}

// One round. Sends before it receives: received data is forwarded before more arrives.
bool Engine::Step() {
  bool moved = StepSlab();
  for (int peer = 0; peer < size_ && !failure_; ++peer) moved |= SendTo(peer);
  for (int peer = 0; peer < size_ && !failure_; ++peer) moved |= ReceiveFrom(peer);
  return moved;
}

// Advances the queue of one peer. A flow that has not ended blocks those after it.
bool Engine::SendTo(int peer) {
  std::deque<FlowRef>& queue = outgoing_[std::size_t(peer)];
  bool moved = false;
  while (!queue.empty() && !failure_ && SendSome(queue.front(), peer)) {
    moved = true;
    if (!queue.front().running->cursors[queue.front().flow].ended) break;
    --queue.front().running->open;
    queue.pop_front();
  }
  return moved;
}

// Like SendTo, for incoming flows.
bool Engine::ReceiveFrom(int peer) {
  std::deque<FlowRef>& queue = incoming_[std::size_t(peer)];
  bool moved = false;
  while (!queue.empty() && !failure_ && ReceiveSome(queue.front(), peer)) {
    moved = true;
    if (!queue.front().running->cursors[queue.front().flow].ended) break;
    --queue.front().running->open;
    queue.pop_front();
  }
  return moved;
}

// Bytes of the current segment that may be sent: all of it, or what the source flow has received of
// it.
std::size_t Engine::Available(const Running& running, const Flow& flow,
                              const Cursor& cursor) const {
  if (cursor.segment == flow.segments.size()) return 0;
  std::size_t ready = flow.segments[cursor.segment].bytes;
  // A forwarded segment is available as far as its source has received it.
  if (flow.source >= 0 && cursor.segment >= std::size_t(flow.lead)) {
    const Cursor& source = running.cursors[std::size_t(flow.source)];
    const std::size_t segment = cursor.segment - std::size_t(flow.lead);
    if (source.segment < segment) {
      ready = 0;
    } else if (source.segment == segment) {
      ready = source.done;
    }
  }
  return std::min(ready - cursor.done, kPieceBytes);
}

// One system call: the rest of the header, then payload.
bool Engine::SendSome(const FlowRef& ref, int peer) {
  Running& running = *ref.running;
  const Flow& flow = running.plan.flows[ref.flow];
  Cursor& cursor = running.cursors[ref.flow];
  if (!MayBegin(&running)) return false;
  if (flow.after >= 0 && !running.cursors[std::size_t(flow.after)].ended) return false;
  const auto header = std::span(running.header_bytes).subspan(cursor.header);
  std::span<const std::byte> payload;
  if (const std::size_t ready = Available(running, flow, cursor); ready > 0) {
    payload = {flow.segments[cursor.segment].at + cursor.done, ready};
  }
  if (header.empty() && payload.empty()) return false;
  const std::size_t sent = wire_->Send(peer, header, payload);
  if (sent == 0) return false;
  const std::size_t of_header = std::min(sent, header.size());
  cursor.header += of_header;
  cursor.done += sent - of_header;
  counters_.bytes_sent += sent - of_header;
  if (cursor.header == kOpHeaderBytes) Advance(&running, ref.flow);
  return true;
}

// One system call: the rest of the header, then payload, directly into place or into the staging
// buffer if it is to be reduced.
bool Engine::ReceiveSome(const FlowRef& ref, int peer) {
  Running& running = *ref.running;
  const Flow& flow = running.plan.flows[ref.flow];
  Cursor& cursor = running.cursors[ref.flow];
  if (!MayBegin(&running)) return false;
  if (flow.after >= 0 && !running.cursors[std::size_t(flow.after)].ended) return false;
  const auto header = std::span(cursor.coming).subspan(cursor.header);
  std::span<std::byte> payload;
  if (cursor.segment < flow.segments.size()) {
    const TransferSegment& segment = flow.segments[cursor.segment];
    if (segment.own == nullptr) {
      payload = {segment.at + cursor.done, std::min(segment.bytes - cursor.done, kPieceBytes)};
    } else {
      std::memcpy(staging_.data(), cursor.partial_bytes.data(), cursor.partial);
      payload = staging_.bytes().subspan(cursor.partial);
      payload =
          payload.first(std::min(segment.bytes - cursor.done - cursor.partial, payload.size()));
    }
  }
  const std::size_t received = wire_->Receive(peer, header, payload);
  if (received == 0) {
    if (wire_->left(peer)) {
      Fail({Unavailable("{}: rank {} left the group before it took part in {}", options_.name, peer,
                        running.header.ToString()),
            peer},
           true);
    }
    return false;
  }
  const std::size_t of_header = std::min(received, header.size());
  cursor.header += of_header;
  if (of_header > 0 && cursor.header == kOpHeaderBytes && !CheckHeader(running, cursor, peer)) {
    return false;
  }
  counters_.bytes_received += received - of_header;
  if (received > of_header) {
    Take(&running, flow.segments[cursor.segment], &cursor, received - of_header);
  }
  if (cursor.header == kOpHeaderBytes) Advance(&running, ref.flow);
  return true;
}

// Reduces the whole elements received; the bytes of an incomplete one are kept for the next call.
void Engine::Take(Running* running, const TransferSegment& segment, Cursor* cursor,
                  std::size_t bytes) {
  if (segment.own == nullptr) {
    cursor->done += bytes;
    return;
  }
  // A system call may end within an element.
  const std::size_t element = DTypeSize(running->header.dtype);
  const std::size_t have = cursor->partial + bytes;
  const std::size_t whole = have / element * element;
  const std::byte* own = segment.own + cursor->done;
  const std::byte* left = segment.own_first ? own : staging_.data();
  const std::byte* right = segment.own_first ? staging_.data() : own;
  Reduce({.reduction = running->op.reduction,
          .dtype = running->header.dtype,
          .n = std::int64_t(whole / element),
          .a = left,
          .b = right,
          .out = segment.at + cursor->done});
  cursor->done += whole;
  cursor->partial = have - whole;
  std::memcpy(cursor->partial_bytes.data(), staging_.data() + whole, cursor->partial);
}

// Compares the peer's operation with this rank's.
bool Engine::CheckHeader(const Running& running, const Cursor& cursor, int peer) {
  const Result<OpHeader> theirs = DecodeOpHeader(cursor.coming);
  if (theirs.ok() && *theirs == running.header) return true;
  Refuse(running, theirs, peer);
  return false;
}

// Fails the group because of a mismatched operation.
void Engine::Refuse(const Running& running, const Result<OpHeader>& theirs, int peer) {
  if (theirs.ok()) {
    Fail(
        {InvalidArgument("{}: rank {} calls {} while rank {} calls {}; all ranks must call the "
                         "same operations in the same order",
                         options_.name, peer, theirs->ToString(), rank_, running.header.ToString()),
         peer},
        true);
  } else {
    Fail({InvalidArgument("{}: rank {}: {}", options_.name, peer, theirs.status().message()), peer},
         true);
  }
}

// Moves the cursor over finished (also empty) segments.
void Engine::Advance(Running* running, std::size_t index) {
  const Flow& flow = running->plan.flows[index];
  Cursor& cursor = running->cursors[index];
  while (cursor.segment < flow.segments.size() &&
         cursor.done == flow.segments[cursor.segment].bytes) {
    ++cursor.segment;
    cursor.done = 0;
  }
  cursor.ended = cursor.segment == flow.segments.size();
}

// Keeps the first failure and clears the queues. `tell`: the others have no report of it yet.
void Engine::Fail(const Failure& failure, bool tell) {
  if (failure_) return;
  failure_ = failure;
  if (tell) wire_->Abort(failure);
  for (auto& queue : outgoing_) queue.clear();
  for (auto& queue : incoming_) queue.clear();
  slab_queue_.clear();
}

// Fails the group if a rank left without posting, or an operation timed out. The suspect is the
// first rank that data or a phase is missing from.
void Engine::CheckDeadlines() {
  if (failure_) return;
  // A rank posts all its phases before its good-bye, so the second check is final.
  const int behind = SlabSuspect();
  if (behind >= 0 && wire_->said_goodbye(behind) && SlabSuspect() == behind) {
    return Fail({Unavailable("{}: rank {} left the group before it took part in {}", options_.name,
                             behind, slab_queue_.front().first->header.ToString()),
                 behind},
                true);
  }
  const Time now = wire_->Now();
  for (const auto& [id, running] : works_) {
    if (running->open == 0 || running->deadline > now) continue;
    // Shared memory first, then the first incomplete incoming flow.
    int suspect = SlabSuspect();
    for (std::size_t i = 0; suspect < 0 && i < running->cursors.size(); ++i) {
      if (!running->cursors[i].ended && !running->plan.flows[i].outgoing) {
        suspect = running->plan.flows[i].peer;
        break;
      }
    }
    return Fail({DeadlineExceeded("{}: rank {} timed out waiting for rank {} in {}: "
                                  "it is hung, disconnected, or much slower",
                                  options_.name, rank_, suspect, running->header.ToString()),
                 suspect},
                true);
  }
}

// First rank of this host that has not posted the awaited phase; -1: none.
int Engine::SlabSuspect() const {
  if (slab_queue_.empty() || slab_queue_.front().second->awaited() == 0) return -1;
  const int place = slab_->FirstUnposted(slab_queue_.front().second->awaited());
  const int host = options_.hosts.host_of[std::size_t(rank_)];
  return place < 0 ? -1 : options_.hosts.ranks[std::size_t(host)][std::size_t(place)];
}

// The message names this rank as the cause.
void Engine::Abort(const Status& why) {
  Fail({Status(why.code(),
               fmt::format("{}: rank {} ended the group: {}", options_.name, rank_, why.message())),
        rank_},
       true);
}

// A split uses operations of this group, so none may be open.
Result<std::unique_ptr<Collective>> Engine::Split(int color, int key) {
  if (failure_) return failure_->status;
  if (!works_.empty()) {
    return FailedPrecondition("{}: {} works are open; split a group between operations",
                              options_.name, works_.size());
  }
  return options_.split(*this, color, key);
}

}  // namespace troop
