// Inserter: the order of the steps of an insert call, and the reservoir.
#include "replay/table/inserter.h"

namespace troop {

Inserter::Inserter(const TableOptions& options, const ItemAdder::Parts& adder,
                   const RoomMaker::Parts& room)
    : stack_(options.view.stack),
      reservoir_(options.reservoir),
      history_(options.history),
      parts_(adder),
      compactor_(room.compactor),
      checker_(options),
      room_(options, room),
      adder_(options, adder) {}

Result<InsertCounts> Inserter::Insert(const EncodedInsert& call) {
  parts_.evictor->Unpin();  // frame pointers of the last draw expire here
  // 1. Check sizes, recognize repeats, check the content. Nothing changes so far.
  TROOP_ASSIGN_OR_RETURN(const auto chunks, checker_.View(call.chunks));
  if (parts_.window->HasAll(chunks)) {
    return InsertCounts{.repeated = std::int64_t(call.items.size())};
  }
  for (const InsertWindow::ChunkView& chunk : chunks) {
    TROOP_RETURN_IF_ERROR(checker_.CheckFrames(chunk));
  }
  // 2. Plan the frames, then the items over them, and make room. The last step may evict items.
  InsertCounts counts;
  const Result<std::size_t> record_bytes = Plan(chunks, call.items, &counts);
  if (!record_bytes.ok()) {
    parts_.window->Abandon();
    return record_bytes.status();
  }
  // 3. Nothing can fail from here on.
  if (reservoir_) SampleReservoir(&counts);
  adder_.Add(planned_, call.items);
  counts.inserted = std::int64_t(planned_.size());
  // Each received byte makes about one byte dead; compacting half-dead segments at twice that rate
  // keeps up.
  compactor_->Compact((std::size_t{64} << 10) + 2 * *record_bytes);
  return counts;
}

// Returns the bytes of the call's record.
Result<std::size_t> Inserter::Plan(std::span<const InsertWindow::ChunkView> chunks,
                                   std::span<const Item> items, InsertCounts* counts) {
  TROOP_RETURN_IF_ERROR(parts_.window->Plan(chunks));
  TROOP_RETURN_IF_ERROR(PlanItems(items, counts));
  return room_.MakeRoom(std::int64_t(planned_.size()));
}

// Locates the frames of each item. An invalid item fails the call; one whose frames left is only
// counted as expired.
Status Inserter::PlanItems(std::span<const Item> items, InsertCounts* counts) {
  planned_.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    TROOP_RETURN_IF_ERROR(checker_.CheckItem(items[i]));
    const int lead = stack_ - 1 + int(items[i].burn_in);
    TROOP_ASSIGN_OR_RETURN(const auto located, parts_.window->Locate(items[i], lead));
    if (located) {
      planned_.push_back({*located, std::uint32_t(i)});
    } else {
      ++counts->expired;
      NoteItemEvent(history_, HistoryEvent::kDropped, items[i]);
    }
  }
  return Status::Ok();
}

// Vitter 1985, algorithm R: the t-th item offered is accepted with probability slots / t.
void Inserter::SampleReservoir(InsertCounts* counts) {
  const std::int64_t slots = parts_.slots->capacity();
  std::int64_t after = parts_.slots->size();
  std::erase_if(planned_, [&](const ItemAdder::Planned&) {
    ++seen_;
    if (after < slots) {
      ++after;
      return false;
    }
    const double uniform = parts_.selectors->remover_rng().Uniform();
    const bool taken = uniform * double(seen_) < double(slots);
    if (!taken) ++counts->rejected;
    return !taken;
  });
}

}  // namespace troop
