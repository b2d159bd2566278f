#pragma once

// Bodies and parts of the replay messages, as docs/protocol.md says. Both ends use these functions;
// what comes from outside is checked here, before any use.

#include <cstdint>
#include <span>
#include <vector>

#include "core/metrics.h"
#include "core/status.h"
#include "core/trajectory.h"
#include "net/message.h"
#include "replay/table.h"

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

// kInsert. Part 0: items × WireItem, then for each chunk action, reward, discount, final.
// Part 1 + c: observations of chunk c.
struct InsertBody {
  std::vector<ChunkHeader> chunks;
  std::uint32_t items = 0;
  template <class A>
  void serialize(A& a) {
    a(chunks, items);
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

// kSample: `batches` batches in one reply. Part 0, when updates > 0: PackUpdates.
struct SampleBody {
  std::uint32_t batch_size = 0;
  std::uint32_t batches = 0;
  std::uint32_t updates = 0;
  bool drain = false;  // kOutOfRange rather than waiting for the limiter
  template <class A>
  void serialize(A& a) {
    a(batch_size, batches, updates, drain);
  }
};

// kSampleReply. Part 0: `batches` blocks of SampleLayout.
struct SampleReplyBody {
  std::uint32_t batch_size = 0;
  std::uint32_t batches = 0;
  std::uint32_t n_step = 0;
  template <class A>
  void serialize(A& a) {
    a(batch_size, batches, n_step);
  }
};

// kUpdatePriorities. Part 0: PackUpdates. `drain`: parked samples of this caller end.
struct UpdateBody {
  std::uint32_t updates = 0;
  bool drain = false;
  template <class A>
  void serialize(A& a) {
    a(updates, drain);
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

// One batch as one run of bytes: columns, each 64-byte aligned. A reader copies it whole and takes
// views.
struct SampleLayout {
  SampleLayout(const TrajectorySpec& spec, std::int64_t batch_size, int n_step);
  std::size_t key, probability, policy_version, length, reward, discount, action, observation,
      next_observation;  // offsets
  std::size_t bytes;     // a multiple of 64
  Table::Rows RowsAt(std::byte* block) const;
};

Message PackInsert(const TrajectorySpec& spec, std::span<const Chunk> chunks,
                   std::span<const Item> items);
struct InsertCall {
  std::vector<Chunk> chunks;  // parts sliced, not copied
  std::vector<Item> items;
};
// Sizes against the spec, finite rewards and priorities, discounts in [0, 1], ends 0 or 1.
// Errors: kInvalidArgument.
Result<InsertCall> ParseInsert(const Message& message, const TrajectorySpec& spec);

Buffer PackUpdates(std::span<const std::uint64_t> key, std::span<const float> priority);
// Errors: kInvalidArgument: the parts hold not `updates` pairs.
Status ParseUpdates(const Message& message, std::uint32_t updates, std::vector<std::uint64_t>* key,
                    std::vector<float>* priority);

}  // namespace troop
