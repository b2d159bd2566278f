#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <thread>
#include <utility>

#include "collective/nccl/nccl_comm.h"
#include "tests/cuda/gpu_nccl.h"

namespace troop::cuda {
namespace {

constexpr std::size_t kGuardBytes = 256;  // after each output, filled with 0xff

double SecondsSince(Time start) { return ToSeconds(SystemClock().Now() - start); }
std::string Text(double seconds) { return std::to_string(seconds) + " s"; }

// --- Operations, against loops on the host.

// Integers up to 10: sums over a few ranks are exact in every type.
double Value(int rank, std::int64_t i) { return double((i * 7 + rank * 3 + i / 5) % 11); }

template <class T>
void PutAs(double value, std::byte* to) {
  const T x = T(value);
  std::memcpy(to, &x, sizeof x);
}

void Put(DType dtype, double value, std::byte* to) {
  switch (dtype) {
    case DType::kF32:
      return PutAs<float>(value, to);
    case DType::kF64:
      return PutAs<double>(value, to);
    case DType::kU8:
      return PutAs<std::uint8_t>(value, to);
    case DType::kI32:
      return PutAs<std::int32_t>(value, to);
    case DType::kU32:
      return PutAs<std::uint32_t>(value, to);
    case DType::kI64:
      return PutAs<std::int64_t>(value, to);
    case DType::kU64:
      return PutAs<std::uint64_t>(value, to);
    case DType::kBF16: {
      const float x = float(value);  // bf16 is its upper half, since it is exact
      std::memcpy(to, reinterpret_cast<const std::byte*>(&x) + 2, 2);
    }
  }
}

struct Called {
  Op op;
  DType dtype = DType::kF32;
  std::int64_t n = 0;  // as in OpKind
  std::string ToString() const {
    return std::string(OpKindName(op.kind)) + " of " + std::string(DTypeName(dtype)) + "[" +
           std::to_string(n) + "]";
  }
};

std::int64_t Ins(const Called& c, int ranks) {
  const bool all = c.op.kind == OpKind::kReduceScatter || c.op.kind == OpKind::kAllToAll;
  return all ? c.n * ranks : c.n;
}
std::int64_t Outs(const Called& c, int ranks) {
  const bool all = c.op.kind == OpKind::kAllGather || c.op.kind == OpKind::kAllToAll;
  return all ? c.n * ranks : c.n;
}

double Reduced(const Called& c, int ranks, std::int64_t i) {
  double sum = 0, most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += Value(rank, i);
    most = std::max(most, Value(rank, i));
  }
  return c.op.reduction == Reduction::kMax ? most : sum;
}

double Expected(const Called& c, int rank, int ranks, std::int64_t i) {
  switch (c.op.kind) {
    case OpKind::kAllReduce:
      return Reduced(c, ranks, i);
    case OpKind::kReduceScatter:
      return Reduced(c, ranks, rank * c.n + i);
    case OpKind::kAllGather:
      return Value(int(i / c.n), i % c.n);
    case OpKind::kAllToAll:
      return Value(int(i / c.n), rank * c.n + i % c.n);
    default:
      return Value(c.op.peer, i);
  }
}

ConstTensor In(const DeviceArray<std::byte>& array, const Called& c, std::int64_t n) {
  return ConstTensor::Borrow({array.data(), DTypeSize(c.dtype) * std::size_t(n)}, {c.dtype, {n}});
}
Tensor Out(const DeviceArray<std::byte>& array, const Called& c, std::int64_t n) {
  return Tensor::View(std::shared_ptr<std::byte>(array.data(), [](std::byte*) {}),
                      {array.data(), DTypeSize(c.dtype) * std::size_t(n)}, {c.dtype, {n}});
}

std::vector<std::byte> Encoded(DType dtype, std::int64_t n,
                               const std::function<double(std::int64_t)>& value) {
  std::vector<std::byte> bytes(DTypeSize(dtype) * std::size_t(n) + kGuardBytes, std::byte{0xff});
  for (std::int64_t i = 0; i < n; ++i) {
    Put(dtype, value(i), bytes.data() + DTypeSize(dtype) * std::size_t(i));
  }
  return bytes;
}

Status StartAndWait(Collective& group, const Called& c, ConstTensor in, Tensor out, void* stream) {
  TROOP_ASSIGN_OR_RETURN(const Work work,
                         group.Start(c.op, std::move(in), std::move(out), {stream}));
  return group.Wait(work);
}

bool TryCalled(Team& team, const Called& c) {
  const int ranks = team.size();
  const std::int64_t ins = Ins(c, ranks), outs = Outs(c, ranks);
  std::vector<DeviceArray<std::byte>> in, out;
  for (int rank = 0; rank < ranks; ++rank) {
    in.push_back(
        team.Upload(rank, Encoded(c.dtype, ins, [&](std::int64_t i) { return Value(rank, i); })));
    out.push_back(team.Upload(rank, Encoded(c.dtype, outs, [](std::int64_t) { return 99; })));
  }
  std::atomic<bool> good = true;
  team.Run([&](int rank) {
    const auto r = std::size_t(rank);
    const Status status = StartAndWait(team.group(rank), c, In(in[r], c, ins), Out(out[r], c, outs),
                                       team.stream(rank).Share());
    if (!team.trial().Ok(c.ToString(), status)) good = false;
  });
  for (int rank = 0; rank < ranks && good; ++rank) {
    const auto want =
        Encoded(c.dtype, outs, [&](std::int64_t i) { return Expected(c, rank, ranks, i); });
    const auto got = team.Download(rank, out[std::size_t(rank)]);
    const auto [a, b] = std::ranges::mismatch(got, want);
    good = team.trial().True(c.ToString() + ": rank " + std::to_string(rank) +
                                 " has a different byte " + std::to_string(a - got.begin()) +
                                 " of " + std::to_string(want.size() - kGuardBytes),
                             a == got.end() && b == want.end());
  }
  return good;
}

bool TryOperations(Team& team) {
  int tried = 0;
  const std::int64_t large = team.device(0).info().emulated ? 20'001 : 300'001;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kU8, DType::kI32,
                            DType::kU32, DType::kI64, DType::kU64}) {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kReduceScatter,
                              OpKind::kAllGather, OpKind::kAllToAll}) {
      for (const std::int64_t n : {std::int64_t{1}, std::int64_t{1023}, large}) {
        Called c{{.kind = kind}, dtype, n};
        if (kind == OpKind::kBroadcast) c.op.peer = team.size() - 1;
        if (!TryCalled(team, c)) return false;
        ++tried;
      }
    }
    const Op most{.kind = OpKind::kAllReduce, .reduction = Reduction::kMax};
    if (!TryCalled(team, {most, dtype, 5000})) return false;
  }
  team.trial().Say(std::to_string(tried) + " operations");
  return true;
}

void Operations(Trial& trial, const std::vector<int>& gpus) {
  Team team(trial, gpus);
  if (team.Make()) TryOperations(team);
}

// --- Buckets of a gradient.

constexpr std::int64_t kBucket = 1 << 18, kBuckets = 24, kAway = 1 << 22;  // f32

// Like backward: each bucket is written after long work of the stream, and is reduced while the
// stream continues with the next. A reduction of data that was not written yet gives other bytes.
Status SumBuckets(Team& team, int rank, const DeviceArray<std::byte>& source,
                  const DeviceArray<std::byte>& gradient, const DeviceArray<std::byte>& away) {
  const Called bucket{{.kind = OpKind::kAllReduce}, DType::kF32, kBucket};
  const std::size_t bytes = sizeof(float) * std::size_t(kBucket);
  cuda::Stream& stream = team.stream(rank);
  std::vector<Work> works;
  for (std::int64_t i = 0; i < kBuckets; ++i) {
    stream.Fill(away.data(), std::uint8_t(i), away.bytes());
    std::byte* at = gradient.data() + std::size_t(i) * bytes;
    stream.CopyOnDevice(at, source.data() + std::size_t(i) * bytes, bytes);
    const Tensor part = Tensor::View(std::shared_ptr<std::byte>(at, [](std::byte*) {}), {at, bytes},
                                     {DType::kF32, {kBucket}});
    TROOP_ASSIGN_OR_RETURN(const Work work,
                           team.group(rank).Start(bucket.op, part, part, {stream.Share()}));
    works.push_back(work);
  }
  for (const Work work : works) TROOP_RETURN_IF_ERROR(team.group(rank).Wait(work));
  stream.Synchronize();
  return Status::Ok();
}

void Buckets(Trial& trial, const std::vector<int>& gpus) {
  Team team(trial, gpus);
  if (!team.Make()) return;
  constexpr std::int64_t n = kBucket * kBuckets;
  const Called whole{{.kind = OpKind::kAllReduce}, DType::kF32, n};
  std::vector<DeviceArray<std::byte>> source, gradient, away;
  for (int rank = 0; rank < team.size(); ++rank) {
    source.push_back(
        team.Upload(rank, Encoded(DType::kF32, n, [&](std::int64_t i) { return Value(rank, i); })));
    gradient.push_back(team.Upload(rank, std::vector<std::byte>(sizeof(float) * std::size_t(n))));
    away.emplace_back(team.device(rank), sizeof(float) * kAway, "a case's array");
  }
  team.Run([&](int rank) {
    const auto r = std::size_t(rank);
    trial.Ok("buckets", SumBuckets(team, rank, source[r], gradient[r], away[r]));
  });
  for (int rank = 0; rank < team.size(); ++rank) {
    auto want =
        Encoded(DType::kF32, n, [&](std::int64_t i) { return Reduced(whole, team.size(), i); });
    want.resize(want.size() - kGuardBytes);
    trial.True("the sum of buckets has different bits on rank " + std::to_string(rank),
               team.Download(rank, gradient[std::size_t(rank)]) == want);
  }
}

// --- Reductions between the steps of a stream.

constexpr std::int64_t kSteps = 40, kStep = 50'000;  // f32

// Like a tensor-parallel model: the next work of the stream reads the sum, and the host does not
// wait for it. The next reduction uses what the stream has written by then.
Status SumSteps(Team& team, int rank, const DeviceArray<std::byte>& source,
                const DeviceArray<std::byte>& x, const DeviceArray<std::byte>& sums) {
  const Called called{{.kind = OpKind::kAllReduce}, DType::kF32, kStep};
  const std::size_t bytes = sizeof(float) * std::size_t(kStep);
  cuda::Stream& stream = team.stream(rank);
  Collective& group = team.group(rank);
  std::vector<Work> works;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    stream.CopyOnDevice(x.data(), source.data() + std::size_t(i) * bytes, bytes);
    const troop::Stream shared{stream.Share()};
    TROOP_ASSIGN_OR_RETURN(const Work work, group.Start(called.op, In(x, called, kStep),
                                                        Out(x, called, kStep), shared));
    // Its streams do not wait for those of other libraries.
    if (team.device(rank).info().emulated) {
      TROOP_RETURN_IF_ERROR(group.Wait(work));
    } else {
      TROOP_RETURN_IF_ERROR(group.EnqueueWait(work, shared));
      works.push_back(work);
    }
    stream.CopyOnDevice(sums.data() + std::size_t(i) * bytes, x.data(), bytes);
  }
  for (const Work work : works) TROOP_RETURN_IF_ERROR(group.Wait(work));
  stream.Synchronize();
  return Status::Ok();
}

void Steps(Trial& trial, const std::vector<int>& gpus) {
  Team team(trial, gpus);
  if (!team.Make()) return;
  constexpr std::int64_t n = kSteps * kStep;
  const Called whole{{.kind = OpKind::kAllReduce}, DType::kF32, n};
  std::vector<DeviceArray<std::byte>> source, x, sums;
  for (int rank = 0; rank < team.size(); ++rank) {
    source.push_back(
        team.Upload(rank, Encoded(DType::kF32, n, [&](std::int64_t i) { return Value(rank, i); })));
    x.emplace_back(team.device(rank), sizeof(float) * kStep, "a case's array");
    sums.push_back(team.Upload(rank, std::vector<std::byte>(sizeof(float) * std::size_t(n))));
  }
  team.Run([&](int rank) {
    const auto r = std::size_t(rank);
    trial.Ok("steps", SumSteps(team, rank, source[r], x[r], sums[r]));
  });
  for (int rank = 0; rank < team.size(); ++rank) {
    auto want =
        Encoded(DType::kF32, n, [&](std::int64_t i) { return Reduced(whole, team.size(), i); });
    want.resize(want.size() - kGuardBytes);
    trial.True("the sums of steps have different bits on rank " + std::to_string(rank),
               team.Download(rank, sums[std::size_t(rank)]) == want);
  }
}

// --- Failures.

// Blocks a stream until the gate is opened.
class Gate {
 public:
  // cuLaunchHostFunc of the driver: a host function blocks all later work of its stream.
  static bool Close(Gate* gate, const std::string& driver, void* stream) {
    void* handle = dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
    using Launch = int (*)(void* stream, void (*call)(void*), void* argument);
    auto* launch =
        handle == nullptr ? nullptr : reinterpret_cast<Launch>(dlsym(handle, "cuLaunchHostFunc"));
    return launch != nullptr && launch(stream, &Gate::Hold, gate) == kCudaSuccess;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static void Hold(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    std::unique_lock lock(self->mutex_);
    self->changed_.wait(lock, [self] { return self->open_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Checks that a group of the survivors works.
void Rebuild(Trial& trial, const std::vector<int>& gpus) {
  Team team(trial, gpus);
  if (team.Make()) TryCalled(team, {{.kind = OpKind::kAllReduce}, DType::kF32, 100'000});
}

// A blocked stream: the wait for a sum fails at its deadline, while a helper thread aborts the
// communicator; the next group works.
void BusyStream(Trial& trial) {
  const NcclOptions& options = trial.nccl();
  const auto library = NcclLibrary::Load(options.library, options.driver);
  Team team(trial, {0});
  if (!trial.Ok("load", library.status()) || !team.Make()) return;
  const auto array = team.Upload(0, std::vector<std::byte>(4000));
  const auto sum = team.Upload(0, std::vector<std::byte>(4000));
  CudaStream stream = nullptr;
  static Gate gate;  // outlives a stream that never reaches it
  if (!trial.Ok("make a stream",
                CudaStatus((*library)->cuStreamCreate(&stream, kCudaNonBlockingStream), "")) ||
      !trial.True("block a stream", Gate::Close(&gate, options.driver, stream)))
    return;
  const Called c{{.kind = OpKind::kAllReduce, .timeout = Milliseconds(300)}, DType::kF32, 1000};
  const Time start = SystemClock().Now();
  const Status ended =
      StartAndWait(team.group(0), c, In(array, c, 1000), Out(sum, c, 1000), stream);
  const double waited = SecondsSince(start);
  trial.True("a sum on a blocked stream ends with " + ended.ToString(),
             ended.code() == Code::kDeadlineExceeded);
  trial.True("a wait of 0.3 s took " + Text(waited), waited < 8);
  gate.Open();
  team.Part();
  static_cast<void>((*library)->cuStreamDestroy_v2(stream));
  trial.Say("ended after " + Text(waited));
  Rebuild(trial, {0});
}

// A rank whose peer never connects: NCCL waits until a helper thread aborts.
void AbsentPeer(Trial& trial) {
  const auto library = NcclLibrary::Load(trial.nccl().library, trial.nccl().driver);
  if (!trial.Ok("load", library.status())) return;
  NcclUniqueId id;
  if (!trial.Ok("make an id", NcclStatus(**library, (*library)->ncclGetUniqueId(&id), nullptr, "")))
    return;
  auto made = NcclCommunicator::Make(*library, 0);
  if (!trial.Ok("use the device", made.status())) return;
  NcclCommunicator& comm = **made;
  if (!trial.Ok("begin", comm.Init(2, id, 0))) return;
  std::this_thread::sleep_for(Milliseconds(300));
  trial.True("one of two ranks connected without the other", comm.status() == kNcclInProgress);
  const Time start = SystemClock().Now();
  comm.BeginAbort();
  const double begun = SecondsSince(start);
  trial.True("starting an abort took " + Text(begun), begun < 0.5);
  while (!comm.ended() && SecondsSince(start) < 10) std::this_thread::sleep_for(Milliseconds(5));
  trial.True("an abort did not end within 10 s", comm.ended());
  trial.Say("ended after " + Text(SecondsSince(start)));
  Rebuild(trial, {0});
}

// The last of several ranks does not call the operation, or dies: the others get an error, and
// continue without it.
void LostRank(Trial& trial, const std::vector<int>& gpus, bool dies) {
  const Called c{
      {.kind = OpKind::kAllReduce, .timeout = Seconds(dies ? 20 : 1)}, DType::kF32, 1000};
  std::atomic<double> waited = 0;
  {
    Team team(trial, gpus);
    if (!team.Make()) return;
    std::vector<DeviceArray<std::byte>> arrays;
    for (int rank = 0; rank < team.size(); ++rank) {
      arrays.push_back(team.Upload(rank, std::vector<std::byte>(4000)));
    }
    team.Run([&](int rank) {
      if (rank == team.size() - 1) {
        if (!dies) return;
        std::this_thread::sleep_for(Milliseconds(300));
        return team.hosts().Kill(rank);
      }
      const auto& array = arrays[std::size_t(rank)];
      const Time start = SystemClock().Now();
      const Status ended = StartAndWait(team.group(rank), c, In(array, c, 1000),
                                        Out(array, c, 1000), team.stream(rank).Share());
      waited = std::max(waited.load(), SecondsSince(start));
      trial.True("a sum with a lost rank ends with " + ended.ToString(),
                 ended.code() == (dies ? Code::kUnavailable : Code::kDeadlineExceeded));
    });
    trial.True("that took " + Text(waited), waited < 8);
  }
  trial.Say("ended after " + Text(waited));
  Rebuild(trial, {gpus.begin(), gpus.end() - 1});
}

// --- Speed.

constexpr int kSamples = 7;

// Seconds for `times` consecutive reductions of `n` values.
double SumSeconds(Team& team, int times, std::int64_t n, std::vector<DeviceArray<std::byte>>& in,
                  std::vector<DeviceArray<std::byte>>& out) {
  const Called c{{.kind = OpKind::kAllReduce}, DType::kF32, n};
  std::atomic<double> seconds = 0;
  team.Run([&](int rank) {
    const auto r = std::size_t(rank);
    Collective& group = team.group(rank);
    if (!team.trial().Ok("barrier", StartAndWait(group, {}, {}, {}, nullptr))) return;
    const Time start = SystemClock().Now();
    std::vector<Work> works;
    for (int i = 0; i < times; ++i) {
      const auto work =
          group.Start(c.op, In(in[r], c, n), Out(out[r], c, n), {team.stream(rank).Share()});
      if (!team.trial().Ok("start", work.status())) return;
      works.push_back(*work);
    }
    for (const Work work : works) team.trial().Ok("wait", group.Wait(work));
    if (rank == 0) seconds = SecondsSince(start);
  });
  return seconds;
}

void Speed(Trial& trial, const std::vector<int>& gpus, const std::string& name) {
  Team team(trial, gpus);
  if (!team.Make()) return;
  const bool real = !team.device(0).info().emulated;
  const std::int64_t n = real ? 25'000'000 : 250'000;  // 100 MB
  std::vector<DeviceArray<std::byte>> in, out;
  for (int rank = 0; rank < team.size(); ++rank) {
    const auto bytes = sizeof(float) * std::size_t(n);
    in.push_back(team.Upload(rank, std::vector<std::byte>(bytes)));
    out.emplace_back(team.device(rank), std::int64_t(bytes), "a case's array");
  }
  const int times = real ? 20 : 2;
  SumSeconds(team, 3, n, in, out);  // warmup: NCCL creates its channels
  std::vector<double> rates;
  for (int i = 0; i < kSamples; ++i) {
    const double seconds = SumSeconds(team, times, n, in, out);
    if (seconds > 0) rates.push_back(1e-9 * 4 * double(n) * times / seconds);
  }
  trial.measured.push_back({name, "bandwidth", "GB/s", std::move(rates)});
}

// Cases for a team of several ranks.
void AddTeam(std::vector<NcclCase>* cases, const std::string& name, const std::vector<int>& gpus) {
  const auto with = [gpus](void (*run)(Trial&, const std::vector<int>&)) {
    return [gpus, run](Trial& t) { run(t, gpus); };
  };
  cases->push_back({name + ".OperationsGiveWhatLoopsGive", with(Operations)});
  cases->push_back({name + ".BucketsAreSummedWhileTheStreamGoesOn", with(Buckets)});
  cases->push_back({name + ".AStreamGoesOnBehindASum", with(Steps)});
  if (gpus.size() > 1) {
    cases->push_back({name + ".ASilentRankIsGivenUpAndTheOthersGoOn",
                      [gpus](Trial& t) { LostRank(t, gpus, false); }});
    cases->push_back(
        {name + ".ADeathEndsAWaitAndTheOthersGoOn", [gpus](Trial& t) { LostRank(t, gpus, true); }});
  }
  cases->push_back({name + ".AllReduceIsMeasured", [gpus, name](Trial& t) {
                      const std::string ranks = std::to_string(gpus.size());
                      const std::string where = name == "TwoRanksOnAGpu" ? "_on_one_gpu" : "";
                      Speed(t, gpus, "nccl_all_reduce_100MB_" + ranks + where);
                    }});
}

}  // namespace

std::vector<NcclCase> AllNcclCases(int gpus) {
  std::vector<NcclCase> cases;
  AddTeam(&cases, "OneRank", {0});
  cases.push_back({"OneRank.AWaitForAStreamThatIsHeldEndsAndTheNextGroupWorks", BusyStream});
  cases.push_back({"OneRank.AnAbortEndsTheWaitForAPeerThatNeverComes", AbsentPeer});
  std::vector<int> each;
  for (int gpu = 0; gpu < gpus; ++gpu) each.push_back(gpu);
  if (gpus > 1) AddTeam(&cases, "ARankToAGpu", each);
  AddTeam(&cases, "TwoRanksOnAGpu", {0, 0});
  return cases;
}

}  // namespace troop::cuda
