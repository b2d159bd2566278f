// ItemGatherer: copies the columns of sampled items, block by block.
#include "replay/table/item_gatherer.h"

#include <algorithm>
#include <cstring>

namespace troop {

// Sizes the columns; the frames get an upper bound.
void ItemGatherer::Resize(std::size_t count, EncodedBatch* out) {
  const RecordLayout& layout = log_->layout();
  const auto steps = std::size_t(view_.steps());
  out->key.resize(count);
  out->policy_version.resize(count);
  out->length.resize(count);
  out->lead.resize(count);
  out->reward.resize(count * steps);
  out->discount.resize(count * steps);
  out->action.resize(count * actions() * layout.action_bytes);
  out->state.resize(count * layout.state_bytes);
  out->frame.resize(count * std::size_t(view_.frames_max()));
  age_.resize(count);
  action_.assign(log_->inline_action() ? 0 : count * actions(), nullptr);
}

void ItemGatherer::Gather(std::span<const Slot> chosen, EncodedBatch* out) {
  constexpr std::size_t kBlock = 512;  // items and entries of a block fit into the cache
  const std::size_t count = chosen.size();
  const StoredItem* const items = slots_->items();
  const std::uint64_t inserted = slots_->inserted();
  Resize(count, out);
  std::size_t frames = 0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    TouchItems(chosen.subspan(begin, end - begin));
    TouchEntries(chosen.subspan(begin, end - begin));
    for (std::size_t i = begin; i < end; ++i) {
      const StoredItem& stored = items[chosen[i]];
      out->key[i] = std::uint64_t{stored.generation} << 32 | chosen[i];
      out->policy_version[i] = stored.policy_version;
      out->length[i] = stored.length;
      out->lead[i] = stored.lead;
      age_[i] = inserted - stored.number - 1;
    }
    for (std::size_t i = begin; i < end; ++i) GatherItem(items[chosen[i]], i, out, &frames);
  }
  out->frame.resize(frames);
  CopyActions(out);
  CopyStates(chosen, out);
}

// Loads the item data of a block into the cache.
void ItemGatherer::TouchItems(std::span<const Slot> block) {
  const StoredItem* const items = slots_->items();
  std::uint32_t sum = 0;
  for (const Slot slot : block) sum += items[slot].first;
  touched_ = sum;
}

// Loads the frame entries of a block into the cache. Frames of an item are mostly adjacent; for
// long items the hardware prefetcher loads the rest.
void ItemGatherer::TouchEntries(std::span<const Slot> block) {
  using FrameId = FrameLog::FrameId;
  constexpr std::uint32_t kPerLine = 64 / sizeof(FrameLog::Entry), kFramesMax = 16;
  const StoredItem* const items = slots_->items();
  const FrameId last = log_->last_id();
  std::uint32_t sum = 0;
  for (const Slot slot : block) {
    const StoredItem& stored = items[slot];
    const FrameId until = std::min(stored.first + std::min(stored.frames(), kFramesMax) - 1, last);
    for (FrameId id = stored.first; id < until; id += kPerLine) sum += log_->entry(id).next;
    sum += log_->entry(until).next;
  }
  touched_ = sum;
}

// Copies actions outside the entries; nullptr marks a step that the item does not have.
void ItemGatherer::CopyActions(EncodedBatch* out) const {
  const std::size_t bytes = log_->layout().action_bytes;
  for (std::size_t i = 0; i < action_.size(); ++i) {
    std::byte* const to = out->action.data() + i * bytes;
    if (action_[i] != nullptr) {
      std::memcpy(to, action_[i], bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

// Copies the recurrent states from the records of the items.
void ItemGatherer::CopyStates(std::span<const Slot> chosen, EncodedBatch* out) const {
  const std::size_t bytes = log_->layout().state_bytes;
  for (std::size_t i = 0; i < chosen.size() && bytes > 0; ++i) {
    const ColdItem& rest = slots_->cold(chosen[i]);
    std::memcpy(out->state.data() + i * bytes, log_->store().base(rest.segment) + rest.state,
                bytes);
  }
}

// Fills row i: rewards, discounts and actions by column, and pointers to the frames that the view
// returns.
void ItemGatherer::GatherItem(const StoredItem& stored, std::size_t i, EncodedBatch* out,
                              std::size_t* frames) {
  const FrameLog& log = *log_;
  const bool sequence = view_.kind == ViewSpec::Kind::kSequence;
  const int steps = view_.steps(), lead = stored.lead, length = stored.length;
  const FrameRanges ranges = FramesOf(view_, lead, length);
  float* const reward = out->reward.data() + i * std::size_t(steps);
  float* const discount = out->discount.data() + i * std::size_t(steps);
  const std::size_t actions = this->actions();
  const std::size_t action_bytes = log.layout().action_bytes;
  std::byte* const own_action = out->action.data() + i * actions * action_bytes;
  const int shift = (sequence ? view_.burn_in : 0) - lead;  // column of frame j: j + shift
  const int first_column = std::max(0, shift), end_column = lead + length + shift;
  // Columns before and after the item's steps: reward 0, discount 1.
  std::fill(reward, reward + first_column, 0.0f);
  std::fill(discount, discount + first_column, 1.0f);
  std::fill(reward + end_column, reward + steps, 0.0f);
  std::fill(discount + end_column, discount + steps, 1.0f);
  if (sequence && log.inline_action()) {
    std::memset(own_action, 0, actions * action_bytes);
  }
  FrameLog::FrameId id = stored.first;
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
          action_[i * actions + std::size_t(column)] = log.action(entry);
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
