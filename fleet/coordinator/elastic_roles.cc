// Coordinator: scales the roles of a running fleet (`troop scale`): actors, learners and replay
// shards by RoleSlots, parameter shards by ParameterResharding.
#include <algorithm>

#include "core/base/log.h"
#include "core/config/enum_format.h"
#include "fleet/config/config_keys.h"
#include "fleet/config/role_configs.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/roles/external_roles.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Time limit for new roles to join: longer than a fleet takes to start, shorter than the deadline
// of `troop scale`.
constexpr Duration kComeMax = Seconds(50);
constexpr Duration kLookEvery = Milliseconds(50);
// Limit on heartbeats per second over all actors; a large fleet gets a longer interval.
constexpr std::int64_t kBeatsPerSecond = 500;
constexpr std::int32_t kCountMax = 100000;  // the limit of fleet.actors

const char* NameOf(Role role) {
  return role == Role::kActor ? "actors" : role == Role::kReplay ? "replay shards" : "learners";
}

}  // namespace

// Includes servers of both maps while a reshard is under way.
std::int32_t Coordinator::parameter_servers() const {
  return shards_ ? shards_->mover().servers() : ParameterServersOf(options_.config);
}

// Starts a change and keeps the reply until it has completed or failed.
void Coordinator::HandleScale(const Message& message, Reply reply) {
  const Result<ScaleRequest> request = DecodeBody<ScaleRequest>(message.body);
  const std::optional<Role> role = request.ok() ? ScaledRole(request->role) : std::nullopt;
  if (role) {
    const Status begun = BeginFleetScale(*role, *request);
    if (!begun.ok()) return reply.Fail(begun);
    change_->reply = std::move(reply);
    return UpdateFleet();
  }
  const Status begun = request.ok() ? BeginScale(*request) : request.status();
  if (!begun.ok()) return reply.Fail(begun);
  shards_->Await(std::move(reply));
  UpdateMove();
}

// Checks the role, the count and the phase, in this order, and starts the reshard.
Status Coordinator::BeginScale(const ScaleRequest& request) {
  if (request.role != RoleName(Role::kParamServer)) {
    return InvalidArgument(
        "{} can't be scaled in a running fleet; use actors, replay, learners or paramserver",
        request.role);
  }
  if (!shards_) {
    return InvalidArgument(
        "this run has no parameter shards (learner.sync = \"{}\"); paramserver can't be scaled",
        options_.config.learner.sync);
  }
  TROOP_RETURN_IF_ERROR(ParameterResharding::CheckCount(request));
  if (!lifecycle_.running()) {
    return FailedPrecondition("the run is ending; its parameter shards can't be scaled");
  }
  return shards_->Begin(request, now_);
}

// Drives the reshard with the members that are present; gives up when the run ends.
void Coordinator::UpdateMove() {
  if (!shards_ || !shards_->moving()) return;
  if (!lifecycle_.running()) return shards_->Abort(now_);
  // A server counts once it is bound; a learner counts as soon as it is registered.
  ReshardController::LiveProcesses present;
  for (const auto& [name, member] : membership_.records()) {
    const ReshardController::LiveProcess player{member.view.index, member.view.incarnation,
                                                member.shard_move};
    if (!member.present) continue;
    if (member.view.role == Role::kLearner) present.learners.push_back(player);
    if (member.view.role == Role::kParamServer && !member.endpoint.empty()) {
      present.servers.push_back(player);
    }
  }
  shards_->Update(now_, present);
}

// The config with the current numbers of roles.
Config Coordinator::LiveConfig() const {
  Config config = options_.config;
  if (IsSupervised(config)) return config;
  if (!IsExternal(config, Role::kActor)) config.fleet.actors = std::ssize(slots_.actors());
  config.fleet.learners = slots_.learners();
  config.replay.shards = slots_.replay_taking();
  return config;
}

// The config for a role that registers now. The capacity per replay shard is that of the run's
// start, so scaling up adds capacity; hence the original shard count.
Config Coordinator::ConfigFor(Role role) const {
  Config config = LiveConfig();
  if (role == Role::kReplay) config.replay.shards = options_.config.replay.shards;
  return config;
}

std::int32_t Coordinator::SlotsOf(Role role) const {
  if (role == Role::kActor) return std::int32_t(slots_.actors().size());
  return role == Role::kReplay ? slots_.replay_taking() : slots_.learners();
}

// Checks limits, then the consistency of the scaled config, then the room on this machine.
Result<Config> Coordinator::CheckFleetScale(Role role, const ScaleRequest& request) const {
  const Config& c = options_.config;
  if (request.count < 1 || request.count > kCountMax) {
    return InvalidArgument("{}={}: must be from 1 to {}", request.role, request.count, kCountMax);
  }
  if (IsSupervised(c)) {
    return InvalidArgument(
        "{}={}: a supervised run can't be scaled; its mesh is fixed at the start "
        "(mesh.dp, mesh.tp)",
        request.role, request.count);
  }
  if (role == Role::kActor && IsExternal(c, role)) {
    return InvalidArgument(
        "actors={}: this run's actors are external; start or stop them on their machines",
        request.count);
  }
  if (role == Role::kReplay && c.replay.persist) {
    return InvalidArgument("replay={}: persistent replay shards (replay.persist) can't be scaled",
                           request.count);
  }
  Config next = LiveConfig();
  (role == Role::kActor    ? next.fleet.actors
   : role == Role::kReplay ? next.replay.shards
                           : next.fleet.learners) = request.count;
  const std::vector<ConfigConflict> conflicts = FindConflicts(next);
  if (!conflicts.empty()) {
    return InvalidArgument("{}={}: {}: {}", request.role, request.count, conflicts[0].keys[0],
                           conflicts[0].message);
  }
  if (options_.may_have) {
    TROOP_RETURN_IF_ERROR(
        options_.may_have(next).WithContext(fmt::format("{}={}", request.role, request.count)));
  }
  return next;
}

// Validates the request and changes the slots; UpdateFleet completes it.
Status Coordinator::BeginFleetScale(Role role, const ScaleRequest& request) {
  TROOP_RETURN_IF_ERROR(CheckFleetScale(role, request).status());
  if (!lifecycle_.running()) {
    return FailedPrecondition("the run is ending; its {} can't be scaled", NameOf(role));
  }
  if (change_) {
    return FailedPrecondition("already scaling from {} to {} {}; wait until that is done",
                              change_->before, change_->after, NameOf(change_->role));
  }
  const auto count = std::int32_t(request.count);
  change_ = FleetChange{.role = role, .before = SlotsOf(role), .after = count, .began = now_};
  if (role == Role::kActor) slots_.SetActors(count, membership_.joined_actors());
  if (role == Role::kLearner) slots_.SetLearners(count);
  if (role == Role::kReplay) ChangeReplay(count);
  LogInfo("scaling from {} to {} {}", change_->before, count, NameOf(role));
  return Status::Ok();
}

// Scales replay up by waiting for new shards, or down by draining the last shards: they take no
// inserts, and are sampled until the others have received as many items as those held.
void Coordinator::ChangeReplay(std::int32_t count) {
  change_->shards_leave = count < slots_.replay();
  if (!change_->shards_leave) return slots_.StartReplayScaleUp(count);
  double held = 0;
  for (std::int32_t k = count; k < slots_.replay(); ++k)
    held += membership_.MetricOf(Role::kReplay, k, "replay/items");
  for (std::int32_t k = 0; k < count; ++k)
    slots_.RecordInserts(k, membership_.MetricOf(Role::kReplay, k, "replay/inserts"));
  slots_.StartReplayDrain(count, held);
  LogInfo(
      "draining {} replay shards: no more inserts; their {:.0f} items are sampled until the other "
      "shards have received as many",
      slots_.replay() - count, held);
}

// Number of present members with a slot. A replay shard counts once it is bound.
std::int32_t Coordinator::CountPresent(Role role) const {
  std::int32_t count = 0;
  for (const auto& [name, member] : membership_.records()) {
    const bool there = member.present && member.view.role == role && !member.joined &&
                       slots_.Has(role, member.view.index) &&
                       (role != Role::kReplay || !member.endpoint.empty());
    count += there;
  }
  return count;
}

// True when all slots are filled and removed roles have left.
bool Coordinator::FleetChangeIsDone() const {
  const Role role = change_->role;
  if (change_->shards_leave) return true;  // draining continues in the background
  const std::int32_t slots = role == Role::kReplay ? slots_.replay() : SlotsOf(role);
  if (CountPresent(role) < slots) return false;
  if (role == Role::kReplay || change_->after >= change_->before) return true;
  return std::ranges::none_of(membership_.records(), [&](const auto& entry) {
    const MemberRecord& m = entry.second;
    return m.present && m.view.role == role && !m.joined && !slots_.Has(role, m.view.index);
  });
}

// Completes the pending change when the roles have joined or left; fails it after kComeMax or when
// the run ends. Replay shards that did not join lose their slots; other roles stay awaited.
void Coordinator::UpdateFleet() {
  if (now_ < next_fleet_look_) return;
  next_fleet_look_ = now_ + kLookEvery;
  const bool come = change_ && change_->role == Role::kReplay && !change_->shards_leave;
  if (slots_.replay_draining() && !come) UpdateLeavingShards();
  if (!change_) return;
  if (FleetChangeIsDone()) {
    if (change_->role == Role::kReplay && !change_->shards_leave) slots_.CommitReplayScaleUp();
    return EndFleetScale(Status::Ok());
  }
  if (!lifecycle_.running()) {
    return EndFleetScale(Aborted("the run ended first"));
  }
  if (now_ - change_->began <= kComeMax) return;
  const std::int32_t there = CountPresent(change_->role);
  if (change_->role == Role::kReplay) {
    slots_.AbortReplayScaleUp();
    return EndFleetScale(
        Aborted("gave up, {} replay shards remain: {} of {} joined within {:.0f} s; see their logs",
                slots_.replay(), there, change_->after, ToSeconds(kComeMax)));
  }
  EndFleetScale(Unavailable("{} of {} {} joined within {:.0f} s; the others may still join", there,
                            change_->after, NameOf(change_->role), ToSeconds(kComeMax)));
}

// Removes draining shards once their items are replaced and all actors insert elsewhere.
void Coordinator::UpdateLeavingShards() {
  for (std::int32_t k = 0; k < slots_.replay_taking(); ++k) {
    slots_.RecordInserts(k, membership_.MetricOf(Role::kReplay, k, "replay/inserts"));
  }
  if (!slots_.replay_replaced()) return;
  const bool moved = std::ranges::all_of(membership_.records(), [this](const auto& entry) {
    const MemberRecord& m = entry.second;
    return !m.present || m.view.role != Role::kActor || m.view.finished ||
           m.fleet_epoch >= slots_.draining_since();
  });
  if (!moved) return;
  LogInfo("removing {} drained replay shards: no actor inserts there, and their items are replaced",
          slots_.replay() - slots_.replay_taking());
  slots_.FinishReplayDrain();
}

// Replies to the waiting `troop scale` and logs the outcome.
void Coordinator::EndFleetScale(const Status& outcome) {
  FleetChange change = std::move(*change_);
  change_.reset();
  if (!outcome.ok()) {
    LogWarning("scaling from {} to {} {} failed: {}", change.before, change.after,
               NameOf(change.role), outcome.message());
    return change.reply.Fail(outcome);
  }
  const ScaleReply body{.before = change.before,
                        .after = change.after,
                        .epoch = slots_.counts().epoch,
                        .seconds = ToSeconds(now_ - change.began)};
  LogInfo("scaled to {} {}, epoch {}, in {:.2f} s", change.after, NameOf(change.role), body.epoch,
          body.seconds);
  change.reply.Send({.type = MessageType::kScaleReply, .body = EncodeBody(body)});
}

// Fills the fleet part of a heartbeat reply. An actor's place in the exploration ladder (Ape-X)
// counts all actors: local ones first, then external ones.
void Coordinator::TellFleet(const MemberRecord& member, HeartbeatReply* body) const {
  body->fleet = slots_.counts();
  const MemberView& view = member.view;
  if (member.has_slot() && !slots_.Has(view.role, view.index)) body->stop = true;
  if (view.role != Role::kActor) return;
  const std::vector<std::int32_t>& own = slots_.actors();
  const std::vector<std::int32_t>& joined = membership_.joined_actors();
  const auto rank = [&](const std::vector<std::int32_t>& all) {
    return std::int32_t(std::ranges::lower_bound(all, view.index) - all.begin());
  };
  body->place = member.joined ? std::int32_t(own.size()) + rank(joined) : rank(own);
  body->places = std::int32_t(own.size() + joined.size());
  // In small fleets the member's own interval is longer and applies.
  body->heartbeat_every_ms = std::uint32_t(1000 * std::int64_t{body->places} / kBeatsPerSecond);
}

}  // namespace troop
