// Network namespaces with rate-limited links, made with `ip` and `tc`.
#include "apps/experiments/network_sandbox.h"

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

#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/subprocess.h"

namespace troop {
namespace {

constexpr double kSlowest = 64e3, kFastest = 100e9;  // bits per second
constexpr char kNames[] = "/run/netns";              // where `ip netns` keeps them
constexpr Duration kPatience = Seconds(20);          // time limit of one ip or tc command

std::atomic<pid_t> inside = 0;  // process that gets the signals; 0: none

// Signal handler: forwards the signal. kill() is async-signal-safe.
void PassOn(int number) {
  if (const pid_t process = inside) kill(process, number);
}

// Runs one command. Errors: kFailedPrecondition, with the first line of its output.
Status Call(const std::string& line) {
  std::istringstream text(line);
  // Split at spaces: no argument here contains one.
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  TROOP_ASSIGN_OR_RETURN(const ProgramResult ended, RunProgram(words, kPatience));
  if (ended.code == 0) return Status::Ok();
  std::string why;
  std::istringstream output(ended.output);
  std::getline(output, why);
  return FailedPrecondition("{}: {}", line, why);
}

// Prepares the namespaces that the parent created: private mounts, /proc, loopback.
Status Settle() {
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0 ||
      (mkdir(kNames, 0755) != 0 && errno != EEXIST) ||
      mount("none", kNames, "tmpfs", 0, nullptr) != 0) {
    return FailedPrecondition("mounts for network namespaces: {}", strerror(errno));
  }
  return Call("ip link set lo up");
}

// Body of the sandbox's first process. It is killed if the parent dies.
[[noreturn]] void LiveInside(const std::function<int()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Status settled = Settle();
  if (!settled.ok()) fmt::print(stderr, "troop: {}\n", settled.message());
  const int code = settled.ok() ? work() : int(kExitFailed);
  std::fflush(nullptr);
  // No destructors: the parent's objects belong to the parent.
  _exit(code);
}

}  // namespace

// Units are those of tc, in powers of 1000. NaN fails the range check.
Result<double> ParseLinkRate(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, std::size_t(text.data() + text.size() - end));
  const double scale = unit == "kbit" ? 1e3 : unit == "mbit" ? 1e6 : unit == "gbit" ? 1e9 : 0;
  const double rate = number * scale;
  if (error != std::errc() || !(rate >= kSlowest && rate <= kFastest)) {
    return InvalidArgument(
        "--link is {}, must be a number with kbit, mbit or gbit, such as 1gbit, from 64kbit to "
        "100gbit",
        text);
  }
  return rate;
}

// Steps: check the tools, create the namespaces, fork the first process, forward signals, wait. A
// new PID namespace applies to children only, hence the fork.
Result<int> RunInSandbox(const std::function<int()>& work) {
  for (const char* const tool : {"ip", "tc", "unshare"}) {
    if (FindProgram(tool).empty()) {
      return FailedPrecondition(
          "--link needs the program {}, which is not in PATH (Debian: iproute2, util-linux)", tool);
    }
  }
  if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID) != 0) {
    return FailedPrecondition(
        "--link needs root to create network namespaces: {}; run as root, or omit --link to keep "
        "the learners on this machine",
        strerror(errno));
  }
  std::fflush(nullptr);
  struct sigaction pass {
  }, old_interrupt{}, old_terminate{}, old_hangup{};
  pass.sa_handler = PassOn;
  // Forward signals while the child runs. An ignored SIGHUP (nohup) stays ignored.
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
  if (child < 0) return ResourceExhausted("cannot fork: {}", strerror(errno));
  // The shell's convention for a process killed by a signal.
  if (WIFSIGNALED(wait_status)) return 128 + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

// Machine i has 10.77.0.(i + 1); kOurAddress is above all of them.
std::string NetworkSandbox::AddressOf(int machine) const {
  return fmt::format("10.77.0.{}", 1 + machine);
}

// `unshare --pid --mount-proc` hides other machines' processes; `--kill-child` ends them with it.
std::vector<std::string> NetworkSandbox::On(int machine) const {
  return {"ip",          "netns", "exec",   fmt::format("machine{}", machine),
          "unshare",     "--pid", "--fork", "--kill-child",
          "--mount-proc"};
}

// A bridge is the switch; each machine is a namespace with a veth pair to it. tbf shapes only what
// a machine sends, which is enough: the sender's limit bounds every link.
Result<NetworkSandbox> NetworkSandbox::Make(int machines, double bits_per_s) {
  NetworkSandbox links;
  std::vector<std::string> lines{"ip link add switch type bridge", "ip link set switch up",
                                 fmt::format("ip addr add {}/24 dev switch", kOurAddress)};
  // Burst in bytes: 1 ms at the rate, at least a few packets.
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
