#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "replay/persistence/journal.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

constexpr std::int64_t kSlots = 40;
constexpr int kSteps = 300;

// History of one item: its priorities, and when it was evicted. Times are steps.
struct Life {
  std::vector<std::pair<int, float>> priority;  // from then on
  LogPosition end;                              // of its record: durable when the journal is there
  std::optional<int> left;
};

// A table that lives through several processes, with the expected state.
class Model {
 public:
  explicit Model(std::uint64_t seed) : rng_({.index = seed}) { Open(); }

  // One life: random calls, random jobs. The disk is gone from change number `fail` on, counted
  // from here. Returns the number of changes.
  std::int64_t Live(int steps, std::int64_t fail) {
    const std::int64_t first = disk_->changes();
    disk_->FailFrom(first + fail, Unavailable("the power is gone"));
    for (int i = 0; i < steps; ++i) Step();
    return disk_->changes() - first;
  }

  void LosePower() {
    const LogPosition acknowledged = acknowledged_;
    const int round = round_;
    journal_.reset();
    executor_ = {};
    disk_ = disk_->AfterPowerLoss(&rng_);
    Open();
    Check(acknowledged, round);
    Adopt();
  }

  // Ends in order: all must be as it was.
  void Close() {
    disk_->Repair();
    const auto items = table_.items();
    const TableCounters counters = table_.counters();
    now_ += Seconds(10);
    journal_->Drain();
    for (int i = 0; i < 1000 && !journal_->drained(); ++i) {
      journal_->Poll(now_, &table_);
      executor_.RunOne(&rng_);
      now_ += Seconds(1);
    }
    ASSERT_TRUE(journal_->drained());
    journal_.reset();
    executor_ = {};
    disk_ = disk_->AfterPowerLoss(&rng_);
    Open();
    EXPECT_TRUE(clean_);
    EXPECT_EQ(table_.counters(), counters);
    ASSERT_EQ(table_.items().size(), items.size());
    for (const auto& [number, item] : items) {
      ASSERT_TRUE(table_.items().contains(number)) << number;
      EXPECT_EQ(table_.items().at(number).priority, item.priority) << number;
    }
    Adopt();
  }

 private:
  Journal::Options Options() {
    Journal::Options options;
    options.commit_bytes = 1 + rng_.Below(1000);
    options.commit_wait = Milliseconds(rng_.Below(5));
    options.job_bytes = 30 + rng_.Below(2000);
    options.snapshot_every = Duration(0);
    options.snapshot_block_bytes = 1 + rng_.Below(2000);
    options.snapshot_sync_bytes = 1 + rng_.Below(2000);
    options.lines_per_poll = 1 + int(rng_.Below(3));
    options.spill = rng_.Below(2) == 0;
    return options;
  }

  void Open() {
    const Journal::Options options = Options();
    auto contents = ReadJournal(disk_.get(), options.folder);
    ASSERT_TRUE(contents.ok()) << contents.status().ToString();
    EXPECT_TRUE(contents->warnings.empty()) << contents->warnings.front();
    EXPECT_TRUE(contents->lost.empty()) << ToString(contents->lost);
    ASSERT_TRUE(NoteRemoved(disk_.get(), options.folder, contents->found).ok());
    clean_ = contents->clean();
    table_ = ItemTable::Recover(kSlots, *contents);
    ASSERT_TRUE(disk_
                    ->WriteAtomic(options.folder + "/table",
                                  EncodeManifest({.identity = "test",
                                                  .used_snapshot = contents->snapshot_number,
                                                  .used_round = contents->rounds}))
                    .ok());
    acknowledged_ = contents->found.end;
    journal_.emplace(disk_.get(), &executor_, options, std::move(contents->found));
    asked_ = -1;
    rounds_ = 0;
  }

  void Step() {
    ++step_;
    now_ += Milliseconds(1);
    switch (rng_.Below(8)) {
      case 0:
      case 1:
      case 2:
        Insert();
        break;
      case 3:
        Update();
        break;
      case 4:
        Remove();
        break;
      case 5:
        if (rng_.Below(4) == 0) table_.Compact();
        table_.Draw();
        break;
      case 6:
        AskForSnapshot();
        break;
      case 7:
        executor_.RunOne(&rng_);
        break;
    }
    if (rng_.Below(4) == 0) journal_->RequestDurable(table_.position());
    executor_.RunOne(&rng_);
    journal_->Poll(now_, &table_);
    EXPECT_GE(journal_->durable(), acknowledged_);
    acknowledged_ = journal_->durable();
    if (journal_->stats().rounds > rounds_) {
      rounds_ = journal_->stats().rounds;
      round_ = std::exchange(asked_, -1);
    }
  }
  void Insert() {
    if (table_.full()) Remove();
    const float priority = float(rng_.Uniform());
    const std::uint64_t number = table_.Insert(priority);
    lives_[number] = {{{step_, priority}}, table_.position(), {}};
  }
  std::uint64_t AnyItem() {
    if (table_.items().empty()) return 0;
    auto it = table_.items().begin();
    std::advance(it, rng_.Below(std::uint32_t(table_.items().size())));
    return it->first;
  }
  void Update() {
    if (const std::uint64_t number = AnyItem()) {
      const float priority = float(rng_.Uniform());
      table_.Update(number, priority);
      lives_.at(number).priority.push_back({step_, priority});
    }
  }
  void Remove() {
    if (const std::uint64_t number = AnyItem()) {
      table_.Remove(number);
      lives_.at(number).left = step_;
    }
  }
  // One round at a time, so that it is known when it began at the earliest.
  void AskForSnapshot() {
    if (asked_ >= 0) return;
    asked_ = step_;
    journal_->SnapshotNow();
  }

  // After a loss of power: what was acknowledged is there unless it had left, nothing else that
  // never was, and priorities are as of the last complete round or later.
  void Check(LogPosition acknowledged, int round) {
    for (const auto& [number, life] : lives_) {
      const bool there = table_.items().contains(number);
      if (!life.left && life.end <= acknowledged) {
        EXPECT_TRUE(there) << number << " was acknowledged";
      }
      if (life.left && *life.left < round) {
        EXPECT_FALSE(there) << number << " had left before the snapshot";
      }
    }
    for (const auto& [number, item] : table_.items()) {
      ASSERT_TRUE(lives_.contains(number)) << number << " never was";
      const auto& history = lives_.at(number).priority;
      bool fits = false;
      for (std::size_t i = 0; i < history.size(); ++i) {
        const bool outdated = i + 1 < history.size() && history[i + 1].first < round;
        fits |= !outdated && history[i].second == item.priority;
      }
      EXPECT_TRUE(fits) << number << " has an outdated priority";
    }
  }
  // Takes the restored state as the expected state from now on.
  void Adopt() {
    ++step_;
    lives_.clear();
    for (const auto& [number, item] : table_.items()) {
      lives_[number] = {{{step_, item.priority}}, {}, {}};
    }
    round_ = -1;
  }

  Rng rng_;
  std::unique_ptr<MemoryStorage> disk_ = std::make_unique<MemoryStorage>();
  ManualExecutor executor_;
  ItemTable table_{kSlots};
  std::optional<Journal> journal_;
  Time now_{};
  int step_ = 0;
  std::map<std::uint64_t, Life> lives_;
  LogPosition acknowledged_;
  // Step at which the running round and the last complete one were requested.
  int asked_ = -1, round_ = -1;
  std::int64_t rounds_ = 0;
  bool clean_ = false;
};

TEST(JournalCrashTest, KeepsAcknowledgedDataAfterFailureAtEveryWrite) {
  const std::int64_t changes = Model(1).Live(kSteps, 1 << 30);
  ASSERT_GT(changes, 100);
  for (std::int64_t fail = 0; fail < changes; ++fail) {
    SCOPED_TRACE(fail);
    Model model(1);
    model.Live(kSteps, fail);
    model.LosePower();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(JournalCrashTest, KeepsStateOverManyCrashesAndCleanShutdowns) {
  for (std::uint64_t seed = 100; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Model model(seed);
    Rng rng({.index = seed + 1000});
    for (int life = 0; life < 6; ++life) {
      model.Live(int(rng.Below(150)), rng.Below(120));
      if (rng.Below(3) == 0) {
        model.Close();
      } else {
        model.LosePower();
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace troop
