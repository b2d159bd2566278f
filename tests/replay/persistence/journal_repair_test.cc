#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/base/executor.h"
#include "replay/persistence/journal_names.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

constexpr std::int64_t kSlots = 60;

Rng TestRng(std::uint64_t index) { return Rng({.purpose = Purpose::kTest, .index = index}); }

Journal::Options Eager() {
  Journal::Options options;
  options.commit_bytes = 1;
  options.snapshot_every = Duration(0);
  return options;
}

// A disk on which some calls fail for a while: files can't be read, as when a process has too many
// open, or nothing can be appended, since it is full.
class Moody final : public Storage {
 public:
  explicit Moody(MemoryStorage* disk) : disk_(disk) {}
  std::function<bool(std::string_view path)> refuses = [](std::string_view) { return false; };
  Code code = Code::kUnavailable;
  bool full = false;
  Code full_code = Code::kResourceExhausted;

  Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override {
    return disk_->WriteAtomic(path, bytes);
  }
  Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override {
    TROOP_ASSIGN_OR_RETURN(auto file, disk_->OpenAppend(path));
    return std::unique_ptr<AppendFile>(std::make_unique<File>(this, std::move(file)));
  }
  Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override {
    if (refuses(path)) return MakeStatus(code, "can't open {}: too many open files", path);
    return disk_->Read(path, bytes_max);
  }
  Status Truncate(std::string_view path, std::size_t bytes) override {
    return disk_->Truncate(path, bytes);
  }
  Result<std::vector<std::string>> List(std::string_view folder) override {
    return disk_->List(folder);
  }
  bool Exists(std::string_view path) override { return disk_->Exists(path); }
  Status Rename(std::string_view from, std::string_view to) override {
    return disk_->Rename(from, to);
  }
  Status Remove(std::string_view path) override { return disk_->Remove(path); }
  Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                            std::string_view holder) override {
    return disk_->Lock(path, holder);
  }

 private:
  class File final : public AppendFile {
   public:
    File(const Moody* disk, std::unique_ptr<AppendFile> file)
        : disk_(disk), file_(std::move(file)) {}
    Status Append(std::span<const std::byte> bytes) override {
      return disk_->full ? MakeStatus(disk_->full_code, "full") : file_->Append(bytes);
    }
    Status Sync() override { return file_->Sync(); }

   private:
    const Moody* const disk_;
    const std::unique_ptr<AppendFile> file_;
  };
  MemoryStorage* const disk_;
};

// A table and its journal, whose jobs run at once.
struct Life {
  Life(Storage* disk, const Journal::Options& options) {
    auto contents = ReadJournal(disk, options.folder);
    TROOP_CHECK(contents.ok(), "{}", contents.status().ToString());
    warnings = contents->warnings;
    table = ItemTable::Recover(kSlots, *contents);
    journal.emplace(disk, &executor, options, std::move(contents->found));
  }
  void Commit() {
    journal->RequestDurable(table.position());
    for (int i = 0; i < 50; ++i) journal->Poll(now, &table);
  }
  std::vector<std::uint64_t> Numbers() const {
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, item] : table.items()) numbers.push_back(number);
    return numbers;
  }

  InlineExecutor executor;
  ItemTable table{kSlots};
  std::optional<Journal> journal;
  std::vector<std::string> warnings;
  Time now{};
};

std::vector<std::uint64_t> UpTo(std::size_t end) {
  std::vector<std::uint64_t> numbers(end);
  for (std::size_t i = 0; i < end; ++i) numbers[i] = i + 1;
  return numbers;
}

// A retry cut the first file of a job that had failed while later ones still lay there: a kill at
// that moment left the log without its middle, and what came again was taken for a repeat.
TEST(JournalRepairTest, KillDuringCommitRepairLeavesPrefixOfLog) {
  for (std::int64_t fail = 0; fail < 14; ++fail) {
    for (std::int64_t kill = 0; kill < 14; ++kill) {
      for (const bool power : {false, true}) {
        SCOPED_TRACE(fmt::format("fails at change {}, killed at {}, power {}", fail, kill, power));
        auto disk = std::make_unique<MemoryStorage>();
        Rng rng = TestRng(std::uint64_t(fail * 100 + kill));
        {
          Life life(disk.get(), Eager());
          for (int i = 0; i < 3; ++i) life.table.Insert(1);
          life.Commit();
          for (int i = 0; i < 40; ++i) life.table.Insert(1);
          disk->FailFrom(disk->changes() + fail, ResourceExhausted("full"));
          life.Commit();
          disk->FailFrom(disk->changes() + kill, Unavailable("killed"));
          life.now += Seconds(2);
          life.Commit();
        }
        disk->Repair();
        if (power) disk = disk->AfterPowerLoss(&rng);
        Life life(disk.get(), Eager());
        const auto numbers = life.Numbers();
        EXPECT_GE(numbers.size(), 3u);
        ASSERT_EQ(numbers, UpTo(numbers.size()));
      }
    }
  }
}

// Each commit saw a hole that ended further on: nothing was durable, no file was ever removed.
TEST(JournalRepairTest, LaggingDiskCatchesUpAndRemovesEvictedSegments) {
  for (const bool compacts : {false, true}) {
    SCOPED_TRACE(compacts);
    MemoryStorage disk;
    ManualExecutor slow;
    Journal::Options options = Eager();
    options.job_bytes = 900;
    auto contents = ReadJournal(&disk, options.folder);
    ItemTable table(kSlots);
    Journal journal(&disk, &slow, options, std::move(contents->found));
    Rng rng = TestRng(0);
    Time now{};
    LogPosition last;
    int advanced = 0;
    for (int i = 0; i < 6000; ++i) {
      if (table.full()) table.Remove(table.items().begin()->first);
      table.Insert(1);
      if (compacts && i < 3000 && i % 40 == 0) table.Compact();
      journal.Poll(now += Milliseconds(1), &table);
      if (i % 30 == 0) slow.RunOne(&rng);
      advanced += journal.durable() > last;
      last = journal.durable();
    }
    const std::size_t files = disk.List("replay/segments")->size();
    if (!compacts) {
      EXPECT_GT(advanced, 50);
      EXPECT_LT(files, 3 * table.segments().size());
    }
    for (int i = 0; i < 300; ++i) {
      journal.RequestDurable(table.position());
      journal.Poll(now += Milliseconds(1), &table);
      slow.RunOne(&rng);
    }
    EXPECT_EQ(journal.durable(), table.position());
    EXPECT_LE(disk.List("replay/segments")->size(), table.segments().size() + 1);
  }
}

TEST(JournalRepairTest, ReportsLagWhileUnwrittenBytesExceedLimit) {
  MemoryStorage disk;
  ManualExecutor slow;
  Journal::Options options = Eager();
  options.lag_bytes = 1000;
  auto contents = ReadJournal(&disk, options.folder);
  ItemTable table(kSlots);
  Journal journal(&disk, &slow, options, std::move(contents->found));
  Rng rng = TestRng(0);
  Time now{};
  journal.Poll(now, &table);
  int inserts = 0;
  for (; inserts < 50 && !journal.behind(); ++inserts) {
    table.Insert(1);
    journal.Poll(now, &table);
  }
  EXPECT_GT(table.appended(), 1000u);
  EXPECT_LT(table.appended(), 1100u);
  disk.FailFrom(disk.changes(), ResourceExhausted("full"));
  for (int i = 0; i < 20; ++i) {
    slow.RunOne(&rng);
    journal.Poll(now, &table);
  }
  EXPECT_TRUE(journal.behind());
  disk.Repair();
  now += Seconds(2);
  for (int i = 0; i < 20; ++i) {
    journal.Poll(now, &table);
    slow.RunOne(&rng);
  }
  EXPECT_FALSE(journal.behind());
  EXPECT_EQ(journal.durable(), table.position());
}

// A small table turns over while its disk is away: what is on it must stay until more comes. Where
// the disk is full, that is what helps.
TEST(JournalRepairTest, KeepsFreedFilesUntilSuccessorsAreDurableUnlessDiskFull) {
  for (const Code code : {Code::kUnavailable, Code::kResourceExhausted}) {
    MemoryStorage disk;
    Moody moody(&disk);
    Life life(&moody, Eager());
    for (int i = 0; i < int(kSlots); ++i) life.table.Insert(1);
    life.Commit();
    const std::size_t files = disk.List("replay/segments")->size();
    moody.full = true;
    moody.full_code = code;
    for (int i = 0; i < int(kSlots); ++i) {
      life.table.Remove(life.table.items().begin()->first);
      life.table.Insert(1);
      life.Commit();
    }
    EXPECT_FALSE(life.journal->error().ok());
    if (code == Code::kUnavailable) {
      EXPECT_GE(disk.List("replay/segments")->size(), files);
    } else {
      EXPECT_LT(disk.List("replay/segments")->size(), 3u);
    }
    moody.full = false;
    life.now += Seconds(2);
    life.Commit();
    life.Commit();
    EXPECT_EQ(life.journal->durable(), life.table.position());
    EXPECT_EQ(disk.List("replay/segments")->size(), life.table.segments().size());
  }
}

// Regression: a file that could not be read was treated as lost; its number was reused and the file
// was truncated.
TEST(JournalRepairTest, UnreadableFileFailsStartAndStaysIntact) {
  MemoryStorage disk;
  {
    Life life(&disk, Eager());
    for (int i = 0; i < 30; ++i) life.table.Insert(1);
    life.Commit();
    life.journal->AddDictionary(7, Buffer::Copy("words"));
    life.journal->SnapshotNow();
    life.Commit();
    ASSERT_EQ(life.journal->stats().rounds, 1);
  }
  for (const char* part : {"segments/0000000000000002", "segments/0000000000000004", "snapshot-",
                           "dictionary-", "table"}) {
    Moody disk_now(&disk);
    disk_now.refuses = [part](std::string_view path) { return path.find(part) != path.npos; };
    const auto contents = ReadJournal(&disk_now, "replay");
    EXPECT_EQ(contents.status().code(), Code::kUnavailable) << part;
    EXPECT_THAT(contents.status().message(), testing::HasSubstr("too many open files"));
  }
  EXPECT_EQ(Life(&disk, Eager()).Numbers(), UpTo(30));
}

TEST(JournalRepairTest, NeverReusesNumberOfLostSegment) {
  MemoryStorage disk;
  LogPosition end;
  {
    Life life(&disk, Eager());
    for (int i = 0; i < 30; ++i) life.table.Insert(1);
    life.Commit();
    end = life.table.position();
  }
  Moody disk_now(&disk);
  disk_now.code = Code::kNotFound;
  const std::string last = JournalSegmentName(end.segment);
  disk_now.refuses = [&last](std::string_view path) { return path.ends_with(last); };
  Life life(&disk_now, Eager());
  EXPECT_THAT(life.warnings, testing::ElementsAre(testing::HasSubstr("is lost")));
  life.table.Insert(1);
  EXPECT_GT(life.table.position().segment, end.segment);
}

// One bit that flipped in the last segment cut everything behind it off, for good.
TEST(JournalRepairTest, DamageInsideLastSegmentTruncatesNothing) {
  MemoryStorage disk;
  std::string path;
  {
    Life life(&disk, Eager());
    while (life.table.position().offset < 300) life.table.Insert(1);
    life.Commit();
    path = life.journal->SegmentPath(life.table.position().segment);
  }
  const std::string whole(disk.Map(path)->text());
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    std::string damaged = whole;
    damaged[at] ^= 16;
    ASSERT_TRUE(disk.WriteAtomic(path, damaged + "half a record").ok());
    const auto contents = ReadJournal(&disk, "replay");
    ASSERT_TRUE(contents.ok());
    const bool last = contents->warnings.empty();
    EXPECT_EQ(disk.Map(path)->text().size() == whole.size(), !last);
    EXPECT_TRUE(!last || at > whole.size() - 100) << at;
    EXPECT_GE(contents->torn_bytes, 13u);
  }
}

// Sectors reach a disk in any order: records behind a missing one were never acknowledged, and
// would make what comes again look like a repeat.
TEST(JournalRepairTest, TruncatesAfterMissingSector) {
  MemoryStorage disk;
  std::string path;
  Journal::Options options = Eager();
  {
    auto contents = ReadJournal(&disk, options.folder);
    ItemTable table(kSlots, 4000);
    InlineExecutor executor;
    Journal journal(&disk, &executor, options, std::move(contents->found));
    for (int i = 0; i < 40; ++i) table.Insert(1);
    journal.RequestDurable(table.position());
    journal.Poll(Time{}, &table);
    ASSERT_EQ(table.position().segment, 1u);
    path = journal.SegmentPath(1);
  }
  std::string torn(disk.Map(path)->text());
  std::fill_n(torn.begin() + 1024, 512, '\0');
  ASSERT_TRUE(disk.WriteAtomic(path, torn).ok());
  const auto contents = ReadJournal(&disk, "replay");
  ASSERT_TRUE(contents.ok());
  EXPECT_TRUE(contents->warnings.empty());
  EXPECT_LE(disk.Map(path)->size(), 1024u);
  EXPECT_GT(disk.Map(path)->size(), 1024u - 100);
}

// Records found after a kill are only in the page cache until a process syncs them.
TEST(JournalRepairTest, RecoveredRecordsAreDurable) {
  MemoryStorage disk;
  {
    Life life(&disk, Eager());
    life.table.Insert(1);
    disk.FailFrom(disk.changes() + 1, Unavailable("killed"));  // appended and not synced
    life.Commit();
  }
  disk.Repair();
  { ASSERT_EQ(Life(&disk, Eager()).Numbers(), UpTo(1)); }
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng = TestRng(seed);
    const auto after = disk.AfterPowerLoss(&rng);
    ASSERT_EQ(Life(after.get(), Eager()).Numbers(), UpTo(1));
  }
}

// The file of a first round that failed stayed on the full disk until another one was complete.
TEST(JournalRepairTest, FailedFirstSnapshotLeavesNoFile) {
  MemoryStorage disk;
  Moody moody(&disk);
  Life life(&moody, Eager());
  for (int i = 0; i < 30; ++i) life.table.Insert(1);
  life.Commit();
  const auto snapshots = [&disk] {
    auto names = *disk.List("replay");
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("snapshot-"); });
    return names;
  };
  life.journal->SnapshotNow();
  for (int tries = 0; tries < 3; ++tries) {
    moody.full = true;
    life.Commit();
    EXPECT_FALSE(life.journal->snapshot_error().ok());
    EXPECT_THAT(snapshots(), testing::IsEmpty());
    life.now += Seconds(2);
  }
  moody.full = false;
  life.Commit();
  EXPECT_TRUE(life.journal->snapshot_error().ok());
  EXPECT_EQ(snapshots().size(), 1u);
}

TEST(JournalRepairTest, RestoresDictionariesByAgeAndSkipsDamaged) {
  MemoryStorage disk;
  for (const std::uint32_t id : {9u, 4u, 7u}) {
    Life life(&disk, Eager());
    life.journal->AddDictionary(id, Buffer::Copy(fmt::format("words {}", id)));
    life.Commit();
  }
  {
    const auto contents = ReadJournal(&disk, "replay");
    ASSERT_TRUE(contents.ok() && contents->dictionaries.size() == 3);
    EXPECT_EQ(contents->dictionaries[0].text(), "words 9");
    EXPECT_EQ(contents->dictionaries[1].text(), "words 4");
    EXPECT_EQ(contents->dictionaries[2].text(), "words 7");
  }
  const std::string whole(disk.Map("replay/dictionary-0000000004")->text());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    ASSERT_TRUE(disk.WriteAtomic("replay/dictionary-0000000004", damaged).ok());
    const auto contents = ReadJournal(&disk, "replay");
    ASSERT_TRUE(contents.ok());
    EXPECT_EQ(contents->dictionaries.size(), 2u) << at;
    EXPECT_EQ(contents->warnings.size(), 1u);
  }
}

// Regression: a queued job ran when another process already owned the folder.
TEST(JournalRepairTest, LocksFolderUntilLastJobCompletes) {
  MemoryStorage disk;
  ManualExecutor late;
  {
    auto contents = ReadJournal(&disk, "replay");
    ItemTable table(kSlots);
    Journal journal(&disk, &late, Eager(), std::move(contents->found));
    table.Insert(1);
    journal.RequestDurable(table.position());
    journal.Poll(Time{}, &table);
  }
  ASSERT_EQ(late.waiting(), 1u);
  const auto refused = ReadJournal(&disk, "replay");
  EXPECT_EQ(refused.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("process"));
  Rng rng = TestRng(0);
  late.RunOne(&rng);
  EXPECT_TRUE(ReadJournal(&disk, "replay").ok());
}

}  // namespace
}  // namespace troop
