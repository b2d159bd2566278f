#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "kernels/cuda/runtime/launch.h"

// Tests that the emulator detects errors: if it were lenient, the parity cases would prove little.
namespace troop::cuda {
namespace {

std::unique_ptr<Device> OpenEmulated() {
  std::string error;
  auto device = Device::Open(0, &error);
  EXPECT_EQ(error, "");
  return device;
}

// The n floats that a kernel writes under a schedule.
template <class... P, class... A>
std::vector<float> RunKernel(std::uint64_t schedule, const LaunchShape& shape, std::int64_t n,
                             void (*kernel)(float*, P...), const A&... args) {
  emulator::SetSchedule(schedule);
  const auto device = OpenEmulated();
  Stream stream(*device);
  DeviceArray<float> out(*device, n, "out");
  PinnedArray<float> host(*device, n, "out");
  Launch(stream, "kernel", shape, kernel, out.data(), args...);
  stream.CopyToHost(host.data(), out.data(), out.bytes());
  stream.Synchronize();
  EXPECT_EQ(device->error(), "");
  return {host.data(), host.data() + n};
}

TROOP_KERNEL void Neighbours(float* out, bool barrier) {
  TROOP_SHARED(float, shared, 64);
  shared[threadIdx.x] = float(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = shared[63 - threadIdx.x];
}

TEST(EmulatorTest, MissingBarrierCausesWrongResult) {
  const LaunchShape shape{dim3(1), dim3(64)};
  for (const std::uint64_t schedule : {0, 1, 2, 3}) {
    const auto sound = RunKernel(schedule, shape, 64, &Neighbours, true);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(sound[std::size_t(i)], float(63 - i));
    const auto faulty = RunKernel(schedule, shape, 64, &Neighbours, false);
    EXPECT_TRUE(std::ranges::any_of(faulty, [](float x) { return std::isnan(x); })) << schedule;
  }
}

TROOP_KERNEL void BlockOrder(float* out) {
  // Incorrect kernel: the order of blocks is unspecified.
  if (threadIdx.x == 0) *out = float(blockIdx.x);
}

TEST(EmulatorTest, RunsBlocksInAnyOrder) {
  std::set<float> seen;
  for (std::uint64_t schedule = 0; schedule < 8; ++schedule)
    seen.insert(RunKernel(schedule, {dim3(16), dim3(32)}, 1, &BlockOrder)[0]);
  EXPECT_GT(seen.size(), 3u);
}

TROOP_KERNEL void HalfABarrier(float* out) {
  if (threadIdx.x < 32) __syncthreads();
  if (threadIdx.x >= 32) __shfl_sync(kWholeWarp, 1, 0);
  if (threadIdx.x == 40) return;
  if (threadIdx.x >= 32) __syncwarp();
  *out = 1;
}
TROOP_KERNEL void ForeignLane(float* out) { *out = __shfl_sync(0xffffu, 1.0f, 20); }
TROOP_KERNEL void NeverWaitedFor(float* out) {
  TROOP_SHARED(float, shared, 4);
  CopyAsync16(shared, out);
  CopyCommit();
}
TROOP_KERNEL void Nothing(float*) {}

TEST(EmulatorDeathTest, NamesStuckKernelAndThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RunKernel(0, {dim3(1), dim3(64)}, 1, &HalfABarrier),
               "kernel kernel, block \\(0, 0, 0\\), thread \\([0-9]+, 0, 0\\): not all lanes of "
               "its mask reach a warp function");
  EXPECT_DEATH(RunKernel(0, {dim3(1), dim3(16)}, 1, &ForeignLane), "from a lane outside its mask");
  EXPECT_DEATH(RunKernel(0, {dim3(1), dim3(1)}, 4, &NeverWaitedFor), "CopyWait<0> is missing");
  EXPECT_DEATH(RunKernel(0, {dim3(1), dim3(2048)}, 1, &Nothing), "1 to 1,024 threads");
  EXPECT_DEATH(RunKernel(0, {dim3(1), dim3(32), 300'000}, 1, &Nothing), "more shared memory");
}

TROOP_KERNEL void WarpFunctions(float* out) {
  const int lane = int(threadIdx.x);
  out[lane] = __shfl_xor_sync(kWholeWarp, float(lane), 5);
  out[32 + lane] = __shfl_down_sync(kWholeWarp, float(lane), 3);
  out[64 + lane] = float(__popc(__ballot_sync(kWholeWarp, lane % 3 == 0)));
  out[96 + lane] = WarpSum(float(lane));
  out[128 + lane] = WarpMax(float((lane * 7) % 32));
}

TEST(EmulatorTest, WarpFunctionsMatchCudaManual) {
  for (const std::uint64_t schedule : {0, 1, 5}) {
    const auto out = RunKernel(schedule, {dim3(1), dim3(32)}, 160, &WarpFunctions);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(out[lane], float(lane ^ 5));
      EXPECT_EQ(out[32 + lane], float(lane + 3 < 32 ? lane + 3 : lane));
      EXPECT_EQ(out[64 + lane], 11);
      EXPECT_EQ(out[96 + lane], 496);
      EXPECT_EQ(out[128 + lane], 31);
    }
  }
}

// The first warp copies over data that the second one reads, without a barrier in between.
TROOP_KERNEL void OverwritesEarly(float* out) {
  TROOP_SHARED(float, shared, 4);
  if (threadIdx.x < 4) shared[threadIdx.x] = 1, out[4 + threadIdx.x] = 2;
  __syncthreads();
  if (threadIdx.x == 0) CopyAsync16(shared, out + 4), CopyCommit();
  if (threadIdx.x == 32) out[0] = shared[0];
  __syncthreads();
  CopyWait<0>();
}

TEST(EmulatorTest, AsyncCopyMayOverwriteDataStillRead) {
  std::set<float> seen;
  for (std::uint64_t schedule = 0; schedule < 12; ++schedule)
    seen.insert(RunKernel(schedule, {dim3(1), dim3(64)}, 8, &OverwritesEarly)[0]);
  EXPECT_EQ(seen, (std::set<float>{1, 2}));
}

TROOP_KERNEL void Pipeline(float* out, const float* from, bool early) {
  TROOP_SHARED(float, shared, 8);
  CopyAsync16(shared, from);
  CopyCommit();
  CopyAsync16(shared + 4, from + 4, false);
  CopyCommit();
  CopyWait<1>();
  if (early) out[1] = shared[4];  // from the second group
  out[0] = shared[1];
  CopyWait<0>();
  if (!early) out[1] = shared[4];
}

TEST(EmulatorTest, AsyncCopyCompletesAsLateAsAllowed) {
  const auto device = OpenEmulated();
  DeviceArray<float> from(*device, 8, "from");
  for (int i = 0; i < 8; ++i) from.data()[i] = float(i);
  const float* at = from.data();
  const auto sound = RunKernel(0, {dim3(1), dim3(1)}, 2, &Pipeline, at, false);
  EXPECT_EQ(sound[0], 1);
  EXPECT_EQ(sound[1], 0);  // not valid: zeros
  const auto early = RunKernel(0, {dim3(1), dim3(1)}, 2, &Pipeline, at, true);
  EXPECT_EQ(early[0], 1);
  EXPECT_TRUE(std::isnan(early[1]));
}

// Products of small integers, exact in every type. The positions of elements follow the figures of
// the PTX manual.
TROOP_KERNEL void Products(float* out) {
  const int lane = int(threadIdx.x), g = lane / 4, t = lane % 4;
  const auto a = [](int row, int column) { return float((row * 3 + column) % 7 - 3); };
  const auto b = [](int row, int column) { return float((row + 5 * column) % 5 - 2); };
  std::uint32_t fa[4], fb[2];
  for (int i = 0; i < 4; ++i) {
    const int row = g + (i % 2) * 8, column = 2 * t + (i / 2) * 8;
    fa[i] = ToBF16x2(a(row, column), a(row, column + 1));
  }
  for (int i = 0; i < 2; ++i) fb[i] = ToBF16x2(b(2 * t + 8 * i, g), b(2 * t + 8 * i + 1, g));
  float d[4] = {1, 1, 1, 1};
  MultiplyBF16(d, fa, fb);
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
  for (int i = 0; i < 4; ++i) fa[i] = ToTF32(a(g + (i % 2) * 8, t + (i / 2) * 4));
  for (int i = 0; i < 2; ++i) fb[i] = ToTF32(b(t + 4 * i, g));
  float e[4] = {1, 1, 1, 1};
  MultiplyTF32(e, fa, fb);
  for (int i = 0; i < 4; ++i) out[128 + (g + i / 2 * 8) * 8 + 2 * t + i % 2] = e[i];
}

TEST(EmulatorTest, WarpMmaMatchesMatrixProduct) {
  const auto out = RunKernel(3, {dim3(1), dim3(32)}, 256, &Products);
  for (const int depth : {16, 8}) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        int want = 1;
        for (int k = 0; k < depth; ++k) want += ((i * 3 + k) % 7 - 3) * ((k + 5 * j) % 5 - 2);
        EXPECT_EQ(out[std::size_t((depth == 16 ? 0 : 128) + i * 8 + j)], float(want));
      }
    }
  }
}

TROOP_KERNEL void Matrices(float* out) {
  TROOP_SHARED(std::uint16_t, shared, 4 * 64);
  const int lane = int(threadIdx.x);
  for (int i = lane; i < 256; i += 32) shared[i] = std::uint16_t(i);
  __syncthreads();
  std::uint32_t r[4];
  LoadMatrix4(r, shared + lane * 8);
  for (int m = 0; m < 4; ++m) {
    out[m * 64 + lane * 2] = float(r[m] & 0xffff);
    out[m * 64 + lane * 2 + 1] = float(r[m] >> 16);
  }
  LoadMatrix4Transposed(r, shared + lane * 8);
  for (int m = 0; m < 4; ++m) {
    out[256 + m * 64 + lane * 2] = float(r[m] & 0xffff);
    out[256 + m * 64 + lane * 2 + 1] = float(r[m] >> 16);
  }
}

TEST(EmulatorTest, LoadsMatricesPlainOrTransposed) {
  const auto out = RunKernel(2, {dim3(1), dim3(32)}, 512, &Matrices);
  for (int m = 0; m < 4; ++m) {
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) {
        EXPECT_EQ(out[std::size_t(m * 64 + i * 8 + j)], float(m * 64 + i * 8 + j));
        EXPECT_EQ(out[std::size_t(256 + m * 64 + i * 8 + j)], float(m * 64 + j * 8 + i));
      }
    }
  }
}

TROOP_KERNEL void AddTo(float* x, float y) { *x += y; }
TROOP_KERNEL void MultiplyBy(float* x, float y) { *x *= y; }

struct Streams {
  std::unique_ptr<Device> device = OpenEmulated();
  Stream one{*device}, other{*device};
  DeviceArray<float> x{*device, 1, "x"};
  PinnedArray<float> host{*device, 1, "x"};
  void Start(Stream& stream, void (*kernel)(float*, float), float y) {
    Launch(stream, "kernel", {dim3(1), dim3(1)}, kernel, x.data(), y);
  }
  float Value() {
    device->Synchronize();
    one.CopyToHost(host.data(), x.data(), sizeof(float));
    one.Synchronize();
    return host[0];
  }
};

TEST(EmulatorTest, OnlyEventsOrderStreams) {
  std::set<float> unordered, ordered;
  for (std::uint64_t schedule = 0; schedule < 20; ++schedule) {
    emulator::SetSchedule(schedule);
    Streams s;
    s.one.Fill(s.x.data(), 0, sizeof(float));
    s.one.Synchronize();
    s.Start(s.one, &AddTo, 1);
    s.Start(s.other, &MultiplyBy, 3);
    unordered.insert(s.Value());
    s.one.Fill(s.x.data(), 0, sizeof(float));
    Event added(*s.device);
    s.Start(s.one, &AddTo, 1);
    added.Record(s.one);
    s.other.Wait(added);
    s.Start(s.other, &MultiplyBy, 3);
    ordered.insert(s.Value());
  }
  EXPECT_EQ(unordered, (std::set<float>{1, 3}));
  EXPECT_EQ(ordered, (std::set<float>{3}));
}

TEST(EmulatorTest, GraphReplaysCapturedWork) {
  Streams s;
  s.one.Fill(s.x.data(), 0, sizeof(float));
  Graph graph(*s.device);
  Event forked(*s.device), joined(*s.device);
  graph.Begin(s.one);
  s.Start(s.one, &AddTo, 1);
  forked.Record(s.one);
  s.other.Wait(forked);
  s.Start(s.other, &MultiplyBy, 2);
  joined.Record(s.other);
  s.one.Wait(joined);
  s.Start(s.one, &AddTo, 1);
  graph.End(s.one);
  EXPECT_EQ(s.device->error(), "");
  EXPECT_EQ(s.Value(), 0) << "what is written down is not done";
  graph.Launch(s.one);
  EXPECT_EQ(s.Value(), 3);
  graph.Launch(s.one);
  EXPECT_EQ(s.Value(), 9);
}

TEST(EmulatorTest, RejectsInvalidCapture) {
  {
    Streams s;
    Graph graph(*s.device);
    Event forked(*s.device);
    graph.Begin(s.one);
    forked.Record(s.one);
    s.other.Wait(forked);
    s.Start(s.other, &AddTo, 1);
    graph.End(s.one);
    EXPECT_EQ(s.device->error(),
              "a captured stream was not joined to the stream that began the capture");
  }
  {
    Streams s;
    Graph graph(*s.device);
    graph.Begin(s.one);
    s.Start(s.other, &AddTo, 1);
    EXPECT_EQ(s.device->error(), "a stream outside the capture was used during it");
    graph.End(s.one);
  }
  {
    Streams s;
    Graph graph(*s.device);
    graph.Begin(s.one);
    s.one.Synchronize();
    EXPECT_EQ(s.device->error(), "a stream must not be synchronized during a capture");
    graph.End(s.one);
  }
}

TEST(DeviceTest, IgnoresWorkAfterFailure) {
  Streams s;
  s.one.Fill(s.x.data(), 0, sizeof(float));
  EXPECT_EQ(s.Value(), 0);
  s.device->Fail("the first");
  s.device->Fail("the second");
  s.Start(s.one, &AddTo, 1);
  s.one.Synchronize();
  EXPECT_EQ(s.device->error(), "the first");
  EXPECT_EQ(*s.x.data(), 0);
  EXPECT_EQ(s.device->Allocate(1, "more"), nullptr);
}

TEST(DeviceTest, NamesAllocationThatExceedsMemory) {
  const auto device = OpenEmulated();
  const DeviceArray<float> some(*device, 1 << 20, "a little");
  const DeviceArray<float> much(*device, std::int64_t(1) << 30, "replay frames");
  EXPECT_EQ(much.size(), 0);
  EXPECT_EQ(
      device->error(),
      "out of GPU memory: replay frames needs 4 GiB, 0.996 of 1 GiB are free; reduce it in the "
      "config, or stop other processes on the device (see nvidia-smi)");
}

TEST(DeviceTest, RejectsMissingDevice) {
  std::string error;
  EXPECT_EQ(Device::Open(3, &error), nullptr);
  EXPECT_EQ(error, "GPU 3 does not exist; the only emulated GPU is 0");
}

}  // namespace
}  // namespace troop::cuda
