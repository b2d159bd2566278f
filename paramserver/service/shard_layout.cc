// Implements the derivation of a process's shard from the settings and the epochs of the shard map.
#include "paramserver/service/shard_layout.h"

#include "nn/models/model.h"
#include "paramserver/resharding/reshard_receiver.h"
#include "paramserver/service/options_from_config.h"

namespace troop {

// The optimizer is made only to count its slots, which snapshots contain.
Result<ShardLayout> ShardLayout::Make(const ShardConfig& config, const Module* module,
                                      std::int32_t index, Executor* appliers) {
  TROOP_ASSIGN_OR_RETURN(ShardMap first, ShardMapFor(config.paramserver, *module));
  TROOP_ASSIGN_OR_RETURN(const auto optimizer, MakeOptimizer(config.optimizer, 1));
  ShardLayout layout(config, module, index, std::move(first));
  layout.servers_per_shard_ = ServersPerShard(config.paramserver);
  layout.shard_ = index / layout.servers_per_shard_;
  layout.slots_ = optimizer->slots().size();
  layout.appliers_ = appliers;
  return layout;
}

// The epochs are all moves so far, so the first map and they determine the present one.
Status ShardLayout::Adopt(std::span<const ShardEpoch> epochs) {
  TROOP_ASSIGN_OR_RETURN(map_, ShardMapAfter(first_map_, epochs));
  epochs_.assign(epochs.begin(), epochs.end());
  return Status::Ok();
}

// Changes nothing: the move may still fail.
Result<ShardMap> ShardLayout::MapAfterMove(const ShardMove& move) const {
  std::vector<ShardEpoch> epochs = epochs_;
  epochs.push_back({move.shards, move.number});
  return ShardMapAfter(first_map_, epochs);
}

ParameterShard::Options ShardLayout::OptionsFor(const ShardMap& map) const {
  ParameterShard::Options options = ParameterShardOptionsFor(config_, *module_, map, shard_);
  options.hogwild = appliers_;
  return options;
}

// A snapshot has the values and all slots of the optimizer.
std::size_t ShardLayout::StateBytesMax(const ShardMap& map) const {
  return ShardStateBytesMax(std::size_t(map.LoadOf(shard_)), slots_);
}

}  // namespace troop
