#pragma once

// Bodies and parts of the replay messages, as docs/protocol.md says. Both ends use these functions;
// what comes from outside is checked here, before any use.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "core/status.h"
#include "core/trajectory.h"
#include "net/message.h"
#include "replay/frame_codec.h"
#include "replay/table.h"
#include "replay/view.h"

namespace troop {

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
  std::uint32_t dictionary = 0;  // newest of the table; 0: none
  template <class A>
  void serialize(A& a) {
    a(dictionary);
  }
};

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

// kSample: `batches` draws of `batch_size` items in one reply; 0 of 0: only what the table says of
// itself, at once. Part 0, when updates > 0: PackUpdates.
struct SampleBody {
  std::uint32_t table = 0;
  std::uint32_t batch_size = 0;
  std::uint32_t batches = 0;
  // Items that the limiter is charged with; the request waits until it may be. 0: no wait for the
  // ratio. A sampler of one shard charges batch_size * batches.
  std::uint32_t charge = 0;
  std::uint32_t updates = 0;
  std::uint64_t taken = 0;  // SampleReplyBody::reserved as of the last item that its owner took
  bool drain = false;       // kOutOfRange rather than waiting for the limiter
  std::uint64_t policy_version = 0;  // the newest that the caller knows of; 0: it knows none
  template <class A>
  void serialize(A& a) {
    a(table, batch_size, batches, charge, updates, taken, drain, policy_version);
  }
};

// kSampleReply. Part i: PackDrawn of rows[i] items; those of one batch follow one another, and add
// up to batch_size.
struct SampleReplyBody {
  std::uint32_t batch_size = 0;
  std::uint32_t batches = 0;
  std::uint32_t charged = 0;   // as asked, or 0 when the charge was waived
  std::uint64_t reserved = 0;  // charged to this sampler up to now, this reply with it
  double total = 0;            // Σ of weights after the draw; 0 where nothing may be drawn yet
  double credit = 0;           // items that may be charged before the limiter says no
  std::vector<std::uint32_t> rows;
  std::vector<std::uint32_t> dictionaries;  // all that frames of the table may need
  template <class A>
  void serialize(A& a) {
    a(batch_size, batches, charged, reserved, total, credit, rows, dictionaries);
  }
};

// kFeed: what came to a table, for a copy of it that is drawn from in its place (Table::ReadFeed).
// `sample` as in kSample, with a batch_size of 0: `batches` that the caller means to draw there,
// for which it is charged; 0 of them: at once. Part 0, when updates > 0: PackUpdates.
struct FeedBody {
  SampleBody sample;
  std::uint64_t life = 0;             // of the table that the caller's copy is of; 0: of none
  std::uint64_t start = 0, next = 0;  // FeedPlace, of that one
  std::uint32_t items_max = 0;
  template <class A>
  void serialize(A& a) {
    a(sample, life, start, next, items_max);
  }
};

// kFeedReply. Part 0: PackFeed. Where `life` is another than was asked with, it begins with the
// table's oldest item, and the caller's copy is of no use.
struct FeedReplyBody {
  SampleReplyBody sample;
  std::uint64_t life = 0;
  std::uint64_t start = 0, next = 0;    // of the items behind these
  std::uint64_t oldest = 0;             // number of the oldest item: those before have left
  std::uint64_t end = 0;                // next == end: these were all
  std::uint64_t slots = 0, frames = 0;  // FeedSizes
  template <class A>
  void serialize(A& a) {
    a(sample, life, start, next, oldest, end, slots, frames);
  }
};

// kUpdatePriorities. Part 0: PackUpdates.
struct UpdateBody {
  std::uint32_t table = 0;
  std::uint32_t updates = 0;
  std::uint64_t taken = 0;  // as in SampleBody
  bool drain = false;       // parked samples of this caller end
  bool waive = false;       // parked samples of this caller are answered without their charge
  std::uint64_t policy_version = 0;  // as in SampleBody
  template <class A>
  void serialize(A& a) {
    a(table, updates, taken, drain, waive, policy_version);
  }
};

// kReplayStatsReply: what Report says.
struct ReplayStatsBody {
  MetricSnapshot metrics;
  template <class A>
  void serialize(A& a) {
    a(metrics);
  }
};

struct WireSpec {
  std::uint8_t dtype = 0;
  std::vector<std::int64_t> shape;
  template <class A>
  void serialize(A& a) {
    a(dtype, shape);
  }
};

// One table, for clients that know nothing of it.
struct TableInfo {
  std::string name;
  WireSpec observation, action;
  std::optional<WireSpec> state;
  std::uint8_t view_kind = 0;
  std::uint32_t length_max = 0, stack = 0, burn_in = 0;
  std::uint8_t codec = 0;
  std::uint32_t dictionary = 0;  // newest; 0: none
  std::int64_t capacity_items = 0, min_items = 0, items = 0;
  double samples_per_insert = 0;
  bool durable = false;  // an acknowledged insert is on disk
  template <class A>
  void serialize(A& a) {
    a(name, observation, action, state, view_kind, length_max, stack, burn_in, codec, dictionary,
      capacity_items, min_items, items, samples_per_insert, durable);
  }
};
// kDescribeReply, in the order of their numbers. kDescribe has an empty body.
struct DescribeReplyBody {
  std::vector<TableInfo> tables;
  std::uint32_t batch_size_max = 0;
  template <class A>
  void serialize(A& a) {
    a(tables, batch_size_max);
  }
};
WireSpec ToWire(const TensorSpec& spec);
// Errors: kDataLoss: no type, or no shape that fits in memory.
Result<TensorSpec> FromWire(const WireSpec& spec);
// What a client needs of a TableInfo. Errors: kDataLoss.
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

// kReconfigure: the limiter of a running table.
struct ReconfigureBody {
  std::uint32_t table = 0;
  double samples_per_insert = 0, ratio_error = 0;
  std::int64_t min_items = 0;
  template <class A>
  void serialize(A& a) {
    a(table, samples_per_insert, ratio_error, min_items);
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

// One observation after the other, each encoded by itself.
EncodedChunk EncodeChunk(const Chunk& chunk, FrameCoder* coder);
// With Codec::kNone, and for tests: the chunk as it is.
EncodedChunk PlainChunk(const Chunk& chunk);

Message PackInsert(std::uint32_t table, const TrajectorySpec& spec, Codec codec,
                   std::span<const EncodedChunk> chunks, std::span<const Item> items);
// Sizes of the parts against the spec; what is in them is the table's to check. Parts are sliced,
// not copied. Errors: kInvalidArgument.
Result<EncodedInsert> ParseInsert(const Message& message, const InsertBody& body,
                                  const TrajectorySpec& spec, Codec codec);

Buffer PackUpdates(std::span<const std::uint64_t> key, std::span<const float> priority);
// Errors: kInvalidArgument: the parts hold not `updates` pairs.
Status ParseUpdates(const Message& message, std::uint32_t updates, std::vector<std::uint64_t>* key,
                    std::vector<float>* priority);

}  // namespace troop
