#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/encoded_insert.h"
#include "replay/codec/frame_codec.h"
#include "replay/codec/table_delta.h"
#include "replay/storage/segment.h"
#include "replay/storage/snapshot.h"
#include "replay/table/journal_source.h"
#include "replay/table/table_counts.h"
#include "replay/table/table_options.h"

namespace troop {

struct TableParts;

// A replay table: items over a log of frames, with one selector that samples and one that evicts.
// Owner: one thread (a server, or a test). Has no notion of messages, waiting, time or disks.
//
// A key is generation << 32 | slot. Slots are reused in the order in which they were freed, each
// time with a new generation, so a key identifies one item forever.
//
// Invariants:
//   - An item's frames (lead + length + 1) stay in the log as long as the item does.
//   - A frame is stored once, however many items refer to it. It leaves with the last of them, but
//     the newest ViewSpec::frames_max of each stream stay: later items may refer to them.
//   - A stream that is silent while a whole log of frames arrives is dropped; late items expire.
//
// Soft capacity (Horgan et al. 2018, appendix): with trim_every_samples, inserts are accepted
// beyond `capacity_items`, and the excess is evicted in bulk each time that number of items was
// sampled. A hard limit of capacity * 9/8 bounds memory; beyond it each insert evicts items. Items
// are also evicted early, by the remover's choice, when the log runs out of frames or bytes.
class Table {
 public:
  using Options = TableOptions;
  using InsertCounts = troop::InsertCounts;
  using UpdateCounts = troop::UpdateCounts;
  using RecoverCounts = troop::RecoverCounts;

  // Creates an empty table. Errors: kInvalidArgument, kResourceExhausted.
  static Result<Table> Make(const Options& options);
  // Memory of a full table: arrays, and the log at the codec's usual ratio (LZ4: 8, zstd: 20).
  static std::size_t PredictBytes(const Options& options);
  Table(Table&&) noexcept;
  Table& operator=(Table&&) noexcept;
  ~Table();

  // Inserts frames and items, all or nothing: the call is checked before any change, which decodes
  // each encoded frame once. Items are evicted first if room is needed. A call whose frames were
  // all received before is a repeat (a writer that lost the reply resends it): its items are in
  // the table already. Errors:
  //   kInvalidArgument: columns of the wrong size; frames that do not decode; repeated frames next
  //     to new ones; non-finite rewards; discounts outside [0, 1]; an item that crosses an
  //     episode's end or exceeds the frames of its stream in this call; a length outside 1 …
  //     length_max; burn-in above the view's (with stacks: unequal to it); a state of the wrong
  //     size; a priority that is NaN, infinite or negative; a policy version of 2^31 updates or
  //     more.
  //   kResourceExhausted: the call exceeds what the table can hold.
  // A call without frames cannot be recognized as a repeat: its items would be inserted twice.
  Result<InsertCounts> Insert(const EncodedInsert& call);

  // Samples `batch` items with replacement. The random numbers are keyed by (seed,
  // kReplaySampling, incarnation, draw number). Frame pointers are valid until the next call that
  // changes the table. With max_times_sampled or max_policy_age fewer items may remain: then
  // out->size() < batch.
  void Draw(std::int64_t batch, EncodedBatch* out);
  bool can_draw() const;
  // [B] For the last Draw: the number of items inserted since each sampled one.
  std::span<const std::uint64_t> drawn_age() const;

  // ---- For a replica that is sampled instead of this table (Options::feed) ----

  // Reads a table delta: items from number at.next on, oldest first, at most items_max, until
  // their new frames reach about bytes_max when decoded. Frames that items in [at.start, at.next)
  // referred to are left out. Returns how far it read; `start` increases if items were evicted
  // before they were read. Frame pointers are valid until the next call that changes the table.
  DeltaCursor ReadDelta(const DeltaCursor& at, std::int64_t items_max, std::size_t bytes_max,
                        TableDelta* out);
  std::uint64_t oldest_number() const;  // of the oldest item; of the next one if empty
  ReplicaSizes replica_sizes() const;
  void CountReplicaSamples(
      std::int64_t items);  // samples of the replica; counted for trim_every_samples

  // Sets priorities to |TD error| (before ε is added). Of several pairs with one key the last
  // counts. A key of an evicted item has no effect.
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> priority);
  // Sets the newest policy version, for max_policy_age. From the first call on, the versions of
  // inserted items no longer raise it, and the maximum that they had reached is discarded.
  void ObservePolicyVersion(std::uint64_t version);
  // Adds a dictionary for checking frames.
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);

  const Options& options() const;
  std::int64_t size() const;
  double total() const;  // sum of the sampler's weights
  bool Alive(std::uint64_t key) const;
  std::uint64_t newest_policy_version() const;
  TableUsage usage() const;  // O(segments)
  // The log as bytes, and the state outside the log, for a journal. The reference stays valid when
  // the table is moved.
  JournalSource& journal_source();
  const JournalSource& journal_source() const;

  // Rebuilds a table from its log and snapshot (see Snapshot). `segments`: sealed, ordered by id.
  // After a clean shutdown, samples continue as if without interruption, except with kUniform,
  // whose item order is not kept. Tolerates arbitrary bytes: damaged records lose their content,
  // which is counted, and so do frames whose dictionary is not in `dictionaries`.
  static Result<Table> Recover(
      const Options& options, std::vector<std::shared_ptr<Segment>> segments,
      const Snapshot& snapshot, RecoverCounts* counts,
      std::span<const std::shared_ptr<const FrameDictionary>> dictionaries = {});

 private:
  explicit Table(std::unique_ptr<TableParts> parts);
  std::unique_ptr<TableParts> parts_;
};

}  // namespace troop
