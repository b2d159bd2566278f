// Implements ShardMap: the two initial assignments, the changes by one shard, and the validation of
// received maps. Loads are counted in blocks of kParamAlignment elements.
#include "paramserver/shard/shard_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/check.h"
#include "core/config/enum_names.h"
#include "nn/arena.h"

namespace troop {
namespace {

constexpr std::size_t kRangesMax = std::size_t{1} << 18;  // more than the tensors of any model

constexpr std::int64_t kParametersMax = std::int64_t{1} << 48;  // sums of loads cannot overflow

std::int64_t BlocksOf(std::int64_t elements) { return AlignParams(elements) / kParamAlignment; }

// Blocks of shard i of `count`: equal up to one.
std::int64_t ShareOf(std::int64_t total, std::size_t i, std::size_t count) {
  return total / std::int64_t(count) + (std::int64_t(i) < total % std::int64_t(count) ? 1 : 0);
}

// Name of a tensor's layer: "encoder.0.bias" -> "encoder.0".
std::string_view LayerOf(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

// Describes the first violated invariant that is visible without the ranges; nullptr if there is
// none.
// Checks what does not need the ranges; cheap, so that a bad map is refused before a loop.
const char* FaultOfShards(const ShardMapBody& body) {
  if (body.epoch == 0) return "its epoch is 0";
  if (body.sharding > std::uint8_t(Sharding::kLayer)) return "its sharding is unknown";
  if (body.parameters > kParametersMax) return "it has too many parameters";
  if (body.shards.empty() || body.shards.size() > std::size_t(kShardsMax)) {
    return "the number of shards is out of range";
  }
  if (body.shards.front() < 0) return "a shard has a negative number";
  for (std::size_t i = 1; i < body.shards.size(); ++i) {
    if (body.shards[i] <= body.shards[i - 1]) return "its shards are not in order";
  }
  if (body.end.size() != body.owner.size()) return "the numbers of ends and owners differ";
  if (body.end.size() > kRangesMax) return "it has too many ranges";
  return nullptr;
}

// Describes the first invariant that the ranges violate; nullptr if there is none.
// One pass: each range begins where the previous one ends, so gaps cannot be written.
const char* FaultOfRanges(const ShardMapBody& body) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < body.end.size(); ++i) {
    if (begin % kParamAlignment != 0) return "a range does not begin at a cache line";
    if (body.end[i] <= begin) return "its ranges are empty or not in order";
    if (!std::ranges::binary_search(body.shards, body.owner[i])) return "an owner is not a shard";
    if (i > 0 && body.sharding == std::uint8_t(Sharding::kMemory) &&
        body.owner[i] == body.owner[i - 1]) {
      return "adjacent ranges have one owner";
    }
    begin = body.end[i];
  }
  return begin == body.parameters ? nullptr : "its ranges do not reach its end";
}

}  // namespace

// Assigns all parameters of a new run.
Result<ShardMap> ShardMap::Make(Sharding sharding, std::span<const ParamSpec> params,
                                std::int64_t parameters, int shards) {
  TROOP_CHECK(parameters >= 0, "{} parameters", parameters);
  if (shards < 1 || shards > kShardsMax) {
    return InvalidArgument("{} parameter shards; from 1 to {} are possible", shards, kShardsMax);
  }
  ShardMap map;
  // Epochs count from 1; 0 is invalid in a received map.
  map.epoch_ = 1;
  map.sharding_ = sharding;
  map.parameters_ = parameters;
  map.shards_.resize(std::size_t(shards));
  std::iota(map.shards_.begin(), map.shards_.end(), 0);
  if (sharding == Sharding::kMemory) {
    map.AssignByMemory();
  } else {
    map.AssignByLayer(params);
  }
  return map;
}

// One range per shard, of equal size up to one block.
void ShardMap::AssignByMemory() {
  const std::int64_t blocks = BlocksOf(parameters_);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::int64_t share = ShareOf(blocks, i, shards_.size()) * kParamAlignment;
    const std::int64_t end = std::min(begin + share, parameters_);
    if (end > begin) ranges_.push_back({begin, end, shards_[i]});
    begin = end;
  }
}

// Groups the tensors into layers, then assigns the layers.
void ShardMap::AssignByLayer(std::span<const ParamSpec> params) {
  constexpr std::int32_t kUnowned = -1;
  for (std::size_t i = 0; i < params.size(); ++i) {
    // Padding belongs to the tensor before it.
    const std::int64_t begin = i == 0 ? 0 : params[i].offset;
    const std::int64_t end = i + 1 < params.size() ? params[i + 1].offset : parameters_;
    TROOP_CHECK(begin % kParamAlignment == 0 && begin <= end && end <= parameters_,
                "{} at [{}, {}) of {}", params[i].name, begin, end, parameters_);
    const bool same = i > 0 && LayerOf(params[i].name) == LayerOf(params[i - 1].name);
    if (same && !ranges_.empty()) {
      ranges_.back().end = end;
    } else if (end > begin) {
      ranges_.push_back({begin, end, kUnowned});
    }
  }
  TROOP_CHECK(!ranges_.empty() || parameters_ == 0, "{} parameters in no tensor", parameters_);
  ReassignLayersOf(kUnowned);
}

// Reassigns the layers of `owner`: longest processing time first (Graham 1969), each to the least
// loaded shard.
void ShardMap::ReassignLayersOf(std::int32_t owner) {
  std::vector<std::int64_t> load = Loads();
  std::vector<Range*> layers;
  for (Range& range : ranges_) {
    if (range.owner == owner) layers.push_back(&range);
  }
  // Stable, so that all processes compute the same map from the same model.
  std::ranges::stable_sort(layers, std::greater<>(), [](const Range* r) { return r->size(); });
  for (Range* layer : layers) {
    const auto least = std::size_t(std::ranges::min_element(load) - load.begin());
    layer->owner = shards_[least];
    load[least] += layer->size();
  }
}

// Input is untrusted; the invariants are checked before the map is built.
Result<ShardMap> ShardMap::FromBody(const ShardMapBody& body, std::int64_t parameters) {
  if (body.parameters != parameters) {
    return DataLoss("a shard map has {} parameters, the model has {}", body.parameters, parameters);
  }
  const char* fault = FaultOfShards(body);
  if (fault == nullptr) fault = FaultOfRanges(body);
  if (fault != nullptr) return DataLoss("a shard map is damaged: {}", fault);
  ShardMap map;
  map.epoch_ = body.epoch;
  map.sharding_ = Sharding(body.sharding);
  map.parameters_ = body.parameters;
  map.shards_ = body.shards;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < body.end.size(); ++i) {
    map.ranges_.push_back({begin, body.end[i], body.owner[i]});
    begin = body.end[i];
  }
  return map;
}

ShardMapBody ShardMap::ToBody() const {
  ShardMapBody body{.epoch = epoch_,
                    .sharding = std::uint8_t(sharding_),
                    .parameters = parameters_,
                    .shards = shards_};
  for (const Range& range : ranges_) {
    body.end.push_back(range.end);
    body.owner.push_back(range.owner);
  }
  return body;
}

// kMemory: each shard gives its blocks above the new equal share.
Result<ShardMap> ShardMap::WithShard(std::int32_t shard) const {
  if (shard < 0) return InvalidArgument("parameter shard {} is invalid, must be at least 0", shard);
  if (IndexOf(shard) < shards_.size())
    return AlreadyExists("parameter shard {} exists already", shard);
  if (shards_.size() >= std::size_t(kShardsMax)) {
    return ResourceExhausted("there are {} parameter shards, which is the limit", kShardsMax);
  }
  // Every change begins a new epoch: messages of the old one are refused.
  ShardMap next = *this;
  ++next.epoch_;
  next.shards_.insert(std::ranges::upper_bound(next.shards_, shard), shard);
  if (sharding_ == Sharding::kLayer) {
    next.MoveLayers(shard);
    return next;
  }
  const std::int64_t blocks = BlocksOf(parameters_);
  const std::vector<std::int64_t> load = next.Loads();
  // The new shard takes its share from all that have more than theirs now.
  std::int64_t wanted = ShareOf(blocks, next.IndexOf(shard), next.shards_.size());
  for (std::size_t i = 0; i < load.size(); ++i) {
    const std::int64_t over = BlocksOf(load[i]) - ShareOf(blocks, i, load.size());
    const std::int64_t moved = std::clamp<std::int64_t>(over, 0, wanted);
    next.MoveElements(next.shards_[i], shard, moved * kParamAlignment);
    wanted -= moved;
  }
  next.MergeNeighbours();
  return next;
}

// kMemory: fills each remaining shard up to the new equal share.
Result<ShardMap> ShardMap::WithoutShard(std::int32_t shard) const {
  if (IndexOf(shard) == shards_.size()) return NotFound("there is no parameter shard {}", shard);
  if (shards_.size() == 1) {
    return FailedPrecondition("parameter shard {} is the only one; add another first", shard);
  }
  ShardMap next = *this;
  ++next.epoch_;
  next.shards_.erase(next.shards_.begin() + std::ptrdiff_t(IndexOf(shard)));
  if (sharding_ == Sharding::kLayer) {
    // The layers of the removed shard move, all others stay where they are.
    next.ReassignLayersOf(shard);
    return next;
  }
  const std::int64_t blocks = BlocksOf(parameters_);
  const std::vector<std::int64_t> load = next.Loads();
  for (std::size_t i = 0; i < load.size(); ++i) {
    const std::int64_t lacks = ShareOf(blocks, i, load.size()) - BlocksOf(load[i]);
    next.MoveElements(shard, next.shards_[i], std::max<std::int64_t>(lacks, 0) * kParamAlignment);
  }
  // Each shard has its share now, up to rounding.
  // The remainder if the loads were unequal.
  next.MoveElements(shard, next.shards_[0], parameters_);
  next.MergeNeighbours();
  return next;
}

// Adds or removes the highest shard until the count matches; the steps share one epoch.
Result<ShardMap> ShardMap::WithShards(int count) const {
  if (count < 1 || count > kShardsMax) {
    return InvalidArgument("{} parameter shards; from 1 to {} are possible", count, kShardsMax);
  }
  if (std::size_t(count) == shards_.size()) {
    return AlreadyExists("there are already {} parameter shards", count);
  }
  ShardMap next = *this;
  while (next.shards_.size() != std::size_t(count)) {
    const auto size = std::int32_t(next.shards_.size());
    TROOP_CHECK(next.shards_.back() == size - 1, "{} shards to {}", size, next.shards_.back());
    TROOP_ASSIGN_OR_RETURN(next, size < count ? next.WithShard(size) : next.WithoutShard(size - 1));
  }
  next.epoch_ = epoch_ + 1;
  return next;
}

// Moves up to `elements`, a multiple of a block, from the end of the ranges of `from`.
void ShardMap::MoveElements(std::int32_t from, std::int32_t to, std::int64_t elements) {
  for (std::size_t i = ranges_.size(); i-- > 0 && elements > 0;) {
    Range& range = ranges_[i];
    if (range.owner != from) continue;
    // The last block of a model may be shorter than its aligned size.
    const std::int64_t whole = AlignParams(range.size());
    if (whole <= elements) {
      range.owner = to;
    } else {
      const Range given{range.begin + whole - elements, range.end, to};
      range.end = given.begin;
      ranges_.insert(ranges_.begin() + std::ptrdiff_t(i) + 1, given);
    }
    elements -= whole;
  }
}

// Moves layers to a new shard until no move improves the balance.
void ShardMap::MoveLayers(std::int32_t to) {
  while (MoveOneLayer(to)) {
  }
}

// Moves one layer to `to`. Returns false if `to` has its share, or no layer is smaller than the
// difference of the two loads.
bool ShardMap::MoveOneLayer(std::int32_t to) {
  const std::vector<std::int64_t> load = Loads();
  // Stop at the mean load.
  const std::int64_t own = load[IndexOf(to)];
  if (own * std::int64_t(shards_.size()) >= parameters_) return false;
  // The largest fitting layer of the most loaded shard that has one.
  Range* best = nullptr;
  std::int64_t best_load = 0;
  // Ties go to the larger layer, then to the first, so that the result is unique.
  for (Range& range : ranges_) {
    const std::int64_t theirs = load[IndexOf(range.owner)];
    if (range.owner == to || range.size() >= theirs - own || theirs < best_load) continue;
    if (best == nullptr || theirs > best_load || range.size() > best->size()) {
      best = &range;
      best_load = theirs;
    }
  }
  if (best == nullptr) return false;
  best->owner = to;
  return true;
}

// Restores the invariant that adjacent ranges have different owners.
void ShardMap::MergeNeighbours() {
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && merged.back().owner == range.owner) {
      merged.back().end = range.end;
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

// Walks both maps in parallel and merges adjacent moves between the same shards.
std::vector<ShardMap::Move> ShardMap::Moves(const ShardMap& from, const ShardMap& to) {
  TROOP_CHECK(from.parameters_ == to.parameters_, "{} and {} parameters", from.parameters_,
              to.parameters_);
  std::vector<Move> moves;
  std::size_t i = 0, j = 0;
  // Ends of ranges of both maps divide the parameters into parts with one owner on each side.
  for (std::int64_t begin = 0; begin < from.parameters_;) {
    const Range& a = from.ranges_[i];
    const Range& b = to.ranges_[j];
    const std::int64_t end = std::min(a.end, b.end);
    if (a.owner != b.owner) {
      // Adjacent moves between the same shards are one move.
      const bool grows = !moves.empty() && moves.back().range.end == begin &&
                         moves.back().from == a.owner && moves.back().to == b.owner;
      if (!grows) moves.push_back({{begin, end}, a.owner, b.owner});
      moves.back().range.end = end;
    }
    if (a.end == end) ++i;
    if (b.end == end) ++j;
    begin = end;
  }
  return moves;
}

std::size_t ShardMap::IndexOf(std::int32_t shard) const {
  const auto it = std::ranges::lower_bound(shards_, shard);
  return it != shards_.end() && *it == shard ? std::size_t(it - shards_.begin()) : shards_.size();
}

// Elements per shard; ranges without an owner are not counted.
std::vector<std::int64_t> ShardMap::Loads() const {
  std::vector<std::int64_t> load(shards_.size());
  for (const Range& range : ranges_) {
    if (const std::size_t i = IndexOf(range.owner); i < load.size()) load[i] += range.size();
  }
  return load;
}

std::int32_t ShardMap::OwnerOf(std::int64_t element) const {
  TROOP_CHECK(element >= 0 && element < parameters_, "{} of {}", element, parameters_);
  // Ranges are sorted and without gaps: the first end above the element is that of its range.
  return std::ranges::upper_bound(ranges_, element, {}, &Range::end)->owner;
}

std::vector<ParamRange> ShardMap::RangesOf(std::int32_t shard) const {
  std::vector<ParamRange> own;
  for (const Range& range : ranges_) {
    if (range.owner != shard) continue;
    if (!own.empty() && own.back().end == range.begin) {
      own.back().end = range.end;
    } else {
      own.push_back({range.begin, range.end});
    }
  }
  return own;
}

std::int64_t ShardMap::LoadOf(std::int32_t shard) const {
  std::int64_t load = 0;
  for (const Range& range : ranges_) load += range.owner == shard ? range.size() : 0;
  return load;
}

double ShardMap::imbalance() const {
  if (parameters_ == 0) return 1;
  return double(std::ranges::max(Loads())) * double(shards_.size()) / double(parameters_);
}

// Megabytes of f32 values.
std::string ShardMap::ToString() const {
  constexpr double kMegabytes = sizeof(float) / 1e6;
  return fmt::format("{} shards by {}: largest {:.2f} MB, mean {:.2f} MB, imbalance {:.4f}",
                     shards_.size(), EnumName(sharding_),
                     double(std::ranges::max(Loads())) * kMegabytes,
                     double(parameters_) * kMegabytes / double(shards_.size()), imbalance());
}

std::vector<std::vector<ParamRange>> CutIntoParts(std::span<const ParamRange> ranges,
                                                  std::int64_t part_floats_max) {
  TROOP_CHECK(part_floats_max > 0 && part_floats_max % kParamAlignment == 0, "{}", part_floats_max);
  std::vector<std::vector<ParamRange>> parts;
  std::int64_t room = 0;
  // Floats that still fit into the last part.
  for (const ParamRange& range : ranges) {
    for (std::int64_t begin = range.begin; begin < range.end;) {
      // Less than a cache line would break the alignment of the next cut.
      if (room < kParamAlignment) {
        parts.emplace_back();
        room = part_floats_max;
      }
      // A cut leaves whole cache lines, unless it is the end of the range.
      const std::int64_t left = range.end - begin;
      const std::int64_t size = left <= room ? left : room / kParamAlignment * kParamAlignment;
      parts.back().push_back({begin, begin + size});
      begin += size;
      room -= size;
    }
  }
  return parts;
}

}  // namespace troop
