// Implements the membership of a run: admission, fencing, heartbeats and the loss of members.
#include "fleet/coordinator/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "fleet/coordinator/run_results.h"

namespace troop {
namespace {

// Interval of the check for lost members, however often messages wake the coordinator.
constexpr Duration kLossCheckEvery = Milliseconds(200);
constexpr std::size_t kErrorBytesMax = 400;  // a role's last log line may be of any length

}  // namespace

// Control characters could carry terminal escapes into a status display.
std::string OneLineOf(std::string_view text) {
  std::string line(text.substr(0, kErrorBytesMax));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return line;
}

// An external actor takes a place in joined_actors_ until its exit.
MemberRecord Membership::Admit(MemberView view, std::string listen, bool joined, Time now) {
  const std::string name = PeerName(view.role, view.index);
  const auto role = std::size_t(view.role);
  issued_.resize(std::max(issued_.size(), role + 1));
  issued_[role] = view.incarnation;
  ++histories_[name].registered;
  peers_old_ = true;
  if (joined && view.role == Role::kActor) {
    joined_actors_.insert(std::ranges::upper_bound(joined_actors_, view.index), view.index);
  }
  MemberRecord next;
  next.view = std::move(view);
  next.listen = std::move(listen);
  next.last_beat = now;
  next.present = true;
  next.joined = joined;
  return std::exchange(records_[name], std::move(next));
}

void Membership::MarkAbsent(MemberRecord* member) {
  if (member->present && !member->has_slot()) std::erase(joined_actors_, member->view.index);
  member->present = false;
  peers_old_ = true;
}

// The process id guards against a late report about a process that was replaced.
MemberRecord* Membership::Remove(Role role, std::int32_t index, std::int64_t process) {
  MemberRecord* const member = Find(role, index);
  if (member == nullptr || member->view.process != process) return nullptr;
  MarkAbsent(member);
  return member;
}

// Removes members whose exit no supervisor reports: those on other machines, and those that died
// before their registration was read. Slower than a supervisor, whose reason is more precise.
std::vector<MemberRecord*> Membership::RemoveLost(Time now) {
  std::vector<MemberRecord*> lost;
  if (now < next_look_) return lost;
  next_look_ = now + kLossCheckEvery;
  for (auto& [name, member] : records_) {
    const MemberView& view = member.view;
    if (!member.present) continue;
    if (member.joined && member.down_since && now - *member.down_since > options_.reconnect_max) {
      LogWarning("{} (process {} on {}) left: its connection ended {:.1f} s ago", name,
                 view.process, view.host, ToSeconds(now - *member.down_since));
      RecordFailure(view.role, view.index, "its connection ended", 0, now);
    } else if (const Duration silent = now - member.last_beat; silent > options_.silence_max) {
      LogWarning("{} (process {} on {}) removed: silent for {:.1f} s (fleet.stall_timeout_s)", name,
                 view.process, view.host, ToSeconds(silent));
      RecordFailure(
          view.role, view.index,
          fmt::format("silent for {:.1f} s, removed (fleet.stall_timeout_s)", ToSeconds(silent)), 0,
          now);
    } else {
      continue;
    }
    MarkAbsent(&member);
    lost.push_back(&member);
  }
  return lost;
}

void Membership::ExtendLeases(Duration pause) {
  for (auto& [name, member] : records_) {
    member.last_beat += pause;
    if (member.down_since) *member.down_since += pause;
  }
}

MemberRecord* Membership::FindCurrent(const Origin& origin) {
  MemberRecord* const member = Find(origin.role, origin.index);
  return member != nullptr && member->view.incarnation == origin.incarnation ? member : nullptr;
}

const MemberRecord* Membership::Find(Role role, std::int32_t index) const {
  const auto it = records_.find(PeerName(role, index));
  return it == records_.end() ? nullptr : &it->second;
}

MemberRecord* Membership::Find(Role role, std::int32_t index) {
  const auto it = records_.find(PeerName(role, index));
  return it == records_.end() ? nullptr : &it->second;
}

bool Membership::Has(Role role, std::int32_t index) const {
  const MemberRecord* const member = Find(role, index);
  return member != nullptr && member->present;
}

// Only a forged number is logged: a replaced process may send its own for a while.
Status Membership::CheckOrigin(const Origin& caller, std::uint64_t next, Time now) {
  if (FindCurrent(caller) != nullptr) return Status::Ok();
  const std::string name = PeerName(caller.role, caller.index);
  if (caller.incarnation >= next && invented_.Next(now)) {
    LogWarning("{} callers rejected; the last is {} with incarnation {}, which was never issued",
               invented_.number, name, caller.incarnation);
  }
  return Aborted("{} incarnation {} is not a member: it was replaced or never registered", name,
                 caller.incarnation);
}

// Steps, checkpoint and evaluations of the heartbeat concern the run, not its members.
void Membership::RecordHeartbeat(MemberRecord* member, HeartbeatRequest* beat, Time now) {
  member->last_beat = now;
  peers_old_ = peers_old_ || member->endpoint != beat->endpoint;
  member->endpoint = beat->endpoint;
  member->fleet_epoch = beat->fleet_epoch;
  member->shard_move = beat->shard_move;
  member->metrics = std::move(beat->metrics);
  if (member->view.role == Role::kActor) member->rewards = beat->rewards;
  const char* const work = WorkOf(member->view.role).metric;
  const auto done = work == nullptr ? member->metrics.end() : member->metrics.find(work);
  if (done != member->metrics.end()) member->work.Note(now, done->second.value);
  member->view.finished = beat->finished;
  member->blocked = OneLineOf(beat->blocked);
}

// Connection events only serve the log and down_since; leases decide about membership.
const MemberRecord* Membership::RecordConnection(const Origin& peer, PeerState state, Time now) {
  MemberRecord* const member = FindCurrent(peer);
  if (member == nullptr || !member->present) return nullptr;
  if (state == PeerState::kDown) {
    member->down_since = now;
  } else {
    member->down_since.reset();
  }
  return member;
}

// Kept by name, so that it outlives the record.
void Membership::RecordFailure(Role role, std::int32_t index, std::string_view why,
                               std::int64_t failures, Time now) {
  RoleHistory& history = histories_[PeerName(role, index)];
  history.last_error = why.substr(0, kErrorBytesMax);
  history.error_at = now;
  history.role = role;
  history.index = index;
  history.failures = failures;
}

const RoleHistory* Membership::HistoryOf(Role role, std::int32_t index) const {
  const auto it = histories_.find(PeerName(role, index));
  return it == histories_.end() ? nullptr : &it->second;
}

const std::map<std::string, PeerInfo>& Membership::Peers() {
  if (!std::exchange(peers_old_, false)) return peers_;
  peers_.clear();
  for (const auto& [name, peer] : records_) {
    if (!peer.present || peer.endpoint.empty()) continue;
    peers_[name] = {peer.endpoint, peer.view.incarnation};
  }
  return peers_;
}

std::int32_t Membership::CountPresent(Role role) const {
  return std::int32_t(std::ranges::count_if(records_, [role](const auto& entry) {
    return entry.second.present && entry.second.view.role == role;
  }));
}

int Membership::CountConnectedExternal() const {
  return int(std::ranges::count_if(records_, [](const auto& entry) {
    const MemberRecord& m = entry.second;
    return m.present && m.joined && !m.down_since;
  }));
}

// A member that has received the final phase needs no further reply.
bool Membership::AllInformedOfEnd(bool stop) const {
  return std::ranges::all_of(records_, [stop](const auto& entry) {
    const MemberRecord& m = entry.second;
    return !m.present || m.told == Phase::kDone || (stop && m.told_stop);
  });
}

// Ages are measured here, in the clock of the coordinator.
std::vector<MemberView> Membership::Views(Time now) const {
  std::vector<MemberView> views;
  for (const auto& [name, member] : records_) {
    if (!member.present) continue;
    views.push_back(member.view);
    views.back().heartbeat_age_s = ToSeconds(now - member.last_beat);
    if (member.down_since) views.back().down_s = ToSeconds(now - *member.down_since);
  }
  return views;
}

// Synchronous learners share one version; those that pull from parameter shards may differ.
double Membership::NewestVersion() const {
  double newest = -1;
  for (const auto& [name, member] : records_) {
    if (!member.present || member.view.role != Role::kLearner) continue;
    const auto version = member.metrics.find("learner/version");
    if (version != member.metrics.end()) newest = std::max(newest, version->second.value);
  }
  return newest;
}

double Membership::MetricOf(Role role, std::int32_t index, const std::string& name) const {
  const MemberRecord* const member = Find(role, index);
  if (member == nullptr || !member->present) return 0;
  const auto found = member->metrics.find(name);
  return found == member->metrics.end() ? 0 : found->second.value;
}

// Members that left contribute their counters; their gauges are dropped.
std::vector<MetricSnapshot> Membership::Metrics(bool keep_ratios) const {
  std::vector<MetricSnapshot> snapshots;
  for (const auto& [name, member] : records_) {
    if (member.present) {
      snapshots.push_back(member.metrics);
      continue;
    }
    snapshots.push_back(CountersOf(member.metrics));
    if (!keep_ratios) continue;
    for (const auto& [metric, value] : member.metrics) {
      if (value.kind == MetricKind::kGaugeRatio) snapshots.back().emplace(metric, value);
    }
  }
  return snapshots;
}

}  // namespace troop
