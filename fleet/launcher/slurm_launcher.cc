// Job steps of a Slurm fleet: start commands, detection of lost nodes, guards of the first node.
#include "fleet/launcher/slurm_launcher.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/base/log.h"
#include "fleet/launcher/subprocess.h"
#include "net/security/keys.h"
#include "net/transport/endpoint.h"

namespace troop {
namespace {

// Time without a connection after which a node counts as lost. srun reports an exited process
// earlier, and a restarting switch may recover in between. With fleet.heartbeat_timeout_s the
// detection takes about 3 s.
constexpr Duration kLost = Milliseconds(1500);
// Time limit from srun to registration: a slow file system and a Python start take a while.
constexpr Duration kStart = Seconds(20);
// srun's exit code when the step could not be launched (Slurm 22.05: after 11 s).
constexpr int kLaunchFailed = 233;
// Time without any actor after which the run fails.
constexpr Duration kActorsMissed = Seconds(90);
constexpr Duration kWatchEvery = Milliseconds(250);
constexpr int kGuards = 2;
constexpr Duration kGuardAgain = Seconds(60);  // between starts of a guard

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

struct AddressDelete {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

// The first numeric address of a node. Blocks on the system's resolver.
Result<std::string> AddressOf(const std::string& node) {
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_flags = 0, .ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  const int error = getaddrinfo(node.c_str(), "9", &hints, &found);
  const std::unique_ptr<addrinfo, AddressDelete> owner(found);
  if (error != 0) {
    return Unavailable("the node {} of this job has no address: {}", node, gai_strerror(error));
  }
  char text[INET_ADDRSTRLEN] = {};
  const auto* const address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
  return std::string(text);
}

// The source address of this machine for connections to another. Its own name is not resolved,
// since Debian's /etc/hosts maps that to the loopback device.
Result<std::string> AddressTowards(const std::string& other) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  inet_pton(AF_INET, other.c_str(), &to.sin_addr);
  const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);  // sends nothing
  sockaddr_in own{};
  socklen_t size = sizeof own;
  const bool good = socket_fd >= 0 &&
                    connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
                    getsockname(socket_fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  if (socket_fd >= 0) close(socket_fd);
  if (!good) return Unavailable("no route from this node to {}: {}", other, strerror(errno));
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
  return std::string(text);
}

// Expands SLURM_JOB_NODELIST ("n[1-3]") with scontrol.
Result<std::vector<std::string>> NodeNames() {
  const std::string list = Variable("SLURM_JOB_NODELIST");
  if (list.empty() || Variable("SLURM_JOB_ID").empty()) {
    return FailedPrecondition(
        "not in a Slurm job (no SLURM_JOB_NODELIST); submit its script with sbatch");
  }
  TROOP_ASSIGN_OR_RETURN(const ProgramResult said,
                         RunProgram({"scontrol", "show", "hostnames", list}, Seconds(30)));
  std::istringstream words(said.output);
  std::vector<std::string> names;
  for (std::string name; said.code == 0 && words >> name;) names.push_back(name);
  if (!names.empty()) return names;
  return Unavailable("scontrol show hostnames {}: {}", list, said.output);
}

// fleet.external_roles concerns the coordinator only: here all roles are started by this process.
Config WithAllRoles(Config config) {
  config.fleet.external_roles.clear();
  return config;
}

// True for slots that hold one role; an actor slot stands for all actors of a node.
bool IsCore(const FleetRole& slot) { return slot.role != Role::kActor; }

}  // namespace

// Node 0 is this machine; its address is the one that the second node can reach.
Result<SlurmLauncher::Options> SlurmLauncher::ReadJob(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, NodeNames());
  Options options{.job = Variable("SLURM_JOB_ID"), .srun = FindProgram("srun")};
  if (options.srun.empty()) return NotFound("srun is not in PATH");
  TROOP_ASSIGN_OR_RETURN(const auto cpus,
                         ParseCpusPerNode(Variable("SLURM_JOB_CPUS_PER_NODE"), names.size()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    options.nodes.push_back({.name = names[i], .cpus = cpus[i]});
    options.addresses.push_back("127.0.0.1");
    if (i == 0) continue;
    TROOP_ASSIGN_OR_RETURN(options.addresses[i], AddressOf(names[i]));
  }
  if (names.size() > 1) {
    TROOP_ASSIGN_OR_RETURN(options.addresses[0], AddressTowards(options.addresses[1]));
  }
  std::error_code error;
  options.program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  options.logs = (std::filesystem::path(config.log.dir) / config.name / "logs").string();
  return options;
}

SlurmLauncher::SlurmLauncher(const Config& config, Options options)
    : config_(WithAllRoles(config)), options_(std::move(options)), nodes_(config_, options_.nodes) {
  for (int i = 1; i < std::min(nodes_.count(), kGuards + 1); ++i) guards_[i] = {};
  if (!config.slurm.requeue) guards_.clear();
}

SlurmLauncher::~SlurmLauncher() {
  for (const auto& [node, guard] : guards_) {
    if (guard.first <= 0) continue;
    kill(guard.first, SIGKILL);
    waitpid(guard.first, nullptr, 0);
  }
}

std::vector<FleetRole> SlurmLauncher::Slots(std::int32_t parameter_servers) {
  std::vector<FleetRole> slots = RolesOf(config_, parameter_servers);
  std::erase_if(slots, [](const FleetRole& role) { return !IsCore(role); });
  for (int i = 0; i < nodes_.count(); ++i) {
    if (nodes_.ActorsOn(i) > 0) slots.push_back({Role::kActor, i});
  }
  return slots;
}

void SlurmLauncher::Configure(Supervisor::Options* options) {
  options->wrap = [this, coordinator = options->coordinator](FleetRole slot, std::string* program,
                                                             std::vector<std::string>* words) {
    Wrap(slot, coordinator, program, words);
  };
  options->spare = [](FleetRole slot) { return !IsCore(slot); };
  options->log_name = [this](FleetRole slot) { return LogName(slot); };
}

// An actor slot is of a node, so its index says nothing to the coordinator.
bool SlurmLauncher::Needs(FleetRole slot, const Coordinator& coordinator, Time now) {
  if (IsCore(slot)) return coordinator.Needs(slot.role, slot.index);
  return coordinator.Needs(slot.role) && !nodes_.IsSuspect(NodeOf(slot), now);
}

std::string SlurmLauncher::LogName(FleetRole slot) const {
  if (IsCore(slot)) return PeerName(slot.role, slot.index);
  return fmt::format("actors-{}", nodes_.name(slot.index));
}

// The srun options of a step. --overlap and --mem=0 share the node's resources between steps;
// --kill-on-bad-exit=0 keeps one failed step from ending the job.
std::vector<std::string> SlurmLauncher::StepWords(int node, const std::string& name) const {
  return {"srun",
          "--overlap",
          "--nodes=1",
          "--ntasks=1",
          "--nodelist=" + nodes_.name(node),
          "--no-kill",
          "--kill-on-bad-exit=0",
          "--mem=0",
          "--mpi=none",
          "--input=none",
          "--quiet",
          "--cpu-bind=none",
          "--job-name=" + name};
}

// Core roles bind at their node's address (--advertise-host); an actor slot becomes `troop join`
// with all actors of the node. On other nodes srun starts the program.
void SlurmLauncher::Wrap(FleetRole slot, const std::string& coordinator, std::string* program,
                         std::vector<std::string>* words) {
  const int node = NodeOf(slot);
  starts_[{slot.role, slot.index}] = {.incarnation = newest_[{slot.role, slot.index}]};
  if (IsCore(slot)) {
    words->insert(words->end(), {"--advertise-host", options_.addresses[std::size_t(node)]});
  } else {
    *words = {"troop",
              "join",
              coordinator.substr(0, coordinator.find('#')),
              "--count",
              std::to_string(nodes_.ActorsOn(node)),
              "--logs",
              options_.logs + "/" + nodes_.name(node)};
    if (!config_.security.keys.empty()) {
      words->insert(words->end(), {"--key", KeyFileOf(config_.security.keys, Role::kActor)});
    }
  }
  LogInfo("{} starts on {}", LogName(slot), nodes_.name(node));
  if (node == 0) return;  // the launcher's own node needs no srun
  std::vector<std::string> step = StepWords(node, LogName(slot));
  step.push_back(options_.program);
  step.insert(step.end(), words->begin() + 1, words->end());
  *words = std::move(step);
  *program = options_.srun;
}

// The process id in a member is that on its node, not of srun; so the member of this start is found
// by a newer incarnation.
void SlurmLauncher::NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time now) {
  if (exit.process == 0) return;  // srun was not started, which says nothing about the node
  if (!IsCore(exit.role)) {       // the coordinator notices lost actors by their connections
    if (!exit.orderly) nodes_.MarkSuspect(exit.role.index, now);
    return;
  }
  const Start& start = starts_[{exit.role.role, exit.role.index}];
  for (const MemberView& m : coordinator->members()) {
    if (m.role != exit.role.role || m.index != exit.role.index) continue;
    if (m.incarnation > start.incarnation) coordinator->OnMemberExit(m.role, m.index, m.process);
  }
  // The step was never launched, or its node was lost before it registered.
  if (exit.code == kLaunchFailed) Lose(exit.role, "its step could not be launched", now);
}

// Suspects the role's node and moves the role; the supervisor restarts it on the new node.
void SlurmLauncher::Lose(FleetRole role, const std::string& why, Time now) {
  const int from = nodes_.NodeOf(role);
  nodes_.MarkSuspect(from, now);
  const int to = nodes_.Move(role, now);
  LogWarning("{} on {} is lost: {}; it restarts on {}", LogName(role), nodes_.name(from), why,
             nodes_.name(to));
}

Status SlurmLauncher::Watch(Time now, Coordinator* coordinator, Supervisor* supervisor,
                            Time* next) {
  *next = now + kWatchEvery;
  KeepGuards(now);
  // Step 1: a new incarnation of an actor shows that its node works.
  const std::vector<MemberView> members = coordinator->members();
  for (const MemberView& m : members) {
    std::uint64_t& newest = newest_[{m.role, m.index}];
    const bool fresh = m.incarnation > newest;
    newest = std::max(newest, m.incarnation);
    if (fresh && m.role == Role::kActor) {
      for (int i = 1; i < nodes_.count(); ++i) {
        if (m.host == nodes_.name(i)) nodes_.ClearSuspect(i);
      }
    }
  }
  // Step 2: each running role must register in time, stay connected and make progress.
  for (const Supervisor::Running& running : supervisor->running()) {
    if (!IsCore(running.role)) continue;
    Start& start = starts_[{running.role.role, running.role.index}];
    const MemberView* member = nullptr;
    for (const MemberView& m : members) {
      const bool same = m.role == running.role.role && m.index == running.role.index;
      if (same && m.incarnation > start.incarnation) member = &m;
    }
    const int node = nodes_.NodeOf(running.role);
    const double alone_s = ToSeconds(now - running.since);
    std::string why;
    if (member == nullptr) {
      if (!start.heard && alone_s > ToSeconds(kStart))
        why = fmt::format("silent for {:.0f} s since its start", alone_s);
    } else if (member->down_s > ToSeconds(kLost)) {
      why = fmt::format("its connection ended {:.1f} s ago", member->down_s);
    } else if (member->heartbeat_age_s > config_.fleet.stall_timeout_s) {
      why =
          fmt::format("no progress for {:.1f} s (fleet.stall_timeout_s)", member->heartbeat_age_s);
    } else if (!std::exchange(start.heard, true)) {
      nodes_.ClearSuspect(node);
    }
    if (why.empty()) continue;
    if (member != nullptr) coordinator->OnMemberExit(member->role, member->index, member->process);
    supervisor->Kill(running.role, running.process, why);
    Lose(running.role, why, now);
  }
  return CheckActors(now, members, coordinator, supervisor);
}

// Single actors may be lost, but a run without any for kActorsMissed would waste its allocation.
Status SlurmLauncher::CheckActors(Time now, const std::vector<MemberView>& members,
                                  Coordinator* coordinator, Supervisor* supervisor) {
  const bool any =
      !HasActors(config_) || !coordinator->Needs(Role::kActor) ||
      std::ranges::any_of(members, [](const MemberView& m) { return m.role == Role::kActor; });
  if (any) actors_missed_.reset();
  if (any) return Status::Ok();
  if (!actors_missed_) actors_missed_ = now;
  if (now - *actors_missed_ < kActorsMissed) return Status::Ok();
  std::string words = "none";
  for (const FleetRole& slot : Slots(0)) {
    if (!IsCore(slot) && words == "none") words = supervisor->LogTail(slot);
  }
  return Aborted("no actor was present for {:.0f} s; last log line of an actor: {}; see {}",
                 ToSeconds(kActorsMissed), words, options_.logs);
}

// Starts guards and restarts those that exited. A guard polls Slurm for the state of the first
// node and requeues the job when that node is down.
void SlurmLauncher::KeepGuards(Time now) {
  for (auto& [node, guard] : guards_) {
    auto& [process, due] = guard;
    if (process > 0 && waitpid(process, nullptr, WNOHANG) == process) {
      process = 0;
      due = now + kGuardAgain;
    }
    if (process > 0 || now < due || nodes_.IsSuspect(node, now)) continue;
    std::vector<std::string> words = StepWords(node, "guard");
    // Slurm decides whether the node is down; a guard that can't reach Slurm does nothing.
    words.insert(words.end(),
                 {"/bin/sh", "-c",
                  fmt::format("while sleep 5; do scontrol show node {0} -o | grep -q State=DOWN && "
                              "echo \"{0} is down: requeuing the job\" && scontrol requeue {1}; "
                              "done",
                              nodes_.name(0), options_.job)});
    const Result<pid_t> started =
        StartChild(options_.srun, std::move(words), options_.logs + "/guard.log", SIGKILL);
    process = started.ok() ? *started : 0;
    due = now + kGuardAgain;
  }
}

}  // namespace troop
