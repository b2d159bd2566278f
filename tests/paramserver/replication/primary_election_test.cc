#include "paramserver/replication/primary_election.h"

#include <gtest/gtest.h>

#include "core/base/philox.h"

namespace troop {
namespace {

class ShardTermsTest : public testing::Test {
 protected:
  void Begin(int shards, bool backup) {
    terms_ = std::make_unique<PrimaryElection>(PrimaryElection::Options{
        .shards = shards, .backup = backup, .next_term = [this] { return ++number_; }});
  }
  const ShardTerm& term(std::size_t k = 0) const { return terms_->terms()[k]; }
  void Beat(std::int32_t slot, std::uint64_t incarnation, std::uint64_t held = 0) {
    terms_->RecordHeartbeat(now_, slot, incarnation, held);
  }
  // A term with primary 0 (incarnation 1) and backup 1 (incarnation 2), which has the state or not.
  void Pair(bool has_state) {
    Begin(1, true);
    Beat(0, 1);
    Beat(1, 2);
    Beat(0, 1, term().term);
    ASSERT_EQ(term().backup, 1);
    if (has_state) Beat(1, 2, term().term);
  }

  std::unique_ptr<PrimaryElection> terms_;
  std::uint64_t number_ = 100;
  Time now_{Seconds(1)};
};

TEST_F(ShardTermsTest, FirstServerBecomesPrimaryAndSecondFollows) {
  Begin(2, true);
  EXPECT_EQ(term().primary, -1);
  Beat(1, 5);
  EXPECT_EQ(term(0).primary, 1);
  EXPECT_EQ(term(1).primary, -1);
  Beat(0, 6);
  EXPECT_EQ(term(0).backup, -1);  // the primary has not begun
  Beat(1, 5, term(0).term);
  EXPECT_EQ(term(0).backup, 0);
  EXPECT_EQ(term(0).since, term(0).term - 1);
}

TEST_F(ShardTermsTest, BackupInSyncTakesOverAtOnce) {
  Pair(true);
  const std::uint64_t before = term().term;
  terms_->RecordExit(0, 1);
  terms_->Update(now_);
  EXPECT_EQ(term().primary, 1);
  EXPECT_EQ(term().from, before);
  EXPECT_GT(term().term, before);
}

TEST_F(ShardTermsTest, AsksBackupOfUncertainStateTwice) {
  Pair(false);
  const std::uint64_t before = term().term;
  terms_->RecordExit(0, 1);
  Beat(0, 3);  // the next life of the primary has nothing
  EXPECT_EQ(term().term, before);
  Beat(1, 2);  // may have been sent before the state came
  EXPECT_EQ(term().term, before);
  Beat(1, 2, before);
  EXPECT_EQ(term().primary, 1);
  EXPECT_EQ(term().from, before);
}

TEST_F(ShardTermsTest, BackupWithoutStateStartsFromDisk) {
  Pair(false);
  terms_->RecordExit(0, 1);
  Beat(1, 2);
  Beat(1, 2);
  EXPECT_EQ(term().primary, 1);
  EXPECT_EQ(term().from, 0u);
}

TEST_F(ShardTermsTest, OnlyBackupReplacesSilentPrimary) {
  Pair(true);
  now_ += Seconds(4);
  Beat(1, 2, term().term);
  EXPECT_EQ(term().primary, 1);
  // A silent primary without backup is not replaced: it may return with state that no other process
  // has.
  Pair(false);
  const std::uint64_t before = term().term;
  now_ += Seconds(20);
  Beat(1, 2);
  Beat(1, 2);
  EXPECT_EQ(term().term, before);
  Beat(0, 7);  // replaced
  EXPECT_EQ(term().primary_incarnation, 1u);
  now_ += Seconds(20);
  Beat(1, 2);
  EXPECT_GT(term().term, before);
  EXPECT_NE(term().primary_incarnation, 1u);
}

TEST_F(ShardTermsTest, PrimaryWithoutBackupStaysDespiteNewIncarnation) {
  Pair(true);
  const std::uint64_t since = term().since;
  Beat(0, 9);  // a new incarnation, before any message to the old one
  terms_->RecordExit(1, 2);
  terms_->Update(now_);
  EXPECT_EQ(term().primary_incarnation, 1u);
  EXPECT_EQ(term().backup, -1);
  EXPECT_EQ(term().since, since);
}

TEST_F(ShardTermsTest, CoordinatorPauseIsNotCountedAsSilence) {
  Pair(true);
  const std::uint64_t before = term().term;
  now_ += Seconds(60);
  terms_->ExtendLeases(Seconds(60));
  terms_->Update(now_);
  EXPECT_EQ(term().term, before);
}

// Two slots whose processes start, die, fall silent and return, with delayed messages: each new
// primary has all acknowledged updates, except those that a primary without backup acknowledged
// before it died.
TEST_F(ShardTermsTest, SuccessorOfPairHasAllAcknowledgedPushes) {
  Rng rng({.run_seed = 5, .purpose = Purpose::kTest});
  int takeovers = 0;
  for (int run = 0; run < 300; ++run) {
    Begin(1, true);
    struct Player {
      std::uint64_t incarnation = 0, seen = 0, held = 0, state = 0, since = 0;
      std::int32_t backup = -1;
      bool serves = false;
    };
    Player players[2];
    std::uint64_t acknowledged = 0, incarnation = 0;
    const auto alive = [&](int i) { return players[i].incarnation != 0; };
    for (int step = 0; step < 400; ++step) {
      now_ += Milliseconds(rng.Below(200));
      const int i = int(rng.Below(2));
      Player& me = players[i];
      Player& other = players[1 - i];
      const std::uint32_t what = rng.Below(20);
      if (what == 0 && alive(i)) {
        terms_->RecordExit(i, me.incarnation);
        // Updates that it acknowledged without a backup are lost with it.
        const bool paired = me.serves && me.backup >= 0 && other.held == me.seen;
        if (me.serves && !paired && !(other.serves && other.seen > me.seen)) acknowledged = 0;
        me = {};
      } else if (what == 1 && !alive(i)) {
        me.incarnation = ++incarnation;
      } else if (what < 10 && alive(i)) {
        Beat(i, me.incarnation, me.held);
        const ShardTerm now = term();
        if (now.term == me.seen) continue;
        me.seen = now.term;
        const bool primary = now.primary == i && now.primary_incarnation == me.incarnation;
        const bool begins = primary && (now.since != me.since || !me.serves);
        if (begins && now.from != 0) {
          ++takeovers;
          EXPECT_EQ(me.held, now.from);
          EXPECT_GE(me.state, acknowledged) << run << " " << step;
        } else if (begins) {
          me.state = 0;
          acknowledged = 0;
        }
        me.serves = primary;
        me.since = now.since;
        me.backup = primary ? now.backup : -1;
        if (primary) me.held = now.term;
      } else if (alive(i) && me.serves) {
        // An update: with a backup, it is acknowledged once the backup has it, and a backup that
        // has a newer term rejects it.
        const std::uint64_t next = me.state + 1;
        if (me.backup < 0) {
          const bool replaced = alive(1 - i) && other.serves && other.seen > me.seen;
          EXPECT_FALSE(replaced) << "two primaries, one of them alone";
          me.state = next, acknowledged = std::max(acknowledged, next);
        } else if (alive(1 - i) && other.seen <= me.seen && !other.serves) {
          me.state = next, other.state = next, other.held = me.seen;
          acknowledged = std::max(acknowledged, next);
        }
      }
    }
  }
  EXPECT_GT(takeovers, 100);
}

}  // namespace
}  // namespace troop
