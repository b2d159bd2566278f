#pragma once

// Bodies and parts of the replay messages (docs/design/protocol.md). Both ends use these functions.
// Data from peers is checked here before use.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/metrics/metrics.h"
#include "core/tensor/trajectory.h"
#include "net/message.h"
#include "replay/codec/frame_codec.h"
#include "replay/storage/item_view.h"
#include "replay/table/table.h"

namespace troop {

// Header of one chunk in kInsert; its frames are [first_frame, first_frame + frames).
struct ChunkHeader {
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  template <class A>
  void serialize(A& a) {
    a(stream, first_frame, frames);
  }
};

// kInsert. Part 0: items × WireItem, items × state where the table has one, then for each chunk
// action, reward, discount, final, and with a codec frame_bytes u32. Part 1 + c: encoded
// observations of chunk c.
struct InsertBody {
  std::uint32_t table = 0;
  std::vector<ChunkHeader> chunks;
  std::uint32_t items = 0;
  template <class A>
  void serialize(A& a) {
    a(table, chunks, items);
  }
};
struct InsertReplyBody {
  std::uint32_t dictionary = 0;  // newest dictionary of the table; 0: none
  template <class A>
  void serialize(A& a) {
    a(dictionary);
  }
};

// One item in part 0 of kInsert.
struct WireItem {
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;
  std::uint64_t policy_version = 0;
  std::uint32_t length = 0;
  std::uint32_t burn_in = 0;
  float priority = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireItem) == 40);

// kSample: requests `batches` batches of `batch_size` items in one reply; 0 of 0: only the table's
// state, at once. Part 0, when updates > 0: PackUpdates.
struct SampleBody {
  std::uint32_t table = 0;
  std::uint32_t batch_size = 0;
  std::uint32_t batches = 0;
  // Items to charge to the rate limiter, which may delay the request. 0: no wait for the ratio. A
  // sampler of one shard charges batch_size * batches.
  std::uint32_t charge = 0;
  std::uint32_t updates = 0;
  std::uint64_t taken = 0;  // SampleReplyBody::reserved at the last item that the owner took
  bool drain = false;       // kOutOfRange instead of waiting for the limiter
  std::uint64_t policy_version = 0;  // newest known to the caller; 0: none
  template <class A>
  void serialize(A& a) {
    a(table, batch_size, batches, charge, updates, taken, drain, policy_version);
  }
};

// kSampleReply. Part i: PackEncodedBatch of rows[i] items; those of one batch are consecutive and
// add up to batch_size.
struct SampleReplyBody {
  std::uint32_t batch_size = 0;
  std::uint32_t batches = 0;
  std::uint32_t charged = 0;   // as requested, or 0 if the charge was waived
  std::uint64_t reserved = 0;  // total charged to this sampler, this reply included
  double total = 0;            // Σ weights after sampling; 0 if sampling is not allowed yet
  double credit = 0;           // items that may be charged before the limiter blocks
  std::vector<std::uint32_t> rows;
  std::vector<std::uint32_t> dictionaries;  // all that the table's frames may need
  template <class A>
  void serialize(A& a) {
    a(batch_size, batches, charged, reserved, total, credit, rows, dictionaries);
  }
};

// kTableDelta: requests a table delta for a replica that is sampled in place of the table
// (Table::ReadDelta). `sample` as in kSample, with a batch_size of 0: `batches` that the caller
// will sample there, for which it is charged; 0 of them: at once. Part 0, when updates > 0:
// PackUpdates.
struct TableDeltaBody {
  SampleBody sample;
  std::uint64_t life = 0;             // incarnation of the table that the replica is of; 0: none
  std::uint64_t start = 0, next = 0;  // DeltaCursor in that table
  std::uint32_t items_max = 0;
  template <class A>
  void serialize(A& a) {
    a(sample, life, start, next, items_max);
  }
};

// kTableDeltaReply. Part 0: PackTableDelta. If `life` differs from the request's, the delta begins
// with the table's oldest item, and the caller must discard its replica.
struct TableDeltaReplyBody {
  SampleReplyBody sample;
  std::uint64_t life = 0;
  std::uint64_t start = 0, next = 0;    // position after these items
  std::uint64_t oldest = 0;             // number of the oldest item; earlier ones were evicted
  std::uint64_t end = 0;                // next == end: the replica is up to date
  std::uint64_t slots = 0, frames = 0;  // ReplicaSizes
  template <class A>
  void serialize(A& a) {
    a(sample, life, start, next, oldest, end, slots, frames);
  }
};

// kUpdatePriorities. Part 0: PackUpdates.
struct UpdateBody {
  std::uint32_t table = 0;
  std::uint32_t updates = 0;
  std::uint64_t taken = 0;           // as in SampleBody
  bool drain = false;                // parked samples of this caller end with kOutOfRange
  bool waive = false;                // parked samples of this caller are answered without a charge
  std::uint64_t policy_version = 0;  // as in SampleBody
  template <class A>
  void serialize(A& a) {
    a(table, updates, taken, drain, waive, policy_version);
  }
};

// kReplayStatsReply: the metrics of ReplayServer::Report.
struct ReplayStatsBody {
  MetricSnapshot metrics;
  template <class A>
  void serialize(A& a) {
    a(metrics);
  }
};

// A TensorSpec.
struct WireSpec {
  std::uint8_t dtype = 0;
  std::vector<std::int64_t> shape;
  template <class A>
  void serialize(A& a) {
    a(dtype, shape);
  }
};

// Description of one table, for clients without its config.
struct TableInfo {
  std::string name;
  WireSpec observation, action;
  std::optional<WireSpec> state;
  std::uint8_t view_kind = 0;
  std::uint32_t length_max = 0, stack = 0, burn_in = 0;
  std::uint8_t codec = 0;
  std::uint32_t dictionary = 0;  // newest dictionary; 0: none
  std::int64_t capacity_items = 0, min_items = 0, items = 0;
  double samples_per_insert = 0;
  bool durable = false;  // acknowledged inserts are on disk
  template <class A>
  void serialize(A& a) {
    a(name, observation, action, state, view_kind, length_max, stack, burn_in, codec, dictionary,
      capacity_items, min_items, items, samples_per_insert, durable);
  }
};
// kDescribeReply: tables by number. kDescribe has an empty body.
struct DescribeReplyBody {
  std::vector<TableInfo> tables;
  std::uint32_t batch_size_max = 0;
  template <class A>
  void serialize(A& a) {
    a(tables, batch_size_max);
  }
};
WireSpec ToWire(const TensorSpec& spec);
// Errors: kDataLoss: unknown type, or a shape that does not fit in memory.
Result<TensorSpec> FromWire(const WireSpec& spec);
// The part of a TableInfo that clients need. Errors: kDataLoss.
struct TableDescription {
  std::string name;
  TrajectorySpec trajectory;
  ViewSpec view;
  Codec codec = Codec::kNone;
};
Result<TableDescription> ParseTableInfo(const TableInfo& info);

// kDictionary; the reply has an empty body, and its part 0 is the dictionary.
struct DictionaryBody {
  std::uint32_t table = 0;
  std::uint32_t id = 0;
  template <class A>
  void serialize(A& a) {
    a(table, id);
  }
};

// kReconfigure: changes the rate limiter of a running table.
struct ReconfigureBody {
  std::uint32_t table = 0;
  double samples_per_insert = 0, samples_per_insert_tolerance_rate = 0;
  std::int64_t min_items = 0;
  template <class A>
  void serialize(A& a) {
    a(table, samples_per_insert, samples_per_insert_tolerance_rate, min_items);
  }
};

// kReplayCheckpoint; the reply has an empty body.
struct TableBody {
  std::uint32_t table = 0;
  template <class A>
  void serialize(A& a) {
    a(table);
  }
};

// Encodes the observations of a chunk, each independently.
EncodedChunk EncodeChunk(const Chunk& chunk, FrameCoder* coder);
// Wraps a chunk without encoding it: for Codec::kNone, and for tests.
EncodedChunk PlainChunk(const Chunk& chunk);

// Builds a kInsert message. REQUIRES: chunks and states match `spec`.
Message PackInsert(std::uint32_t table, const TrajectorySpec& spec, Codec codec,
                   std::span<const EncodedChunk> chunks, std::span<const Item> items);
// Checks the sizes of the parts against the spec; the table checks their content. Parts are
// sliced, not copied. Errors: kInvalidArgument.
Result<EncodedInsert> ParseInsert(const Message& message, const InsertBody& body,
                                  const TrajectorySpec& spec, Codec codec);

// Part 0 of messages with updates: [n] keys u64, then [n] priorities f32.
Buffer PackUpdates(std::span<const std::uint64_t> key, std::span<const float> priority);
// Errors: kInvalidArgument: the parts do not hold exactly `updates` pairs.
Status ParseUpdates(const Message& message, std::uint32_t updates, std::vector<std::uint64_t>* key,
                    std::vector<float>* priority);

}  // namespace troop
