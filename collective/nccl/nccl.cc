// Implements groups of device tensors over NCCL. A host group compares the operations of all ranks
// and detects dead ranks; NCCL moves the data.
#include "collective/nccl/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collective/nccl/nccl_comm.h"
#include "collective/op_header.h"
#include "core/base/check.h"

namespace troop {
namespace {

// Wait yields this often, then sleeps between polls.
constexpr Duration kSleep = std::chrono::microseconds(50);
constexpr int kSpins = 200;
// Delay before an NCCL error is reported: the host group often reports the cause, more precisely,
// within this time.
constexpr Duration kErrorGrace = Milliseconds(500);

// NCCL's type of a dtype.
Result<int> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return int{kNcclFloat32};
    case DType::kF64:
      return int{kNcclFloat64};
    case DType::kBF16:
      return int{kNcclBfloat16};
    case DType::kU8:
      return int{kNcclUint8};
    case DType::kI32:
      return int{kNcclInt32};
    case DType::kI64:
      return int{kNcclInt64};
    case DType::kU64:
      return int{kNcclUint64};
    case DType::kU32:
      return int{kNcclUint32};
  }
  return InvalidArgument("NCCL does not support type {}", int(dtype));
}

// NCCL's reduction.
int ReductionOf(Reduction reduction) {
  if (reduction == Reduction::kMax) return kNcclMax;
  return reduction == Reduction::kMin ? kNcclMin : kNcclSum;
}

bool IsPoint(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kReceive; }

// An uninitialized host tensor of bytes.
Tensor Bytes(std::int64_t count) { return Tensor(DType::kU8, {count}); }

// Each operation runs twice: as an exchange of headers on the host group, and on the device. It
// ends when both have.
class NcclGroup final : public Collective {
 public:
  NcclGroup(std::unique_ptr<Collective> host, std::unique_ptr<NcclCommunicator> comm,
            const NcclOptions& options)
      : host_(std::move(host)),
        comm_(std::move(comm)),
        options_(options),
        sends_(std::size_t(host_->size())),
        receives_(std::size_t(host_->size())) {}
  ~NcclGroup() override {
    // An open operation still uses the device: the other ranks must not wait for this one.
    const bool open =
        std::ranges::any_of(works_, [](const auto& entry) { return !entry.second->ended(); });
    // After an abort NCCL ends by itself; Release keeps the memory that it may still write.
    if (open) Abort(Cancelled("the rank left during an operation"));
    comm_->BeginClose();  // unless it was aborted
    for (auto& [id, running] : works_) Release(running.get());
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream) override;
  std::optional<Status> Poll(Work work) override {
    static_cast<void>(Progress());
    return Ended(work);
  }
  Status Wait(Work work) override;
  Status EnqueueWait(Work work, Stream stream) override;
  Status Progress() override;
  Result<std::unique_ptr<Collective>> Split(int color, int key) override;
  void Abort(const Status& why) override { Fail(why, rank(), true); }
  Status status() const override { return failure_; }
  int suspect() const override { return suspect_; }
  CollectiveCounters counters() const override { return {}; }

 private:
  // An operation that was started and not yet polled to its end.
  struct Running {
    Op op;
    ConstTensor in;
    Tensor out;
    OpHeader header;
    Tensor mine, theirs;  // headers to compare
    Work host = 0;        // the comparison; 0: it has ended
    CudaEvent ready = nullptr, done = nullptr;
    bool on_device = true;  // NCCL has not completed it
    bool marked = false;    // `done` is recorded after it
    Time deadline{};
    bool ended() const { return host == 0 && !on_device; }
  };

  Status Prepare(Running* running, Stream stream);
  Status StartHost(Running* running);
  Status CheckHeaders(const Running& running) const;
  void StepHost();
  void StepDevice();
  Status LaunchNext();
  Status Launch(const Running& running);
  Status LaunchAllToAll(const Running& running, int type);
  Status Call(int result, const char* what) const;
  void CheckDeadlines();
  void Fail(const Status& why, int suspect, bool tell);
  std::optional<Status> Ended(Work work);
  void Release(Running* running);
  std::uint64_t NumberOf(const Op& op);

  // Order matters: the communicator is destroyed first, then the host group says good-bye.
  const std::unique_ptr<Collective> host_;
  const std::unique_ptr<NcclCommunicator> comm_;
  const NcclOptions options_;
  const SystemClock clock_;
  std::map<Work, std::unique_ptr<Running>> works_;
  std::deque<Running*> queue_;       // not launched yet
  std::vector<Running*> launching_;  // launched; in flight once `done` is recorded
  std::vector<Running*> in_flight_;
  std::vector<std::uint64_t> sends_, receives_;
  std::uint64_t started_ = 0;
  Work next_ = 1;
  Status failure_;
  int suspect_ = -1;
  Time abort_deadline_ = kForever;
  Time error_since_ = kForever;  // of an NCCL error
};

// Point-to-point operations are counted per peer, since other ranks do not take part in them.
std::uint64_t NcclGroup::NumberOf(const Op& op) {
  if (op.kind == OpKind::kSend) return ++sends_[std::size_t(op.peer)];
  if (op.kind == OpKind::kReceive) return ++receives_[std::size_t(op.peer)];
  return ++started_;
}

// Both halves are started here; the device half is launched by StepDevice, in order.
Result<Work> NcclGroup::Start(const Op& op, ConstTensor in, Tensor out, Stream stream) {
  TROOP_RETURN_IF_ERROR(failure_);
  if (stream.handle == nullptr && op.kind != OpKind::kBarrier) {
    return InvalidArgument("{}: this group is for device memory; pass the stream of the tensors",
                           OpKindName(op.kind));
  }
  TROOP_RETURN_IF_ERROR(CheckOp(op, in, out, rank(), size()));
  if (works_.size() >= kWorksMax) {
    return ResourceExhausted("{} works are open, which is the limit; poll some to their end",
                             works_.size());
  }
  auto running =
      std::make_unique<Running>(Running{.op = op, .in = std::move(in), .out = std::move(out)});
  running->header = HeaderOf(op, running->in, running->out, NumberOf(op));
  // A barrier, and an operation without elements, need only the exchange of headers.
  running->on_device = op.kind != OpKind::kBarrier && running->header.elements > 0;
  running->deadline =
      clock_.Now() + (op.timeout > Duration::zero() ? op.timeout : options_.timeout);
  const Status prepared = Prepare(running.get(), stream);
  if (!prepared.ok()) {
    Release(running.get());
    // The host group may already have the failure of another rank: report that instead.
    const Status alive = host_->status();
    if (alive.ok()) {
      Fail(prepared, rank(), true);
    } else {
      Fail(alive, host_->suspect(), false);
    }
    return failure_;
  }
  if (running->on_device) queue_.push_back(running.get());
  works_.emplace(next_, std::move(running));
  // A point-to-point operation may be followed by its counterpart, with which it must be launched
  // as one group, or two ranks that both send first would block each other.
  if (!IsPoint(op.kind)) static_cast<void>(Progress());
  return next_++;
}

// From here on the ranks count this operation, so an error ends the group.
Status NcclGroup::Prepare(Running* running, Stream stream) {
  TROOP_RETURN_IF_ERROR(StartHost(running));
  if (!running->on_device) return Status::Ok();
  TROOP_RETURN_IF_ERROR(comm_->Use());
  const NcclLibrary& cuda = comm_->library();
  TROOP_RETURN_IF_ERROR(
      CudaStatus(cuda.cuEventCreate(&running->ready, kCudaEventWithoutTiming), "make an event"));
  TROOP_RETURN_IF_ERROR(
      CudaStatus(cuda.cuEventCreate(&running->done, kCudaEventWithoutTiming), "make an event"));
  return CudaStatus(cuda.cuEventRecord(running->ready, stream.handle), "record an event");
}

// Starts the exchange of headers: an all-gather, or a message between the two ranks.
Status NcclGroup::StartHost(Running* running) {
  const Op& op = running->op;
  const OpHeaderBytes bytes = EncodeOpHeader(running->header);
  running->mine = Bytes(kOpHeaderBytes);
  std::memcpy(running->mine.bytes().data(), bytes.data(), bytes.size());
  // A second more than our own deadline, whose message is more precise.
  const Duration timeout = running->deadline - clock_.Now() + Seconds(1);
  Op compare{.kind = OpKind::kAllGather, .peer = op.peer, .timeout = timeout};
  if (IsPoint(op.kind)) compare.kind = op.kind;
  running->theirs = Bytes(std::int64_t(kOpHeaderBytes) * (IsPoint(op.kind) ? 1 : size()));
  const bool sends = op.kind != OpKind::kReceive, receives = op.kind != OpKind::kSend;
  TROOP_ASSIGN_OR_RETURN(running->host,
                         host_->Start(compare, sends ? ConstTensor(running->mine) : ConstTensor(),
                                      receives ? running->theirs : Tensor()));
  return Status::Ok();
}

// Compares the received headers with ours.
Status NcclGroup::CheckHeaders(const Running& running) const {
  // The receiver compares; the sender of a message gets no header in return.
  if (running.op.kind == OpKind::kSend) return Status::Ok();
  const auto all = running.theirs.bytes();
  for (std::size_t i = 0; i < all.size() / kOpHeaderBytes; ++i) {
    const auto bytes = all.subspan(i * kOpHeaderBytes).first<kOpHeaderBytes>();
    const Result<OpHeader> theirs = DecodeOpHeader(bytes);
    if (theirs.ok() && *theirs == running.header) continue;
    const int peer = running.op.kind == OpKind::kReceive ? running.op.peer : int(i);
    return InvalidArgument(
        "rank {} calls {} while rank {} calls {}; all ranks must call the same operations in the "
        "same order",
        peer, theirs.ok() ? theirs->ToString() : theirs.status().message(), rank(),
        running.header.ToString());
  }
  return Status::Ok();
}

// The host group first: it reports failures with their cause.
Status NcclGroup::Progress() {
  if (failure_.ok()) StepHost();
  if (failure_.ok()) StepDevice();
  if (failure_.ok()) CheckDeadlines();
  return failure_;
}

// Polls, because NCCL has no blocking wait with a timeout.
Status NcclGroup::Wait(Work work) {
  for (int spins = 0;; ++spins) {
    static_cast<void>(Progress());
    if (std::optional<Status> status = Ended(work)) return *status;
    if (spins < kSpins) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

// `done` can be waited for only once it is recorded, that is after NCCL has enqueued the operation.
Status NcclGroup::EnqueueWait(Work work, Stream stream) {
  const auto found = works_.find(work);
  TROOP_CHECK(found != works_.end(), "no work {} is open", work);
  const Running& running = *found->second;
  while (running.on_device && !running.marked) {
    TROOP_RETURN_IF_ERROR(Progress());
    if (!running.marked) std::this_thread::yield();
  }
  TROOP_RETURN_IF_ERROR(failure_);
  if (!running.on_device) return Status::Ok();
  TROOP_RETURN_IF_ERROR(comm_->Use());
  return CudaStatus(comm_->library().cuStreamWaitEvent(stream.handle, running.done, 0),
                    "wait for an event");
}

// Advances the header exchanges.
void NcclGroup::StepHost() {
  const Status alive = host_->Progress();
  if (!alive.ok()) return Fail(alive, host_->suspect(), false);
  for (auto& [id, running] : works_) {
    if (running->host == 0) continue;
    const std::optional<Status> ended = host_->Poll(running->host);
    if (!ended) continue;
    running->host = 0;
    if (!ended->ok()) return Fail(*ended, host_->suspect(), false);
    const Status same = CheckHeaders(*running);
    if (!same.ok()) return Fail(same, rank(), true);
  }
}

// Advances the device side.
void NcclGroup::StepDevice() {
  if (queue_.empty() && launching_.empty() && in_flight_.empty()) return;
  if (const Status used = comm_->Use(); !used.ok()) return Fail(used, rank(), true);
  // 1. Check for an error of NCCL.
  const NcclResult state = comm_->status();
  if (state != kNcclSuccess && state != kNcclInProgress) {
    const Time now = clock_.Now();
    // The first occurrence counts, because later calls report the error again.
    error_since_ = std::min(error_since_, now);
    if (now >= error_since_ + kErrorGrace) Fail(comm_->Describe(state, "NCCL"), -1, true);
    return;
  }
  const NcclLibrary& cuda = comm_->library();
  // 2. Mark the end of launched operations and launch the next ones.
  // Earlier launches have been enqueued, so an event recorded now marks their end.
  if (state == kNcclSuccess) {
    for (Running* running : launching_) {
      const int recorded = cuda.cuEventRecord(running->done, comm_->stream());
      if (recorded != kCudaSuccess) return Fail(CudaStatus(recorded, "mark an end"), rank(), true);
      running->marked = true;
      in_flight_.push_back(running);
    }
    launching_.clear();
    if (const Status launched = LaunchNext(); !launched.ok()) return Fail(launched, rank(), true);
  }
  // 3. Collect completed operations.
  Status failed;
  std::erase_if(in_flight_, [&](Running* running) {
    const int done = cuda.cuEventQuery(running->done);
    if (done != kCudaSuccess && done != kCudaNotReady) failed = CudaStatus(done, "an operation");
    running->on_device = done != kCudaSuccess;
    return done == kCudaSuccess;
  });
  if (!failed.ok()) Fail(failed, rank(), true);
}

// Launches the next operation; consecutive sends and receives are launched as one group.
Status NcclGroup::LaunchNext() {
  if (queue_.empty()) return Status::Ok();
  // Collectives are launched one by one, in the order that all ranks share.
  const bool points = IsPoint(queue_.front()->op.kind);
  do {
    launching_.push_back(queue_.front());
    queue_.pop_front();
  } while (points && !queue_.empty() && IsPoint(queue_.front()->op.kind));
  const NcclLibrary& library = comm_->library();
  for (Running* running : launching_) {
    TROOP_RETURN_IF_ERROR(CudaStatus(library.cuStreamWaitEvent(comm_->stream(), running->ready, 0),
                                     "wait for the stream"));
  }
  // A group launch must be ended even if one call fails.
  TROOP_RETURN_IF_ERROR(Call(library.ncclGroupStart(), "begin a launch"));
  Status launched;
  // After an error the remaining operations are left out, but the group is still ended.
  for (const Running* running : launching_) {
    if (launched.ok()) launched = Launch(*running);
  }
  const Status ended = Call(library.ncclGroupEnd(), "launch");
  return launched.ok() ? ended : launched;
}

Status NcclGroup::Call(int result, const char* what) const { return comm_->Describe(result, what); }

// Calls the NCCL function of an operation within a launch.
Status NcclGroup::Launch(const Running& r) {
  const NcclLibrary& nccl = comm_->library();
  const NcclComm comm = comm_->comm();
  const CudaStream stream = comm_->stream();
  // These operations give an output, but possibly no input, to this rank.
  const bool by_out = r.op.kind == OpKind::kReceive || r.op.kind == OpKind::kBroadcast;
  TROOP_ASSIGN_OR_RETURN(const int type, TypeOf(by_out ? r.out.dtype() : r.in.dtype()));
  const void* in = r.in.bytes().data();
  void* out = r.out.bytes().data();
  const auto ins = std::size_t(r.in.elements()), outs = std::size_t(r.out.elements());
  const int reduction = ReductionOf(r.op.reduction);
  switch (r.op.kind) {
    case OpKind::kAllReduce:
      return Call(nccl.ncclAllReduce(in, out, ins, type, reduction, comm, stream), "all-reduce");
    case OpKind::kReduceScatter:
      return Call(nccl.ncclReduceScatter(in, out, outs, type, reduction, comm, stream),
                  "reduce-scatter");
    case OpKind::kAllGather:
      return Call(nccl.ncclAllGather(in, out, ins, type, comm, stream), "all-gather");
    case OpKind::kBroadcast: {
      // NCCL reads the root's input only; other ranks pass a valid pointer.
      const void* from = rank() == r.op.peer ? in : out;
      return Call(nccl.ncclBroadcast(from, out, outs, type, r.op.peer, comm, stream), "broadcast");
    }
    case OpKind::kSend:
      return Call(nccl.ncclSend(in, ins, type, r.op.peer, comm, stream), "send");
    case OpKind::kReceive:
      return Call(nccl.ncclRecv(out, outs, type, r.op.peer, comm, stream), "receive");
    case OpKind::kAllToAll:
      return LaunchAllToAll(r, type);
    case OpKind::kBarrier:
      break;
  }
  return Status::Ok();
}

// All sends and receives run in one launch; NCCL copies this rank's own piece, too.
Status NcclGroup::LaunchAllToAll(const Running& r, int type) {
  const NcclLibrary& nccl = comm_->library();
  const auto bytes = r.in.bytes().size() / std::size_t(size());
  const auto count = std::size_t(r.in.elements()) / std::size_t(size());
  for (int peer = 0; peer < size(); ++peer) {
    const std::byte* in = r.in.bytes().data() + std::size_t(peer) * bytes;
    std::byte* out = r.out.bytes().data() + std::size_t(peer) * bytes;
    TROOP_RETURN_IF_ERROR(
        Call(nccl.ncclSend(in, count, type, peer, comm_->comm(), comm_->stream()), "all-to-all"));
    TROOP_RETURN_IF_ERROR(
        Call(nccl.ncclRecv(out, count, type, peer, comm_->comm(), comm_->stream()), "all-to-all"));
  }
  return Status::Ok();
}

// The host half shows whether a rank is missing or NCCL is slow.
void NcclGroup::CheckDeadlines() {
  const Time now = clock_.Now();
  for (const auto& [id, running] : works_) {
    if (running->ended() || now < running->deadline) continue;
    return Fail(
        DeadlineExceeded("{} timed out: {}", running->header.ToString(),
                         running->host == 0 ? "all ranks have called it, NCCL does not respond"
                                            : "a rank has not called it"),
        host_->suspect(), true);
  }
}

// Keeps the first failure and begins to abort the communicator. `tell`: the others have no report
// of it yet.
void NcclGroup::Fail(const Status& why, int suspect, bool tell) {
  // Later failures are consequences of the first one.
  if (!failure_.ok()) return;
  failure_ = why;
  suspect_ = suspect;
  if (tell) host_->Abort(why);
  queue_.clear();
  abort_deadline_ = clock_.Now() + options_.abort_within;
  comm_->BeginAbort();
}

// A failed operation ends only once NCCL no longer writes to its bytes, or at the abort deadline.
std::optional<Status> NcclGroup::Ended(Work work) {
  const auto found = works_.find(work);
  TROOP_CHECK(found != works_.end(), "no work {} is open", work);
  Running* running = found->second.get();
  std::optional<Status> status;
  if (running->ended()) {
    status = Status::Ok();
  } else if (!failure_.ok() && (comm_->ended() || clock_.Now() >= abort_deadline_)) {
    status = failure_;
  }
  if (!status) return status;
  Release(running);
  works_.erase(found);
  return status;
}

// Releases an operation; memory that NCCL may still access is kept until the communicator's end.
void NcclGroup::Release(Running* running) {
  if (running->on_device) {
    comm_->KeepUntilEnd(std::move(running->in), std::move(running->out));
  }
  if (running->ready != nullptr) comm_->Destroy(running->ready);
  if (running->done != nullptr) comm_->Destroy(running->done);
  running->ready = running->done = nullptr;
}

// Splits the host group, then connects a new communicator.
Result<std::unique_ptr<Collective>> NcclGroup::Split(int color, int key) {
  TROOP_RETURN_IF_ERROR(failure_);
  auto host = host_->Split(color, key);
  if (!host.ok()) {
    Fail(host.status(), host_->suspect(), false);
    return host.status();
  }
  if (*host == nullptr) return std::unique_ptr<Collective>();
  return MakeNcclGroup(std::move(*host), options_);
}

// A rank's state during the rendezvous, exchanged by an all-gather.
struct Word {
  std::int32_t code = 0, version = 0;
  char text[240] = {};
};

// Truncates the message to the fixed field.
Word WordOf(const Status& status, int version) {
  Word word{.code = std::int32_t(status.code()), .version = version};
  // The last byte stays 0, as the end of the text.
  std::memcpy(word.text, status.message().data(),
              std::min(status.message().size(), sizeof word.text - 1));
  return word;
}

// Exchanges the ranks' states. Returns the first error, so that all ranks return the same one.
Status Agree(Collective& host, const Status& mine, int version, Duration timeout) {
  // Each rank reaches this exchange, even after an error: a missing one would be a timeout.
  const Word word = WordOf(mine, version);
  const Tensor in = Bytes(sizeof word), out = Bytes(std::int64_t(sizeof word) * host.size());
  std::memcpy(in.bytes().data(), &word, sizeof word);
  TROOP_RETURN_IF_ERROR(RunOp(host, {.kind = OpKind::kAllGather, .timeout = timeout}, in, out));
  for (int rank = 0; rank < host.size(); ++rank) {
    Word theirs;
    std::memcpy(&theirs, out.bytes().data() + std::size_t(rank) * sizeof theirs, sizeof theirs);
    const std::string text(theirs.text, strnlen(theirs.text, sizeof theirs.text));
    // A code from the network is checked before the cast.
    if (theirs.code > 0 && theirs.code <= int(Code::kInternal)) {
      return Status(Code(theirs.code), fmt::format("rank {}: {}", rank, text));
    }
    Word first;
    std::memcpy(&first, out.bytes().data(), sizeof first);
    if (theirs.version != first.version) {
      return FailedPrecondition(
          "rank {} has NCCL {}, rank 0 has {}; install the same version everywhere", rank,
          NcclVersionText(theirs.version), NcclVersionText(first.version));
    }
  }
  return Status::Ok();
}

// Connects all ranks. Polls the host group meanwhile, which detects dead ranks.
Status Connect(Collective& host, NcclCommunicator& comm, const NcclUniqueId& id, Time deadline) {
  TROOP_RETURN_IF_ERROR(comm.Init(host.size(), id, host.rank()));
  const SystemClock clock;
  for (NcclResult state = comm.status(); state != kNcclSuccess; state = comm.status()) {
    TROOP_RETURN_IF_ERROR(comm.Describe(state, "connect"));
    TROOP_RETURN_IF_ERROR(host.Progress());
    if (clock.Now() >= deadline) {
      return DeadlineExceeded("NCCL timed out connecting {} ranks", host.size());
    }
    std::this_thread::sleep_for(Milliseconds(1));
  }
  return Status::Ok();
}

}  // namespace

// Steps: 1. load NCCL and open the device; 2. compare the results of all ranks; 3. distribute the
// unique id; 4. connect; 5. compare again.
Result<std::unique_ptr<Collective>> MakeNcclGroup(std::unique_ptr<Collective> host,
                                                  const NcclOptions& options) {
  const Time deadline = SystemClock().Now() + options.connect_timeout;
  auto library = NcclLibrary::Load(options.library, options.driver);
  std::unique_ptr<NcclCommunicator> comm;
  Status mine = library.status();
  NcclUniqueId id{};
  if (mine.ok()) {
    auto made = NcclCommunicator::Make(*library, options.device);
    mine = made.status();
    if (made.ok()) comm = std::move(*made);
  }
  // Rank 0 creates the unique id.
  if (mine.ok()) comm->set_abort_within(options.abort_within);
  if (mine.ok() && host->rank() == 0) {
    mine = comm->Describe(comm->library().ncclGetUniqueId(&id), "make a unique id");
  }
  const int version = library.ok() ? (*library)->version : 0;
  TROOP_RETURN_IF_ERROR(Agree(*host, mine, version, options.connect_timeout));
  const Tensor bytes = Bytes(sizeof id);
  std::memcpy(bytes.bytes().data(), &id, sizeof id);
  TROOP_RETURN_IF_ERROR(
      RunOp(*host, {.kind = OpKind::kBroadcast, .timeout = options.connect_timeout}, bytes, bytes));
  std::memcpy(&id, bytes.bytes().data(), sizeof id);
  // A rank that cannot connect blocks the others, so it aborts the host group.
  const Status connected = Connect(*host, *comm, id, deadline);
  if (!connected.ok()) {
    host->Abort(connected);
    comm->BeginAbort();
    return host->status();
  }
  if (Status all = Agree(*host, Status::Ok(), version, options.connect_timeout); !all.ok()) {
    comm->BeginAbort();
    return all;
  }
  return std::unique_ptr<Collective>(
      std::make_unique<NcclGroup>(std::move(host), std::move(comm), options));
}

}  // namespace troop
