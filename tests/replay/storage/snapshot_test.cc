#include "replay/storage/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/base/philox.h"

namespace troop {
namespace {

SlotLine RandomLine(Rng* rng) {
  SlotLine line;
  for (SlotState& slot : line) {
    slot = {rng->NextU32(), float(rng->Uniform()), rng->Below(100), 0};
  }
  return line;
}

Snapshot RandomEnd(Rng* rng) {
  Snapshot end;
  end.counters = {.inserted = rng->NextU64(), .draws = rng->NextU64(), .seen = rng->NextU64()};
  end.owner.assign(rng->Below(20), char('a' + rng->Below(26)));
  end.end = {rng->Below(9), rng->Below(1000)};
  return end;
}

void ExpectSameEnd(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.counters, b.counters);
  EXPECT_EQ(a.owner, b.owner);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.clean, b.clean);
}

// A file of several rounds, with the state after each; `end` is where a round is complete.
struct History {
  struct Round {
    std::size_t end = 0;
    std::map<std::int64_t, Snapshot::Line> lines;
    Snapshot trailer;
  };
  std::vector<std::byte> bytes;
  std::vector<Round> rounds;
};

History MakeHistory(Rng* rng, std::int64_t lines, int rounds) {
  History history;
  SnapshotEncoder encoder;
  encoder.Head(lines);
  std::map<std::int64_t, Snapshot::Line> state;
  for (int r = 0; r < rounds; ++r) {
    for (std::int64_t line = 0; line < lines; ++line) {
      if (r > 0 && rng->Below(3) != 0) continue;
      const LogPosition at{std::uint64_t(r), rng->Below(1000)};
      state[line] = {at, RandomLine(rng)};
      encoder.Line(line, at, state[line].slot);
    }
    Snapshot end = RandomEnd(rng);
    end.clean = r + 1 == rounds;
    encoder.Trailer(end);
    const auto more = encoder.Take();
    history.bytes.insert(history.bytes.end(), more.begin(), more.end());
    history.rounds.push_back({history.bytes.size(), state, end});
  }
  return history;
}

void ExpectRound(const Snapshot& snapshot, const History::Round& round) {
  ExpectSameEnd(snapshot, round.trailer);
  ASSERT_EQ(snapshot.lines.size(), round.lines.size());
  for (const auto& [line, expected] : round.lines) {
    EXPECT_EQ(snapshot.lines[std::size_t(line)].read_at, expected.read_at) << line;
    EXPECT_EQ(snapshot.lines[std::size_t(line)].slot, expected.slot) << line;
  }
}

TEST(SnapshotTest, ReadsLastCompleteRoundOfTruncatedFile) {
  Rng rng({.index = 1});
  const History history = MakeHistory(&rng, 3, 4);
  for (std::size_t size = 0; size <= history.bytes.size(); ++size) {
    std::int64_t rounds = 0;
    std::size_t used = 0;
    const auto snapshot = ReadSnapshot(std::span(history.bytes).first(size), &rounds, &used);
    const auto complete =
        std::ranges::count_if(history.rounds, [&](const auto& r) { return r.end <= size; });
    ASSERT_EQ(snapshot.ok(), complete > 0) << size;
    if (complete == 0) {
      EXPECT_EQ(snapshot.status().code(), Code::kDataLoss);
      continue;
    }
    EXPECT_EQ(rounds, complete);
    EXPECT_EQ(used, history.rounds[std::size_t(complete - 1)].end);
    ExpectRound(*snapshot, history.rounds[std::size_t(complete - 1)]);
  }
}

TEST(SnapshotTest, ReadsLinesOfManyBlocks) {
  Rng rng({.index = 2});
  const History history = MakeHistory(&rng, 1000, 3);
  const auto snapshot = ReadSnapshot(history.bytes);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  ExpectRound(*snapshot, history.rounds.back());
}

TEST(SnapshotTest, FlippedBitLosesOnlyItsRoundAndLaterOnes) {
  Rng rng({.index = 3});
  const History history = MakeHistory(&rng, 2, 3);
  for (std::size_t at = 0; at < history.bytes.size(); ++at) {
    auto bytes = history.bytes;
    bytes[at] ^= std::byte(1 << rng.Below(8));
    const auto snapshot = ReadSnapshot(bytes);
    const auto complete =
        std::ranges::count_if(history.rounds, [&](const auto& r) { return r.end <= at; });
    ASSERT_EQ(snapshot.ok(), complete > 0) << at;
    if (complete > 0) ExpectRound(*snapshot, history.rounds[std::size_t(complete - 1)]);
  }
}

TEST(SnapshotTest, RoundTripsTableWithoutLines) {
  SnapshotEncoder encoder;
  encoder.Head(0);
  Snapshot end;
  end.counters.draws = 7;
  encoder.Trailer(end);
  const auto snapshot = ReadSnapshot(encoder.Take());
  ASSERT_TRUE(snapshot.ok());
  EXPECT_TRUE(snapshot->lines.empty());
  EXPECT_EQ(snapshot->counters.draws, 7u);
}

TEST(SnapshotTest, RejectsExcessiveLineCountBeforeAllocating) {
  SnapshotEncoder encoder;
  encoder.Head(std::int64_t(1) << 60);
  encoder.Trailer({});
  EXPECT_EQ(ReadSnapshot(encoder.Take()).status().code(), Code::kDataLoss);
}

TEST(SnapshotTest, SkipsLineBeyondTable) {
  SnapshotEncoder encoder;
  encoder.Head(1);
  encoder.Line(5, {1, 1}, SlotLine{});
  encoder.Line(0, {2, 2}, SlotLine{});
  encoder.Trailer({});
  const auto snapshot = ReadSnapshot(encoder.Take());
  ASSERT_TRUE(snapshot.ok());
  ASSERT_EQ(snapshot->lines.size(), 1u);
  EXPECT_EQ(snapshot->lines[0].read_at, (LogPosition{2, 2}));
}

}  // namespace
}  // namespace troop
