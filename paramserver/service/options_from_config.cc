// Implements the translation from the settings of a run to the options of the parameter server's
// classes. Every process of a run must derive the same values.
#include "paramserver/service/options_from_config.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/config/enum_names.h"
#include "net/network.h"
#include "nn/models/model.h"
#include "nn/optimizer.h"

namespace troop {
namespace {

// Ranges without weight decay; must match the grouping in the learners' algorithms.
std::vector<ParamRange> Undecayed(const ShardConfig& config, const Module& network) {
  std::vector<ParamRange> ranges;
  if (!IsSupervised(config.model) || config.optimizer.weight_decay == 0) return ranges;
  std::int64_t at = 0;
  for (const Optimizer::Group& group : DecayGroups(network, 0)) {
    if (!group.decays) ranges.push_back({at, at + group.count});
    at += group.count;
  }
  return ranges;
}

// Bytes of values that one message carries: its body and the padding between parts take the rest.
double ValueBytesMax() { return 0.95 * double(NetworkOptions().message_bytes_max); }

}  // namespace

Status CheckWeightsMessage(std::int64_t parameters) {
  const double bytes = double(parameters) * sizeof(float);
  if (bytes <= ValueBytesMax()) return Status::Ok();
  return InvalidArgument(
      "the network has {} parameters ({:.0f} MB), a message of weights takes {:.0f} MB; use a "
      "smaller network",
      parameters, bytes / 1e6, ValueBytesMax() / 1e6);
}

Status CheckShardMap(const ShardMap& map) {
  const double limit = ValueBytesMax();
  double largest = 0;
  for (const std::int32_t shard : map.shards()) {
    largest = std::max(largest, double(map.LoadOf(shard)) * sizeof(float));
  }
  if (largest <= limit) return Status::Ok();
  return InvalidArgument(
      "paramserver.shards is {}: the largest shard has {:.0f} MB of parameters, a message holds "
      "{:.0f} MB; use more shards, or set paramserver.sharding = \"memory\"",
      map.shards().size(), largest / 1e6, limit / 1e6);
}

// Fails early, at the start of a run, if a shard cannot be sent in one message.
Result<ShardMap> ShardMapFor(const ParamServerConfig& config, const Module& network) {
  TROOP_ASSIGN_OR_RETURN(const ShardMap map,
                         ShardMap::Make(config.sharding, network.params(), ParameterCount(network),
                                        int(config.shards)));
  TROOP_RETURN_IF_ERROR(CheckShardMap(map));
  return map;
}

// Replays the epochs: the map of each follows from the one before it.
Result<ShardMap> ShardMapAfter(const ShardMap& first, std::span<const ShardEpoch> epochs) {
  ShardMap map = first;
  if (epochs.empty() || epochs[0].shards != std::int32_t(map.shards().size())) {
    return DataLoss(
        "the run began with {} parameter shards, its config has paramserver.shards = {}",
        epochs.empty() ? 0 : epochs[0].shards, map.shards().size());
  }
  for (const ShardEpoch& epoch : epochs.subspan(1)) {
    Result<ShardMap> next = map.WithShards(epoch.shards);
    if (!next.ok()) return DataLoss("invalid epochs of a shard map: {}", next.status().message());
    map = std::move(*next);
  }
  return map;
}

// Tensor-parallel learners share one model and push as one worker.
std::int64_t WorkersOf(std::int64_t learners, std::int64_t tp) { return learners / tp; }

// The schema has checked the combination of keys.
SyncOptions SyncOptionsFor(const ParamServerConfig& config, std::int64_t workers) {
  return {.mode = config.mode,
          .learners = int(workers),
          .k = int(config.k),
          .cancel = config.cancel,
          .per_batch = config.per_batch,
          .staleness = std::uint64_t(config.staleness),
          .staleness_discount = config.staleness_discount,
          .warm_start_updates = std::uint64_t(config.warm_start_updates)};
}

// Independent of the number of workers.
bool HasSynchronousShards(const ParamServerConfig& config) {
  return IsSynchronous(SyncOptionsFor(config, 1));
}

// Asynchronous modes: one push is an update.
std::int64_t PushesOfUpdate(const ParamServerConfig& config, std::int64_t workers) {
  const SyncOptions sync = SyncOptionsFor(config, workers);
  if (IsSynchronous(sync)) return sync.learners;
  return sync.mode == SyncMode::kKOfN ? sync.k : 1;
}

// The config's 0 means "no limit", which is -1 here.
GradientFilterOptions GradientFilterOptionsFor(const ParamServerConfig& config) {
  const std::int64_t most = config.max_staleness;
  return {.staleness_max = most > 0 ? most : -1,
          .loss_deviations = config.outlier_sigmas,
          .norm_deviations = config.outlier_norm_sigmas};
}

ReplicaOptions ReplicaOptionsFor(const ParamServerConfig& config) {
  return {.pull_every = config.pull_every,
          .push_every = config.push_every,
          .push_value = config.mode == SyncMode::kLocalSgd};
}

CodecOptions CodecOptionsFor(const ParamServerConfig& config) {
  return {.codec = config.compression,
          .keep = config.topk_ratio,
          .threshold = float(config.strom_threshold)};
}

ParameterShard::Options ParameterShardOptionsFor(const ShardConfig& config, const Module& network,
                                                 const ShardMap& map, std::int32_t shard) {
  ParameterShard::Options options{.optimizer = config.optimizer,
                                  .ranges = map.RangesOf(shard),
                                  .undecayed = Undecayed(config, network),
                                  .epoch = map.epoch(),
                                  .sync = SyncOptionsFor(config.paramserver, config.workers),
                                  .guards = GradientFilterOptionsFor(config.paramserver),
                                  .keep_sums = config.paramserver.backup};
  options.updates_max = std::uint64_t(config.max_updates);
  // Readers of several synchronous shards may have to request the version before the newest.
  const bool named = IsSynchronous(options.sync) && map.shards().size() > 1;
  options.versions_kept = named ? 2 : 1;
  return options;
}

ShardServer::Options ShardServerOptionsFor(const ParamServerConfig& config) {
  return {.lease = Seconds(config.lease_s)};
}

ShardClient::Options ShardClientOptionsFor(const ParamServerConfig& config) {
  return {.codec = CodecOptionsFor(config)};
}

std::int32_t ServersPerShard(const ParamServerConfig& config) { return config.backup ? 2 : 1; }

// A primary must stop answering before PrimaryElection replaces it, hence one second less than
// alone_max.
Duration PrimaryContactTimeoutFor(const ShardConfig& config) {
  return Seconds(config.stall_timeout_s);
}

// silent_max is twice the heartbeat timeout: one missed heartbeat must not cause a failover.
PrimaryElection::Options PrimaryElectionOptionsFor(const ShardConfig& config) {
  return {.shards = int(config.paramserver.shards),
          .backup = config.paramserver.backup,
          .silent_max = Seconds(2 * config.heartbeat_timeout_s),
          .alone_max = PrimaryContactTimeoutFor(config) + Seconds(1),
          .next_term = {}};
}

}  // namespace troop
