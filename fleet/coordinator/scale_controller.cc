// Implements the scaling of actors, learners and replay shards.
#include "fleet/coordinator/scale_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "fleet/config/config_keys.h"
#include "fleet/config/role_configs.h"
#include "fleet/roles/external_roles.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Time limit for new roles to join: longer than a fleet takes to start, shorter than the deadline
// of `troop scale`.
constexpr Duration kJoinMax = Seconds(50);
constexpr Duration kScaleCheckEvery = Milliseconds(50);
// Limit on heartbeats per second over all actors; a large fleet gets a longer interval.
constexpr std::int64_t kBeatsPerSecond = 500;
constexpr std::int32_t kCountMax = 100000;  // the limit of fleet.actors

const char* NameOf(Role role) {
  return role == Role::kActor ? "actors" : role == Role::kReplay ? "replay shards" : "learners";
}

}  // namespace

Config ScaleController::LiveConfig() const {
  Config config = *config_;
  if (!HasActors(config)) return config;
  if (!IsExternal(config, Role::kActor)) config.fleet.actors = std::ssize(slots_.actors());
  config.fleet.learners = slots_.learners();
  config.replay.shards = slots_.replay_taking();
  return config;
}

// Keeps the original shard count for a replay, whose capacity is divided by it.
Config ScaleController::ConfigFor(Role role) const {
  Config config = LiveConfig();
  if (role == Role::kReplay) config.replay.shards = config_->replay.shards;
  return config;
}

std::int32_t ScaleController::SlotsOf(Role role) const {
  if (role == Role::kActor) return std::int32_t(slots_.actors().size());
  return role == Role::kReplay ? slots_.replay_taking() : slots_.learners();
}

// Checks the count, then whether this run can scale the role.
Status ScaleController::CheckRole(Role role, const ScaleRequest& request) const {
  const Config& c = *config_;
  if (request.count < 1 || request.count > kCountMax) {
    return InvalidArgument("{}={}: must be from 1 to {}", request.role, request.count, kCountMax);
  }
  if (IsSupervised(c)) {
    return InvalidArgument(
        "{}={}: a supervised run can't be scaled; its mesh is fixed at the start "
        "(mesh.dp, mesh.tp)",
        request.role, request.count);
  }
  if (role != Role::kLearner && IsOffline(c)) {
    return InvalidArgument("{}={}: this run learns from recorded episodes alone, without {}",
                           request.role, request.count, NameOf(role));
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
  return Status::Ok();
}

// Checks the consistency of the scaled config, then the room on this machine.
Status ScaleController::CheckScaledConfig(Role role, const ScaleRequest& request) const {
  Config next = LiveConfig();
  (role == Role::kActor    ? next.fleet.actors
   : role == Role::kReplay ? next.replay.shards
                           : next.fleet.learners) = request.count;
  const std::vector<ConfigConflict> conflicts = FindConflicts(next);
  if (!conflicts.empty()) {
    return InvalidArgument("{}={}: {}: {}", request.role, request.count, conflicts[0].keys[0],
                           conflicts[0].message);
  }
  if (!may_have_) return Status::Ok();
  return may_have_(next).WithContext(fmt::format("{}={}", request.role, request.count));
}

Status ScaleController::Begin(Role role, const ScaleRequest& request, const FleetState& fleet) {
  TROOP_RETURN_IF_ERROR(CheckRole(role, request));
  TROOP_RETURN_IF_ERROR(CheckScaledConfig(role, request));
  if (!fleet.running) {
    return FailedPrecondition("the run is ending; its {} can't be scaled", NameOf(role));
  }
  if (change_) {
    return FailedPrecondition("already scaling from {} to {} {}; wait until that is done",
                              change_->before, change_->after, NameOf(change_->role));
  }
  const auto count = std::int32_t(request.count);
  change_ = Change{.role = role, .before = SlotsOf(role), .after = count, .began = fleet.now};
  if (role == Role::kActor) slots_.SetActors(count, fleet.members.joined_actors());
  if (role == Role::kLearner) slots_.SetLearners(count);
  if (role == Role::kReplay) ChangeReplay(count, fleet.members);
  LogInfo("scaling from {} to {} {}", change_->before, count, NameOf(role));
  return Status::Ok();
}

// Scales replay up by waiting for new shards, or down by draining the last shards: they take no
// inserts, and are sampled until the others have received as many items as those held.
void ScaleController::ChangeReplay(std::int32_t count, const Membership& members) {
  change_->shards_leave = count < slots_.replay();
  if (!change_->shards_leave) return slots_.StartReplayScaleUp(count);
  double held = 0;
  for (std::int32_t k = count; k < slots_.replay(); ++k) {
    held += members.MetricOf(Role::kReplay, k, "replay/items");
  }
  for (std::int32_t k = 0; k < count; ++k) {
    slots_.RecordInserts(k, members.MetricOf(Role::kReplay, k, "replay/inserts"));
  }
  slots_.StartReplayDrain(count, held);
  LogInfo(
      "draining {} replay shards: no more inserts; their {:.0f} items are sampled until the other "
      "shards have received as many",
      slots_.replay() - count, held);
}

// Number of members with a slot. A replay shard counts once it is bound.
std::int32_t ScaleController::CountInSlots(Role role, const Membership& members) const {
  std::int32_t count = 0;
  for (const auto& [name, member] : members.records()) {
    const bool there = member.present && member.view.role == role && !member.joined &&
                       slots_.Has(role, member.view.index) &&
                       (role != Role::kReplay || !member.endpoint.empty());
    count += there;
  }
  return count;
}

// True when all slots are filled and removed roles have left.
bool ScaleController::IsDone(const Membership& members) const {
  const Role role = change_->role;
  if (change_->shards_leave) return true;  // draining continues in the background
  const std::int32_t slots = role == Role::kReplay ? slots_.replay() : SlotsOf(role);
  if (CountInSlots(role, members) < slots) return false;
  if (role == Role::kReplay || change_->after >= change_->before) return true;
  return std::ranges::none_of(members.records(), [&](const auto& entry) {
    const MemberRecord& m = entry.second;
    return m.present && m.view.role == role && !m.joined && !slots_.Has(role, m.view.index);
  });
}

// Drained shards stay while a change adds shards after them.
void ScaleController::Update(const FleetState& fleet) {
  if (fleet.now < next_look_) return;
  next_look_ = fleet.now + kScaleCheckEvery;
  const bool adds_shards = change_ && change_->role == Role::kReplay && !change_->shards_leave;
  if (slots_.replay_draining() && !adds_shards) UpdateLeavingShards(fleet.members);
  if (!change_) return;
  if (IsDone(fleet.members)) {
    if (adds_shards) slots_.CommitReplayScaleUp();
    return End(Status::Ok(), fleet.now);
  }
  if (!fleet.running) return End(Aborted("the run ended first"), fleet.now);
  if (fleet.now - change_->began > kJoinMax) GiveUp(fleet);
}

// Replay shards that did not join lose their slots; other roles may still join.
void ScaleController::GiveUp(const FleetState& fleet) {
  const std::int32_t there = CountInSlots(change_->role, fleet.members);
  if (change_->role == Role::kReplay) {
    slots_.AbortReplayScaleUp();
    const Status outcome =
        Aborted("gave up, {} replay shards remain: {} of {} joined within {:.0f} s; see their logs",
                slots_.replay(), there, change_->after, ToSeconds(kJoinMax));
    return End(outcome, fleet.now);
  }
  End(Unavailable("{} of {} {} joined within {:.0f} s; the others may still join", there,
                  change_->after, NameOf(change_->role), ToSeconds(kJoinMax)),
      fleet.now);
}

// Removes draining shards once their items are replaced and all actors insert elsewhere.
void ScaleController::UpdateLeavingShards(const Membership& members) {
  for (std::int32_t k = 0; k < slots_.replay_taking(); ++k) {
    slots_.RecordInserts(k, members.MetricOf(Role::kReplay, k, "replay/inserts"));
  }
  if (!slots_.replay_replaced()) return;
  const bool moved = std::ranges::all_of(members.records(), [this](const auto& entry) {
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
void ScaleController::End(const Status& outcome, Time now) {
  Change change = std::move(*change_);
  change_.reset();
  if (!outcome.ok()) {
    LogWarning("scaling from {} to {} {} failed: {}", change.before, change.after,
               NameOf(change.role), outcome.message());
    return change.reply.Fail(outcome);
  }
  const ScaleReply body{.before = change.before,
                        .after = change.after,
                        .epoch = slots_.counts().epoch,
                        .seconds = ToSeconds(now - change.began)};
  LogInfo("scaled to {} {}, epoch {}, in {:.2f} s", change.after, NameOf(change.role), body.epoch,
          body.seconds);
  change.reply.Send({.type = MessageType::kScaleReply, .body = EncodeBody(body)});
}

// The exploration ladder (Ape-X) counts all actors: local ones first, then external ones.
void ScaleController::FillReply(const MemberRecord& member, const Membership& members,
                                HeartbeatReply* reply) const {
  reply->fleet = slots_.counts();
  const MemberView& view = member.view;
  if (member.has_slot() && !slots_.Has(view.role, view.index)) reply->stop = true;
  if (view.role != Role::kActor) return;
  const std::vector<std::int32_t>& own = slots_.actors();
  const std::vector<std::int32_t>& joined = members.joined_actors();
  const auto rank = [&](const std::vector<std::int32_t>& all) {
    return std::int32_t(std::ranges::lower_bound(all, view.index) - all.begin());
  };
  reply->place = member.joined ? std::int32_t(own.size()) + rank(joined) : rank(own);
  reply->places = std::int32_t(own.size() + joined.size());
  // In small fleets the member's own interval is longer and applies.
  reply->heartbeat_every_ms = std::uint32_t(1000 * std::int64_t{reply->places} / kBeatsPerSecond);
}

}  // namespace troop
