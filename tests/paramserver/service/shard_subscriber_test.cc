#include "paramserver/service/shard_subscriber.h"

#include <gtest/gtest.h>

#include "core/tensor/trajectory.h"
#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

// A shard whose weights all equal its version, for each request.
class FakeShard final : public Service {
 public:
  explicit FakeShard(std::int64_t size) : size_(size) {}
  std::uint64_t version = 1, lineage = 1;
  int kept = 2;        // versions
  int not_found = 0;   // answers
  bool later = false;  // "look elsewhere"
  std::function<void()> before;

  void Handle(Message message, Reply reply) override {
    if (before) before();
    if (later) return reply.Fail(Unavailable("later"));
    const auto body = *DecodeBody<ShardPullBody>(message.body);
    const std::uint64_t known = body.lineage == lineage ? body.known : 0;
    ShardPullReplyBody head{.newest = version, .lineage = lineage};
    Message answer{.type = MessageType::kShardPullReply};
    if (body.exact != 0 || known < version) {
      head.version = body.exact != 0 ? body.exact : version;
      if (head.version > version || head.version + std::uint64_t(kept) <= version) {
        ++not_found;
        return reply.Fail(NotFound("gone"));
      }
      const Floats value(std::size_t(size_), float(head.version));
      answer.parts.push_back(Buffer::Copy(std::as_bytes(std::span(value))));
    }
    answer.body = EncodeBody(head);
    reply.Send(std::move(answer));
  }

 private:
  const std::int64_t size_;
};

class ShardSubscriberTest : public testing::Test {
 protected:
  void Start(int shards, bool in_step) {
    const ShardMap map = ByMemory(shards);
    std::vector<std::unique_ptr<Channel>> channels;
    client_ = hub_->MakeNetwork();
    for (int k = 0; k < shards; ++k) {
      shards_.push_back(std::make_unique<FakeShard>(map.LoadOf(k)));
      networks_.push_back(hub_->MakeNetwork());
      const std::string name = "inproc://shard-" + std::to_string(k);
      listeners_.push_back(*networks_.back()->Listen(name, shards_.back().get()));
      channels.push_back(*client_->Connect(name, {.origin = {.role = Role::kActor}}));
    }
    weights_ = std::make_unique<ShardSubscriber>(map, std::move(channels), in_step);
  }
  std::optional<WeightSnapshot> Pull(int rounds = 200) {
    weights_->Request(now_);
    for (int i = 0; i < rounds; ++i) {
      now_ += Milliseconds(1);
      client_->Pump(now_);
      for (auto& network : networks_) network->Pump(now_);
      client_->Pump(now_);
      if (auto snapshot = weights_->Poll(now_)) return snapshot;
      if (!weights_->requesting()) return std::nullopt;
    }
    return std::nullopt;
  }
  static bool IsWhole(const WeightSnapshot& snapshot) {
    const auto value = snapshot.value.as<float>();
    return std::ranges::all_of(value, [&](float v) { return v == value[0]; });
  }

  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::unique_ptr<Network> client_;
  std::vector<std::unique_ptr<FakeShard>> shards_;
  std::vector<std::unique_ptr<Network>> networks_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unique_ptr<ShardSubscriber> weights_;
  Time now_{Seconds(1)};
};

TEST_F(ShardSubscriberTest, SynchronousPullReturnsOneVersionDespiteUpdates) {
  Start(3, true);
  Rng rng({.run_seed = 3, .purpose = Purpose::kTest});
  // Each answer may come before or after the shard's next update; no shard is two updates ahead.
  for (auto& shard : shards_) {
    shard->before = [this, s = shard.get(), &rng] {
      const auto lowest =
          (*std::ranges::min_element(shards_, {}, [](auto& x) { return x->version; }))->version;
      if (rng.Below(2) == 0 && s->version == lowest) ++s->version;
    };
  }
  int got = 0;
  std::uint64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    const auto snapshot = Pull();
    if (!snapshot) continue;
    ++got;
    EXPECT_TRUE(IsWhole(*snapshot));
    EXPECT_GT(snapshot->version, last);
    EXPECT_EQ(UpdatesOf(snapshot->version), std::uint64_t(snapshot->value.as<float>()[0]));
    last = snapshot->version;
  }
  EXPECT_GT(got, 100);
  EXPECT_TRUE(weights_->error().ok());
}

TEST_F(ShardSubscriberTest, AsynchronousPullReturnsNewestOfEachShardOnce) {
  Start(2, false);
  shards_[1]->version = 7;
  const auto first = Pull();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->value.as<float>().front(), 1);
  EXPECT_EQ(first->value.as<float>().back(), 7);
  EXPECT_EQ(first->version, WeightsVersion(1, 1));
  EXPECT_FALSE(Pull());
  shards_[1]->version = 8;
  const auto second = Pull();
  ASSERT_TRUE(second);
  EXPECT_GT(second->version, first->version);
}

TEST_F(ShardSubscriberTest, RolledBackShardStillYieldsNewerWeights) {
  Start(2, true);
  for (auto& shard : shards_) shard->version = 9;
  const auto first = Pull();
  ASSERT_TRUE(first);
  shards_[0]->version = 4;
  shards_[0]->lineage = 12;
  EXPECT_FALSE(Pull());  // torn
  for (auto& shard : shards_) shard->version = 10;
  const auto second = Pull();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->version, WeightsVersion(12, 10));
  EXPECT_TRUE(IsWhole(*second));
}

TEST_F(ShardSubscriberTest, AcceptsLastingVersionDifferences) {
  Start(2, true);
  shards_[0]->version = 4;
  shards_[1]->version = 9;
  EXPECT_FALSE(Pull());
  now_ += Seconds(1);
  EXPECT_FALSE(Pull());
  now_ += Seconds(2);
  const auto snapshot = Pull();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->value.as<float>().front(), 4);
  EXPECT_EQ(snapshot->value.as<float>().back(), 9);
}

TEST_F(ShardSubscriberTest, RetriesUnavailableShardAndReportsDamage) {
  Start(2, true);
  shards_[1]->later = true;
  EXPECT_FALSE(Pull());
  EXPECT_TRUE(weights_->error().ok());
  shards_[1]->later = false;
  EXPECT_TRUE(Pull());
  FakeShard small(8);
  small.version = 5;
  const auto network = hub_->MakeNetwork();
  const auto listener = *network->Listen("inproc://small", &small);
  networks_.push_back(hub_->MakeNetwork());
  weights_->Replace(1, *client_->Connect("inproc://small", {.origin = {.role = Role::kActor}}));
  weights_->Request(now_);
  for (int i = 0; i < 20; ++i) {
    now_ += Milliseconds(1);
    client_->Pump(now_);
    network->Pump(now_);
    EXPECT_FALSE(weights_->Poll(now_));
  }
  EXPECT_EQ(weights_->error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace troop
