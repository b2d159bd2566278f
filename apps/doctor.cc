#include "apps/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "apps/endpoints.h"
#include "apps/http_server.h"
#include "apps/machine.h"
#include "apps/preflight.h"
#include "apps/run_folder.h"
#include "apps/serial_fleet.h"
#include "apps/train.h"
#include "core/time.h"
#include "learners/review_data.h"
#include "learners/supervised.h"
#include "net/endpoint.h"
#include "net/host_name.h"
#include "net/network.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using Kind = Verdict::Kind;

constexpr double kMiB = 1024.0 * 1024.0;
// What a process takes beside its data, and what it opens and starts at least, as measured of the
// roles of small runs, rounded up.
constexpr double kProgramBytes = 16 * kMiB;
constexpr std::int64_t kThreadsARole = 12;

void Tell(const Told& told, Kind kind, std::string_view item, std::string text) {
  told({kind, std::string(item), std::move(text)});
}

std::string Limit(rlim_t n) { return n == RLIM_INFINITY ? "unlimited" : std::to_string(n); }

// Control groups hold "max", or a number.
std::optional<double> NumberIn(const fs::path& file) {
  std::ifstream in(file);
  double n = 0;
  if (in >> n) return n;
  return std::nullopt;
}

// Binds one address, as AddressesOf spells it, and lets go. The error is an errno.
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
  // Two that listen collide, where a bind alone passes with SO_REUSEADDR.
  const bool bound = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                     (port == 0 || listen(fd, 1) == 0);
  const int why = errno;
  if (fd >= 0) close(fd);
  return bound ? 0 : why;
}

// Whether one of the host's addresses can be bound.
Status TryBind(const Endpoint& endpoint) {
  const auto hosts = AddressesOf(endpoint);
  if (!hosts.ok()) {
    return NotFound("{}; write an address, or correct /etc/hosts or the name server",
                    hosts.status().message());
  }
  int why = 0;
  for (const std::string& host : *hosts) {
    why = TryAddress(host, endpoint.port);
    if (why == 0) return Status::Ok();
    if (why == EADDRINUSE) break;
  }
  if (why == EADDRINUSE) {
    const pid_t holder = HolderOfPort(endpoint.port);
    return AlreadyExists("{}: the port is in use by {}; stop it, or choose another",
                         endpoint.address,
                         holder == 0 ? "another process" : fmt::format("process {}", holder));
  }
  if (why == EADDRNOTAVAIL) {
    return InvalidArgument("{}: this machine has no such address; take one of `ip address`",
                           endpoint.address);
  }
  return InvalidArgument("{}: {}", endpoint.address, strerror(why));
}

// Also what the config file itself can't show: that the environment starts, and the network fits.
void ExamineConfig(const Config& config, const Told& told) {
  const std::size_t roles = RolesOf(config).size();
  Tell(told, Kind::kOk, "config",
       fmt::format("{}: {} roles, {}", config.name, roles, config.fleet.mode));
  Status able = CheckMachine(config);
  if (able.ok()) able = CheckFirstWeights(config);
  if (able.ok()) return Tell(told, Kind::kOk, "problem", "it starts, and the network fits it");
  Tell(told, Kind::kFail, "problem", able.message());
}

void ExamineSharedMemory(const Told& told) {
  constexpr off_t kBytes = 1 << 20;
  const int fd = memfd_create("troop-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool good = fd >= 0 && ftruncate(fd, kBytes) == 0;
  void* const memory =
      good ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int why = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) {
    return Tell(told, Kind::kFail, "shared memory",
                fmt::format("none can be made: {}; raise the limits of open files (ulimit -n), of "
                            "a file's size (ulimit -f) or of memory (ulimit -v)",
                            strerror(why)));
  }
  munmap(memory, kBytes);
  Tell(told, Kind::kOk, "shared memory", "it can be made (memfd)");
}

}  // namespace

MemoryLeft FindMemoryLeft(const std::string& meminfo, const std::string& membership,
                          const std::string& groups) {
  MemoryLeft left{.bytes = 0, .what = "of this machine"};
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
        left = {std::max(0.0, *most - *used), "of the control group " + group};
      }
      group = group == "/" ? "" : group.substr(0, std::max<std::size_t>(1, group.rfind('/')));
    }
  }
  return left;
}

void ExamineMemory(const Config& config, const Told& told) {
  const Result<RunNeeds> needs = PredictNeeds(config);
  if (!needs.ok()) return;  // told as the problem's
  double all = 0, largest = 0;
  for (const FleetRole& role : RolesOf(config)) {
    const double bytes = kProgramBytes + BytesOfRole(*needs, role.role, config.replay.shards);
    all += bytes;
    largest = std::max(largest, bytes);
  }
  const MemoryLeft left = FindMemoryLeft();
  const std::string said = fmt::format("about {:.0f} MiB are needed, {:.0f} MiB are free {}",
                                       all / kMiB, left.bytes / kMiB, left.what);
  rlimit space{};
  getrlimit(RLIMIT_AS, &space);
  if (all > left.bytes) {
    return Tell(told, Kind::kFail, "memory",
                said + "; lower replay.capacity_items or fleet.actors, or find a larger machine");
  }
  // A role maps libraries and stacks of threads that it never fills.
  constexpr double kMapped = 1024 * kMiB;
  if (space.rlim_cur != RLIM_INFINITY && double(space.rlim_cur) < largest + kMapped) {
    return Tell(told, Kind::kFail, "memory",
                fmt::format("a process may map {} bytes (ulimit -v), and a role maps about {:.0f} "
                            "MiB; raise it",
                            space.rlim_cur, (largest + kMapped) / kMiB));
  }
  Tell(told, all > 0.8 * left.bytes ? Kind::kNote : Kind::kOk, "memory", said);
}

void ExamineLimits(const Config* config, const Told& told) {
  const std::int64_t roles = config == nullptr ? 1 : std::int64_t(RolesOf(*config).size());
  rlimit files{}, processes{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NPROC, &processes);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  const auto files_wanted = rlim_t(OpenFilesOf(roles));
  if (files.rlim_cur < files_wanted) {
    Tell(told, Kind::kFail, "open files",
         fmt::format("{} are allowed, about {} are needed; ulimit -n {}{}", files.rlim_cur,
                     files_wanted, files_wanted,
                     files.rlim_max < files_wanted ? " (as root: the hard limit is lower)" : ""));
  } else {
    Tell(told, Kind::kOk, "open files", fmt::format("{} are allowed", Limit(files.rlim_cur)));
  }
  const rlim_t threads_wanted = rlim_t(kThreadsARole * roles);
  if (processes.rlim_cur < threads_wanted) {  // what others of this user run counts as well
    Tell(told, Kind::kFail, "processes",
         fmt::format("{} threads are allowed to this user, a run of this config has about {}; "
                     "ulimit -u {}",
                     processes.rlim_cur, threads_wanted, 2 * threads_wanted));
  } else {
    Tell(told, Kind::kOk, "processes",
         fmt::format("{} threads are allowed", Limit(processes.rlim_cur)));
  }
  Tell(told, Kind::kOk, "locked memory",
       fmt::format("{} bytes are allowed; nothing here needs any", Limit(locked.rlim_cur)));
}

void ExamineDisk(const std::string& folder, const Told& told) {
  fs::path there = folder;
  std::error_code error;
  while (!fs::exists(there, error) && there.has_parent_path() && there != there.parent_path()) {
    there = there.parent_path();
  }
  std::string file = (there / ".troop-doctor-XXXXXX").string();
  const int fd = mkostemp(file.data(), O_CLOEXEC);
  if (fd < 0) {
    return Tell(told, Kind::kFail, "disk",
                fmt::format("nothing can be written to {}: {}; change its rights, or log.dir",
                            there.string(), strerror(errno)));
  }
  unlink(file.c_str());
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
    return Tell(told, Kind::kFail, "disk",
                fmt::format("{} can't be written: {}; make room, or change log.dir", there.string(),
                            written.message()));
  }
  std::ranges::sort(seconds);
  const double free_mib = known ? double(space.f_bavail) * double(space.f_frsize) / kMiB : 0;
  const double median = seconds[seconds.size() / 2];
  const std::string said = fmt::format("{}: {:.0f} MiB are free, an fsync takes {:.2g} ms",
                                       there.string(), free_mib, 1e3 * median);
  constexpr double kLittleMiB = 200, kSlow_s = 0.05;
  if (known && free_mib < kLittleMiB) {
    return Tell(told, Kind::kFail, "disk", said + "; make room for checkpoints and logs");
  }
  const bool slow = median > kSlow_s;
  Tell(told, slow ? Kind::kNote : Kind::kOk, "disk",
       said + (slow ? "; checkpoints and a replay that is kept will wait for it" : ""));
}

void ExaminePorts(const Config& config, const Told& told) {
  const auto& fleet = config.fleet;
  const auto fail = [&told](std::string_view item, const Status& why) {
    Tell(told, Kind::kFail, item, why.message());
  };
  if (const Status sockets = Endpoints::Check(config); !sockets.ok()) fail("sockets", sockets);
  if (fleet.listen.empty() && fleet.metrics.empty() && fleet.dashboard.empty()) {
    return Tell(told, Kind::kOk, "ports", "none is needed: roles of this machine alone");
  }
  bool good = true;
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
  if (good) Tell(told, Kind::kOk, "ports", fmt::format("{} can be listened on", tried));
}

void ExamineKeys(const Config& config, const Told& told) {
  bool good = true;
  const auto fail = [&](const Status& why) {
    std::istringstream lines(why.message());
    for (std::string line; std::getline(lines, line); good = false) {
      Tell(told, Kind::kFail, "keys", line);
    }
  };
  fail(CheckToken("fleet.metrics_token", config.fleet.metrics_token));
  fail(CheckToken("fleet.dashboard_token", config.fleet.dashboard_token));
  fail(CheckKeys(config));
  if (!good) return;
  const std::string& folder = config.security.keys;
  Tell(told, Kind::kOk, "keys",
       folder.empty() ? "the config has none" : "those of all roles in " + folder + ", allowed");
}

void ExamineGpu(const Config* config, const Told& told) {
  std::ifstream driver("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(driver, line)) {
    if (config == nullptr || config->learner.device != "cuda")
      return Tell(told, Kind::kOk, "gpu", "no driver is loaded; updates are computed on the CPU");
    return Tell(told, Kind::kFail, "gpu",
                "learner.device is \"cuda\", but no NVIDIA driver is loaded: load it, or set "
                "learner.device = \"auto\"");
  }
  std::error_code error;
  std::size_t count = 0;
  for (fs::directory_iterator it("/proc/driver/nvidia/gpus", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  Tell(told, Kind::kOk, "gpu", fmt::format("{} with {}", count, line.substr(line.find(':') + 1)));
}

std::vector<Verdict> Examine(const DoctorOptions& options, const Told& told) {
  std::vector<Verdict> verdicts;
  const Told keep = [&](const Verdict& verdict) {
    verdicts.push_back(verdict);
    told(verdict);
  };
  std::optional<Config> config;
  if (!options.config.empty()) {
    Result<Config> loaded = LoadConfigFile(options.config, options.overrides);
    if (loaded.ok()) {
      config = std::move(*loaded);
      config->security.insecure |= options.insecure;
      // What it leaves to the data; a failure is the problem's.
      const Status resolved = ResolveSupervised(&*config);
      if (!resolved.ok()) Tell(keep, Kind::kFail, "problem", resolved.message());
      if (resolved.ok()) ExamineConfig(*config, keep);
      ExamineMemory(*config, keep);
      ExaminePorts(*config, keep);
      ExamineKeys(*config, keep);
    } else {
      Tell(keep, Kind::kFail, "config", loaded.status().message());
    }
  }
  ExamineLimits(config ? &*config : nullptr, keep);
  ExamineSharedMemory(keep);
  ExamineDisk(config ? RunPath(*config) : fs::current_path().string(), keep);
  ExamineGpu(config ? &*config : nullptr, keep);
  if (!options.coordinator.empty()) ExamineCoordinator(options, keep);
  return verdicts;
}

int Doctor(const DoctorOptions& options) {
  const auto verdicts = Examine(options, [](const Verdict& verdict) {
    constexpr std::string_view kNames[] = {"ok", "note", "FAIL"};
    fmt::print("  {:<5} {:<17} {}\n", kNames[int(verdict.kind)], verdict.item, verdict.text);
    std::fflush(stdout);
  });
  const auto failed = std::ranges::count(verdicts, Kind::kFail, &Verdict::kind);
  if (failed == 0) {
    fmt::print("good to start\n");
    return kExitOk;
  }
  fmt::print("{} to mend\n", failed);
  return kExitFailed;
}

}  // namespace troop
