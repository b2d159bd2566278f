#include "tests/collective/nccl_sim/nccl_sim.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collective/group.h"
#include "collective/nccl/nccl_library.h"

namespace {

using troop::Collective;
using troop::ConstTensor;
using troop::DType;
using troop::GroupEntry;
using troop::GroupOptions;
using troop::Member;
using troop::NcclUniqueId;
using troop::Op;
using troop::OpKind;
using troop::Tensor;

std::atomic<int> connect_delay_ms = 0, connect_hangs = 0, operation_delay_ms = 0, launch_polls = 1,
                 error = 0, abort_delay_ms = 0, version = 22105, one_rank_a_device = 0, spoil = 0,
                 alive = 0;

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// ---- Streams and events ----

struct Mark {  // one recording of an event
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  void Set() {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  bool Get() {
    const std::lock_guard lock(mutex);
    return done;
  }
};
struct Event {
  std::shared_ptr<Mark> mark;
};

class Stream {
 public:
  Stream() : thread_([this] { Run(); }) {}
  ~Stream() {
    Push({});
    thread_.join();
  }
  void Push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void Run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const auto work = std::move(work_.front());
      work_.erase(work_.begin());
      lock.unlock();
      if (!work) return;
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> work_;
  std::thread thread_;
};

// ---- How ranks find each other: rank 0 listens under the name in its id, and sends all names to
// all
// ----

struct Hello {
  int rank = 0, ranks = 0;
  char address[64] = {};
};
constexpr int kFindWithinS = 20;

sockaddr_un NameOf(const NcclUniqueId& id) {
  sockaddr_un name{.sun_family = AF_UNIX};
  std::memcpy(name.sun_path + 1, id.bytes, 32);  // no file: it begins with 0
  return name;
}
void SetPatience(int fd) {
  const timeval patience{.tv_sec = kFindWithinS};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}
bool ReadAll(int fd, void* to, std::size_t bytes) {
  return recv(fd, to, bytes, MSG_WAITALL) == ssize_t(bytes);
}

void RunRoot(int listener) {
  std::vector<std::pair<int, Hello>> come;
  SetPatience(listener);
  do {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    Hello hello;
    if (fd < 0) break;
    SetPatience(fd);
    if (ReadAll(fd, &hello, sizeof hello)) come.push_back({fd, hello});
  } while (come.empty() || int(come.size()) < come[0].second.ranks);
  std::vector<Hello> all(come.size());
  for (const auto& [fd, hello] : come) {
    if (hello.rank >= 0 && hello.rank < int(all.size())) all[std::size_t(hello.rank)] = hello;
  }
  for (const auto& [fd, hello] : come) {
    if (int(all.size()) == hello.ranks) {
      send(fd, all.data(), all.size() * sizeof(Hello), MSG_NOSIGNAL);
    }
    close(fd);
  }
  close(listener);
}

// Returns false if no answer arrives in time or gone() becomes true.
bool AwaitAnswer(int fd, const std::function<bool()>& gone) {
  constexpr int kLookMs = 10;
  for (int ms = 0; ms < 1000 * kFindWithinS && !gone(); ms += kLookMs) {
    pollfd answer{.fd = fd, .events = POLLIN};
    if (poll(&answer, 1, kLookMs) > 0) return true;
  }
  return false;
}

std::optional<std::vector<Hello>> AskRoot(const NcclUniqueId& id, const Hello& mine,
                                          const std::function<bool()>& gone) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un name = NameOf(id);
  std::vector<Hello> all(std::size_t(mine.ranks));
  SetPatience(fd);
  const bool good =
      connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(sa_family_t) + 33) == 0 &&
      send(fd, &mine, sizeof mine, MSG_NOSIGNAL) == ssize_t(sizeof mine) && AwaitAnswer(fd, gone) &&
      ReadAll(fd, all.data(), all.size() * sizeof(Hello));
  close(fd);
  if (!good) return std::nullopt;
  return all;
}

// ---- Communicators ----

struct Comm {
  int rank = 0, ranks = 0;
  NcclUniqueId id{};
  std::mutex mutex;
  std::condition_variable changed;
  int state = troop::kNcclInProgress;
  int polls = 0;  // number of polls during which a launch is in progress
  bool aborted = false;
  int busy = 0;  // launches that have not ended
  bool connected = false;
  std::unique_ptr<Collective> group;
  std::thread connecting;

  void SetState(int value) {
    const std::lock_guard lock(mutex);
    state = value;
  }
  bool IsAborted() {
    const std::lock_guard lock(mutex);
    return aborted;
  }
  // Blocks like a kernel whose peer does not respond.
  void HangUntilAbort() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return aborted; });
  }
  void Connect() {
    Sleep(connect_delay_ms);
    if (connect_hangs != 0) return HangUntilAbort();
    GroupOptions options{.group = "nccl_sim", .rank = rank, .size = ranks};
    auto entry = GroupEntry::Listen(options);
    if (!entry.ok()) return SetState(troop::kNcclSystemError);
    Hello mine{.rank = rank, .ranks = ranks};
    std::strncpy(mine.address, entry->self().address.c_str(), sizeof mine.address - 1);
    const auto all = AskRoot(id, mine, [this] { return IsAborted(); });
    if (!all) return SetState(troop::kNcclRemoteError);
    if (one_rank_a_device != 0 && ranks > 1) return SetState(troop::kNcclInvalidUsage);
    std::vector<Member> members;
    for (int r = 0; r < ranks; ++r) {
      members.push_back({r, entry->self().host, (*all)[std::size_t(r)].address});
    }
    auto joined = std::move(*entry).Join(members);
    if (!joined.ok()) return SetState(troop::kNcclRemoteError);
    group = std::move(*joined);
    const std::lock_guard lock(mutex);
    connected = true;
    state = troop::kNcclSuccess;
  }
};

struct Call {
  Comm* comm;
  Stream* stream;
  Op op;
  ConstTensor in;
  Tensor out;
};
thread_local int depth = 0;
thread_local std::vector<Call> calls;

DType TypeOf(int type) {
  switch (type) {
    case troop::kNcclUint8:
      return DType::kU8;
    case troop::kNcclInt32:
      return DType::kI32;
    case troop::kNcclUint32:
      return DType::kU32;
    case troop::kNcclInt64:
      return DType::kI64;
    case troop::kNcclUint64:
      return DType::kU64;
    case troop::kNcclFloat64:
      return DType::kF64;
    case troop::kNcclBfloat16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}
troop::Reduction ReductionOf(int reduction) {
  if (reduction == troop::kNcclMax) return troop::Reduction::kMax;
  return reduction == troop::kNcclMin ? troop::Reduction::kMin : troop::Reduction::kSum;
}

// Copies the messages that a rank sends to itself.
void CopyOwn(std::vector<Call>* mine) {
  for (Call& send : *mine) {
    if (send.op.kind != OpKind::kSend || send.op.peer != send.comm->rank) continue;
    for (Call& receive : *mine) {
      if (receive.op.kind != OpKind::kReceive || receive.op.peer != send.comm->rank) continue;
      std::memcpy(receive.out.bytes().data(), send.in.bytes().data(), send.in.bytes().size());
    }
  }
  std::erase_if(*mine, [](const Call& call) {
    const bool point = call.op.kind == OpKind::kSend || call.op.kind == OpKind::kReceive;
    return point && call.op.peer == call.comm->rank;
  });
}

void RunLaunch(Comm* comm, std::vector<Call> mine) {
  const int delay_ms = operation_delay_ms;
  for (int ms = 0; ms < delay_ms && !comm->IsAborted(); ++ms) Sleep(1);
  if (comm->IsAborted()) mine.clear();
  CopyOwn(&mine);
  std::vector<troop::Work> works;
  troop::Code code = troop::Code::kOk;
  for (Call& call : mine) {
    call.op.timeout = troop::Seconds(3600);
    const auto work = comm->group->Start(call.op, call.in, call.out);
    if (!work.ok()) code = work.status().code();
    if (work.ok()) works.push_back(*work);
  }
  while (!works.empty() && code == troop::Code::kOk && !comm->IsAborted()) {
    const auto ended = comm->group->Poll(works.front());
    if (!ended) {
      std::this_thread::yield();
      continue;
    }
    works.erase(works.begin());
    code = ended->code();
  }
  for (const Call& call : mine) {
    if (spoil != 0 && code == troop::Code::kOk && call.out.elements() > 0) {
      call.out.bytes().back() ^= std::byte{1};
    }
  }
  // The library itself does not compare what ranks call: they hang.
  if (code == troop::Code::kUnavailable) comm->SetState(troop::kNcclRemoteError);
  if (code != troop::Code::kOk) comm->HangUntilAbort();
  const std::lock_guard lock(comm->mutex);
  --comm->busy;
  comm->changed.notify_all();
}

int EndLaunch() {
  if (--depth > 0) return troop::kNcclSuccess;
  std::vector<Call> mine = std::exchange(calls, {});
  if (mine.empty()) return troop::kNcclSuccess;
  Comm* comm = mine[0].comm;
  Stream* stream = mine[0].stream;
  const int bad = error.exchange(0);
  const std::lock_guard lock(comm->mutex);
  if (comm->state != troop::kNcclSuccess) return troop::kNcclInvalidUsage;
  comm->polls = launch_polls;
  comm->state = bad != 0 ? bad : int{troop::kNcclInProgress};
  ++comm->busy;
  stream->Push([comm, bad, mine = std::move(mine)]() mutable {
    if (bad != 0) {
      comm->HangUntilAbort();
      const std::lock_guard done(comm->mutex);
      --comm->busy;
      return comm->changed.notify_all();
    }
    RunLaunch(comm, std::move(mine));
  });
  return troop::kNcclInProgress;
}

int AddCall(void* comm, void* stream, OpKind kind, int peer, int reduction, int type,
            const void* in, std::size_t ins, void* out, std::size_t outs) {
  const DType dtype = TypeOf(type);
  const auto bytes = [dtype](std::size_t count) { return count * DTypeSize(dtype); };
  Call call{static_cast<Comm*>(comm), static_cast<Stream*>(stream)};
  call.op = {.kind = kind, .reduction = ReductionOf(reduction), .peer = peer};
  if (in != nullptr) {
    call.in = ConstTensor::Borrow({static_cast<const std::byte*>(in), bytes(ins)},
                                  {dtype, {std::int64_t(ins)}});
  }
  if (out != nullptr) {
    auto* to = static_cast<std::byte*>(out);
    call.out = Tensor::View(std::shared_ptr<std::byte>(to, [](std::byte*) {}), {to, bytes(outs)},
                            {dtype, {std::int64_t(outs)}});
  }
  ++depth;
  calls.push_back(std::move(call));
  return EndLaunch();
}

// For programs that have no way to call NcclSimOrder: "spoil=1 abort_delay_ms=100".
[[maybe_unused]] const bool ordered = [] {
  const char* orders = std::getenv("NCCL_SIM_ORDERS");
  std::istringstream words(orders == nullptr ? "" : orders);
  for (std::string word; words >> word;) {
    const std::size_t sign = word.find('=');
    if (sign == std::string::npos) continue;
    NcclSimOrder(word.substr(0, sign).c_str(), std::atoi(word.c_str() + sign + 1));
  }
  return true;
}();

// CUDA's own: held while an abort frees memory, which waits for all streams.
std::mutex driver;

void Free(Comm* comm) {
  if (comm->connecting.joinable()) comm->connecting.join();
  std::unique_lock lock(comm->mutex);
  comm->changed.wait(lock, [&] { return comm->busy == 0; });
  lock.unlock();
  delete comm;
  --alive;
}

}  // namespace

extern "C" {

void NcclSimOrder(const char* what, int value) {
  const std::pair<std::string_view, std::atomic<int>*> orders[] = {
      {"connect_delay_ms", &connect_delay_ms},
      {"connect_hangs", &connect_hangs},
      {"operation_delay_ms", &operation_delay_ms},
      {"launch_polls", &launch_polls},
      {"error", &error},
      {"abort_delay_ms", &abort_delay_ms},
      {"version", &version},
      {"one_rank_a_device", &one_rank_a_device},
      {"spoil", &spoil}};
  for (const auto& [name, order] : orders) {
    if (name == what) *order = value;
  }
}

int NcclSimAlive() { return alive; }
void NcclSimCall(void* stream, void (*call)(void*), void* argument) {
  static_cast<Stream*>(stream)->Push([call, argument] { call(argument); });
}

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  static int one;
  *context = &one;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream();
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  static_cast<Stream*>(stream)->Push([mark = static_cast<Event*>(event)->mark] {
    if (mark) mark->Wait();
  });
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  *event = new Event();
  return 0;
}
int cuEventDestroy_v2(void* event) {
  const std::lock_guard lock(driver);
  delete static_cast<Event*>(event);
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  const auto mark = std::make_shared<Mark>();
  static_cast<Event*>(event)->mark = mark;
  if (stream == reinterpret_cast<void*>(1)) {  // the default stream, which has nothing
    mark->Set();
    return 0;
  }
  static_cast<Stream*>(stream)->Push([mark] { mark->Set(); });
  return 0;
}
int cuLaunchHostFunc(void* stream, void (*call)(void*), void* argument) {
  NcclSimCall(stream, call, argument);
  return 0;
}
int cuEventQuery(void* event) {
  const auto& mark = static_cast<Event*>(event)->mark;
  return mark == nullptr || mark->Get() ? 0 : 600;
}

int ncclGetVersion(int* out) {
  *out = version;
  return 0;
}
int ncclGetUniqueId(NcclUniqueId* id) {
  std::random_device random;
  *id = {};
  std::snprintf(id->bytes, sizeof id->bytes, "nccl_sim_%08x%08x%07x", unsigned(random()),
                unsigned(random()), unsigned(random()) & 0xfffffffu);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un name = NameOf(*id);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&name), sizeof(sa_family_t) + 33) != 0 ||
      listen(listener, 64) != 0) {
    close(listener);
    return troop::kNcclSystemError;
  }
  std::thread(RunRoot, listener).detach();
  return 0;
}
int ncclCommInitRankConfig(void** out, int ranks, NcclUniqueId id, int rank,
                           troop::NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return troop::kNcclInvalidArgument;
  auto* comm = new Comm{.rank = rank, .ranks = ranks, .id = id};
  ++alive;
  comm->connecting = std::thread([comm] { comm->Connect(); });
  *out = comm;
  return troop::kNcclInProgress;
}
int ncclCommGetAsyncError(void* comm, int* result) {
  auto* c = static_cast<Comm*>(comm);
  const std::lock_guard lock(c->mutex);
  if (c->state == troop::kNcclInProgress && c->connected && c->polls-- <= 0) {
    c->state = troop::kNcclSuccess;
  }
  *result = c->state;
  return 0;
}
int ncclCommFinalize(void*) { return troop::kNcclSuccess; }
int ncclCommDestroy(void* comm) {
  Free(static_cast<Comm*>(comm));
  return 0;
}
int ncclCommAbort(void* comm) {
  auto* c = static_cast<Comm*>(comm);
  Sleep(abort_delay_ms);
  {
    const std::lock_guard lock(c->mutex);
    c->aborted = true;
    c->changed.notify_all();
  }
  const std::lock_guard lock(driver);
  Free(c);
  return 0;
}
const char* ncclGetErrorString(int result) {
  if (result == troop::kNcclInvalidUsage) return "invalid usage";
  return result == troop::kNcclRemoteError ? "remote process exited or there was a network error"
                                           : "simulated error";
}
const char* ncclGetLastError(void*) {
  return one_rank_a_device != 0 ? "Duplicate GPU detected : rank 0 and rank 1 both on one device"
                                : "";
}
int ncclGroupStart() {
  ++depth;
  return 0;
}
int ncclGroupEnd() { return EndLaunch(); }

int ncclAllReduce(const void* in, void* out, std::size_t count, int type, int reduction, void* comm,
                  void* stream) {
  return AddCall(comm, stream, OpKind::kAllReduce, 0, reduction, type, in, count, out, count);
}
int ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int reduction,
                      void* comm, void* stream) {
  const auto ranks = std::size_t(static_cast<Comm*>(comm)->ranks);
  return AddCall(comm, stream, OpKind::kReduceScatter, 0, reduction, type, in, count * ranks, out,
                 count);
}
int ncclAllGather(const void* in, void* out, std::size_t count, int type, void* comm,
                  void* stream) {
  const auto ranks = std::size_t(static_cast<Comm*>(comm)->ranks);
  return AddCall(comm, stream, OpKind::kAllGather, 0, 0, type, in, count, out, count * ranks);
}
int ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, void* comm,
                  void* stream) {
  return AddCall(comm, stream, OpKind::kBroadcast, root, 0, type, in, count, out, count);
}
int ncclSend(const void* in, std::size_t count, int type, int peer, void* comm, void* stream) {
  return AddCall(comm, stream, OpKind::kSend, peer, 0, type, in, count, nullptr, 0);
}
int ncclRecv(void* out, std::size_t count, int type, int peer, void* comm, void* stream) {
  return AddCall(comm, stream, OpKind::kReceive, peer, 0, type, nullptr, 0, out, count);
}

}  // extern "C"
