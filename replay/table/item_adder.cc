// ItemAdder: the last part of an insert call, from the record to the selectors.
#include "replay/table/item_adder.h"

#include <cstring>

#include "replay/table/priority_updater.h"

namespace troop {

void NoteItemEvent(EventHistory* history, HistoryEvent::What what, const Item& item) {
  if (history == nullptr) return;
  history->Note({what, item.stream, item.first_frame, item.length, 0});
}

ItemAdder::ItemAdder(const TableOptions& options, const Parts& parts)
    : epsilon_(options.priority_epsilon),
      item_records_(options.has_item_records()),
      checksums_(options.checksums),
      history_(options.history),
      parts_(parts) {}

// Adds the collected slots to both selectors.
void ItemAdder::AddToSelectors() {
  if (added_.empty()) return;
  parts_.selectors->Add(added_, priority_);
  added_.clear();
  priority_.clear();
}

void ItemAdder::Add(std::span<const Planned> planned, std::span<const Item> items) {
  InsertWindow& window = *parts_.window;
  // 1. The record with the frames. Places for the items are left free in it.
  SegmentStore::Place place;
  const auto count = std::uint32_t(planned.size());
  RecordWriter writer = window.Write(item_records_ ? count : 0, &place);
  OpenRecord record{place, writer};
  if (parts_.feed->enabled()) parts_.feed->NoteNewFrames(window.written(place));
  // 2. The items: their slots, and their places in the record.
  for (std::uint32_t i = 0; i < count; ++i) {
    if (parts_.slots->size() == parts_.slots->capacity()) {
      // Reservoir. The selectors must have all items, since the remover may pick any.
      AddToSelectors();
      parts_.evictor->Evict(1);
    }
    const Item& newcomer = items[planned[i].item];
    const Slot slot = AddItem(planned[i], newcomer);
    if (item_records_) WriteItem(slot, newcomer, i, &record);
    added_.push_back(slot);
    priority_.push_back(parts_.slots->item(slot).priority);
  }
  AddToSelectors();
  // 3. The record is complete. Frames without references are freed.
  parts_.ages->TrimOrder();
  record.writer.Finish(checksums_);
  window.End();
}

// Stores one item: its slot, and references to its frames.
ItemAdder::Slot ItemAdder::AddItem(const Planned& plan, const Item& newcomer) {
  const InsertWindow& window = *parts_.window;
  const Slot slot = parts_.slots->Add({.first = window.Id(plan.at.begin),
                                       .policy_version = newcomer.policy_version,
                                       .length = std::uint16_t(newcomer.length),
                                       .lead = std::uint16_t(plan.at.lead),
                                       .priority = EffectivePriority(newcomer.priority, epsilon_)});
  const std::uint32_t frames = parts_.slots->item(slot).frames();
  for (std::uint32_t w = 0; w < frames; ++w) parts_.log->Refer(window.Id(plan.at.begin + w));
  if (parts_.feed->enabled()) parts_.feed->NoteItem(slot);
  parts_.ages->NoteItem(slot);
  NoteItemEvent(history_, HistoryEvent::kInserted, newcomer);
  return slot;
}

// Writes one item into the call's record.
void ItemAdder::WriteItem(Slot slot, const Item& newcomer, std::uint32_t index,
                          OpenRecord* record) {
  const StoredItem& stored = parts_.slots->item(slot);
  const RecordLayout& layout = parts_.log->layout();
  const ItemRecord written{.stream = newcomer.stream,
                           .first_frame = newcomer.first_frame,
                           .policy_version = newcomer.policy_version,
                           .number = stored.number,
                           .length = stored.length,
                           .lead = stored.lead,
                           .priority = stored.priority,
                           .slot = slot,
                           .generation = stored.generation};
  std::memcpy(record->writer.item + index * sizeof(written), &written, sizeof(written));
  std::uint32_t state = 0;
  if (layout.state_bytes > 0) {
    std::byte* const at = record->writer.state + index * layout.state_bytes;
    std::memcpy(at, newcomer.state.data(), layout.state_bytes);
    state = std::uint32_t(at - record->place.at) + record->place.offset;
  }
  parts_.slots->SetRecord(slot, record->place.segment, state);
  parts_.log->store().AddLive(record->place.segment, layout.item_bytes());
}

}  // namespace troop
