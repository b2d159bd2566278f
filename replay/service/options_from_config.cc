// Derives the options of replay servers, writers and samplers from a run's settings.
#include "replay/service/options_from_config.h"

#include <fmt/format.h>

#include <numeric>

#include "core/base/check.h"

namespace troop {
namespace {

constexpr std::size_t kPictureBytesMin = 1024;  // smaller images hardly shrink

// One shard's share of a count, rounded up so that the shards together have at least all.
std::int64_t Share(std::int64_t items, std::int64_t shards) {
  return (items + shards - 1) / shards;
}

// The selector that evicts. A reservoir is a uniform one, with Table::Options::reservoir.
Selector::Kind SelectorOf(RemoverKind remover) {
  switch (remover) {
    case RemoverKind::kFifo:
      return Selector::Kind::kFifo;
    case RemoverKind::kLifo:
      return Selector::Kind::kLifo;
    case RemoverKind::kUniform:
    case RemoverKind::kReservoir:
      return Selector::Kind::kUniform;
    case RemoverKind::kLowest:
      return Selector::Kind::kLowest;
    case RemoverKind::kHighest:
      return Selector::Kind::kHighest;
    case RemoverKind::kPrioritized:
      return Selector::Kind::kPrioritized;
  }
  return Selector::Kind::kFifo;
}

}  // namespace

// FrameCompression::kAuto compresses 8-bit images only: other observations hardly shrink with LZ4.
Codec CodecFor(FrameCompression compression, const TensorSpec& observation) {
  const bool picture = observation.dtype == DType::kU8 && observation.bytes() >= kPictureBytesMin;
  switch (compression) {
    case FrameCompression::kAuto:
      return picture ? Codec::kLz4 : Codec::kNone;
    case FrameCompression::kNone:
      return Codec::kNone;
    case FrameCompression::kLz4:
      return Codec::kLz4;
    case FrameCompression::kZstd:
      return Codec::kZstd;
  }
  return Codec::kNone;
}

TrajectorySpec TrajectoryFor(const ReplaySetup& setup, const EnvSpec& env) {
  TrajectorySpec spec{.observation = env.observation, .action = env.action.tensor()};
  const std::int64_t numbers = setup.state_columns + setup.numbers_per_step * setup.unroll_length;
  if (numbers > 0) spec.state = TensorSpec{DType::kF32, {numbers}};
  return spec;
}

// The run's own table holds n-step transitions or unrolls.
ViewSpec ViewFor(const ReplaySetup& setup) {
  if (setup.unroll_length > 0) {
    return {.kind = ViewSpec::Kind::kSequence,
            .length_max = int(setup.unroll_length),
            .stack = int(setup.frame_stack),
            .burn_in = int(setup.burn_in)};
  }
  return {.kind = ViewSpec::Kind::kTransition,
          .length_max = int(setup.n_step),
          .stack = int(setup.frame_stack)};
}

Result<ReplayTableOptions> ReplayTableFor(const ReplayTableConfig& t, std::int64_t seed,
                                          std::int64_t shards) {
  // Errors name the table and the key.
  TrajectorySpec trajectory;
  const auto spec = [&t](const std::string& text, std::string_view key) -> Result<TensorSpec> {
    Result<TensorSpec> parsed = ParseTensorSpec(text);
    if (parsed.ok()) return parsed;
    return parsed.status().WithContext(fmt::format("replay.tables: {}: {}", t.name, key));
  };
  TROOP_ASSIGN_OR_RETURN(trajectory.observation, spec(t.observation, "observation"));
  TROOP_ASSIGN_OR_RETURN(trajectory.action, spec(t.action, "action"));
  if (!t.state.empty()) {
    TROOP_ASSIGN_OR_RETURN(trajectory.state, spec(t.state, "state"));
  }
  return ReplayTableOptions{
      .table = {.name = t.name,
                .trajectory = trajectory,
                .view = {.kind = t.view,
                         .length_max = int(t.length),
                         .stack = int(t.stack),
                         .burn_in = int(t.burn_in)},
                .codec = CodecFor(t.compression, trajectory.observation),
                .capacity_items = Share(t.capacity_items, shards),
                .min_items = Share(t.min_items, shards),
                .sampler = {.kind = t.sampler, .alpha = t.alpha},
                .remover = {.kind = SelectorOf(t.remover), .alpha = t.evict_alpha},
                .reservoir = t.remover == RemoverKind::kReservoir,
                .priority_epsilon = t.priority_epsilon,
                .max_times_sampled = t.max_times_sampled,
                .max_policy_age = std::uint64_t(t.max_policy_age),
                .seed = std::uint64_t(seed)},
      .samples_per_insert = t.samples_per_insert,
      .samples_per_insert_tolerance_rate = t.samples_per_insert_tolerance_rate};
}

Result<ReplayServer::Options> ReplayOptionsFor(const ReplaySetup& setup,
                                               const TrajectorySpec& trajectory) {
  // Table 0 is the run's own; the configured extra tables follow in order.
  const ReplayConfig& r = setup.replay;
  const bool reservoir = r.remover == RemoverKind::kReservoir;
  // The table counts samples, the config counts updates of one batch each.
  const std::int64_t trim = r.trim_every_updates * setup.batch_size;
  ReplayServer::Options options;
  options.tables.push_back(
      {.table = {.trajectory = trajectory,
                 .view = ViewFor(setup),
                 .codec = CodecFor(r.compression, trajectory.observation),
                 .capacity_items = Share(r.capacity_items, r.shards),
                 .min_items = Share(r.min_items, r.shards),
                 .sampler = {.kind = r.sampler, .alpha = r.alpha},
                 .remover = {.kind = SelectorOf(r.remover), .alpha = r.evict_alpha},
                 .reservoir = reservoir,
                 .priority_epsilon = r.priority_epsilon,
                 .max_times_sampled = r.max_times_sampled,
                 .max_policy_age = std::uint64_t(r.max_policy_age),
                 .trim_every_samples = reservoir ? 0 : Share(trim, r.shards),
                 .feed = r.placement == ReplayPlacement::kGpu,
                 .seed = std::uint64_t(setup.seed)},
       .samples_per_insert = r.samples_per_insert,
       .samples_per_insert_tolerance_rate = r.samples_per_insert_tolerance_rate});
  options.journal.spill = r.spill_to_disk;
  options.ack_on_disk = r.durability == Durability::kDisk;
  for (const ReplayTableConfig& table : r.tables) {
    TROOP_ASSIGN_OR_RETURN(auto made, ReplayTableFor(table, setup.seed, r.shards));
    options.tables.push_back(std::move(made));
  }
  return options;
}

std::vector<std::int32_t> ReplayShardsFor(const ReplayConfig& config, std::int32_t index,
                                          std::int32_t shards) {
  // "local": each actor and learner uses one shard, assigned round robin by index.
  if (config.scope == ReplayScope::kLocal) return {index % std::int32_t(config.shards)};
  std::vector<std::int32_t> all(std::size_t(shards > 0 ? shards : config.shards));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Both sides derive the codec from the same keys.
ReplayWriter::Options WriterOptionsFor(const ReplayConfig& config,
                                       const TrajectorySpec& trajectory) {
  return {.codec = CodecFor(config.compression, trajectory.observation)};
}

ReplaySampler::Options SamplerOptionsFor(const ReplaySetup& setup,
                                         const TrajectorySpec& trajectory) {
  const ReplayConfig& r = setup.replay;
  return {.batch_size = setup.batch_size,
          .beta = r.beta,
          .view = ViewFor(setup),
          .codec = CodecFor(r.compression, trajectory.observation),
          .decode_threads = int(r.decode_threads),
          .seed = std::uint64_t(setup.seed)};
}

}  // namespace troop
