#include "apps/shaped_links.h"

#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <sstream>

#include "apps/child_process.h"
#include "apps/train.h"

namespace troop {
namespace {

constexpr double kSlowest = 64e3, kFastest = 100e9;  // bits per second
constexpr char kNames[] = "/run/netns";              // where `ip netns` keeps them
constexpr Duration kPatience = Seconds(20);          // with ip and tc

std::atomic<pid_t> inside = 0;  // whom signals are for

void PassOn(int number) {
  if (const pid_t process = inside) kill(process, number);
}

Status Call(const std::string& line) {
  std::istringstream text(line);
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  TROOP_ASSIGN_OR_RETURN(const Ended ended, RunProgram(words, kPatience));
  if (ended.code == 0) return Status::Ok();
  std::string why;
  std::istringstream output(ended.output);
  std::getline(output, why);
  return FailedPrecondition("{}: {}", line, why);
}

// The first process of the sandbox, in the namespaces that its parent has made.
Status Settle() {
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0 ||
      (mkdir(kNames, 0755) != 0 && errno != EEXIST) ||
      mount("none", kNames, "tmpfs", 0, nullptr) != 0) {
    return FailedPrecondition("mounts for network namespaces: {}", strerror(errno));
  }
  return Call("ip link set lo up");
}

[[noreturn]] void LiveInside(const std::function<int()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Status settled = Settle();
  if (!settled.ok()) fmt::print(stderr, "troop: {}\n", settled.message());
  const int code = settled.ok() ? work() : int(kExitFailed);
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

Result<double> ParseLinkRate(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, std::size_t(text.data() + text.size() - end));
  const double scale = unit == "kbit" ? 1e3 : unit == "mbit" ? 1e6 : unit == "gbit" ? 1e9 : 0;
  const double rate = number * scale;
  if (error != std::errc() || !(rate >= kSlowest && rate <= kFastest)) {
    return InvalidArgument(
        "--link {}: a rate is a number with kbit, mbit or gbit, such as 1gbit, within 64kbit and "
        "100gbit",
        text);
  }
  return rate;
}

Result<int> RunInSandbox(const std::function<int()>& work) {
  for (const char* const tool : {"ip", "tc", "unshare"}) {
    if (FindProgram(tool).empty()) {
      return FailedPrecondition(
          "--link needs the program {}, which is not in PATH (Debian: iproute2, util-linux)", tool);
    }
  }
  if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID) != 0) {
    return FailedPrecondition(
        "--link needs root here, for network namespaces with shaped links: {}; without it learners "
        "share this machine",
        strerror(errno));
  }
  std::fflush(nullptr);
  struct sigaction pass {
  }, old_interrupt{}, old_terminate{}, old_hangup{};
  pass.sa_handler = PassOn;
  sigaction(SIGINT, &pass, &old_interrupt);
  sigaction(SIGTERM, &pass, &old_terminate);
  sigaction(SIGHUP, &pass, &old_hangup);
  if (old_hangup.sa_handler == SIG_IGN) sigaction(SIGHUP, &old_hangup, nullptr);
  const pid_t child = fork();
  if (child == 0) LiveInside(work);
  inside = child;
  int wait_status = 0;
  while (child > 0 && waitpid(child, &wait_status, 0) < 0 && errno == EINTR) continue;
  inside = 0;
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
  sigaction(SIGHUP, &old_hangup, nullptr);
  if (child < 0) return ResourceExhausted("no process: {}", strerror(errno));
  if (WIFSIGNALED(wait_status)) return 128 + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

std::string ShapedLinks::AddressOf(int machine) const {
  return fmt::format("10.77.0.{}", 1 + machine);
}

std::vector<std::string> ShapedLinks::On(int machine) const {
  return {"ip",          "netns", "exec",   fmt::format("machine{}", machine),
          "unshare",     "--pid", "--fork", "--kill-child",
          "--mount-proc"};
}

Result<ShapedLinks> ShapedLinks::Make(int machines, double bits_per_s) {
  ShapedLinks links;
  std::vector<std::string> lines{"ip link add switch type bridge", "ip link set switch up",
                                 fmt::format("ip addr add {}/24 dev switch", kOurAddress)};
  // A millisecond's worth at once, or some packets where that is less.
  const double burst = std::clamp(bits_per_s / 8e3, 16e3, 1e6);
  for (int i = 0; i < machines; ++i) {
    const std::string name = fmt::format("machine{}", i);
    lines.insert(
        lines.end(),
        {fmt::format("ip netns add {}", name),
         fmt::format("ip link add {0} type veth peer name up0 netns {0}", name),
         fmt::format("ip link set {} master switch up", name),
         fmt::format("ip -n {} addr add {}/24 dev up0", name, links.AddressOf(i)),
         fmt::format("ip -n {} link set up0 up", name),
         fmt::format("ip -n {} link set lo up", name),
         fmt::format("tc -n {} qdisc add dev up0 root tbf rate {:.0f}bit burst {:.0f} latency 5ms",
                     name, bits_per_s, burst)});
  }
  for (const std::string& line : lines) TROOP_RETURN_IF_ERROR(Call(line));
  return links;
}

}  // namespace troop
