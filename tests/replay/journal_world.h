#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/storage/crc32c.h"
#include "core/storage/memory_storage.h"
#include "replay/persistence/journal.h"
#include "replay/persistence/journal_reader.h"

namespace troop {

// Jobs run when the test says, in any order.
class ManualExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    if (refuse) return ResourceExhausted("too much to do");
    queue_.emplace_back(next_, std::move(work));
    return next_++;
  }
  bool TakeDone(Job job) override { return done_.erase(job) > 0; }
  std::size_t waiting() const { return queue_.size(); }
  void RunOne(Rng* rng) {
    if (queue_.empty()) return;
    const auto at = queue_.begin() + rng->Below(std::uint32_t(queue_.size()));
    auto [job, work] = std::move(*at);
    queue_.erase(at);
    work();
    done_.insert(job);
  }
  bool refuse = false;

 private:
  std::vector<std::pair<Job, std::function<void()>>> queue_;
  std::set<Job> done_;
  Job next_ = 1;
};

// The least that a journal can keep: items of one number each, in records of one item, over real
// segments. Items leave from anywhere; segments that are empty go, and any may be compacted.
class ItemTable final : public JournalSource {
 public:
  struct Item {
    std::uint64_t number = 0;  // in the order of insertion; also what it holds
    std::uint32_t slot = 0, generation = 0;
    float priority = 0;
    std::uint64_t segment = 0;  // where its last record is
  };
  explicit ItemTable(std::int64_t slots, std::size_t segment_bytes = 400)
      : segment_bytes_(segment_bytes), slot_(std::size_t(slots)), generation_(slot_.size(), 0) {
    for (std::uint32_t s = 0; s < slot_.size(); ++s) free_.push_back(s);
  }
  // Recovers the table by the rules of Snapshot.
  static ItemTable Recover(std::int64_t slots, const JournalContents& contents);

  bool full() const { return free_.empty(); }
  const std::map<std::uint64_t, Item>& items() const { return items_; }  // by number
  std::uint64_t inserted() const { return counters_.inserted; }

  std::uint64_t Insert(float priority) {
    Item item{++counters_.inserted, free_.front(), 0, priority, 0};
    free_.erase(free_.begin());
    item.generation = ++generation_[item.slot];
    Write(&item, RecordHeader::kInsert);
    items_[item.number] = item;
    slot_[item.slot] = item.number;
    dirty_.insert(item.slot / kSlotsPerLine);
    return item.number;
  }
  void Remove(std::uint64_t number) {
    const Item item = items_.at(number);
    items_.erase(number);
    slot_[item.slot] = 0;
    free_.push_back(item.slot);
    dirty_.insert(item.slot / kSlotsPerLine);
    FreeEmpty();
  }
  void Update(std::uint64_t number, float priority) {
    items_.at(number).priority = priority;
    dirty_.insert(items_.at(number).slot / kSlotsPerLine);
  }
  // Moves what lives in the oldest segment to the open one.
  void Compact() {
    if (segments_.size() < 2) return;
    const std::uint64_t oldest = segments_.front()->id();
    for (auto& [number, item] : items_) {
      if (item.segment == oldest) Write(&item, RecordHeader::kMoved);
    }
    FreeEmpty();
  }
  void Draw() { ++counters_.draws; }
  bool InMemory(std::uint64_t segment) const { return !moved_.contains(segment); }

  std::vector<std::shared_ptr<const Segment>> segments() const override {
    return {segments_.begin(), segments_.end()};
  }
  LogPosition position() const override {
    const LogPosition opened{next_segment_ - 1, 0};
    if (segments_.empty()) return opened;
    return std::max(opened, {segments_.back()->id(), segments_.back()->used()});
  }
  std::uint64_t appended() const override { return appended_; }
  std::uint64_t compacted_bytes() const override { return compacted_; }
  std::vector<std::uint64_t> TakeFreed() override { return std::exchange(freed_, {}); }
  bool MoveSegment(std::uint64_t id, Buffer bytes) override {
    for (const auto& segment : segments_) {
      if (segment->id() != id) continue;
      EXPECT_EQ(bytes.size(), segment->used());
      EXPECT_EQ(std::memcmp(bytes.data(), segment->data(), bytes.size()), 0);
      segment->MoveTo(std::move(bytes));
      moved_.insert(id);
      return true;
    }
    return false;
  }
  std::int64_t lines() const override {
    return std::int64_t(slot_.size() + kSlotsPerLine - 1) / kSlotsPerLine;
  }
  std::int64_t dirty_lines() const override { return std::int64_t(dirty_.size()); }
  std::int64_t TakeDirtyLine() override {
    if (dirty_.empty()) return -1;
    auto it = dirty_.upper_bound(cursor_);
    if (it == dirty_.end()) it = dirty_.begin();
    cursor_ = *it;
    dirty_.erase(it);
    return cursor_;
  }
  void ReadLine(std::int64_t line, SlotLine* out) const override {
    *out = {};
    for (std::size_t i = 0; i < out->size(); ++i) {
      const std::size_t s = std::size_t(line * kSlotsPerLine) + i;
      if (s >= slot_.size() || slot_[s] == 0) continue;
      const Item& item = items_.at(slot_[s]);
      (*out)[i] = {item.generation, item.priority, 0, 0};
    }
  }
  TableCounters counters() const override { return counters_; }

 private:
  struct Body {
    std::uint64_t number;
    std::uint32_t slot, generation;
    float priority;
    std::uint32_t reserved;
  };
  struct Written {
    Item item;
    LogPosition at;
  };

  void Write(Item* item, RecordHeader::Kind kind) {
    // Sizes differ: the number says how long a record is.
    const std::size_t bytes = sizeof(RecordHeader) + sizeof(Body) + item->number % 3 * 8;
    if (segments_.empty() || segments_.back()->sealed() ||
        segments_.back()->capacity() - segments_.back()->used() < bytes) {
      if (!segments_.empty()) segments_.back()->Seal();
      segments_.push_back(*Segment::Make(next_segment_++, segment_bytes_));
    }
    std::byte* const at = segments_.back()->Reserve(bytes);
    appended_ += bytes;
    if (kind == RecordHeader::kMoved) compacted_ += bytes;
    RecordHeader header{.bytes = bytes, .kind = kind, .chunks = 0, .items = 1};
    const Body body{item->number, item->slot, item->generation, item->priority, 0};
    std::memset(at, 0, bytes);
    std::memcpy(at, &header, sizeof(header));
    std::memcpy(at + sizeof(header), &body, sizeof(body));
    header.crc = Crc32c(std::span(at, bytes).subspan(8));
    std::memcpy(at, &header, sizeof(header));
    item->segment = segments_.back()->id();
  }
  void FreeEmpty() {
    std::set<std::uint64_t> alive;
    for (const auto& [number, item] : items_) alive.insert(item.segment);
    std::erase_if(segments_, [&](const std::shared_ptr<Segment>& segment) {
      if (segment == segments_.back() || alive.contains(segment->id())) return false;
      freed_.push_back(segment->id());
      return true;
    });
  }
  static void ReadSegment(const Segment& segment, std::map<std::uint64_t, Written>* items);
  static bool Lives(const Written& written, const Snapshot& snapshot, Item* item);

  std::size_t segment_bytes_;
  std::vector<std::shared_ptr<Segment>> segments_;
  std::uint64_t next_segment_ = 1;
  std::uint64_t appended_ = 0, compacted_ = 0;
  std::vector<std::uint64_t> freed_;
  std::set<std::uint64_t> moved_;
  std::map<std::uint64_t, Item> items_;
  std::vector<std::uint64_t> slot_;        // [slots] number of the item there; 0: none
  std::vector<std::uint32_t> generation_;  // [slots] newest
  std::vector<std::uint32_t> free_;
  std::set<std::int64_t> dirty_;
  std::int64_t cursor_ = -1;
  TableCounters counters_;
};

inline void ItemTable::ReadSegment(const Segment& segment,
                                   std::map<std::uint64_t, Written>* items) {
  for (std::size_t at = 0; at + sizeof(RecordHeader) + sizeof(Body) <= segment.used();) {
    RecordHeader header;
    Body body;
    std::memcpy(&header, segment.data() + at, sizeof(header));
    // A segment that left while it was written ends anywhere; the last one was cut.
    if (header.magic != RecordHeader::kMagic || header.bytes > segment.used() - at) return;
    const std::span<const std::byte> record(segment.data() + at, header.bytes);
    if (Crc32c(record.subspan(8)) != header.crc) return;
    std::memcpy(&body, segment.data() + at + sizeof(header), sizeof(body));
    (*items)[body.number] = {{body.number, body.slot, body.generation, body.priority, segment.id()},
                             {segment.id(), at}};
    at += header.bytes;
  }
}

inline bool ItemTable::Lives(const Written& written, const Snapshot& snapshot, Item* item) {
  *item = written.item;
  const std::size_t line = item->slot / kSlotsPerLine;
  if (line >= snapshot.lines.size()) return true;
  const SlotState& state = snapshot.lines[line].slot[item->slot % kSlotsPerLine];
  if (state.generation == item->generation) item->priority = state.priority;
  if (state.generation >= item->generation) return state.generation == item->generation;
  return written.at >= snapshot.lines[line].read_at;
}

inline ItemTable ItemTable::Recover(std::int64_t slots, const JournalContents& contents) {
  ItemTable table(slots);
  table.counters_ = contents.snapshot.counters;
  std::map<std::uint64_t, Written> written;
  std::uint32_t newest = 0;
  for (const auto& segment : contents.segments) {
    ReadSegment(*segment, &written);
    table.segments_.push_back(segment);
    table.next_segment_ = segment->id() + 1;
  }
  for (const auto& [number, record] : written) {
    table.counters_.inserted = std::max(table.counters_.inserted, number);
    newest = std::max(newest, record.item.generation);
  }
  for (const auto& [number, record] : written) {
    Item item;
    if (!Lives(record, contents.snapshot, &item)) continue;
    // If two items share a slot, the later one is valid: the earlier one was evicted.
    if (const std::uint64_t other = table.slot_[item.slot]) {
      if (table.items_.at(other).generation > item.generation) continue;
      table.items_.erase(other);
    }
    table.items_[number] = item;
    table.slot_[item.slot] = number;
  }
  std::erase_if(table.free_, [&](std::uint32_t s) { return table.slot_[s] != 0; });
  // Keys that were handed out don't come again (Options::first_generation of a real table).
  for (const Snapshot::Line& line : contents.snapshot.lines) {
    for (const SlotState& slot : line.slot) newest = std::max(newest, slot.generation);
  }
  for (std::uint32_t& generation : table.generation_) generation = newest + 1000;
  if (!table.segments_.empty() && table.segments_.back()->used() == 0) {
    table.freed_.push_back(table.segments_.back()->id());
    table.segments_.pop_back();
  }
  table.FreeEmpty();
  return table;
}

}  // namespace troop
