#include "replay/persistence/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "core/base/executor.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

constexpr std::int64_t kSlots = 40;

Rng TestRng(std::uint64_t index) { return Rng({.purpose = Purpose::kTest, .index = index}); }

Journal::Options Often() {
  Journal::Options options;
  options.commit_bytes = 300;
  options.commit_wait = Milliseconds(5);
  options.job_bytes = 700;
  options.snapshot_every = Duration(0);
  options.snapshot_block_bytes = 600;
  options.lines_per_poll = 1;
  options.retry_after = Seconds(2);
  return options;
}

// A table, its journal and a disk, run by one step after the other.
struct World {
  explicit World(Journal::Options o = Often()) : options(std::move(o)) { Open(); }

  void Open() {
    auto contents = ReadJournal(disk.get(), options.folder);
    ASSERT_TRUE(contents.ok()) << contents.status().ToString();
    clean = contents->clean();
    warnings = contents->warnings;
    restored = contents->snapshot;
    table = ItemTable::Recover(kSlots, *contents);
    found_segments = contents->segments.size();
    const JournalManifest manifest{.identity = "test",
                                   .used_snapshot = contents->snapshot_number,
                                   .used_round = contents->rounds};
    (void)disk->WriteAtomic(options.folder + "/table", EncodeManifest(manifest));
    journal.emplace(disk.get(), &executor, options, std::move(contents->found));
  }
  // The process and what it did not write are gone.
  void Crash(Rng* rng) {
    journal.reset();
    executor = {};
    disk = disk->AfterPowerLoss(rng);
    Open();
  }
  Time Poll() { return journal->Poll(now, &table); }
  void RunJobs() {
    Rng rng = TestRng(0);
    for (int i = 0; i < 1000; ++i) {
      Poll();
      if (executor.waiting() == 0 && i > 50) return;
      executor.RunOne(&rng);
    }
    ADD_FAILURE() << "jobs without end";
  }
  void WaitAll() {
    journal->RequestDurable(table.position());
    RunJobs();
    EXPECT_GE(journal->durable(), table.position());
  }
  std::vector<std::string> Names(std::string_view folder) {
    return *disk->List(options.folder + "/" + std::string(folder));
  }
  std::vector<std::uint64_t> Numbers() const {
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, item] : table.items()) numbers.push_back(number);
    return numbers;
  }

  const Journal::Options options;
  std::unique_ptr<MemoryStorage> disk = std::make_unique<MemoryStorage>();
  ManualExecutor executor;
  ItemTable table{kSlots};
  std::optional<Journal> journal;
  Time now{};
  bool clean = false;
  std::vector<std::string> warnings;
  Snapshot restored;
  std::size_t found_segments = 0;
};

TEST(JournalTest, RecordsAreDurableOnlyOnceJobCompletes) {
  World world;
  world.table.Insert(1);
  world.WaitAll();
  const LogPosition before = world.journal->durable();
  world.table.Insert(1);
  world.Poll();
  EXPECT_EQ(world.executor.waiting(), 0u);  // too little data, and no waiter
  world.now += Milliseconds(5);
  world.Poll();
  EXPECT_EQ(world.executor.waiting(), 1u);
  EXPECT_EQ(world.journal->durable(), before);
  Rng rng = TestRng(0);
  world.executor.RunOne(&rng);
  EXPECT_EQ(world.journal->durable(), before);
  world.Poll();
  EXPECT_EQ(world.journal->durable(), world.table.position());
  world.Crash(&rng);
  EXPECT_THAT(world.Numbers(), testing::ElementsAre(1, 2));
}

TEST(JournalTest, CommitsAtOnceOnRequestOrEnoughBytes) {
  World world;
  world.table.Insert(1);
  world.journal->RequestDurable(world.table.position());
  world.Poll();
  EXPECT_EQ(world.executor.waiting(), 1u);
  world.RunJobs();
  while (world.table.position().offset < 370) world.table.Insert(1);
  world.Poll();
  EXPECT_EQ(world.executor.waiting(), 1u);
}

TEST(JournalTest, CommitTakesOneCallWithInlineExecutor) {
  MemoryStorage disk;
  InlineExecutor executor;
  auto contents = ReadJournal(&disk, "replay");
  ASSERT_TRUE(contents.ok());
  ItemTable table(kSlots);
  Journal journal(&disk, &executor, Often(), std::move(contents->found));
  table.Insert(1);
  journal.RequestDurable(table.position());
  EXPECT_EQ(journal.Poll(Time{}, &table), kForever);
  EXPECT_EQ(journal.durable(), table.position());
}

TEST(JournalTest, BatchesRecordsThatArriveDuringCommit) {
  World world;
  world.table.Insert(1);
  world.journal->RequestDurable(world.table.position());
  world.Poll();
  for (int i = 0; i < 9; ++i) {
    world.table.Insert(1);
    world.journal->RequestDurable(world.table.position());
    world.Poll();
    EXPECT_EQ(world.executor.waiting(), 1u);
  }
  world.RunJobs();
  EXPECT_EQ(world.journal->stats().commits, 2);
  EXPECT_EQ(world.journal->durable(), world.table.position());
}

TEST(JournalTest, PollReturnsTimeOfNextCommitOrSnapshot) {
  Journal::Options options = Often();
  options.snapshot_every = Seconds(30);
  World world(options);
  EXPECT_EQ(world.Poll() - Time{}, Seconds(30));
  world.table.Insert(1);
  world.WaitAll();
  world.table.Insert(1);
  EXPECT_EQ(world.Poll() - world.now, Milliseconds(5));
  world.now += Milliseconds(5);
  EXPECT_EQ(world.Poll() - Time{}, Seconds(30));  // the host is woken when the job is done
  for (const int due : {30, 60, 90}) {
    world.now = Time{} + Seconds(due);
    world.RunJobs();
    EXPECT_EQ(world.Poll() - Time{}, Seconds(due + 30));
  }
  EXPECT_EQ(world.journal->stats().rounds, 2);  // by the third nothing had changed
}

TEST(JournalTest, PollReadsBoundedLinesAndRereadsChangedOnes) {
  World world;
  for (int i = 0; i < 35; ++i) world.table.Insert(float(i));
  world.WaitAll();
  world.journal->SnapshotNow();
  world.Poll();
  EXPECT_EQ(world.journal->stats().snapshot_lines, 1);
  world.RunJobs();
  EXPECT_EQ(world.journal->stats().rounds, 1);
  EXPECT_EQ(world.journal->stats().snapshot_lines, 3);  // all, once
  world.journal->SnapshotNow();
  world.RunJobs();
  EXPECT_EQ(world.journal->stats().snapshot_lines, 6);  // they had never been taken
  world.table.Update(18, 99);
  world.journal->SnapshotNow();
  world.RunJobs();
  EXPECT_EQ(world.journal->stats().snapshot_lines, 7);
  Rng rng = TestRng(1);
  world.Crash(&rng);
  EXPECT_EQ(world.table.items().at(18).priority, 99);
  EXPECT_EQ(world.table.items().at(19).priority, 18);
  EXPECT_EQ(world.table.items().size(), 35u);
}

// A kill left a snapshot with evictions by items which the log had not reached: both were
// lost.
TEST(JournalTest, SnapshotCountsOnlyOnceLogIsDurableUpToIt) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {  // orders in which jobs run
    World world;
    Rng rng = TestRng(seed);
    world.table.Insert(1);
    world.WaitAll();
    world.table.Insert(1);
    world.journal->SnapshotNow();
    for (int i = 0; i < 100 && world.journal->stats().rounds == 0; ++i) {
      world.Poll();
      world.executor.RunOne(&rng);
      world.Poll();
    }
    EXPECT_EQ(world.journal->stats().rounds, 1);
    ASSERT_EQ(world.journal->durable(), world.table.position()) << seed;
  }
}

TEST(JournalTest, RewritesSnapshotFileWhenMostlyOutdated) {
  World world;
  for (int i = 0; i < 35; ++i) world.table.Insert(1);
  world.WaitAll();
  std::set<std::string> names;
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t n = 1; n <= 35; ++n) world.table.Update(n, float(round));
    world.journal->SnapshotNow();
    world.RunJobs();
    std::size_t bytes = 0;
    for (const std::string& name : world.Names("")) {
      if (!name.starts_with("snapshot-")) continue;
      names.insert(name);
      bytes += world.disk->Map(world.options.folder + "/" + name)->size();
    }
    EXPECT_LT(bytes, 5000u) << round;
  }
  EXPECT_EQ(world.journal->stats().rounds, 40);
  EXPECT_GT(names.size(), 5u);
  Rng rng = TestRng(1);
  world.Crash(&rng);
  for (const auto& [number, item] : world.table.items()) EXPECT_EQ(item.priority, 39);
}

TEST(JournalTest, RemovesFreedSegmentFilesOnceCopiesAreDurable) {
  World world;
  for (int i = 0; i < 30; ++i) world.table.Insert(1);
  world.WaitAll();
  const auto before = world.Names("segments");
  ASSERT_GT(before.size(), 3u);
  world.table.Compact();
  EXPECT_EQ(world.Names("segments"), before);
  world.WaitAll();
  EXPECT_THAT(world.Names("segments"), testing::Not(testing::Contains(before.front())));
  EXPECT_EQ(world.journal->stats().removed, 1);
  Rng rng = TestRng(1);
  world.Crash(&rng);
  EXPECT_EQ(world.table.items().size(), 30u);
}

// The content of a freed segment was copied to a later one: its old position is durable only once
// the copies are.
TEST(JournalTest, UnwrittenFreedSegmentIsDurableOnlyWithItsCopies) {
  Journal::Options options = Often();
  options.job_bytes = 100;
  World world(options);
  for (int i = 0; i < 10; ++i) world.table.Insert(1);
  const LogPosition acknowledged = world.table.position();
  while (world.table.segments().front()->id() <= acknowledged.segment) world.table.Compact();
  const LogPosition copies = world.table.position();
  world.journal->RequestDurable(acknowledged);
  Rng rng = TestRng(0);
  for (int i = 0; i < 100; ++i) {
    world.Poll();
    if (world.journal->durable() >= acknowledged) break;
    world.executor.RunOne(&rng);
  }
  EXPECT_GE(world.journal->durable(), copies);
}

TEST(JournalTest, ReportsFullDiskAndRetriesWithoutLoss) {
  World world;
  world.table.Insert(1);
  world.WaitAll();
  world.disk->FailFrom(world.disk->changes(), ResourceExhausted("log: No space left on device"));
  for (int i = 0; i < 5; ++i) world.table.Insert(2);
  world.journal->RequestDurable(world.table.position());
  const LogPosition durable = world.journal->durable();
  world.RunJobs();
  EXPECT_EQ(world.journal->error().code(), Code::kResourceExhausted);
  EXPECT_THAT(world.journal->error().message(), testing::HasSubstr("No space left"));
  EXPECT_THAT(world.journal->error().message(), testing::HasSubstr("Free space"));
  EXPECT_EQ(world.journal->durable(), durable);
  EXPECT_EQ(world.Poll(), world.now + Seconds(2));
  world.disk->Repair();
  world.RunJobs();
  EXPECT_FALSE(world.journal->error().ok());  // not before its time
  world.now += Seconds(2);
  world.RunJobs();
  EXPECT_TRUE(world.journal->error().ok());
  EXPECT_EQ(world.journal->durable(), world.table.position());
  Rng rng = TestRng(1);
  world.Crash(&rng);
  EXPECT_EQ(world.table.items().size(), 6u);
}

TEST(JournalTest, RetriesFailedSnapshotAndKeepsPreviousUntilThen) {
  World world;
  for (int i = 0; i < 20; ++i) world.table.Insert(1);
  world.WaitAll();
  world.journal->SnapshotNow();
  world.RunJobs();
  world.table.Update(1, 5);
  world.disk->FailFrom(world.disk->changes(), Unavailable("gone"));
  world.journal->SnapshotNow();
  world.RunJobs();
  EXPECT_FALSE(world.journal->snapshot_error().ok());
  EXPECT_TRUE(world.journal->error().ok());
  world.disk->Repair();
  Rng rng = TestRng(1);
  {
    World copy;
    copy.disk = world.disk->AfterPowerLoss(&rng);
    copy.Open();
    EXPECT_EQ(copy.table.items().at(1).priority, 1);
    EXPECT_EQ(copy.table.items().size(), 20u);
  }
  world.now += Seconds(2);
  world.RunJobs();
  EXPECT_TRUE(world.journal->snapshot_error().ok());
  world.Crash(&rng);
  EXPECT_EQ(world.table.items().at(1).priority, 5);
}

TEST(JournalTest, CleanShutdownIsReportedOnceAndKeepsCountersAndOwner) {
  World world;
  for (int i = 0; i < 25; ++i) world.table.Insert(1);
  for (int i = 0; i < 7; ++i) world.table.Draw();
  world.table.Update(3, 8);
  world.journal->SetOwner("limiter 17");
  world.journal->Drain();
  EXPECT_FALSE(world.journal->drained());
  world.RunJobs();
  EXPECT_TRUE(world.journal->drained());
  EXPECT_TRUE(world.journal->error().ok());
  EXPECT_EQ(world.Poll(), kForever);
  Rng rng = TestRng(1);
  world.Crash(&rng);
  EXPECT_TRUE(world.clean);
  EXPECT_EQ(world.restored.owner, "limiter 17");
  EXPECT_EQ(world.restored.counters.draws, 7u);
  EXPECT_EQ(world.table.items().at(3).priority, 8);
  EXPECT_EQ(world.table.items().size(), 25u);
  world.Crash(&rng);
  EXPECT_FALSE(world.clean);
  EXPECT_EQ(world.table.items().size(), 25u);
}

// A serial run ends its replay in an orderly way after each of its legs. Its jobs run at once, and
// a journal that has ended is called no more.
TEST(JournalTest, CleanShutdownLeavesOneSnapshotFile) {
  MemoryStorage disk;
  const std::string folder = Often().folder;
  for (int start = 1; start <= 5; ++start) {
    InlineExecutor executor;
    auto contents = ReadJournal(&disk, folder);
    ASSERT_TRUE(contents.ok()) << contents.status().ToString();
    ItemTable table = ItemTable::Recover(kSlots, *contents);
    EXPECT_EQ(std::ssize(table.items()), start - 1);
    Journal journal(&disk, &executor, Often(), std::move(contents->found));
    table.Insert(1);
    journal.Drain();
    for (int i = 0; i < 1000 && !journal.drained(); ++i) journal.Poll(Time{}, &table);
    ASSERT_TRUE(journal.drained());
    EXPECT_EQ(std::ranges::count_if(
                  *disk.List(folder),
                  [](const std::string& name) { return name.starts_with("snapshot-"); }),
              1)
        << start;
  }
}

TEST(JournalTest, ManifestDetectsEveryFlippedBit) {
  const std::string text = EncodeManifest({.identity = "observation=f32[2]",
                                           .first_generation = 1234567,
                                           .incarnation = 8,
                                           .used_snapshot = 3,
                                           .used_round = 2});
  ASSERT_TRUE(ParseManifest(text).ok());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << bit % 8));
    const auto manifest = ParseManifest(damaged);  // one bit of a blank may pass
    EXPECT_TRUE(!manifest.ok() || EncodeManifest(*manifest) == text) << bit;
  }
}

TEST(JournalTest, DrainEndsUncleanWhenDiskFails) {
  World world;
  world.table.Insert(1);
  world.WaitAll();
  world.table.Insert(1);
  world.disk->FailFrom(world.disk->changes(), Unavailable("gone"));
  world.journal->Drain();
  world.RunJobs();
  EXPECT_TRUE(world.journal->drained());
  EXPECT_FALSE(world.journal->error().ok());
  Rng rng = TestRng(1);
  world.Crash(&rng);
  EXPECT_FALSE(world.clean);
  EXPECT_TRUE(world.table.items().contains(1));
}

TEST(JournalTest, SpilledSegmentsAreMappedAndRecoverable) {
  Journal::Options options = Often();
  options.spill = true;
  World world(options);
  for (int i = 0; i < 30; ++i) world.table.Insert(1);
  world.WaitAll();
  const auto segments = world.table.segments();
  ASSERT_GT(segments.size(), 3u);
  EXPECT_EQ(world.journal->stats().spilled, std::int64_t(segments.size()) - 1);
  for (const auto& segment : segments) {
    EXPECT_EQ(world.table.InMemory(segment->id()), segment == segments.back());
  }
  world.table.Compact();
  world.WaitAll();
  Rng rng = TestRng(1);
  world.Crash(&rng);
  EXPECT_EQ(world.table.items().size(), 30u);
}

TEST(JournalTest, ThreadsWriteConsistentDataWhileTableChanges) {
  MemoryStorage disk;
  Journal::Options options = Often();
  options.snapshot_every = Milliseconds(1);
  options.spill = true;
  std::map<std::uint64_t, float> expected;
  {
    auto contents = ReadJournal(&disk, options.folder);
    ASSERT_TRUE(contents.ok());
    ThreadExecutor executor(2, [] {});
    ItemTable table(kSlots);
    Journal journal(&disk, &executor, options, std::move(contents->found));
    Time now{};
    for (int i = 0; i < 3000; ++i) {
      if (table.full()) table.Remove(table.items().begin()->first);
      const std::uint64_t number = table.Insert(float(i));
      if (i % 3 == 0) table.Update(number, float(-i));
      if (i % 50 == 0) table.Compact();
      now += Milliseconds(1);
      journal.Poll(now, &table);
    }
    journal.Drain();
    while (!journal.drained()) {
      journal.Poll(now += Milliseconds(1), &table);
      std::this_thread::yield();
    }
    EXPECT_TRUE(journal.error().ok());
    for (const auto& [number, item] : table.items()) expected[number] = item.priority;
  }
  const auto contents = ReadJournal(&disk, options.folder);
  ASSERT_TRUE(contents.ok());
  std::map<std::uint64_t, float> found;
  const ItemTable table = ItemTable::Recover(kSlots, *contents);
  for (const auto& [number, item] : table.items()) {
    found[number] = item.priority;
  }
  EXPECT_EQ(found, expected);
}

TEST(JournalTest, RejectsSecondProcessInFolder) {
  World world;
  EXPECT_EQ(ReadJournal(world.disk.get(), world.options.folder).status().code(),
            Code::kAlreadyExists);
}

TEST(JournalTest, RetriesFullExecutor) {
  World world;
  world.executor.refuse = true;
  world.table.Insert(1);
  world.journal->RequestDurable(world.table.position());
  world.journal->SnapshotNow();
  for (int i = 0; i < 10; ++i) world.Poll();
  EXPECT_EQ(world.Poll() - world.now, Milliseconds(10));
  world.executor.refuse = false;
  world.now += Milliseconds(10);
  world.RunJobs();
  EXPECT_EQ(world.journal->durable(), world.table.position());
  EXPECT_EQ(world.journal->stats().rounds, 1);
}

TEST(JournalTest, WritesDictionaryBeforeDependentFrames) {
  for (std::int64_t change = 0; change < 8; ++change) {
    World world;
    world.disk->FailFrom(world.disk->changes() + change, Unavailable("gone"));
    world.journal->AddDictionary(77, Buffer::Copy("words"));
    world.table.Insert(1);
    world.journal->RequestDurable(world.table.position());
    world.RunJobs();
    Rng rng = TestRng(std::uint64_t(change));
    world.Crash(&rng);
    if (!world.table.items().empty()) {
      EXPECT_TRUE(world.disk->Exists("replay/dictionary-0000000077")) << change;
    }
  }
}

}  // namespace
}  // namespace troop
