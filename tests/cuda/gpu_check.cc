// gpu_check [--json FILE] [--share I/N] [PART OF A NAME]: runs the parity cases on the GPU, or
// share I of N, counted from 0. Exit code 0: all passed; 1: some failed; 2: no GPU.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/cuda/outcome.h"
#include "tests/cuda/parity.h"

namespace troop::cuda {
namespace {

Outcome RunCase(Device& device, const ParityCase& c) {
  Outcome outcome{c.name, "passed", ""};
  const DeviceInfo& info = device.info();
  if (info.major * 10 + info.minor < c.needs) {
    outcome.state = "skipped";
    outcome.detail = "needs compute capability " + std::to_string(c.needs / 10) + "." +
                     std::to_string(c.needs % 10);
    return outcome;
  }
  const auto start = std::chrono::steady_clock::now();
  Parity parity(device, 17);
  c.run(parity);
  device.Synchronize();
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  outcome.worst = parity.worst();
  if (!device.ok()) {
    outcome.detail = device.error();
  } else if (!parity.failures().empty()) {
    outcome.detail = parity.failures().front();
  }
  if (!outcome.detail.empty()) outcome.state = "failed";
  return outcome;
}

int Main(int argc, char** argv) {
  std::string json, part;
  int share = 0, shares = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--share") == 0 && i + 1 < argc) {
      if (std::sscanf(argv[++i], "%d/%d", &share, &shares) != 2 || share < 0 || share >= shares) {
        std::fprintf(stderr, "gpu_check: --share %s: give I/N, with 0 <= I < N\n", argv[i]);
        return 1;
      }
    } else {
      part = argv[i];
    }
  }
  std::string error;
  auto device = Device::Open(0, &error);
  if (device == nullptr) {
    std::fprintf(stderr, "gpu_check: %s\n", error.c_str());
    return 2;
  }
  std::FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "w");
  std::printf("%s, compute capability %d.%d\n", device->info().name.c_str(), device->info().major,
              device->info().minor);
  int failed = 0, ran = 0, at = 0;
  for (const ParityCase& c : AllParityCases()) {
    if (at++ % shares != share) continue;
    if (std::string(c.name).find(part) == std::string::npos) continue;
    const Outcome outcome = RunCase(*device, c);
    ++ran;
    failed += outcome.state == "failed";
    Tell(outcome, file);
    if (!device->ok()) {  // the context is lost: the rest needs a new process
      std::printf("the GPU's context is lost: the remaining cases were not run\n");
      break;
    }
  }
  if (file != nullptr) std::fclose(file);
  std::printf("%d cases, %d failed\n", ran, failed);
  return failed > 0 || ran == 0 ? 1 : 0;
}

}  // namespace
}  // namespace troop::cuda

int main(int argc, char** argv) { return troop::cuda::Main(argc, argv); }
