#include "replay/persistence/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <optional>
#include <thread>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "replay/persistence/journal_reader.h"
#include "tests/core/temp_folder.h"
#include "tests/replay/table_world.h"

namespace troop {
namespace {

// Draws are all items, in the order in which they came.
Table::Options InOrder(std::int64_t capacity = 4000) {
  Table::Options options = TinyOptions(capacity);
  options.sampler.kind = Selector::Kind::kFifo;
  options.segment_bytes = 4096;
  return options;
}

Journal::Options Eager() {
  Journal::Options options;
  options.commit_bytes = 1;
  options.snapshot_every = Duration(0);
  return options;
}

RestoredTable Restored(Storage* disk, Executor* executor, const Table::Options& options,
                       const Journal::Options& journal = Eager()) {
  auto restored = RestoreTable(disk, executor, journal, options);
  TROOP_CHECK(restored.ok(), "{}", restored.status().ToString());
  return std::move(*restored);
}

// Frame t of stream 1, and the item of one step that ends in it.
void PutFrame(Table* table, std::uint64_t t) {
  Put(table, TinyChunk(1, t, 1), t == 0 ? std::vector<Item>() : TinyItems(1, t - 1, 1));
}

std::vector<std::uint64_t> AllItems(Table* table) {
  std::vector<std::uint64_t> first;
  if (table->size() == 0) return first;
  const Read read(table, table->size());
  for (std::size_t i = 0; i < read.begin.size(); ++i) {
    EXPECT_EQ(read.stream(i), 1u);
    EXPECT_EQ(read.last_frame(i), read.first_frame(i) + 1);
    EXPECT_EQ(read.action(i), std::int32_t(10 + read.first_frame(i)));
    first.push_back(read.first_frame(i));
  }
  return first;
}

std::vector<std::uint64_t> UpTo(std::uint64_t end) {
  std::vector<std::uint64_t> numbers(end);
  for (std::uint64_t i = 0; i < end; ++i) numbers[i] = i;
  return numbers;
}

void PollUntil(RestoredTable* restored, const std::function<bool()>& done) {
  JournalSource& table = restored->table.journal_source();
  for (int i = 0; i < 10000 && !done(); ++i) restored->journal->Poll(Time{}, &table);
  EXPECT_TRUE(done());
}
void Close(RestoredTable* restored) {
  restored->journal->Drain();
  PollUntil(restored, [&] { return restored->journal->drained(); });
}

TEST(RestoreTest, StartsNewTableInEmptyFolderAndRestoresIt) {
  MemoryStorage disk;
  InlineExecutor executor;
  {
    RestoredTable first = Restored(&disk, &executor, InOrder());
    EXPECT_FALSE(first.restored);
    for (std::uint64_t t = 0; t <= 500; ++t) PutFrame(&first.table, t);
    first.journal->SetOwner("limiter");
    Close(&first);
  }
  RestoredTable second = Restored(&disk, &executor, InOrder());
  EXPECT_TRUE(second.restored);
  EXPECT_TRUE(second.clean);
  EXPECT_EQ(second.owner, "limiter");
  EXPECT_EQ(AllItems(&second.table), UpTo(500));
}

TEST(RestoreTest, CleanRestartKeepsPrioritizedSamplesBitExact) {
  Table::Options options = TinyOptions(300);
  options.sampler.alpha = 0.6;
  options.incarnation = 7;
  MemoryStorage disk;
  InlineExecutor executor;
  std::optional<Table> twin = MakeTable(options);
  {
    RestoredTable first = Restored(&disk, &executor, options);
    for (std::uint64_t t = 0; t <= 500; ++t) {
      for (Table* table : {&first.table, &*twin}) {
        PutFrame(table, t);
        if (t < 20 || t % 3 != 0) continue;
        EncodedBatch drawn;
        table->Draw(8, &drawn);
        std::vector<float> priority;
        for (const std::uint64_t key : drawn.key) priority.push_back(float(key % 97) + 0.5f);
        table->Update(drawn.key, priority);
      }
    }
    Close(&first);
  }
  options.incarnation = 8;  // as a process that starts later has
  RestoredTable second = Restored(&disk, &executor, options);
  ASSERT_TRUE(second.clean);
  for (int i = 0; i < 20; ++i) {
    EncodedBatch a, b;
    twin->Draw(32, &a);
    second.table.Draw(32, &b);
    EXPECT_EQ(PackEncodedBatch(a, options.trajectory, options.view, Codec::kNone).text(),
              PackEncodedBatch(b, options.trajectory, options.view, Codec::kNone).text());
  }
}

// Draws after the last snapshot are not known to the next life, which drew the same again.
TEST(RestoreTest, SamplesDifferAfterCrash) {
  Table::Options options = TinyOptions(300);
  MemoryStorage disk;
  InlineExecutor executor;
  std::set<std::string> draws;
  for (int life = 0; life < 4; ++life) {
    RestoredTable restored = Restored(&disk, &executor, options);
    if (life == 0) {
      for (std::uint64_t t = 0; t <= 100; ++t) PutFrame(&restored.table, t);
      restored.journal->RequestDurable(restored.table.journal_source().position());
      PollUntil(&restored, [&] {
        return restored.journal->durable() >= restored.table.journal_source().position();
      });
    }
    EncodedBatch drawn;
    restored.table.Draw(32, &drawn);
    draws.insert(std::string(
        PackEncodedBatch(drawn, options.trajectory, options.view, Codec::kNone).text()));
  }
  EXPECT_EQ(draws.size(), 4u);
}

TEST(RestoreTest, RejectsChangedOptionsWithRemedy) {
  MemoryStorage disk;
  InlineExecutor executor;
  Table::Options options = InOrder();
  options.codec = Codec::kLz4;
  { Restored(&disk, &executor, options); }
  options.codec = Codec::kZstd;  // each frame says how it is encoded
  { Restored(&disk, &executor, options); }
  options.view.length_max = 5;
  const auto refused = RestoreTable(&disk, &executor, Eager(), options);
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("length=3"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("remove the folder"));
  EXPECT_THAT(refused.status().message(), testing::Not(testing::HasSubstr("\n")));
}

TEST(RestoreTest, TruncatesTornEndWithoutReportingDamage) {
  MemoryStorage disk;
  InlineExecutor executor;
  std::string last;
  {
    RestoredTable first = Restored(&disk, &executor, InOrder());
    for (std::uint64_t t = 0; t <= 200; ++t) PutFrame(&first.table, t);
    const LogPosition end = first.table.journal_source().position();
    first.journal->RequestDurable(end);
    PollUntil(&first, [&] { return first.journal->durable() >= end; });
    last = first.journal->SegmentPath(end.segment);
  }
  const std::size_t whole = disk.Map(last)->size();
  {
    auto file = disk.OpenAppend(last);
    ASSERT_TRUE(file.ok() && (*file)->Append("half a record").ok());
  }
  for (const std::size_t torn : {13u, 0u}) {
    RestoredTable again = Restored(&disk, &executor, InOrder());
    EXPECT_EQ(again.torn_bytes, torn);
    EXPECT_EQ(again.counts.segments_damaged, 0);
    EXPECT_EQ(disk.Map(last)->size(), whole);
    EXPECT_EQ(AllItems(&again.table), UpTo(200));
    EXPECT_FALSE(again.clean);
  }
}

// A key that was handed out may be in a learner's hands when its item is lost with the process.
void ExpectEachKeyOnce(std::int64_t capacity, std::uint64_t pushes) {
  MemoryStorage disk;
  InlineExecutor executor;
  std::set<std::uint64_t> handed;
  for (int life = 0; life < 4; ++life) {
    RestoredTable restored = Restored(&disk, &executor, InOrder(capacity));
    std::set<std::uint64_t> kept, fresh;
    EncodedBatch drawn;
    if (restored.table.size() > 0) {
      restored.table.Draw(restored.table.size(), &drawn);
      kept.insert(drawn.key.begin(), drawn.key.end());
    }
    const std::uint64_t start = 100000 * std::uint64_t(life);
    for (std::uint64_t t = 0; t <= pushes; ++t) {
      Put(&restored.table, TinyChunk(1, start + t, 1),
          t == 0 ? std::vector<Item>() : TinyItems(1, start + t - 1, 1));
      if (t == 10) {
        const LogPosition end = restored.table.journal_source().position();
        restored.journal->RequestDurable(end);
        PollUntil(&restored, [&] { return restored.journal->durable() >= end; });
      }
      if (t == 0) continue;
      restored.table.Draw(restored.table.size(), &drawn);
      for (const std::uint64_t key : drawn.key) {
        if (!kept.contains(key)) fresh.insert(key);
      }
    }
    for (const std::uint64_t key : fresh) {
      EXPECT_TRUE(handed.insert(key).second) << key << " came again in life " << life;
    }
  }
}

TEST(RestoreTest, NeverReusesKeysLostWithTail) { ExpectEachKeyOnce(20, 50); }

// Far more often than the table that reads its log leaves out by itself.
TEST(RestoreTest, NeverReusesKeysOfHeavilyReusedSlots) { ExpectEachKeyOnce(2, 5000); }

void JournalUntil(RestoredTable* restored, LogPosition position) {
  restored->journal->RequestDurable(position);
  PollUntil(restored, [&] { return restored->journal->durable() >= position; });
}

std::vector<std::string> SegmentsOf(MemoryStorage* disk) {
  auto names = disk->List("replay/segments");
  EXPECT_TRUE(names.ok());
  std::erase_if(*names, [&](const std::string& name) {
    return disk->Read("replay/segments/" + name, 1 << 20)->empty();
  });
  return *names;
}

// Expects a restart without this segment to report it and its items, and the next one not to.
void ExpectLossIsTold(const MemoryStorage& disk, const std::string& segment,
                      const Table::Options& options, std::size_t items) {
  SCOPED_TRACE(segment);
  Rng same({.index = 7});
  const auto damaged = disk.AfterPowerLoss(&same);
  InlineExecutor executor;
  ASSERT_TRUE(damaged->Remove("replay/segments/" + segment).ok());
  {
    RestoredTable again = Restored(damaged.get(), &executor, options);
    EXPECT_FALSE(again.clean);
    EXPECT_GT(again.counts.items_unfound, 0);
    EXPECT_EQ(std::size_t(again.counts.items_unfound + again.counts.items_lost),
              items - AllItems(&again.table).size());
    PutFrame(&again.table, 5000);
    PutFrame(&again.table, 5001);
    Close(&again);
  }
  const RestoredTable later = Restored(damaged.get(), &executor, options);
  EXPECT_EQ(later.counts.items_unfound, 0);
  EXPECT_TRUE(later.clean);
}

// A file that was deleted cost as many items as it had, and one was reported: the one that reached
// into the next file. Where it was the last one the end was taken for an orderly one.
TEST(RestoreTest, ReportsMissingSegmentAndItsItemsOnce) {
  MemoryStorage disk;
  InlineExecutor executor;
  const Table::Options options = InOrder(100);
  {
    RestoredTable first = Restored(&disk, &executor, options);
    for (std::uint64_t t = 0; t <= 300; ++t) {
      PutFrame(&first.table, t);
      if (t % 20 == 0) JournalUntil(&first, first.table.journal_source().position());
    }
    Close(&first);
    EXPECT_GT(first.journal->stats().removed, 0);
  }
  const auto segments = SegmentsOf(&disk);
  ASSERT_GE(segments.size(), 3u);
  for (const std::string& segment : segments) ExpectLossIsTold(disk, segment, options, 100);
  EXPECT_EQ(Restored(&disk, &executor, options).counts.items_unfound, 0);
}

// A full table that ended suddenly was restored with "0 damaged segments cost 0 bytes [...] 6 items
// are gone with them": those that had left, and reached into a file that was removed.
TEST(RestoreTest, EvictedItemsAreNotDamageAfterCrash) {
  MemoryStorage disk;
  InlineExecutor executor;
  Table::Options options = InOrder(400);
  options.trim_every_samples = 1;  // slots that are empty for a while
  Journal::Options journal = Eager();
  journal.snapshot_every = kForever - Time{};
  {
    RestoredTable first = Restored(&disk, &executor, options, journal);
    for (std::uint64_t t = 0; t <= 2000; ++t) {
      PutFrame(&first.table, t);
      if (t % 20 != 0) continue;
      if (t > 0) Read(&first.table, 1);
      JournalUntil(&first, first.table.journal_source().position());
    }
    EXPECT_GT(first.journal->stats().removed, 0);
  }
  testing::internal::CaptureStderr();
  const RestoredTable again = Restored(&disk, &executor, options, journal);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(again.clean);
  EXPECT_GT(again.counts.items_lost, 0);
  EXPECT_GE(again.table.size(), 400);
  EXPECT_NE(log.find("after an unclean shutdown"), log.npos) << log;
  EXPECT_EQ(log.find("damaged"), log.npos) << log;
}

TEST(RestoreTest, CountsItemsOfMissingSegmentAfterCrash) {
  MemoryStorage disk;
  InlineExecutor executor;
  const Table::Options options = InOrder();
  {
    RestoredTable first = Restored(&disk, &executor, options);
    for (std::uint64_t t = 0; t <= 300; ++t) PutFrame(&first.table, t);
    JournalUntil(&first, first.table.journal_source().position());
  }
  auto segments = SegmentsOf(&disk);
  ASSERT_GE(segments.size(), 4u);
  segments.pop_back();  // nothing says that there was a last one
  for (const std::string& segment : segments) ExpectLossIsTold(disk, segment, options, 300);
}

// Every file of a folder, with some of its bytes changed, cut or gone.
TEST(RestoreTest, DamagedFilesLoseOnlyTheirContents) {
  MemoryStorage disk;
  InlineExecutor executor;
  Table::Options options = InOrder(100);
  {
    RestoredTable first = Restored(&disk, &executor, options);
    first.journal->AddDictionary(5, Buffer::Copy("no dictionary"));
    for (std::uint64_t t = 0; t <= 300; ++t) PutFrame(&first.table, t);
    Close(&first);
  }
  std::vector<std::string> paths;
  for (const std::string folder : {"replay/", "replay/segments/"}) {
    const auto names = disk.List(folder);
    ASSERT_TRUE(names.ok());
    for (const std::string& name : *names) {
      if (!name.ends_with("/")) paths.push_back(folder + name);
    }
  }
  ASSERT_GE(paths.size(), 6u);
  Rng rng({.index = 5});
  int lost = 0;
  for (int i = 0; i < 400; ++i) {
    Rng copy({.index = 6});
    const auto damaged = disk.AfterPowerLoss(&copy);
    const std::string& path = paths[rng.Below(std::uint32_t(paths.size()))];
    SCOPED_TRACE(fmt::format("{} {}", i, path));
    std::string bytes(damaged->Map(path)->text());
    switch (bytes.empty() ? 3 : rng.Below(4)) {
      case 0:
        bytes[rng.Below(std::uint32_t(bytes.size()))] ^= char(1 + rng.Below(255));
        break;
      case 1:
        bytes.resize(rng.Below(std::uint32_t(bytes.size())));
        break;
      case 2:
        std::ranges::fill(bytes, char(rng.Below(256)));
        break;
      case 3:
        bytes.append(1 + rng.Below(100), char(rng.Below(256)));
        break;
    }
    ASSERT_TRUE(damaged->WriteAtomic(path, bytes).ok());
    if (rng.Below(8) == 0) {
      ASSERT_TRUE(damaged->Remove(path).ok());
    }
    RestoredTable again = Restored(damaged.get(), &executor, options);
    std::vector<std::uint64_t> items = AllItems(&again.table);
    EXPECT_EQ(std::ranges::adjacent_find(items, std::greater_equal()), items.end());
    for (const std::uint64_t item : items) EXPECT_LT(item, 300u);
    lost += items.size() < 100;
    PutFrame(&again.table, 5000);
    PutFrame(&again.table, 5001);
    EXPECT_EQ(AllItems(&again.table).back(), 5000u);
    Close(&again);
    EXPECT_TRUE(again.journal->error().ok());
  }
  EXPECT_GT(lost, 20);
  EXPECT_LT(lost, 380);
}

TEST(RestoreTest, KeepsAcknowledgedItemsAfterAnyDiskFailure) {
  for (std::int64_t fail = 1; fail < 300; fail += 3) {
    SCOPED_TRACE(fail);
    MemoryStorage disk;
    InlineExecutor executor;
    std::uint64_t acknowledged = 0;
    {
      RestoredTable first = Restored(&disk, &executor, InOrder());
      JournalSource& table = first.table.journal_source();
      disk.FailFrom(disk.changes() + fail, Unavailable("gone"));
      for (std::uint64_t t = 0; t <= 300; ++t) {
        PutFrame(&first.table, t);
        first.journal->RequestDurable(first.table.journal_source().position());
        if (t % 50 == 0) first.journal->SnapshotNow();
        for (int i = 0; i < 3; ++i) first.journal->Poll(Time{}, &table);
        if (first.journal->durable() >= first.table.journal_source().position()) acknowledged = t;
      }
    }
    Rng rng({.index = std::uint64_t(fail)});
    const auto after = disk.AfterPowerLoss(&rng);
    RestoredTable again = Restored(after.get(), &executor, InOrder());
    const auto items = AllItems(&again.table);
    EXPECT_GE(items.size(), acknowledged);
    EXPECT_EQ(items, UpTo(items.size()));
  }
}

TEST(RestoreTest, RestoresTableWrittenByThreadsDuringEviction) {
  const TempFolder folder;
  auto disk = MakeDiskStorage(folder.path());
  Journal::Options options = Eager();
  options.spill = true;
  options.snapshot_every = Milliseconds(1);
  const SystemClock clock;
  constexpr std::uint64_t kFrames = 20000;
  {
    ThreadExecutor executor(2, [] {});
    RestoredTable first = Restored(disk->get(), &executor, InOrder(500), options);
    JournalSource& table = first.table.journal_source();
    for (std::uint64_t t = 0; t <= kFrames; ++t) {
      PutFrame(&first.table, t);
      first.journal->Poll(clock.Now(), &table);
    }
    first.journal->Drain();
    while (!first.journal->drained()) {
      first.journal->Poll(clock.Now(), &table);
      std::this_thread::yield();
    }
    EXPECT_TRUE(first.journal->error().ok());
    EXPECT_GT(first.journal->stats().rounds, 1);
  }
  InlineExecutor executor;
  RestoredTable again = Restored(disk->get(), &executor, InOrder(500), options);
  EXPECT_TRUE(again.clean);
  const auto items = AllItems(&again.table);
  ASSERT_EQ(items.size(), 500u);
  EXPECT_EQ(items.front(), kFrames - 500);
  EXPECT_EQ(items.back(), kFrames - 1);
}

// Inserts frames and reports each durable one until the process is killed.
[[noreturn]] void InsertUntilKilled(const std::string& folder, int acknowledge) {
  auto disk = MakeDiskStorage(folder);
  ThreadExecutor executor(2, [] {});
  const SystemClock clock;
  Journal::Options options = Eager();
  options.snapshot_every = Milliseconds(1);
  options.spill = true;
  RestoredTable restored = Restored(disk->get(), &executor, InOrder(100000), options);
  JournalSource& table = restored.table.journal_source();
  std::deque<std::pair<LogPosition, std::uint64_t>> waiting;
  for (std::uint64_t t = std::uint64_t(restored.table.size());;) {
    if (waiting.size() < 300) {
      if (t == 0) PutFrame(&restored.table, 0);
      PutFrame(&restored.table, t + 1);
      waiting.emplace_back(restored.table.journal_source().position(), t++);
    }
    if (!waiting.empty()) restored.journal->RequestDurable(waiting.back().first);
    restored.journal->Poll(clock.Now(), &table);
    for (; !waiting.empty() && waiting.front().first <= restored.journal->durable();
         waiting.pop_front()) {
      const std::uint64_t item = waiting.front().second;
      if (write(acknowledge, &item, sizeof(item)) != sizeof(item)) _exit(1);
    }
    if (waiting.size() >= 300) std::this_thread::yield();
  }
}

TEST(RestoreTest, KilledProcessLosesNoAcknowledgedItems) {
  const TempFolder folder;
  std::uint64_t known = 0;
  for (int life = 0; life < 4; ++life) {
    int acknowledge[2];
    ASSERT_EQ(pipe(acknowledge), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) InsertUntilKilled(folder.path(), acknowledge[1]);
    close(acknowledge[1]);
    std::uint64_t item = 0;
    const std::uint64_t target = known + 1000 + 700 * std::uint64_t(life);
    while (known < target && read(acknowledge[0], &item, sizeof(item)) == ssize_t(sizeof(item))) {
      known = item + 1;
    }
    EXPECT_GE(known, target);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(acknowledge[0], &item, sizeof(item)) == ssize_t(sizeof(item))) known = item + 1;
    close(acknowledge[0]);
    auto disk = MakeDiskStorage(folder.path());
    InlineExecutor executor;
    RestoredTable again = Restored(disk->get(), &executor, InOrder(100000));
    const auto items = AllItems(&again.table);
    EXPECT_GE(items.size(), known);
    EXPECT_EQ(items, UpTo(items.size()));
    EXPECT_FALSE(again.clean);
    known = items.size();
  }
}

}  // namespace
}  // namespace troop
