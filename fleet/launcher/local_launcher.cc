// Roles as child processes of this machine: which ones, the room for them, detection of hung ones.
#include "fleet/launcher/local_launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "fleet/launcher/resource_estimate.h"

namespace troop {

LocalLauncher::LocalLauncher(const Config& config, bool external_learners)
    : config_(config), external_learners_(external_learners) {}

// Under mpirun learners are external roles, but learner 0 is started here.
std::vector<FleetRole> LocalLauncher::Slots(std::int32_t parameter_servers) {
  std::vector<FleetRole> slots = RolesOf(config_, parameter_servers);
  const FleetRole first{Role::kLearner, 0};
  if (external_learners_ && std::ranges::find(slots, first) == slots.end()) slots.push_back(first);
  return slots;
}

// An actor process takes some MiB besides what CheckMachine counts; hundreds per core add no speed.
Status LocalLauncher::CheckRoom(const Config& config) const {
  constexpr std::int64_t kActorsOfACore = 1000;
  constexpr double kProcessMiB = 12;
  TROOP_RETURN_IF_ERROR(CheckMachine(config));
  const std::int64_t actors = config.fleet.actors, most = kActorsOfACore * CoresHere();
  const double mib = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
  if (actors <= most && double(actors) * kProcessMiB <= 0.75 * mib) {
    return RaiseOpenFiles(config);
  }
  return InvalidArgument(
      "{} actors exceed the limit of this machine, {} ({} per core, {:g} MiB each in three "
      "quarters of its memory); start more actors on other machines with troop join",
      actors, std::min(most, std::int64_t(0.75 * mib / kProcessMiB)), kActorsOfACore, kProcessMiB);
}

bool LocalLauncher::Needs(FleetRole slot, const Coordinator& coordinator, Time) {
  if (external_learners_ && slot.role == Role::kLearner && slot.index > 0) return false;
  return coordinator.Needs(slot.role, slot.index);
}

void LocalLauncher::NoteExit(const Supervisor::Exit& exit, Coordinator* coordinator, Time) {
  coordinator->OnMemberExit(exit.role.role, exit.role.index, exit.process);
}

// Kills a role whose node has sent no heartbeat for fleet.stall_timeout_s, also one that never
// joined; the supervisor then restarts it like any failed role.
Status LocalLauncher::Watch(Time now, Coordinator* coordinator, Supervisor* supervisor,
                            Time* next) {
  const double limit = config_.fleet.stall_timeout_s;
  // The process id distinguishes a restarted role from its predecessor, whose entry may remain.
  std::map<std::tuple<Role, std::int32_t, std::int64_t>, double> silent;
  for (const MemberView& m : coordinator->members()) {
    silent[{m.role, m.index, m.process}] = m.heartbeat_age_s;
  }
  *next = now + Milliseconds(std::clamp<std::int64_t>(2 * std::ssize(silent), 250, 2000));
  for (const Supervisor::Running& running : supervisor->running()) {
    const auto member = silent.find({running.role.role, running.role.index, running.process});
    const double heartbeat_age_s =
        member == silent.end() ? ToSeconds(now - running.since) : member->second;
    if (heartbeat_age_s < limit) continue;
    supervisor->Kill(
        running.role, running.process,
        fmt::format("no progress for {:.1f} s (fleet.stall_timeout_s)", heartbeat_age_s));
  }
  return Status::Ok();
}

}  // namespace troop
