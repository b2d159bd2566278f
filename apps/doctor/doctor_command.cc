// The checks of `troop doctor` on this machine and a config; doctor_network.cc checks a
// coordinator.
#include "apps/doctor/doctor_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "apps/launch/preflight.h"
#include "apps/monitor/http_server.h"
#include "core/base/counted.h"
#include "core/base/time.h"
#include "core/config/enum_format.h"
#include "fleet/config/resolve_supervised.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/run/run_directory.h"
#include "fleet/serial/serial_fleet.h"
#include "kernels/simd/cpu_features.h"
#include "learners/supervised/supervised.h"
#include "net/network.h"
#include "net/transport/endpoint.h"
#include "net/transport/host_name.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using Kind = Verdict::Kind;

constexpr double kMiB = 1024.0 * 1024.0;
// Memory of a process besides its data, and its least number of threads: measured on the roles of
// small runs, rounded up.
constexpr double kProgramBytes = 16 * kMiB;
constexpr std::int64_t kThreadsARole = 12;

// Passes on one verdict.
void Report(const ReportVerdict& report, Kind kind, std::string_view item, std::string text) {
  report({kind, std::string(item), std::move(text)});
}

// A resource limit as text.
std::string Limit(rlim_t n) { return n == RLIM_INFINITY ? "unlimited" : std::to_string(n); }

// The number in a control-group file; nullopt for "max".
std::optional<double> NumberIn(const fs::path& file) {
  std::ifstream in(file);
  double n = 0;
  if (in >> n) return n;
  return std::nullopt;
}

// Binds and releases one address in the form of ResolveAddresses. Returns 0 or an errno.
int TryAddress(std::string host, std::uint16_t port) {
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{
      .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(host == "*" ? "0.0.0.0" : host.c_str(), std::to_string(port).c_str(), &hints,
                  &found) != 0) {
    return EADDRNOTAVAIL;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // listen() detects a port in use; with SO_REUSEADDR, bind() alone would succeed.
  const bool bound = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                     (port == 0 || listen(fd, 1) == 0);
  const int why = errno;
  if (fd >= 0) close(fd);
  return bound ? 0 : why;
}

// Ok if one of the host's addresses can be bound. Errors: kNotFound, kAlreadyExists (port in use),
// kInvalidArgument.
Status TryBind(const Endpoint& endpoint) {
  const auto hosts = ResolveAddresses(endpoint);
  if (!hosts.ok()) {
    return NotFound("{}; use an address, or fix /etc/hosts or the name server",
                    hosts.status().message());
  }
  // The last error decides, except that a port in use ends the search.
  int why = 0;
  for (const std::string& host : *hosts) {
    why = TryAddress(host, endpoint.port);
    if (why == 0) return Status::Ok();
    if (why == EADDRINUSE) break;
  }
  if (why == EADDRINUSE) {
    const pid_t holder = FindPortOwner(endpoint.port);
    return AlreadyExists("{}: the port is in use by {}; stop it, or choose another port",
                         endpoint.address,
                         holder == 0 ? "another process" : fmt::format("process {}", holder));
  }
  if (why == EADDRNOTAVAIL) {
    return InvalidArgument("{}: this machine has no such address; use one shown by `ip address`",
                           endpoint.address);
  }
  return InvalidArgument("{}: {}", endpoint.address, strerror(why));
}

// Checks what parsing cannot: that the environment starts, and that the network fits it.
void ExamineConfig(const Config& config, const ReportVerdict& report) {
  const std::size_t roles = RolesOf(config).size();
  Report(report, Kind::kOk, "config",
         fmt::format("{}: {} roles, {}", config.name, roles, config.fleet.mode));
  Status able = CheckMachine(config);
  if (able.ok()) able = CheckFirstWeights(TrainingConfigOf(config));
  if (able.ok())
    return Report(report, Kind::kOk, "task", "the environment starts, and the network fits it");
  Report(report, Kind::kFail, "task", able.message());
}

// A run that resumes does not read learner.init_from, so `troop doctor` checks it as for a new run.
void ExamineInitFrom(const Config& config, const ReportVerdict& report) {
  if (config.learner.init_from.empty()) return;
  Config copy = config;  // CheckInitFrom makes the path absolute
  const Status fits = CheckInitFrom(&copy);
  if (fits.ok())
    return Report(report, Kind::kOk, "init_from",
                  "the weights of " + copy.learner.init_from + " fit the network");
  Report(report, Kind::kFail, "init_from", fits.message());
}

// Creates, maps and releases a memfd, as shared-memory buffers do.
void ExamineSharedMemory(const ReportVerdict& report) {
  // Sealing and size are what shared-memory buffers need of the kernel.
  constexpr off_t kBytes = 1 << 20;
  const int fd = memfd_create("troop-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool good = fd >= 0 && ftruncate(fd, kBytes) == 0;
  void* const memory =
      good ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int why = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) {
    return Report(report, Kind::kFail, "shared memory",
                  fmt::format("cannot be created: {}; raise the limits of open files (ulimit -n), "
                              "file size (ulimit -f) or memory (ulimit -v)",
                              strerror(why)));
  }
  munmap(memory, kBytes);
  Report(report, Kind::kOk, "shared memory", "can be created (memfd)");
}

}  // namespace

// The limits of all enclosing groups apply, so the tightest one counts.
MemoryLeft FindMemoryLeft(const std::string& meminfo, const std::string& membership,
                          const std::string& groups) {
  // Start with the machine, then walk from this process's control group up to the root.
  MemoryLeft left{.bytes = 0, .what = "on this machine"};
  std::ifstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    double kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") left.bytes = 1024 * kib;
  }
  std::ifstream memberships(membership);
  for (std::string line; std::getline(memberships, line);) {
    if (!line.starts_with("0::/")) continue;  // version 2
    for (std::string group = line.substr(3); !group.empty();) {
      const fs::path folder = groups + group;
      const auto most = NumberIn(folder / "memory.max"), used = NumberIn(folder / "memory.current");
      if (most && used && *most - *used < left.bytes) {
        left = {std::max(0.0, *most - *used), "in the control group " + group};
      }
      group = group == "/" ? "" : group.substr(0, std::max<std::size_t>(1, group.rfind('/')));
    }
  }
  return left;
}

// Compares the predicted memory of all roles with what is free, and the largest role with ulimit
// -v.
void ExamineMemory(const Config& config, const ReportVerdict& report) {
  const Result<ResourceEstimate> needs = EstimateResources(config);
  if (!needs.ok()) return;  // ExamineConfig reports it
  // `all` is compared with the free memory of the machine, `largest` with the limit of one
  // process.
  double all = 0, largest = 0;
  for (const FleetRole& role : RolesOf(config)) {
    const double bytes = kProgramBytes + BytesOfRole(*needs, role.role, config.replay.shards);
    all += bytes;
    largest = std::max(largest, bytes);
  }
  const MemoryLeft left = FindMemoryLeft();
  const std::string said = fmt::format("needs about {:.0f} MiB; {:.0f} MiB are free {}", all / kMiB,
                                       left.bytes / kMiB, left.what);
  rlimit space{};
  getrlimit(RLIMIT_AS, &space);
  if (all > left.bytes) {
    return Report(report, Kind::kFail, "memory",
                  said + "; lower replay.capacity_items or fleet.actors, or use a larger machine");
  }
  // Address space of libraries and thread stacks, most of which is never touched.
  constexpr double kMapped = 1024 * kMiB;
  if (space.rlim_cur != RLIM_INFINITY && double(space.rlim_cur) < largest + kMapped) {
    return Report(report, Kind::kFail, "memory",
                  fmt::format("ulimit -v is {} bytes, but a role maps about {:.0f} MiB; raise the "
                              "limit",
                              space.rlim_cur, (largest + kMapped) / kMiB));
  }
  Report(report, all > 0.8 * left.bytes ? Kind::kNote : Kind::kOk, "memory", said);
}

// Checks open files and threads. Without a config a single role is assumed.
void ExamineLimits(const Config* config, const ReportVerdict& report) {
  const std::int64_t roles = config == nullptr ? 1 : std::int64_t(RolesOf(*config).size());
  rlimit files{}, processes{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NPROC, &processes);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  // Open files: only the hard limit needs root.
  const auto files_wanted = rlim_t(OpenFilesOf(roles));
  if (files.rlim_cur < files_wanted) {
    Report(report, Kind::kFail, "open files",
           fmt::format("the limit is {}, about {} are needed; raise it with ulimit -n {}{}",
                       files.rlim_cur, files_wanted, files_wanted,
                       files.rlim_max < files_wanted ? " (as root: the hard limit is lower)" : ""));
  } else {
    Report(report, Kind::kOk, "open files", fmt::format("limit {}", Limit(files.rlim_cur)));
  }
  // Threads: the suggested limit leaves room for the user's other processes.
  const rlim_t threads_wanted = rlim_t(kThreadsARole * roles);
  if (processes.rlim_cur < threads_wanted) {  // counts all processes of this user
    Report(report, Kind::kFail, "processes",
           fmt::format("this user may have {} threads, but a run needs about {}; raise the "
                       "limit with ulimit -u {}",
                       processes.rlim_cur, threads_wanted, 2 * threads_wanted));
  } else {
    Report(report, Kind::kOk, "processes",
           fmt::format("limit {} threads", Limit(processes.rlim_cur)));
  }
  Report(report, Kind::kOk, "locked memory",
         fmt::format("limit {} bytes; not needed", Limit(locked.rlim_cur)));
}

// Tests that a file can be written, the free space and the time of an fsync.
void ExamineDisk(const std::string& folder, const ReportVerdict& report) {
  // The run folder may not exist yet: test its nearest existing parent.
  fs::path there = folder;
  std::error_code error;
  while (!fs::exists(there, error) && there.has_parent_path() && there != there.parent_path()) {
    there = there.parent_path();
  }
  std::string file = (there / ".troop-doctor-XXXXXX").string();
  const int fd = mkostemp(file.data(), O_CLOEXEC);
  if (fd < 0) {
    return Report(report, Kind::kFail, "disk",
                  fmt::format("cannot write to {}: {}; change its permissions, or log.dir",
                              there.string(), strerror(errno)));
  }
  // Unlinked at once, so that nothing stays behind however this process ends.
  unlink(file.c_str());
  // Time nine 4 KiB appends with fsync; the median decides.
  const std::string block(4096, 'x');
  std::vector<double> seconds;
  const SystemClock clock;
  Status written;
  for (int i = 0; i < 9 && written.ok(); ++i) {
    const Time before = clock.Now();
    if (write(fd, block.data(), block.size()) != ssize_t(block.size()) || fsync(fd) != 0) {
      written = ResourceExhausted("{}", strerror(errno));
    }
    seconds.push_back(ToSeconds(clock.Now() - before));
  }
  struct statvfs space {};
  const bool known = fstatvfs(fd, &space) == 0;
  close(fd);
  if (!written.ok()) {
    return Report(report, Kind::kFail, "disk",
                  fmt::format("cannot write to {}: {}; free disk space, or change log.dir",
                              there.string(), written.message()));
  }
  std::ranges::sort(seconds);
  const double free_mib = known ? double(space.f_bavail) * double(space.f_frsize) / kMiB : 0;
  const double median = seconds[seconds.size() / 2];
  const std::string said = fmt::format("{}: {:.0f} MiB free, an fsync takes {:.2g} ms",
                                       there.string(), free_mib, 1e3 * median);
  // Below 200 MiB checkpoints may fail; above 50 ms per fsync they delay the learner.
  constexpr double kLittleMiB = 200, kSlow_s = 0.05;
  if (known && free_mib < kLittleMiB) {
    return Report(report, Kind::kFail, "disk", said + "; free space for checkpoints and logs");
  }
  // A slow disk is only a note: the run works, but waits for it.
  const bool slow = median > kSlow_s;
  Report(report, slow ? Kind::kNote : Kind::kOk, "disk",
         said + (slow ? "; checkpoints and a persistent replay will be slow" : ""));
}

// Tests the socket folder and every address that the run will bind.
void ExaminePorts(const Config& config, const ReportVerdict& report) {
  const auto& fleet = config.fleet;
  const auto fail = [&report](std::string_view item, const Status& why) {
    Report(report, Kind::kFail, item, why.message());
  };
  if (const Status sockets = Endpoints::Check(config); !sockets.ok()) fail("sockets", sockets);
  if (fleet.listen.empty() && fleet.metrics.empty() && fleet.dashboard.empty()) {
    return Report(report, Kind::kOk, "ports", "not needed: all roles are on this machine");
  }
  bool good = true;
  // Bind fleet.listen, the endpoints of all serving roles, and the HTTP addresses.
  std::size_t tried = 0;
  const auto try_one = [&](const std::string& address) {
    const Result<Endpoint> endpoint = ParseEndpoint(address);
    const Status free = endpoint.ok() ? TryBind(*endpoint) : endpoint.status();
    ++tried;
    if (free.ok()) return;
    good = false;
    fail("ports", free);
  };
  if (!fleet.listen.empty()) {
    if (const auto made = Endpoints::Make(config); !made.ok()) return fail("ports", made.status());
    try_one(fleet.listen);
    for (const FleetRole& role : RolesOf(config)) {
      if (!Serves(role.role)) continue;
      try_one(Endpoints::PatternFor(config, role.role, role.index));
    }
  }
  // HTTP addresses also need a token unless they are local.
  const auto try_http = [&](const std::string& address, const std::string& token,
                            const HttpAddressKeys& keys) {
    if (address.empty()) return;
    const Status may = CheckHttpAddress(address, !token.empty(), config.security.insecure, keys);
    if (may.ok()) return try_one("tcp://" + address);
    good = false;
    fail("ports", may);
  };
  try_http(fleet.metrics, fleet.metrics_token, {"fleet.metrics", "fleet.metrics_token"});
  try_http(fleet.dashboard, fleet.dashboard_token, {"fleet.dashboard", "fleet.dashboard_token"});
  if (good) Report(report, Kind::kOk, "ports", fmt::format("all can be bound ({} tried)", tried));
}

// Checks tokens and keys as the start of a run does.
void ExamineKeys(const Config& config, const ReportVerdict& report) {
  bool good = true;
  // A status may hold several lines, one per problem.
  const auto fail = [&](const Status& why) {
    std::istringstream lines(why.message());
    for (std::string line; std::getline(lines, line); good = false) {
      Report(report, Kind::kFail, "keys", line);
    }
  };
  fail(CheckToken("fleet.metrics_token", config.fleet.metrics_token));
  fail(CheckToken("fleet.dashboard_token", config.fleet.dashboard_token));
  fail(CheckKeys(config));
  if (!good) return;
  const std::string& folder = config.security.keys;
  Report(report, Kind::kOk, "keys",
         folder.empty() ? "the config has none" : "all roles have a key in " + folder);
}

// A note without AVX2: a run is slow, but works.
void ExamineProcessor(const ReportVerdict& report) {
  const CpuLevel level = BestCpuLevel();
  Report(report, level == CpuLevel::kPlain ? Kind::kNote : Kind::kOk, "processor",
         DescribeKernels(level));
}

// Looks at the kernel driver only, so it also works in a build without CUDA.
void ExamineGpu(const Config* config, const ReportVerdict& report) {
  std::ifstream driver("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(driver, line)) {
    if (config == nullptr || config->learner.device != DeviceChoice::kCuda)
      return Report(report, Kind::kOk, "gpu", "no driver is loaded; the CPU computes updates");
    return Report(report, Kind::kFail, "gpu",
                  "learner.device is \"cuda\", but no NVIDIA driver is loaded: load it, or set "
                  "learner.device = \"auto\"");
  }
  std::error_code error;
  std::int64_t count = 0;
  for (fs::directory_iterator it("/proc/driver/nvidia/gpus", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  Report(report, Kind::kOk, "gpu",
         fmt::format("{}, driver:{}", Counted(count, "GPU"), line.substr(line.find(':') + 1)));
}

// The config's checks come first, then those of the machine, then the coordinator's.
std::vector<Verdict> Examine(const DoctorOptions& options, const ReportVerdict& report) {
  std::vector<Verdict> verdicts;
  const ReportVerdict keep = [&](const Verdict& verdict) {
    verdicts.push_back(verdict);
    report(verdict);
  };
  std::optional<Config> config;
  if (!options.config.empty()) {
    Result<Config> loaded = LoadConfigFile(options.config, options.overrides);
    if (loaded.ok()) {
      config = std::move(*loaded);
      config->security.insecure |= options.insecure;
      // Fills the sizes that come from the data set. A failure counts as one of "task".
      const Status resolved = ResolveSupervised(&*config);
      if (!resolved.ok()) Report(keep, Kind::kFail, "task", resolved.message());
      if (resolved.ok()) {
        ExamineConfig(*config, keep);
        ExamineInitFrom(*config, keep);
      }
      ExamineMemory(*config, keep);
      ExaminePorts(*config, keep);
      ExamineKeys(*config, keep);
    } else {
      Report(keep, Kind::kFail, "config", loaded.status().message());
    }
  }
  ExamineProcessor(keep);
  ExamineLimits(config ? &*config : nullptr, keep);
  ExamineSharedMemory(keep);
  ExamineDisk(config ? RunPath(*config) : fs::current_path().string(), keep);
  ExamineGpu(config ? &*config : nullptr, keep);
  if (!options.coordinator.empty()) ExamineCoordinator(options, keep);
  return verdicts;
}

// Verdicts are printed as they come, since some checks take seconds.
// A note does not fail: it concerns speed or clarity, not the start of a run.
int Doctor(const DoctorOptions& options) {
  const auto verdicts = Examine(options, [](const Verdict& verdict) {
    constexpr std::string_view kNames[] = {"ok", "note", "FAIL"};
    fmt::print("  {:<5} {:<17} {}\n", kNames[int(verdict.kind)], verdict.item, verdict.text);
    std::fflush(stdout);
  });
  const auto failed = std::ranges::count(verdicts, Kind::kFail, &Verdict::kind);
  if (failed == 0) {
    fmt::print("ready to start\n");
    return kExitOk;
  }
  fmt::print("{} failed\n", Counted(failed, "check"));
  return kExitFailed;
}

void RegisterDoctor(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* doctor = app.add_subcommand(
      "doctor", "check the machine, a config and a coordinator before a run, and suggest fixes");
  doctor->add_option("config", options->config, "TOML file (none: check only the machine)");
  doctor->add_option("overrides", options->overrides, kOverridesHelp);
  doctor->add_option("--coordinator", options->coordinator, "tcp://HOST:PORT of a run to join");
  doctor->add_option("--key", options->key, "key file for the coordinator (troop keygen)");
  doctor->add_flag("--insecure", options->insecure, kInsecureHelp);
  doctor->callback([options, chosen] { *chosen = [options] { return Doctor(*options); }; });
}

}  // namespace troop
