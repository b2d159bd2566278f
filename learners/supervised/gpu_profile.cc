// Implements the measurements and predictions about this machine's GPUs.

#include "learners/supervised/gpu_profile.h"

#ifndef TROOP_HAS_CUDA

namespace troop {
namespace {

Status NoCuda() {
  return Unavailable("this program was built without CUDA; build it with the preset \"cuda\"");
}

}  // namespace

int GpusHere() { return 0; }
Result<std::string> GpuOf(const TrainingConfig&) { return NoCuda(); }
Result<double> MeasureGpuPeak(const TrainingConfig&) { return NoCuda(); }
Result<double> PredictGpuBytes(const TrainingConfig&, const TensorParallelRank&, double, double) {
  return NoCuda();
}
Result<double> TimeGpuAllReduce(int, int, const NcclOptions&, std::int64_t, int) {
  return NoCuda();
}

}  // namespace troop

#else

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "collective/sim/sim_group.h"
#include "learners/supervised/gpu_text.h"

namespace troop {
namespace {

// Matrices large enough to reach the peak; the emulator only checks that it runs.
constexpr std::int64_t kPeakSize = 8192, kEmulatedPeakSize = 64;
constexpr int kPeakTries = 8, kPeakCalls = 4;

// Profiles use the first GPU.
Result<TextDevice> OpenFor(const TrainingConfig& config, const TensorParallelRank& place) {
  if (config.learner.device == DeviceChoice::kCpu) return Unavailable("learner.device = \"cpu\"");
  return OpenTextDevice(config, place, 0);
}

Status StatusOf(const cuda::Device& device) {
  if (device.ok()) return Status::Ok();
  return Unavailable("{}: {}", device.info().name, device.error());
}

// One rank of two, each with its own GPU. The ranks are threads of this process.
Result<double> TimeAllReduce(std::unique_ptr<Collective> host, const NcclOptions& nccl,
                             std::int64_t floats, int tries) {
  std::string error;
  const auto device = cuda::Device::Open(nccl.device, &error);
  Status mine = device != nullptr ? Status::Ok() : Unavailable("{}", error);
  // An error on one rank must abort the group, or the other rank would wait for the timeout.
  if (!mine.ok()) {
    host->Abort(mine);
    return mine;
  }
  // Filled with zeros: sums of uninitialized memory may overflow.
  cuda::Stream stream(*device);
  const cuda::DeviceArray<float> array(*device, floats, "an all-reduce buffer");
  if (array.data() != nullptr) stream.Fill(array.data(), 0, array.bytes());
  mine = StatusOf(*device);
  if (!mine.ok()) {
    host->Abort(mine);
    return mine;
  }
  TROOP_ASSIGN_OR_RETURN(const auto group, MakeNcclGroup(std::move(host), nccl));
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(array.data()), array.bytes());
  const Tensor tensor = Tensor::View(nullptr, bytes, {DType::kF32, {floats}});
  const SystemClock clock;
  std::vector<double> seconds;
  for (int i = 0; i < tries; ++i) {
    const Time begin = clock.Now();
    TROOP_ASSIGN_OR_RETURN(const Work work, group->Start({.kind = OpKind::kAllReduce}, tensor,
                                                         tensor, {stream.Share()}));
    TROOP_RETURN_IF_ERROR(group->Wait(work));
    seconds.push_back(ToSeconds(clock.Now() - begin));
  }
  // The median is robust against a slow first call.
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

int GpusHere() { return cuda::Device::Count(); }

Result<std::string> GpuOf(const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const TextDevice opened, OpenFor(config, {}));
  return opened.device->info().name;
}

// The best of several tries, because clocks rise with load.
Result<double> MeasureGpuPeak(const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const TextDevice opened, OpenFor(config, {}));
  cuda::Device& device = *opened.device;
  const std::int64_t n = device.info().emulated ? kEmulatedPeakSize : kPeakSize;
  const cuda::Precision precision = opened.step.precision;
  const DType element = cuda::ElementType(precision);
  const std::int64_t bytes = n * n * std::int64_t(DTypeSize(element));
  cuda::Stream stream(device);
  cuda::MatMulPlans plans(device);
  const cuda::DeviceArray<std::byte> a(device, bytes, "a matrix product"),
      b(device, bytes, "a matrix product"), c(device, bytes, "a matrix product");
  cuda::Event begin(device), end(device);
  if (!device.ok()) return StatusOf(device);
  stream.Fill(a.data(), 0x3c, a.bytes());  // about 0.01 in either type
  stream.Fill(b.data(), 0x3c, b.bytes());
  double best = 0;
  const SystemClock clock;
  // An idle stream, so that the measurement begins with the first product.
  for (int i = 0; i < kPeakTries; ++i) {
    stream.Synchronize();
    const Time from = clock.Now();
    // Several calls per measurement hide the launch overhead.
    for (int call = 0; call < kPeakCalls; ++call) {
      cuda::MatMul(stream, plans,
                   {.shape = {.m = n, .n = n, .k = n, .transpose_b = true},
                    .precision = precision,
                    .a = a.data(),
                    .b = b.data(),
                    .c = c.data(),
                    .c_dtype = element});
    }
    stream.Synchronize();
    TROOP_RETURN_IF_ERROR(StatusOf(device));
    const double seconds = std::max(1e-9, ToSeconds(clock.Now() - from));
    // A product of two n x n matrices takes 2 n^3 operations.
    best = std::max(best, kPeakCalls * 2.0 * double(n) * double(n) * double(n) / seconds);
  }
  return best;
}

Result<double> PredictGpuBytes(const TrainingConfig& config, const TensorParallelRank& place,
                               double tokens, double outputs) {
  TROOP_ASSIGN_OR_RETURN(const TextDevice opened, OpenFor(config, place));
  return double(cuda::TextStepBytes(opened.step, std::int64_t(std::ceil(tokens)),
                                    std::int64_t(std::ceil(outputs))));
}

// Errors of either rank are returned.
Result<double> TimeGpuAllReduce(int first, int second, const NcclOptions& nccl, std::int64_t floats,
                                int tries) {
  // Both ranks are threads of this process; rank 0's times are returned.
  SimGroup hosts({.size = 2});
  Result<double> seconds[2] = {0.0, 0.0};
  const auto measure = [&](int rank, int device) {
    NcclOptions options = nccl;
    options.device = device;
    seconds[rank] = TimeAllReduce(hosts.Rank(rank), options, floats, tries);
  };
  // Rank 0 measures on this thread, which would otherwise only wait.
  std::thread other(measure, 1, second);
  measure(0, first);
  other.join();
  TROOP_RETURN_IF_ERROR(seconds[1].status());
  return seconds[0];
}

}  // namespace troop

#endif
