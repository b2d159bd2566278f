// Implements the connections of the actor role: the replay's shards, whose number may change, the
// weights, and an inference server.

#include <optional>
#include <utility>

#include "actors/actor_node.h"
#include "replay/service/options_from_config.h"

namespace troop {

// True for each shard that receives streams of this actor; few, even with hundreds of shards.
std::vector<bool> ActorNode::ShardsOfStreams(std::size_t shards) const {
  std::vector<bool> ours(shards);
  for (const TrajectoryBuilder& builder : builders_) ours[ShardOf(builder.stream(), shards)] = true;
  return ours;
}

// Connects to all of its shards or to none: a stream's shard depends on their number.
Status ActorNode::ConnectReplay(const Origin& origin) {
  if (writer_) return Status::Ok();
  const std::vector<std::int32_t> shards =
      ReplayShardsFor(config_.replay, member_->options().index, member_->fleet().replay);
  const std::vector<bool> ours = ShardsOfStreams(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (ours[i] && member_->Endpoint(Role::kReplay, shards[i]).empty()) return Status::Ok();
  }
  const TrajectorySpec trajectory = Trajectory();
  std::vector<std::unique_ptr<Channel>> channels(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!ours[i]) continue;
    TROOP_ASSIGN_OR_RETURN(channels[i], ConnectShard(origin, shards[i]));
  }
  shards_ = shards_next_ = channels.size();
  ReplayWriter::Options options = WriterOptionsFor(config_.replay, trajectory);
  options.window = int(config_.actor.max_inflight_inserts);
  options.history = history_;
  writer_ = MakeReplayWriter(std::move(channels), trajectory, options);
  return Status::Ok();
}

Result<std::unique_ptr<Channel>> ActorNode::ConnectShard(const Origin& origin,
                                                         std::int32_t shard) const {
  const int window = int(config_.actor.max_inflight_inserts) + 1;
  return network_->Connect(member_->Endpoint(Role::kReplay, shard),
                           {.origin = origin, .window = window});
}

// Follows a change of the number of replay shards. One change at a time: the next one starts when
// all streams have moved.
void ActorNode::FollowFleet() {
  const FleetCounts& fleet = member_->fleet();
  if (!writer_ || fleet.replay == 0 || config_.replay.scope == ReplayScope::kLocal) return;
  const auto wanted = std::size_t(fleet.replay);
  // Reports an epoch once all streams use its shards.
  if (shards_next_ == shards_ && wanted == shards_) fleet_epoch_ = fleet.epoch;
  if (writer_->Settled(shards_)) member_->report().fleet_epoch = fleet_epoch_;
  if (shards_next_ != shards_ || wanted == shards_) return;
  const Origin origin{.role = Role::kActor,
                      .index = member_->options().index,
                      .incarnation = member_->options().incarnation};
  const std::vector<bool> ours = ShardsOfStreams(wanted);
  for (std::size_t k = 0; k < wanted; ++k) {
    if (!ours[k] || writer_->Knows(k)) continue;
    const auto shard = std::int32_t(k);
    if (member_->Endpoint(Role::kReplay, shard).empty()) return;
    Result<std::unique_ptr<Channel>> channel = ConnectShard(origin, shard);
    if (!channel.ok()) {
      result_ = channel.status();
      return;
    }
    writer_->AddShard(k, std::move(*channel));
  }
  shards_next_ = wanted;
}

// Called after a step: moving streams end at their old shards, with all of their items.
void ActorNode::LeaveShards() {
  if (shards_next_ == shards_ || left_) return;
  const PolicyOutput& output = runner_->output();
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    if (ShardOf(builders_[i].stream(), shards_) == ShardOf(builders_[i].stream(), shards_next_)) {
      continue;
    }
    const float q_max = output.q_max.as<float>()[i];
    builders_[i].Cut(runner_->acted_on(i),
                     runner_->one(i).q_good ? std::optional(q_max) : std::nullopt);
    if (builders_[i].frames() > 0) last_chunks_.push_back(builders_[i].Take(&last_items_));
  }
  left_ = true;
}

// Pushes the ends of moving streams to the old shards; afterwards the new ones are used. Returns
// false if the window is full.
bool ActorNode::PushLast() {
  if (!left_) return true;
  if (!last_chunks_.empty()) {
    if (!writer_->CanPush()) return false;
    result_ = writer_->Push(std::exchange(last_chunks_, {}), std::exchange(last_items_, {}));
    if (!result_.ok()) return false;
    // Steps not pushed yet count with the next push.
    pushed_.push_back(pushed_.empty() ? member_->report().steps_done : pushed_.back());
  }
  shards_ = shards_next_;
  left_ = false;
  writer_->Use(shards_);
  return true;
}

Status ActorNode::Connect() {
  const Origin origin{.role = Role::kActor,
                      .index = member_->options().index,
                      .incarnation = member_->options().incarnation};
  TROOP_RETURN_IF_ERROR(ConnectReplay(origin));
  if (remote_ != nullptr) return ConnectPolicy(origin);
  if (weights_) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(weights_, connect_weights_(runner_->spec()));
  return Status::Ok();
}

// Actors are assigned to inference servers round-robin.
Status ActorNode::ConnectPolicy(const Origin& origin) {
  if (remote_->connected()) return remote_->status();
  const auto server = std::int32_t(origin.index % InferenceServersOf(config_));
  const std::string endpoint = member_->Endpoint(Role::kInference, server);
  if (endpoint.empty()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(auto channel, network_->Connect(endpoint, {.origin = origin}));
  remote_->Connect(std::move(channel));
  have_weights_ = true;  // the server waits for weights
  return Status::Ok();
}

}  // namespace troop
