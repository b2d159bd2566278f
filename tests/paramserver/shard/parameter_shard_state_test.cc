// Snapshots, moves and backups of a ParameterShard.
#include <gtest/gtest.h>

#include <functional>

#include "core/storage/crc32c.h"
#include "net/wire/codec.h"
#include "paramserver/shard/parameter_shard.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

TEST(ParameterShardStateTest, RestoredShardContinuesBitExactAndKeepsSettledPushes) {
  for (const std::string name : {"adam", "momentum", "rmsprop", "adagrad", "sgd", "radam"}) {
    auto options = OptionsOf({.mode = SyncMode::kAsync, .learners = 2}, name);
    options.guards.loss_deviations = 5;
    auto shard = MakeWhole(options);
    auto straight = MakeWhole(options);
    const auto push = [&](ParameterShard* to, std::uint64_t t) {
      const auto outcome = Push(
          to, PushOf({int(t % 2), 1, 1 + t / 2}, to->version(), GradientAt(FirstValue(), 0, t)));
      Drain(to);
      return outcome;
    };
    for (std::uint64_t t = 0; t < 40; ++t) {
      push(straight.get(), t);
      push(shard.get(), t);
      if (t % 10 != 9) continue;
      const Buffer bytes = shard->Snapshot();
      auto restored = ParameterShard::Restore(options, std::span(&bytes, 1));
      ASSERT_TRUE(restored.ok()) << restored.status().ToString();
      shard = std::move(*restored);
      // The acknowledgements were lost: the learners push again.
      for (std::uint64_t again = t - 5; again <= t; ++again) {
        EXPECT_EQ(push(shard.get(), again), Outcome::kRepeated);
      }
    }
    EXPECT_TRUE(SameBytes(shard->value(), straight->value())) << name;
    EXPECT_EQ(shard->version(), straight->version());
    const Buffer a = shard->Snapshot(), b = straight->Snapshot();
    EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
  }
}

struct NoNorms {
  std::vector<OutlierFilter::Entry> norms;
  template <class A>
  void serialize(A& a) {
    a(norms);
  }
};

// The format before the norm guard: the body ends with the state of the loss guard.
TEST(ParameterShardStateTest, ReadsSnapshotOfFirstFormat) {
  auto options = OptionsOf({.mode = SyncMode::kAsync}, "adam");
  options.guards.loss_deviations = 5;
  auto shard = MakeWhole(options);
  for (std::uint64_t t = 1; t <= 40; ++t) {
    Push(shard.get(), PushOf({0, 1, t}, t, FirstValue()));
    Drain(shard.get());
  }
  const Buffer now = shard->Snapshot();
  const auto at = [&](std::size_t offset) {
    std::uint32_t value;
    std::memcpy(&value, now.data() + offset, sizeof value);
    return value;
  };
  const std::size_t norms = EncodeBody(NoNorms{}).size();
  const std::size_t body = at(12) - norms;
  const std::size_t begin = 64 + (at(12) + 63) / 64 * 64, begins = 64 + (body + 63) / 64 * 64;
  MutableBuffer first = MutableBuffer::Zeros(begins + now.size() - begin);
  std::memcpy(first.data(), now.data(), 64 + body);
  std::memcpy(first.data() + begins, now.data() + begin, now.size() - begin);
  const std::uint32_t head[] = {1, std::uint32_t(body)};
  std::memcpy(first.data() + 8, head, sizeof head);
  const std::uint32_t crc = Crc32c(first.bytes().subspan(8));
  std::memcpy(first.data() + 4, &crc, sizeof crc);
  const Buffer bytes = std::move(first).Freeze();
  auto restored = ParameterShard::Restore(options, std::span(&bytes, 1));
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_TRUE(SameBytes((*restored)->value(), shard->value()));
  EXPECT_EQ((*restored)->version(), 41u);
  EXPECT_EQ(Push(restored->get(), PushOf({0, 1, 40}, 40, FirstValue())), Outcome::kRepeated);
}

TEST(ParameterShardStateTest, AcceptsPushAgainThatSnapshotHeld) {
  const auto options = OptionsOf({.learners = 2});
  auto shard = MakeWhole(options);
  const ShardPush first = PushOf({0, 1, 1}, 1, FirstValue());
  EXPECT_EQ(Push(shard.get(), first), Outcome::kHeld);
  EXPECT_EQ(Push(shard.get(), first), Outcome::kHeld);  // repeated before it counted
  EXPECT_EQ(shard->held(), 1u);
  const Buffer bytes = shard->Snapshot();
  auto restored = std::move(*ParameterShard::Restore(options, std::span(&bytes, 1)));
  EXPECT_EQ(restored->held(), 0u);
  EXPECT_EQ(Push(restored.get(), first), Outcome::kHeld);
  EXPECT_EQ(Push(restored.get(), PushOf({1, 1, 1}, 1, FirstValue())), Outcome::kHeld);
  const auto update = restored->ApplyNext();
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->settled.size(), 2u);
  EXPECT_EQ(Push(restored.get(), first), Outcome::kRepeated);
}

// Over the wire.
void Follow(ParameterShard* backup, const ShardUpdate& update) {
  auto received = DecodeBody<ShardUpdate>(EncodeBody(update));
  ASSERT_TRUE(received.ok());
  received->sum = update.sum;
  const Status status = backup->Follow(*received);
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TEST(ParameterShardStateTest, BackupIsBitIdenticalAndTakesOverWithEachPushOnce) {
  for (const std::string name : {"adam", "sgd"}) {
    auto options = OptionsOf({.mode = SyncMode::kSsp, .learners = 3, .staleness = 2}, name);
    options.guards.loss_deviations = options.guards.norm_deviations = 4;
    options.keep_sums = true;
    auto primary = MakeWhole(options);
    auto backup = MakeWhole(options);
    Rng rng({8, Purpose::kTest});
    std::vector<std::uint64_t> sequence(3, 1);
    int dropped = 0;
    // Ends with a push that counts: what was dropped before it goes with it.
    for (int step = 0; step < 300 || !primary->held(); ++step) {
      const auto learner = std::int32_t(rng.Below(3));
      if (!primary->MayPull(learner)) continue;
      ShardPush push = PushOf({learner, 1, sequence[std::size_t(learner)]++}, primary->version(),
                              GradientAt(primary->value(), learner, std::uint64_t(step)));
      push.loss = float(step % 7 == 6 && step > 150 && step < 290 ? 1000 : 1 + 0.1 * rng.Uniform());
      push.norm = float(step % 11 == 6 && step > 150 && step < 290 ? 50 : 1 + 0.1 * rng.Uniform());
      dropped += Push(primary.get(), push) == Outcome::kOutlier;
      if (step >= 300 && primary->held()) break;
      while (const auto update = primary->ApplyNext()) Follow(backup.get(), *update);
    }
    Follow(backup.get(), *primary->ApplyNext());
    EXPECT_GT(dropped, 10);
    EXPECT_TRUE(SameBytes(primary->value(), backup->value())) << name;
    const Buffer a = primary->Snapshot(), b = backup->Snapshot();
    EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
    const auto last = sequence[0] - 1;
    EXPECT_EQ(Push(backup.get(), PushOf({0, 1, last}, 1, FirstValue())), Outcome::kRepeated);
    EXPECT_FALSE(backup->Follow({.version = backup->version() + 2}).ok());
  }
}

TEST(ParameterShardStateTest, AddsAndRemovesShardDuringTraining) {
  const auto options = OptionsOf({.learners = 2}, "adam");
  Group one(ByMemory(1), options);
  Group group(ByMemory(2), options);
  const std::vector<std::function<ShardMap(const ShardMap&)>> changes{
      [](const ShardMap& map) { return *map.WithShard(5); },
      [](const ShardMap& map) { return *map.WithoutShard(0); },
      [](const ShardMap& map) { return *map.WithShard(9); }};
  std::uint64_t t = 0;
  for (const auto& change : changes) {
    for (int round = 0; round < 10; ++round) {
      ++t;
      for (Group* g : {&one, &group}) {
        const Floats value = g->Pull();
        for (const int learner : {0, 1}) {
          g->Push({learner, 1, t}, t, GradientAt(value, learner, t));
        }
      }
    }
    group.Move(change(group.map()), options);
    // A push that was settled before the move stays settled, on whatever shard.
    group.Push({0, 1, t}, t, FirstValue());
    ASSERT_TRUE(SameBytes(group.Pull(), one.Pull()));
  }
  EXPECT_EQ(group.shards().size(), 3u);
}

TEST(ParameterShardStateTest, PartialSnapshotHoldsItsRangesAndSharedState) {
  auto options = OptionsOf({.mode = SyncMode::kAsync}, "adam");
  options.ranges = {{0, 96}, {160, 400}};
  auto shard = Make(options, Floats(336, 0.5f));
  shard->Join(0);
  Floats gradient(336);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = float(i % 13) - 6;
  Push(shard.get(), PushOf({0, 1, 1}, 1, gradient));
  Drain(shard.get());
  const std::vector<ParamRange> pieces{{32, 64}, {160, 176}, {208, 400}};
  auto small = options;
  small.ranges = pieces;
  small.epoch = 2;
  const Buffer bytes = shard->Snapshot(pieces);
  EXPECT_LT(bytes.size(), shard->Snapshot().size());
  auto moved = *ParameterShard::Restore(small, std::span(&bytes, 1));
  EXPECT_EQ(moved->version(), 2u);
  EXPECT_EQ(moved->optimizer().steps(), 1);
  const auto from = [](std::size_t i) { return i < 32 ? i + 32 : i < 48 ? i + 64 : i + 96; };
  for (std::size_t i = 0; i < 240; ++i) {
    ASSERT_EQ(moved->value()[i], shard->value()[from(i)]) << i;
    for (std::size_t slot : {0, 1}) {
      ASSERT_EQ(moved->optimizer().slots()[slot].values[i],
                shard->optimizer().slots()[slot].values[from(i)]);
    }
  }
  ShardPush again = PushOf({0, 1, 1}, 1, Floats(240));
  again.epoch = 2;
  moved->Join(0);
  EXPECT_EQ(*moved->Push(again), Outcome::kRepeated);
}

TEST(ParameterShardStateTest, RejectsSnapshotsThatMismatchOrDoNotCoverModel) {
  const auto options = OptionsOf({.mode = SyncMode::kAsync}, "adam");
  Group group(ByMemory(2), options);
  std::vector<Buffer> snapshots{group.shards()[0]->Snapshot(), group.shards()[1]->Snapshot()};
  const auto restore = [&](ParameterShard::Options with) {
    return ParameterShard::Restore(with, snapshots).status();
  };
  EXPECT_TRUE(restore(options).ok());
  auto other = options;
  other.optimizer = ConfigOf("sgd");
  EXPECT_EQ(restore(other).code(), Code::kFailedPrecondition);
  other = options;
  other.ranges = {{0, kParameters + 16}};
  EXPECT_EQ(restore(other).code(), Code::kFailedPrecondition);
  snapshots.push_back(snapshots[0]);
  EXPECT_EQ(restore(options).code(), Code::kFailedPrecondition);
  snapshots.pop_back();
  Push(group.shards()[1].get(),
       PushOf({0, 1, 1}, 1, Floats(std::size_t(group.shards()[1]->size()))));
  Drain(group.shards()[1].get());
  snapshots[1] = group.shards()[1]->Snapshot();
  // A push that one of the shards had settled stays settled.
  auto joined = *ParameterShard::Restore(options, snapshots);
  joined->Join(0);
  EXPECT_EQ(*joined->Push(PushOf({0, 1, 1}, 1, Floats(kParameters))), Outcome::kRepeated);
  snapshots.clear();
  EXPECT_FALSE(restore(options).ok());
}

TEST(ParameterShardStateTest, RejectsDamagedSnapshot) {
  const auto options = OptionsOf({}, "adam");
  const Buffer good = MakeWhole(options)->Snapshot();
  for (std::size_t i = 0; i < good.size(); i += i < 300 ? 1 : 97) {
    MutableBuffer bytes(good.size());
    std::ranges::copy(good.bytes(), bytes.data());
    bytes.data()[i] ^= std::byte{0x10};
    const Buffer bad = std::move(bytes).Freeze();
    EXPECT_FALSE(ParameterShard::Restore(options, std::span(&bad, 1)).ok()) << i;
  }
  for (const std::size_t size :
       {std::size_t(0), std::size_t(63), std::size_t(64), good.size() / 2, good.size() - 1}) {
    const Buffer bad = good.Slice(0, size);
    EXPECT_EQ(ParameterShard::Restore(options, std::span(&bad, 1)).status().code(),
              Code::kDataLoss);
  }
}

}  // namespace
}  // namespace troop
