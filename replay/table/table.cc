// Table: the calls of its parts, and its sizes. Recovery is in replay/persistence/recover.cc.
#include "replay/table/table.h"

#include <algorithm>
#include <utility>

#include "replay/table/table_parts.h"

namespace troop {

// Counts the arrays exactly and the log at the usual ratio, plus two partly filled segments.
std::size_t Table::PredictBytes(const Options& options) {
  const FrameLog::Options log = options.LogOptions();
  std::size_t segments = options.LogBytes(log.frames) + 2 * log.segment_bytes;
  if (options.bytes_max > 0) segments = std::min(segments, options.bytes_max);
  // Frame ids per segment (SegmentStore::frames).
  const std::size_t ids = std::size_t(log.frames) * sizeof(FrameLog::FrameId);
  return segments + ids + FrameLog::Bytes(log.frames) +
         SelectorPair::Bytes(options.SelectorOptions()) + ItemSlots::Bytes(options.slots()) +
         (options.feed ? DeltaFeed::Bytes(options.slots(), log.frames) : 0);
}

Result<Table> Table::Make(const Options& options) {
  TROOP_ASSIGN_OR_RETURN(auto parts, TableParts::Make(options));
  return Table(std::move(parts));
}

Table::Table(std::unique_ptr<TableParts> parts) : parts_(std::move(parts)) {}
Table::Table(Table&&) noexcept = default;
Table& Table::operator=(Table&&) noexcept = default;
Table::~Table() = default;

// ---- Operations ---------------------------------------------------------------------------------

Result<InsertCounts> Table::Insert(const EncodedInsert& call) {
  return parts_->inserter.Insert(call);
}

void Table::Draw(std::int64_t batch, EncodedBatch* out) { parts_->sampler.Draw(batch, out); }

UpdateCounts Table::Update(std::span<const std::uint64_t> key, std::span<const float> priority) {
  return parts_->updater.Update(key, priority);
}

void Table::ObservePolicyVersion(std::uint64_t version) { parts_->ages.Observe(version); }

void Table::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  parts_->inserter.checker().AddDictionary(std::move(dictionary));
}

DeltaCursor Table::ReadDelta(const DeltaCursor& at, std::int64_t items_max, std::size_t bytes_max,
                             TableDelta* out) {
  return parts_->feed.Read(at, items_max, bytes_max, out);
}

// Trims a soft capacity, as samples of the table itself do.
void Table::CountReplicaSamples(std::int64_t items) {
  parts_->evictor.Unpin();
  if (parts_->evictor.CountSamples(std::uint64_t(items))) parts_->evictor.TrimToCapacity();
}

// ---- Accessors ----------------------------------------------------------------------------------

bool Table::can_draw() const { return parts_->selectors.can_draw(); }
std::span<const std::uint64_t> Table::drawn_age() const { return parts_->sampler.drawn_age(); }
std::uint64_t Table::oldest_number() const { return parts_->feed.OldestNumber(); }
ReplicaSizes Table::replica_sizes() const {
  return {std::uint64_t(parts_->slots.capacity()), std::uint64_t{parts_->log.last_id()} + 1};
}
const Table::Options& Table::options() const { return parts_->options; }
std::int64_t Table::size() const { return parts_->slots.size(); }
double Table::total() const { return parts_->selectors.total(); }
bool Table::Alive(std::uint64_t key) const { return parts_->slots.Alive(key); }
std::uint64_t Table::newest_policy_version() const { return parts_->ages.newest(); }
JournalSource& Table::journal_source() { return parts_->journal_source; }
const JournalSource& Table::journal_source() const { return parts_->journal_source; }

TableUsage Table::usage() const {
  const TableParts& p = *parts_;
  const SegmentStore& store = p.log.store();
  return {.slots = p.slots.capacity(),
          .evicted = p.slots.evicted(),
          .frames = p.log.frames(),
          .frame_capacity = p.log.capacity(),
          .streams = p.streams.size(),
          .bytes = p.log.array_bytes() + store.memory() + store.frame_list_bytes() +
                   p.selectors.bytes() + p.slots.bytes() + p.ages.bytes() + p.feed.bytes(),
          .segment_bytes = store.memory(),
          .used_bytes = store.used(),
          .live_bytes = store.live(),
          .compacted_bytes = p.compactor.moved_bytes()};
}

}  // namespace troop
