#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// A place in a table's log: byte `offset` of segment `segment`. Segments are numbered in the order
// of opening, so later bytes compare greater. {0, 0} is before all.
struct LogPosition {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;
  auto operator<=>(const LogPosition&) const = default;
};

// What the log does not say of a slot: who lives in it, and with which priority.
struct SlotState {
  std::uint32_t generation = 0;  // 0: nobody
  float priority = 0;            // raw, as the selectors get it
  std::uint32_t times_sampled = 0;
  std::uint32_t reserved = 0;
  bool operator==(const SlotState&) const = default;
};
static_assert(sizeof(SlotState) == 16);

// A line is what a snapshot reads and writes at once: 16 slots.
inline constexpr std::int64_t kSlotsPerLine = 16;
using SlotLine = std::array<SlotState, kSlotsPerLine>;

// Numbers that go on where they were after an orderly restart, so that its draws are those that
// would have come without it.
struct TableCounters {
  std::uint64_t inserted = 0;  // items ever
  std::uint64_t draws = 0;     // names the random numbers of the next
  std::uint64_t seen = 0;      // newcomers, for reservoir sampling
  std::uint64_t newest_policy_version = 0;
  std::uint64_t samples_since_trim = 0;
  std::array<std::uint64_t, 3> reserved{};
  bool operator==(const TableCounters&) const = default;
};
static_assert(sizeof(TableCounters) == 64);

// A table's state beside its log, as of the last complete round before the end. Lines were read at
// different moments, each with the log's position then. For an item of the log, and the state of
// its slot in the line:
//   the same generation   alive, with the state's priority and times_sampled
//   a newer generation    gone
//   an older one or none  gone if its (last) record lies before `read_at`; else it came later:
//   alive
//                         with its initial priority
struct Snapshot {
  struct Line {
    LogPosition read_at;  // {0, 0}: never read
    SlotLine slot{};
  };
  std::vector<Line> lines;  // [lines]; may be shorter than the table's, or empty
  TableCounters counters;
  std::string owner;   // bytes of the table's owner: its limiter's counts
  LogPosition end;     // of the log when the round ended
  bool clean = false;  // nothing was appended or changed after it
};

// ---- The file of snapshots ----
//
// A row of blocks, each with its checksum: a head, then rounds. A round is any number of blocks of
// lines and a trailer, which makes it valid; the first has every line, later ones those that
// changed. So a file is appended to while the table goes on, and at any end it holds the state of
// its last trailer. Integers are little-endian.
//   block    magic u32, crc u32 (CRC-32C of what follows it), bytes u32 (of the body), kind u32
//   head     version u32, slots per line u32, lines u64
//   lines    {line u64, segment u64, offset u64, 16 × SlotState} …
//   trailer  TableCounters, segment u64, offset u64, clean u64, the owner's bytes

// Makes the bytes of blocks. Owner: one thread.
class SnapshotEncoder {
 public:
  static constexpr std::size_t kHeadBytes = 16;  // of a block
  static constexpr std::size_t kLineBytes = 24 + sizeof(SlotLine);

  void Head(std::int64_t lines);
  void Line(std::int64_t line, LogPosition read_at, const SlotLine& slot);
  void Trailer(const Snapshot& end);  // all but its lines
  // What was made since the last call; goes on in the memory of `spare`.
  std::vector<std::byte> Take(std::vector<std::byte> spare = {});
  std::size_t size() const { return bytes_.size(); }

 private:
  void Begin(std::uint32_t kind);
  void End();
  template <class T>
  void Put(const T& value);

  std::vector<std::byte> bytes_;
  std::size_t block_ = 0;   // where the open block begins
  std::uint32_t kind_ = 0;  // of the open block; 0: none
};

// The state as of the last valid trailer; what comes after is left out. `rounds`, `used`: complete
// rounds, and the bytes up to their end. Any bytes are survived.
// Errors: kDataLoss: no complete round; kFailedPrecondition: of a newer version.
Result<Snapshot> ReadSnapshot(std::span<const std::byte> bytes, std::int64_t* rounds = nullptr,
                              std::size_t* used = nullptr);

}  // namespace troop
