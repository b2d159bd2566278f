// Table::Draw: samples items and gathers their columns and frame pointers.
#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "replay/table/table_state.h"

namespace troop {

// ---- Choice of items ----------------------------------------------------------------------------

// Versions above the newest known one count as age 0.
bool Table::State::IsStale(const Stored& stored) const {
  const std::uint64_t newest = UpdatesOf(newest_version), own = UpdatesOf(stored.policy_version);
  return own < newest && newest - own > options.max_policy_age;
}

// Evicts from the front of the insertion order while items are too old; amortized O(1) per item.
void Table::State::EvictStaleItems() {
  leaving.clear();
  while (!order.empty()) {
    const std::uint64_t key = order.front();
    const Stored& stored = item[Slot(key)];
    if (stored.generation == key >> 32 && IsLive(stored)) {
      if (!IsStale(stored)) break;
      leaving.push_back(Slot(key));
    }
    order.pop_front();
  }
  RemoveNow(leaving);
}

// Removes evicted items from `order` when they dominate it: an old item that stays at the front
// would let it grow without bound.
void Table::State::TrimOrder() {
  if (std::int64_t(order.size()) <= 2 * slots + 1024) return;
  std::erase_if(order, [this](std::uint64_t key) {
    return item[Slot(key)].generation != key >> 32 || !IsLive(item[Slot(key)]);
  });
}

// Resamples in place of items that are too old (evicted at once) or were sampled often enough
// (removed from the sampler at once, evicted after the draw). Probabilities remain shares of
// `total`, that of the first draw, since shards are weighted by it.
void Table::State::ChooseAmongDrawable(Rng* rng, double total, std::vector<double>* probability) {
  // Invariant: chosen[0, good) are final; each round resamples the rest.
  std::size_t good = 0;
  std::vector<Slot> spent, old;
  while (true) {
    spent.clear();
    old.clear();
    for (std::size_t i = good; i < chosen.size(); ++i) {
      const Slot drawn = chosen[i];
      if (options.max_policy_age > 0 && IsStale(item[drawn])) {
        old.push_back(drawn);
        continue;
      }
      if (options.max_times_sampled > 0) {
        std::uint32_t& times = cold[drawn].times_sampled;
        if (std::int64_t(times) >= options.max_times_sampled) continue;
        if (std::int64_t(++times) == options.max_times_sampled) spent.push_back(drawn);
        MarkDirty(drawn);
      }
      chosen[good] = drawn;
      (*probability)[good++] = (*probability)[i];
    }
    // An item may have been sampled twice; RemoveNow requires distinct slots.
    std::ranges::sort(old);
    old.erase(std::unique(old.begin(), old.end()), old.end());
    RemoveNow(old);
    sampler->Remove(spent);
    leaving.insert(leaving.end(), spent.begin(), spent.end());
    if (good == chosen.size() || !sampler->can_draw()) break;
    const std::span<Slot> rest(chosen.begin() + std::ptrdiff_t(good), chosen.end());
    // Removals lowered the sampler's total: scale to shares of the first one.
    const double share = sampler->total() / total;
    sampler->Draw(rng, rest, std::span(*probability).subspan(good));
    for (double& p : std::span(*probability).subspan(good)) p *= share;
  }
  chosen.resize(good);
  probability->resize(good);
}

// ---- Sampling -----------------------------------------------------------------------------------

void Table::State::Draw(std::int64_t batch, EncodedBatch* out) {
  TROOP_CHECK(batch > 0 && sampler->can_draw(), "sample of {} items with total {}", batch,
              sampler->total());
  ReleaseHeld();
  if (options.max_policy_age > 0) EvictStaleItems();
  // Totals of the state before this draw evicts anything.
  out->total = sampler->total();
  out->items = size;
  out->probability_min = sampler->probability_min();
  chosen.resize(std::size_t(batch));
  out->probability.resize(std::size_t(batch));
  leaving.clear();
  Rng rng({.run_seed = options.seed,
           .purpose = Purpose::kReplaySampling,
           .index = options.incarnation,
           .episode = draws++});
  // EvictStaleItems may have evicted all items that could be sampled.
  if (sampler->can_draw()) {
    sampler->Draw(&rng, chosen, out->probability);
    if (options.max_policy_age > 0 || options.max_times_sampled > 0) {
      ChooseAmongDrawable(&rng, out->total, &out->probability);
    }
  } else {
    chosen.clear();
    out->probability.clear();
  }
  Gather(out);
  samples_since_trim += chosen.size();
  EvictAfterSample();
}

// Evicts items whose last sample this was, and trims a soft capacity. The frames of the sampled
// items are pinned until the next call.
void Table::State::EvictAfterSample() {
  const bool trim = options.trim_every_samples > 0 &&
                    samples_since_trim >= std::uint64_t(options.trim_every_samples);
  if (trim) samples_since_trim = 0;
  if (leaving.empty() && !(trim && size > options.capacity_items)) return;
  for (const Slot s : chosen) {
    held.push_back({item[s].first, item[s].frames()});
    log.Refer(item[s].first, item[s].frames());
  }
  remover->Remove(leaving);
  for (const Slot s : leaving) FreeSlot(s);
  if (trim) TrimToCapacity();
}

// Gathers the sampled items. Blocks of items are processed in three passes: the item data, the
// entries of their frames, then the columns from the cache. Passes that only read keep many cache
// misses in flight. Prefetch instructions would take twice as long, since the processor drops those
// that also miss the TLB, and so does writing columns in between. Actions outside the entries come
// last.
void Table::State::Gather(EncodedBatch* out) {
  constexpr std::size_t kBlock = 512;  // items and entries of a block fit into the cache
  const std::size_t count = chosen.size(), steps = std::size_t(options.view.steps());
  const std::size_t actions = options.view.kind == ViewSpec::Kind::kSequence ? steps : 1;
  out->key.resize(count);
  out->policy_version.resize(count);
  out->length.resize(count);
  out->lead.resize(count);
  out->reward.resize(count * steps);
  out->discount.resize(count * steps);
  out->action.resize(count * actions * layout.action_bytes);
  out->state.resize(count * layout.state_bytes);
  // Upper bound; cut to the actual number of frames below.
  out->frame.resize(count * std::size_t(options.view.frames_max()));
  age.resize(count);
  action.assign(log.inline_action() ? 0 : count * actions, nullptr);
  std::size_t frames = 0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    TouchItems(begin, end);
    TouchEntries(begin, end);
    for (std::size_t i = begin; i < end; ++i) {
      const Stored& stored = item[chosen[i]];
      out->key[i] = std::uint64_t{stored.generation} << 32 | chosen[i];
      out->policy_version[i] = stored.policy_version;
      out->length[i] = stored.length;
      out->lead[i] = stored.lead;
      age[i] = inserted - stored.number - 1;
    }
    for (std::size_t i = begin; i < end; ++i) GatherItem(item[chosen[i]], i, out, &frames);
  }
  out->frame.resize(frames);
  CopyActions(out);
  for (std::size_t i = 0; i < count && layout.state_bytes > 0; ++i) {
    const Cold& rest = cold[chosen[i]];
    std::memcpy(out->state.data() + i * layout.state_bytes,
                log.store().base(rest.segment) + rest.state, layout.state_bytes);
  }
}

// Loads the item data of a block into the cache.
void Table::State::TouchItems(std::size_t begin, std::size_t end) {
  std::uint32_t sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += item[chosen[i]].first;
  touched = sum;
}

// Loads the frame entries of a block into the cache. Frames of an item are mostly adjacent; for
// long items the hardware prefetcher loads the rest.
void Table::State::TouchEntries(std::size_t begin, std::size_t end) {
  constexpr std::uint32_t kPerLine = 64 / sizeof(FrameLog::Entry), kFramesMax = 16;
  const FrameId last = log.last_id();
  std::uint32_t sum = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const Stored& stored = item[chosen[i]];
    const FrameId until = std::min(stored.first + std::min(stored.frames(), kFramesMax) - 1, last);
    for (FrameId id = stored.first; id < until; id += kPerLine) sum += log.entry(id).next;
    sum += log.entry(until).next;
  }
  touched = sum;
}

// Copies actions outside the entries; nullptr marks a step that the item does not have.
void Table::State::CopyActions(EncodedBatch* out) const {
  const std::size_t bytes = layout.action_bytes;
  for (std::size_t i = 0; i < action.size(); ++i) {
    std::byte* const to = out->action.data() + i * bytes;
    if (action[i] != nullptr) {
      std::memcpy(to, action[i], bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

// Fills row i: rewards, discounts and actions by column, and pointers to the frames that the view
// returns.
void Table::State::GatherItem(const Stored& stored, std::size_t i, EncodedBatch* out,
                              std::size_t* frames) {
  const ViewSpec& spec = options.view;
  const bool sequence = spec.kind == ViewSpec::Kind::kSequence;
  const int steps = spec.steps(), lead = stored.lead, length = stored.length;
  const FrameRanges ranges = FramesOf(spec, lead, length);
  float* const reward = out->reward.data() + i * std::size_t(steps);
  float* const discount = out->discount.data() + i * std::size_t(steps);
  const int actions = sequence ? steps : 1;
  const std::size_t action_bytes = layout.action_bytes;
  std::byte* const own_action = out->action.data() + i * std::size_t(actions) * action_bytes;
  const int shift = (sequence ? spec.burn_in : 0) - lead;  // column of frame j: j + shift
  const int first_column = std::max(0, shift), end_column = lead + length + shift;
  // Columns before and after the item's steps: reward 0, discount 1.
  std::fill(reward, reward + first_column, 0.0f);
  std::fill(discount, discount + first_column, 1.0f);
  std::fill(reward + end_column, reward + steps, 0.0f);
  std::fill(discount + end_column, discount + steps, 1.0f);
  if (sequence && log.inline_action()) {
    std::memset(own_action, 0, std::size_t(actions) * action_bytes);
  }
  FrameId id = stored.first;
  EncodedBatch::Frame* frame = out->frame.data() + *frames;
  for (int j = 0; j < ranges.end; ++j) {
    const FrameLog::Entry& entry = log.entry(id);
    if (j < ranges.first || j >= ranges.second) *frame++ = {log.observation(entry), entry.bytes};
    const int column = j + shift;
    if (j < lead + length && column >= 0 && (sequence || j >= lead)) {
      reward[column] = entry.reward;
      discount[column] = entry.discount;
      if (sequence || j == lead) {
        if (!log.inline_action()) {
          action[i * std::size_t(actions) + std::size_t(column)] = log.action(entry);
          __builtin_prefetch(log.action(entry));
        } else {
          std::memcpy(own_action + std::size_t(column) * action_bytes, &entry.action, action_bytes);
        }
      }
    }
    id = entry.next;
  }
  *frames = std::size_t(frame - out->frame.data());
}

}  // namespace troop
