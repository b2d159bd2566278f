#include "apps/slurm_fleet.h"

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

#include "apps/child_process.h"
#include "core/log.h"
#include "net/endpoint.h"
#include "net/keys.h"

namespace troop {
namespace {

// Of a connection that ended: a process that died is told of by its srun sooner, and a switch that
// restarts may be back. With fleet.dead_after_s some three seconds until a node counts as lost.
constexpr Duration kLost = Milliseconds(1500);
// From srun to the role's registration: reading a file system and starting Python may take a while.
constexpr Duration kStart = Seconds(20);
// srun's own exit code where the step could not be launched (22.05: after 11 s).
constexpr int kLaunchFailed = 233;
constexpr Duration kActorsMissed = Seconds(90);
constexpr int kGuards = 2;
constexpr Duration kGuardAgain = Seconds(60);

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

struct AddressDelete {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

// The first address of a node by its name, as numbers. Asks the system's resolver, and blocks.
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

// The address of this machine from which it talks to another. Debian's /etc/hosts gives the own
// name to the loopback device, so the own name is not asked.
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
  if (!good) return Unavailable("no way from this node to {}: {}", other, strerror(errno));
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
  return std::string(text);
}

Result<std::vector<std::string>> NodeNames() {
  const std::string list = Variable("SLURM_JOB_NODELIST");
  if (list.empty() || Variable("SLURM_JOB_ID").empty()) {
    return FailedPrecondition("not in a job of Slurm (no SLURM_JOB_NODELIST); submit the script");
  }
  TROOP_ASSIGN_OR_RETURN(const Ended said,
                         RunProgram({"scontrol", "show", "hostnames", list}, Seconds(30)));
  std::istringstream words(said.output);
  std::vector<std::string> names;
  for (std::string name; said.code == 0 && words >> name;) names.push_back(name);
  if (!names.empty()) return names;
  return Unavailable("scontrol show hostnames {}: {}", list, said.output);
}

// fleet.elsewhere is for the coordinator: all roles are ours to start.
Config WithAllRoles(Config config) {
  config.fleet.elsewhere.clear();
  return config;
}

bool IsCore(const FleetRole& seat) { return seat.role != Role::kActor; }

}  // namespace

Result<SlurmFleet::Options> SlurmFleet::ReadJob(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, NodeNames());
  Options options{.job = Variable("SLURM_JOB_ID"), .srun = FindProgram("srun")};
  if (options.srun.empty()) return NotFound("there is no program srun in PATH");
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

SlurmFleet::SlurmFleet(const Config& config, Options options)
    : config_(WithAllRoles(config)), options_(std::move(options)), nodes_(config_, options_.nodes) {
  for (int i = 1; i < std::min(nodes_.count(), kGuards + 1); ++i) guards_[i] = {};
  if (!config.slurm.requeue) guards_.clear();
}

SlurmFleet::~SlurmFleet() {
  for (const auto& [node, guard] : guards_) {
    if (guard.first <= 0) continue;
    kill(guard.first, SIGKILL);
    waitpid(guard.first, nullptr, 0);
  }
}

std::vector<FleetRole> SlurmFleet::Seats(std::int32_t parameter_servers) {
  std::vector<FleetRole> seats = RolesOf(config_, parameter_servers);
  std::erase_if(seats, [](const FleetRole& role) { return !IsCore(role); });
  for (int i = 0; i < nodes_.count(); ++i) {
    if (nodes_.ActorsOn(i) > 0) seats.push_back({Role::kActor, i});
  }
  return seats;
}

std::string SlurmFleet::LogName(FleetRole seat) const {
  if (IsCore(seat)) return PeerName(seat.role, seat.index);
  return fmt::format("actors-{}", nodes_.name(seat.index));
}

std::vector<std::string> SlurmFleet::StepWords(int node, const std::string& name) const {
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

void SlurmFleet::Wrap(FleetRole seat, const std::string& coordinator, std::string* program,
                      std::vector<std::string>* words) {
  const int node = NodeOf(seat);
  starts_[{seat.role, seat.index}] = {.incarnation = newest_[{seat.role, seat.index}]};
  if (IsCore(seat)) {
    words->insert(words->end(), {"--reach", options_.addresses[std::size_t(node)]});
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
  LogInfo("{} begins on {}", LogName(seat), nodes_.name(node));
  if (node == 0) return;  // where we are
  std::vector<std::string> step = StepWords(node, LogName(seat));
  step.push_back(options_.program);
  step.insert(step.end(), words->begin() + 1, words->end());
  *words = std::move(step);
  *program = options_.srun;
}

void SlurmFleet::NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time now) {
  if (!IsCore(exit.role)) {  // its actors' connections tell the coordinator
    if (!exit.orderly) nodes_.Doubt(exit.role.index, now);
    return;
  }
  const Start& start = starts_[{exit.role.role, exit.role.index}];
  for (const MemberView& m : coordinator->members()) {
    if (m.role != exit.role.role || m.index != exit.role.index) continue;
    if (m.incarnation > start.incarnation) coordinator->MemberLeft(m.role, m.index, m.process);
  }
  // The step never was, or was lost with its node before we saw it.
  if (exit.code == kLaunchFailed) Lose(exit.role, "its step can't be launched", now);
}

void SlurmFleet::Lose(FleetRole role, const std::string& why, Time now) {
  const int from = nodes_.NodeOf(role);
  nodes_.Doubt(from, now);
  const int to = nodes_.Move(role, now);
  LogWarning("{} on {} is lost: {}; it goes on on {}", LogName(role), nodes_.name(from), why,
             nodes_.name(to));
}

Status SlurmFleet::Watch(Time now, Coordinator* coordinator, Supervisor* supervisor) {
  KeepGuards(now);
  const std::vector<MemberView> members = coordinator->members();
  for (const MemberView& m : members) {
    std::uint64_t& newest = newest_[{m.role, m.index}];
    const bool fresh = m.incarnation > newest;
    newest = std::max(newest, m.incarnation);
    if (fresh && m.role == Role::kActor) {
      for (int i = 1; i < nodes_.count(); ++i) {
        if (m.host == nodes_.name(i)) nodes_.Trust(i);
      }
    }
  }
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
    } else if (member->silent_s > config_.fleet.hung_after_s) {
      why = fmt::format("no sign of progress for {:.1f} s (fleet.hung_after_s)", member->silent_s);
    } else if (!std::exchange(start.heard, true)) {
      nodes_.Trust(node);
    }
    if (why.empty()) continue;
    if (member != nullptr) coordinator->MemberLeft(member->role, member->index, member->process);
    supervisor->Kill(running.role, running.process, why);
    Lose(running.role, why, now);
  }
  return CheckActors(now, members, coordinator, supervisor);
}

// Some may be lost without harm; without any the run would only use up its time.
Status SlurmFleet::CheckActors(Time now, const std::vector<MemberView>& members,
                               Coordinator* coordinator, Supervisor* supervisor) {
  const bool any =
      IsSupervised(config_) || !coordinator->Needs(Role::kActor) ||
      std::ranges::any_of(members, [](const MemberView& m) { return m.role == Role::kActor; });
  if (any) actors_missed_.reset();
  if (any) return Status::Ok();
  if (!actors_missed_) actors_missed_ = now;
  if (now - *actors_missed_ < kActorsMissed) return Status::Ok();
  std::string words = "none";
  for (const FleetRole& seat : Seats(0)) {
    if (!IsCore(seat) && words == "none") words = supervisor->LogTail(seat);
  }
  return Aborted("no actor has played for {:.0f} s; last words of one: {}; see {}",
                 ToSeconds(kActorsMissed), words, options_.logs);
}

void SlurmFleet::KeepGuards(Time now) {
  for (auto& [node, guard] : guards_) {
    auto& [process, due] = guard;
    if (process > 0 && waitpid(process, nullptr, WNOHANG) == process) {
      process = 0;
      due = now + kGuardAgain;
    }
    if (process > 0 || now < due || nodes_.InDoubt(node, now)) continue;
    std::vector<std::string> words = StepWords(node, "guard");
    // Slurm's own judgement counts, not ours: a guard that can't reach it does nothing.
    words.insert(words.end(),
                 {"/bin/sh", "-c",
                  fmt::format("while sleep 5; do scontrol show node {0} -o | grep -q State=DOWN && "
                              "echo \"{0} is down: the job begins again\" && scontrol requeue {1}; "
                              "done",
                              nodes_.name(0), options_.job)});
    const Result<pid_t> started =
        StartChild(options_.srun, std::move(words), options_.logs + "/guard.log", SIGKILL);
    process = started.ok() ? *started : 0;
    due = now + kGuardAgain;
  }
}

}  // namespace troop
