#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// A position in a table's log: byte `offset` of segment `segment`. Segments are numbered in order
// of opening, so later bytes compare greater. {0, 0} precedes all.
struct LogPosition {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;
  auto operator<=>(const LogPosition&) const = default;
};

// State of a slot that the log does not hold: its current item and priority.
struct SlotState {
  std::uint32_t generation = 0;  // 0: empty
  float priority = 0;            // as the selectors store it (ε added)
  std::uint32_t times_sampled = 0;
  std::uint32_t reserved = 0;
  bool operator==(const SlotState&) const = default;
};
static_assert(sizeof(SlotState) == 16);

// Slots per line, the unit in which snapshots read and write.
inline constexpr std::int64_t kSlotsPerLine = 16;
using SlotLine = std::array<SlotState, kSlotsPerLine>;

// Counters that continue after a clean restart, so that samples are the same as without it.
struct TableCounters {
  std::uint64_t inserted = 0;  // items inserted so far
  std::uint64_t draws = 0;     // number of the next draw; keys its random numbers
  std::uint64_t seen = 0;      // items offered, for reservoir sampling
  std::uint64_t newest_policy_version = 0;
  std::uint64_t samples_since_trim = 0;
  std::array<std::uint64_t, 3> reserved{};
  bool operator==(const TableCounters&) const = default;
};
static_assert(sizeof(TableCounters) == 64);

// A table's state besides its log, as of the last complete round. Lines are read at different
// times, each with the log's position then. State of an item in the log, by its slot's entry in
// the line:
//   equal generation     live, with the entry's priority and times_sampled
//   newer generation     evicted
//   older one, or empty  evicted if its (last) record lies before `read_at`; else the item is newer
//                        than the line: live, with its initial priority
struct Snapshot {
  struct Line {
    LogPosition read_at;  // {0, 0}: never read
    SlotLine slot{};
  };
  std::vector<Line> lines;  // [lines]; may be shorter than the table's, or empty
  TableCounters counters;
  std::string owner;   // opaque bytes of the table's owner: its limiter's counts
  LogPosition end;     // end of the log at the end of the round
  bool clean = false;  // nothing was appended or changed afterwards
};

// ---- The file of snapshots ----
//
// A snapshot file is a sequence of blocks with checksums: a head, then rounds. A round is any
// number of line blocks and a trailer, which makes it valid. The first round has every line, later
// ones those that changed. The file is appended to while the table runs, and always holds the
// state of its last complete trailer. Integers are little-endian.
//   block    magic u32, crc u32 (CRC-32C of the rest), bytes u32 (of the body), kind u32
//   head     version u32, slots per line u32, lines u64
//   lines    {line u64, segment u64, offset u64, 16 × SlotState} …
//   trailer  TableCounters, segment u64, offset u64, clean u64, the owner's bytes

// Encodes blocks. Owner: one thread.
class SnapshotEncoder {
 public:
  static constexpr std::size_t kHeadBytes = 16;  // header of a block
  static constexpr std::size_t kLineBytes = 24 + sizeof(SlotLine);

  void Head(std::int64_t lines);
  void Line(std::int64_t line, LogPosition read_at, const SlotLine& slot);
  void Trailer(const Snapshot& end);  // uses everything but the lines
  // Returns the bytes encoded since the last call; continues in the memory of `spare`.
  std::vector<std::byte> Take(std::vector<std::byte> spare = {});
  std::size_t size() const { return bytes_.size(); }

 private:
  void Begin(std::uint32_t kind);
  void End();
  template <class T>
  void Put(const T& value);

  std::vector<std::byte> bytes_;
  std::size_t block_ = 0;   // offset of the open block
  std::uint32_t kind_ = 0;  // kind of the open block; 0: none
};

// Reads the state at the last valid trailer and ignores later bytes. Tolerates arbitrary bytes.
// `rounds`, `used`: number of complete rounds, and the bytes up to their end. Errors: kDataLoss:
// no complete round; kFailedPrecondition: a newer version.
Result<Snapshot> ReadSnapshot(std::span<const std::byte> bytes, std::int64_t* rounds = nullptr,
                              std::size_t* used = nullptr);

}  // namespace troop
