#include "replay/table.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/check.h"

namespace troop {
namespace {

constexpr std::uint64_t kGone = ~std::uint64_t{0};

Status CheckOptions(const Table::Options& options) {
  if (options.n_step_max < 1 || options.n_step_max > 1024) {
    return InvalidArgument("replay: n_step {} must lie in [1, 1024]", options.n_step_max);
  }
  if (options.capacity_items < 1 || options.capacity_items > SumTree::kSlotsMax / 2) {
    return InvalidArgument("replay: capacity {} must lie in [1, {}]", options.capacity_items,
                           SumTree::kSlotsMax / 2);
  }
  if (options.min_items < 1 || options.min_items > options.capacity_items) {
    return InvalidArgument("replay: min_items {} must lie in [1, capacity {}]", options.min_items,
                           options.capacity_items);
  }
  if (!(options.alpha >= 0 && options.alpha <= 10)) {
    return InvalidArgument("replay: alpha {} must lie in [0, 10]", options.alpha);
  }
  if (!(options.priority_epsilon >= 0 && std::isfinite(options.priority_epsilon))) {
    return InvalidArgument("replay: priority_epsilon {} must be 0 or above",
                           options.priority_epsilon);
  }
  if (options.first_generation == 0) {
    return InvalidArgument("replay: first_generation 0: the key 0 is no item");
  }
  if (options.trim_every_samples < 0) {
    return InvalidArgument("replay: trim_every_samples {} must be 0 or above",
                           options.trim_every_samples);
  }
  return Status::Ok();
}

bool PriorityOk(float priority) { return priority >= 0 && std::isfinite(priority); }

}  // namespace

std::int64_t Table::HardLimit(const Options& options) {
  if (options.trim_every_samples == 0) return options.capacity_items;
  return options.capacity_items + std::max<std::int64_t>(1, options.capacity_items / 8);
}

FrameLog::Options Table::LogOptions(const Options& options) {
  // One frame an item, one more for every 8 (ends of episodes), 1/32 for what late streams pin.
  const std::int64_t full = HardLimit(options) * 9 / 8;
  // min_items fit whatever the episodes' lengths.
  const std::int64_t frames = std::max(full, 2 * options.min_items) * 33 / 32;
  // What a fleet has on its way fits too, however small the capacity: 64 MiB of frames.
  const std::size_t frame_bytes = options.trajectory.observation.bytes() + sizeof(FrameLog::Step);
  const auto frames_min =
      std::clamp<std::int64_t>(std::int64_t((std::size_t{64} << 20) / frame_bytes), 4096, 65536);
  return {.trajectory = options.trajectory,
          .frames = options.frames > 0 ? options.frames : std::max(frames, frames_min),
          .history = options.n_step_max};
}

std::size_t Table::PredictBytes(const Options& options) {
  const std::int64_t slots = HardLimit(options);
  return FrameLog::Bytes(LogOptions(options)) + SumTree::Bytes(slots) +
         BigArray<Stored>::Bytes(std::size_t(slots));
}

Result<Table> Table::Make(const Options& options) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  const std::int64_t slots = HardLimit(options);
  TROOP_ASSIGN_OR_RETURN(FrameLog log, FrameLog::Make(LogOptions(options)));
  TROOP_ASSIGN_OR_RETURN(SumTree tree, SumTree::Make(slots));
  TROOP_ASSIGN_OR_RETURN(BigArray<Stored> items, BigArray<Stored>::Make(std::size_t(slots)));
  return Table(options, std::move(log), std::move(tree), std::move(items));
}

std::size_t Table::bytes() const { return log_.bytes() + tree_.bytes() + items_.bytes(); }

std::uint64_t Table::KeyOf(std::uint64_t number) const {
  return (number / items_.size() + options_.first_generation) << 32 | SlotOf(number);
}

std::uint64_t Table::NumberOf(std::uint64_t key) const {
  const std::uint64_t slot = key & 0xFFFFFFFFu, generation = key >> 32;
  if (generation < options_.first_generation || slot >= items_.size()) return kGone;
  const std::uint64_t number = (generation - options_.first_generation) * items_.size() + slot;
  return number >= head_ && number < tail_ ? number : kGone;
}

float Table::Transform(float priority) const {
  const double base = double(priority) + options_.priority_epsilon;
  if (base == 0) return 0;
  const float value = std::pow(float(base), float(options_.alpha));
  return std::clamp(value, FLT_MIN, SumTree::kPriorityMax);  // tiny stays drawable, huge finite
}

Result<Table::InsertCounts> Table::Insert(std::span<const Chunk> chunks,
                                          std::span<const Item> items) {
  if (!chunks.empty() &&
      std::ranges::all_of(chunks, [this](const Chunk& chunk) { return log_.Has(chunk); })) {
    return InsertCounts{.repeated = std::int64_t(items.size())};
  }
  TROOP_RETURN_IF_ERROR(MakeRoom(chunks, std::int64_t(items.size())));
  for (const Chunk& chunk : chunks) {
    TROOP_RETURN_IF_ERROR(log_.Check(chunk));
    log_.Append(chunk);
  }
  new_items_.clear();
  priority_.clear();
  for (const Item& item : items) {
    Stored stored;
    TROOP_ASSIGN_OR_RETURN(const bool alive, Resolve(item, &stored));
    if (!alive) continue;
    new_items_.push_back(stored);
    priority_.push_back(Transform(item.priority));
  }
  slot_.clear();
  for (const Stored& stored : new_items_) {
    const std::uint32_t slot = SlotOf(tail_++);
    items_[slot] = stored;
    log_.Pin(stored.first);
    slot_.push_back(slot);
  }
  tree_.Set(slot_, priority_);
  const auto inserted = std::int64_t(new_items_.size());
  return InsertCounts{.inserted = inserted, .expired = std::int64_t(items.size()) - inserted};
}

// Room for all of a call at once: its items may look at any of its chunks.
Status Table::MakeRoom(std::span<const Chunk> chunks, std::int64_t items) {
  std::int64_t frames = 0;
  for (const Chunk& chunk : chunks) frames += chunk.frames + options_.n_step_max;
  if (frames > log_.capacity() / 2) {
    return ResourceExhausted(
        "replay: an insert of {} frames: {} fit at once; send less or raise "
        "the capacity",
        frames, log_.capacity() / 2);
  }
  if (items > slots()) {
    return ResourceExhausted(
        "replay: an insert of {} items into {} slots; send less or raise the "
        "capacity",
        items, slots());
  }
  std::uint64_t head = head_;
  if (size() + items > slots()) head += std::uint64_t(size() + items - slots());
  EvictTo(head);
  while (!log_.MakeRoom(frames)) {
    TROOP_CHECK(size() > 0, "an empty table pins frames");
    constexpr std::int64_t kAtOnce = 16;  // one node of the tree
    EvictTo(head_ + std::uint64_t(std::min(kAtOnce, size())));
  }
  return Status::Ok();
}

// False: the frames are gone.
Result<bool> Table::Resolve(const Item& item, Stored* stored) const {
  const auto refuse = [&item](std::string_view why) {
    return InvalidArgument("item of stream {:#x} at frame {}, length {}: {}", item.stream,
                           item.first_frame, item.length, why);
  };
  if (item.length < 1 || item.length > std::uint32_t(options_.n_step_max)) {
    return refuse(fmt::format("lengths are 1 to {}", options_.n_step_max));
  }
  if (item.burn_in != 0) return refuse("this table keeps no burn-in frames");
  if (!PriorityOk(item.priority)) {
    return refuse(fmt::format("its priority {} is not finite and at least 0", item.priority));
  }
  const std::uint64_t next = log_.NextFrame(item.stream);
  if (item.first_frame >= next || next - item.first_frame <= item.length) {
    return refuse(fmt::format("the stream has come to frame {}", next));
  }
  const auto first = log_.Locate(item.stream, item.first_frame);
  if (!first) return false;
  FrameLog::Position p = *first;
  for (std::uint32_t i = 0; i < item.length; ++i) {
    const FrameLog::Step& step = log_.step(p);
    if (step.final) return refuse("it crosses the end of an episode");
    if (step.next == 0) return refuse("frames of the stream are missing in between");
    p += step.next;
  }
  *stored = {*first, item.policy_version, std::int32_t(item.length)};
  return true;
}

// Items before `head` leave.
void Table::EvictTo(std::uint64_t head) {
  TROOP_CHECK(head >= head_ && head <= tail_, "evict to {} of [{}, {})", head, head_, tail_);
  while (head_ < head) {  // at most two turns: the ring may wrap
    const std::uint32_t slot = SlotOf(head_);
    const auto count = std::min<std::uint64_t>(head - head_, items_.size() - slot);
    for (std::uint64_t i = 0; i < count; ++i) log_.Unpin(items_[slot + i].first);
    tree_.Fill(slot, std::int64_t(count), 0);
    head_ += count;
  }
}

void Table::Draw(std::int64_t batch, const Rows& rows) {
  TROOP_CHECK(batch > 0 && can_draw(), "a draw of {} with total {}", batch, tree_.total());
  FindStrata(batch, rows.probability);
  for (std::int64_t i = 0; i < batch; ++i) {
    // The newest item of this slot: a slot of positive priority is alive.
    const std::uint32_t slot = slot_[std::size_t(i)];
    const std::uint64_t behind = (SlotOf(tail_ - 1) + items_.size() - slot) % items_.size();
    rows.key[i] = KeyOf(tail_ - 1 - behind);
  }
  Gather(rows);
  ++draws_;
  samples_since_trim_ += batch;
  if (options_.trim_every_samples > 0 && samples_since_trim_ >= options_.trim_every_samples) {
    samples_since_trim_ = 0;
    const std::int64_t excess = std::max<std::int64_t>(0, size() - options_.capacity_items);
    EvictTo(head_ + std::uint64_t(excess));
  }
}

void Table::FindStrata(std::int64_t batch, double* probability) {
  const auto count = std::size_t(batch);
  slot_.resize(count);
  priority_.resize(count);
  mass_.resize(count);
  Rng rng({.run_seed = options_.seed,
           .purpose = Purpose::kReplaySampling,
           .index = options_.incarnation,
           .episode = draws_});
  const double total = tree_.total(), stratum = total / double(batch);
  for (std::size_t i = 0; i < count; ++i) mass_[i] = (double(i) + rng.Uniform()) * stratum;
  tree_.Find(mass_, slot_, priority_);
  for (std::size_t i = 0; i < count; ++i) probability[i] = double(priority_[i]) / total;
}

// Three passes over the rows, each asking for the cache lines of rows ahead: items, then steps and
// first frames, then last frames.
void Table::Gather(const Rows& rows) {
  const std::size_t count = slot_.size();
  const std::size_t observation_bytes = options_.trajectory.observation.bytes();
  const std::size_t action_bytes = options_.trajectory.action.bytes();
  const auto n = std::size_t(options_.n_step_max);
  last_.resize(count);
  for (const std::uint32_t slot : slot_) __builtin_prefetch(&items_[slot]);
  for (std::size_t i = 0; i < count; ++i) {
    const FrameLog::Position first = items_[slot_[i]].first;
    __builtin_prefetch(&log_.step(first));
    __builtin_prefetch(log_.observation(first));
    __builtin_prefetch(log_.action(first));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Stored& item = items_[slot_[i]];
    rows.policy_version[i] = item.policy_version;
    rows.length[i] = item.length;
    GatherSteps(item, rows.reward + i * n, rows.discount + i * n, &last_[i]);
    __builtin_prefetch(log_.observation(last_[i]));
    std::memcpy(rows.action + i * action_bytes, log_.action(item.first), action_bytes);
    std::memcpy(rows.observation + i * observation_bytes, log_.observation(item.first),
                observation_bytes);
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(rows.next_observation + i * observation_bytes, log_.observation(last_[i]),
                observation_bytes);
  }
}

void Table::GatherSteps(const Stored& item, float* reward, float* discount,
                        FrameLog::Position* last) const {
  FrameLog::Position p = item.first;
  for (std::int32_t j = 0; j < item.length; ++j) {
    const FrameLog::Step& step = log_.step(p);
    reward[j] = step.reward;
    discount[j] = step.discount;
    p += step.next;
  }
  std::fill(reward + item.length, reward + options_.n_step_max, 0.0f);
  std::fill(discount + item.length, discount + options_.n_step_max, 1.0f);
  *last = p;
}

Table::UpdateCounts Table::Update(std::span<const std::uint64_t> key,
                                  std::span<const float> priority) {
  TROOP_CHECK(key.size() == priority.size(), "{} keys, {} priorities", key.size(), priority.size());
  UpdateCounts counts;
  slot_.clear();
  priority_.clear();
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (!PriorityOk(priority[i])) {
      ++counts.refused;
    } else if (const std::uint64_t number = NumberOf(key[i]); number == kGone) {
      ++counts.stale;
    } else {
      ++counts.applied;
      slot_.push_back(SlotOf(number));
      priority_.push_back(Transform(priority[i]));
    }
  }
  tree_.Set(slot_, priority_);
  return counts;
}

}  // namespace troop
