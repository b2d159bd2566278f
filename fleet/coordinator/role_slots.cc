// Slots of the scalable roles. Each change raises an epoch that heartbeat replies carry to the
// members.
#include "fleet/coordinator/role_slots.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "fleet/roles/external_roles.h"

namespace troop {

std::optional<Role> ScaledRole(std::string_view name) {
  if (name == "actors") return Role::kActor;
  if (name == "replay") return Role::kReplay;
  if (name == "learners") return Role::kLearner;
  return std::nullopt;
}

// A supervised or offline run has learners only; external actors have no slots.
RoleSlots::RoleSlots(const Config& config) {
  const bool plays = HasActors(config);
  counts_ = {.epoch = 1,
             .learners = std::int32_t(config.fleet.learners),
             .replay = plays ? std::int32_t(config.replay.shards) : 0};
  replay_ = counts_.replay;
  const bool here = plays && !IsExternal(config, Role::kActor);
  actors_.resize(here ? std::size_t(config.fleet.actors) : 0);
  std::iota(actors_.begin(), actors_.end(), 0);
}

// Other roles have fixed slots, which this class does not track.
bool RoleSlots::Has(Role role, std::int32_t index) const {
  switch (role) {
    case Role::kActor:
      return std::ranges::binary_search(actors_, index);
    case Role::kLearner:
      return index < counts_.learners;
    case Role::kReplay:
      return index < replay_;
    default:
      return true;
  }
}

std::vector<std::pair<Role, std::int32_t>> RoleSlots::All() const {
  std::vector<std::pair<Role, std::int32_t>> all;
  for (std::int32_t k = 0; k < replay_; ++k) all.emplace_back(Role::kReplay, k);
  for (std::int32_t i = 0; i < counts_.learners; ++i) all.emplace_back(Role::kLearner, i);
  for (const std::int32_t i : actors_) all.emplace_back(Role::kActor, i);
  return all;
}

// Shrinking removes the highest indices. Growing keeps all present indices and fills the lowest
// free ones, skipping those of external actors.
void RoleSlots::SetActors(std::int32_t count, std::span<const std::int32_t> taken) {
  ++revision_;
  if (std::size_t(count) <= actors_.size()) {
    actors_.resize(std::size_t(count));
  } else {
    std::vector<std::int32_t> all;
    for (std::int32_t index = 0; all.size() < std::size_t(count); ++index) {
      const bool ours = std::ranges::binary_search(actors_, index);
      if (ours || !std::ranges::binary_search(taken, index)) all.push_back(index);
    }
    actors_ = std::move(all);
  }
  ++counts_.epoch;
}

void RoleSlots::SetLearners(std::int32_t count) {
  ++revision_;
  counts_.learners = count;
  ++counts_.epoch;
}

// The epoch stays: actors must not insert into shards that are not bound.
void RoleSlots::StartReplayScaleUp(std::int32_t count) {
  TROOP_CHECK(count >= replay_, "{} shards, of {}", count, replay_);
  replay_ = count;
  ++revision_;
}

void RoleSlots::CommitReplayScaleUp() {
  counts_.replay = replay_;
  counts_.replay_leaving = 0;
  ++counts_.epoch;
}

// Back to the slots before StartReplayScaleUp, including leaving shards.
void RoleSlots::AbortReplayScaleUp() {
  replay_ = counts_.replay + counts_.replay_leaving;
  ++revision_;
}

// With the new epoch actors insert elsewhere; leaving_since_ is compared with their epochs.
void RoleSlots::StartReplayDrain(std::int32_t count, double items_held) {
  TROOP_CHECK(count < replay_, "{} shards, of {}", count, replay_);
  counts_.replay = count;
  counts_.replay_leaving = replay_ - count;
  leaving_since_ = ++counts_.epoch;
  held_ = items_held;
  inserted_ = 0;
}

// Counts inserts into the remaining shards. A counter below its last value belongs to a restarted
// process and counts from 0.
void RoleSlots::RecordInserts(std::int32_t shard, double inserts) {
  double& before = inserts_[shard];
  if (shard < counts_.replay) inserted_ += inserts >= before ? inserts - before : inserts;
  before = inserts;
}

void RoleSlots::FinishReplayDrain() {
  ++revision_;
  replay_ = counts_.replay;
  counts_.replay_leaving = 0;
  inserts_.erase(inserts_.lower_bound(replay_), inserts_.end());
  ++counts_.epoch;
}

}  // namespace troop
