// gpu_nccl [--nccl LIBRARY] [--driver LIBRARY] [--json FILE] [PART OF A NAME]: tests
// collective/nccl over the NCCL of this machine, on its GPUs. The library is --nccl, else
// $TROOP_NCCL, else libnccl.so.2 from the loader's path; without one, all cases are skipped.
// Exit code 0: all passed; 1: some failed; 2: no GPU.
#include "tests/cuda/gpu_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace troop::cuda {
namespace {

constexpr int kCaseLimitS = 40;  // less than the minute of bench/gpu, so that a hang is reported

struct Options {
  NcclOptions nccl{
      .connect_timeout = Seconds(20), .timeout = Seconds(20), .abort_within = Seconds(2)};
  bool named = false;  // the library was named, so it must exist
  std::string json, part;
};

Options OptionsOf(int argc, char** argv) {
  Options options;
  const char* library = std::getenv("TROOP_NCCL");
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--json") == 0 && more) {
      options.json = argv[++i];
    } else if (std::strcmp(argv[i], "--nccl") == 0 && more) {
      library = argv[++i];
    } else if (std::strcmp(argv[i], "--driver") == 0 && more) {
      options.nccl.driver = argv[++i];
    } else {
      options.part = argv[i];
    }
  }
  options.named = library != nullptr && *library != 0;
  if (options.named) options.nccl.library = library;
  return options;
}

// Ends the process if a case hangs, and reports that as its outcome: NCCL may wait forever.
class Watchdog {
 public:
  Watchdog(std::string name, std::FILE* json)
      : name_(std::move(name)), json_(json), thread_([this] { Watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void Watch() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::seconds(kCaseLimitS), [this] { return over_; }))
      return;
    Outcome outcome{name_, "failed", "it hangs: the remaining cases were not run"};
    outcome.seconds = kCaseLimitS;
    Tell(outcome, json_);
    _exit(1);
  }

  const std::string name_;
  std::FILE* const json_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

void TellMeasured(const Measured& measured, std::FILE* json) {
  std::vector<double> values = measured.values;
  if (values.empty()) return;
  std::ranges::sort(values);
  const double median = values[values.size() / 2], spread = (values.back() - values[0]) / median;
  std::printf("%-44s %-12s %12.5g %-10s ± %.1f %%\n", measured.name.c_str(),
              measured.metric.c_str(), median, measured.unit.c_str(), 50 * spread);
  if (json == nullptr) return;
  std::fprintf(json,
               "{\"case\": %s, \"metric\": %s, \"unit\": %s, \"better\": \"higher\", \"value\": "
               "%.8g, \"spread\": %.4g, \"samples\": %zu}\n",
               Quoted(measured.name).c_str(), Quoted(measured.metric).c_str(),
               Quoted(measured.unit).c_str(), median, spread, values.size());
  std::fflush(json);
}

bool RunCase(const NcclCase& c, const NcclOptions& nccl, std::FILE* json) {
  const Watchdog watchdog(c.name, json);
  const auto start = std::chrono::steady_clock::now();
  Trial trial(nccl);
  c.run(trial);
  Outcome outcome = trial.End(c.name);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Tell(outcome, json);
  for (const Measured& measured : trial.measured) TellMeasured(measured, json);
  return outcome.state != "failed";
}

// True if the cases can run; otherwise reports the reason as the outcome of each.
bool Loads(const Options& options, std::FILE* json, int* failed) {
  const auto library = NcclLibrary::Load(options.nccl.library, options.nccl.driver);
  Outcome outcome{"Library.IsThereAndNewEnough", "passed", ""};
  if (library.ok()) {
    outcome.detail = "NCCL " + NcclVersionText((*library)->version) + ": " + options.nccl.library;
  } else {
    outcome.state = options.named ? "failed" : "skipped";
    outcome.detail = library.status().ToString();
    *failed += options.named ? 1 : 0;
  }
  Tell(outcome, json);
  return library.ok();
}

int Main(int argc, char** argv) {
  const Options options = OptionsOf(argc, argv);
  {
    std::string error;
    const auto device = Device::Open(0, &error);
    if (device == nullptr) {
      std::fprintf(stderr, "gpu_nccl: %s\n", error.c_str());
      return 2;
    }
  }
  std::FILE* json = options.json.empty() ? nullptr : std::fopen(options.json.c_str(), "w");
  int failed = 0, ran = 1;
  if (Loads(options, json, &failed)) {
    for (const NcclCase& c : AllNcclCases(Device::Count())) {
      if (c.name.find(options.part) == std::string::npos) continue;
      ++ran;
      failed += RunCase(c, options.nccl, json) ? 0 : 1;
    }
  }
  if (json != nullptr) std::fclose(json);
  std::printf("%d cases, %d failed\n", ran, failed);
  std::fflush(stdout);
  // A communicator that did not end has threads of NCCL, which no destructor waits for.
  _exit(failed > 0 ? 1 : 0);
}

}  // namespace
}  // namespace troop::cuda

int main(int argc, char** argv) { return troop::cuda::Main(argc, argv); }
