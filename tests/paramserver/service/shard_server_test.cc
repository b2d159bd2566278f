#include "paramserver/service/shard_server.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "core/base/executor.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"
#include "paramserver/service/shard_client.h"
#include "tests/core/temp_folder.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

// K shard servers and some learners in one thread, over a simulated network.
class ShardServerTest : public testing::Test {
 protected:
  void Start(const ShardMap& map, ParameterShard::Options options) {
    places_.clear();
    map_ = std::make_unique<ShardMap>(map);
    const Floats value = FirstValue();
    for (const std::int32_t id : map.shards()) {
      options.ranges = map.RangesOf(id);
      options.epoch = map.epoch();
      Floats part;
      for (const ParamRange& r : options.ranges) {
        part.insert(part.end(), value.begin() + r.begin, value.begin() + r.end);
      }
      Listen(id, Make(options, part));
    }
  }
  void Listen(std::int32_t id, std::unique_ptr<ParameterShard> shard) {
    Place& place = places_[id];
    place.server = std::make_unique<ShardServer>(std::move(shard), ShardServer::Options{});
    place.network = hub_->MakeNetwork();
    place.listener = *place.network->Listen(NameOf(id), place.server.get());
  }
  void Stop(std::int32_t id) {
    places_[id].listener.reset();
    places_[id].network.reset();
    places_[id].server.reset();
  }
  struct Learner {
    std::unique_ptr<Network> network;
    std::unique_ptr<ShardClient> client;
    std::int32_t index = 0;
    Floats value;
    std::uint64_t version = 0;
  };
  Learner* AddLearner(std::int32_t index, std::uint64_t incarnation = 1,
                      const CodecOptions& codec = {}) {
    Learner& learner = *learners_.emplace_back(std::make_unique<Learner>());
    learner.network = hub_->MakeNetwork();
    learner.index = index;
    std::vector<std::unique_ptr<Channel>> channels;
    for (const std::int32_t id : map_->shards()) {
      channels.push_back(*learner.network->Connect(
          NameOf(id),
          {.origin = {.role = Role::kLearner, .index = index, .incarnation = incarnation}}));
    }
    learner.client =
        std::make_unique<ShardClient>(*map_, std::move(channels), ShardClient::Options{codec});
    return &learner;
  }
  void Pump(int rounds = 4, Duration step = Milliseconds(1)) {
    for (int i = 0; i < rounds; ++i) {
      now_ += step;
      for (auto& [id, place] : places_) {
        if (!place.server) continue;
        place.network->Pump(now_);
        place.server->Tick(now_);
      }
      for (const auto& learner : learners_) {
        if (!learner->client) continue;
        learner->network->Pump(now_);
        learner->client->Poll(now_);
        if (const auto pulled = learner->client->TakePull()) {
          learner->version = pulled->version;
          learner->value.assign(pulled->value.begin(), pulled->value.end());
        }
      }
    }
  }
  // True once all have their weights.
  bool Pull(const std::vector<Learner*>& learners, int rounds = 20) {
    for (Learner* learner : learners) {
      if (learner->client->pulling()) continue;
      EXPECT_TRUE(learner->client->RequestPull(now_).ok());
    }
    const auto all = [&] {
      return std::ranges::none_of(learners, [](Learner* l) { return l->client->pulling(); });
    };
    for (int i = 0; i < rounds && !all(); ++i) Pump(1);
    return all();
  }
  void Push(Learner* learner, std::uint64_t step) {
    ASSERT_TRUE(learner->client->CanPush());
    const Status status =
        learner->client->Push(now_, GradientAt(learner->value, learner->index, step), 0.01f, 1);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static std::string NameOf(std::int32_t id) { return "inproc://shard-" + std::to_string(id); }

  struct Place {
    std::unique_ptr<ShardServer> server;
    std::unique_ptr<Network> network;
    std::unique_ptr<Listener> listener;
  };
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::unique_ptr<ShardMap> map_;
  std::map<std::int32_t, Place> places_;
  std::vector<std::unique_ptr<Learner>> learners_;
  Time now_{Seconds(1)};
};

Floats PlainBsp(int learners, std::uint64_t steps) {
  auto optimizer = *MakeOptimizer(ConfigOf("adam"), kParameters);
  Floats value = FirstValue();
  for (std::uint64_t t = 0; t < steps; ++t) {
    Floats sum(kParameters);
    for (int i = 0; i < learners; ++i) {
      const Floats g = GradientAt(value, i, t);
      for (std::size_t p = 0; p < sum.size(); ++p) sum[p] += g[p];
    }
    optimizer->Step(sum, 1 / float(learners), 0.01f, value);
  }
  return value;
}

TEST_F(ShardServerTest, BspMatchesReferenceBitwiseForEverySharding) {
  for (const ShardMap& map : {ByMemory(1), ByMemory(3), ByLayer(2), ByLayer(3)}) {
    learners_.clear();
    Start(map, OptionsOf({.learners = 3}, "adam"));
    std::vector<Learner*> all;
    for (int i = 0; i < 3; ++i) all.push_back(AddLearner(i));
    for (std::uint64_t t = 0; t < 20; ++t) {
      ASSERT_TRUE(Pull(all)) << t;
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(all[i]->version, t + 1);
        Push(all[(i + t) % 3], t);
        Pump(1);
      }
    }
    ASSERT_TRUE(Pull(all));
    for (Learner* learner : all) {
      EXPECT_TRUE(SameBytes(learner->value, PlainBsp(3, 20))) << map.ToString();
      EXPECT_EQ(learner->client->applied(), 20 * map.shards().size());
      EXPECT_TRUE(learner->client->error().ok());
    }
  }
}

TEST_F(ShardServerTest, PullWaitsForOthersAndNothingIsSentTwice) {
  Start(ByMemory(2), OptionsOf({.learners = 2}));
  Learner* first = AddLearner(0);
  Learner* second = AddLearner(1);
  ASSERT_TRUE(Pull({first, second}));
  Push(first, 0);
  EXPECT_FALSE(Pull({first}));
  Push(second, 0);
  EXPECT_TRUE(Pull({first, second}));
  EXPECT_EQ(first->version, 2u);
  const auto before = first->value;
  EXPECT_TRUE(Pull({first}));  // nothing newer
  EXPECT_EQ(first->value, before);
}

// A learner's report counts the payload bytes of pushes and pulls once each, and the time from a
// push to the answer of its last shard.
TEST_F(ShardServerTest, CountsTrafficOnceAndTimesSlowestShard) {
  Start(ByMemory(2), OptionsOf({.mode = SyncMode::kAsync}));
  Learner* learner = AddLearner(0);
  const auto bytes = double(map_->parameters()) * sizeof(float);
  ASSERT_TRUE(Pull({learner}));
  EXPECT_EQ(learner->client->TakeTraffic().pulled_bytes, bytes);
  places_[1].server->SetPaused(true);
  Push(learner, 0);
  Pump(30);
  const ShardClient::Traffic sent = learner->client->TakeTraffic();
  EXPECT_EQ(sent.pushed_bytes, bytes);
  EXPECT_EQ(sent.push_s, 0);  // one has answered, one has not
  places_[1].server->SetPaused(false);
  Pump(30);
  ASSERT_EQ(learner->client->pushes_open(), 0u);
  const ShardClient::Traffic traffic = learner->client->TakeTraffic();
  EXPECT_GT(traffic.push_s, 0.029);
  EXPECT_LT(traffic.push_s, 0.061);
  EXPECT_EQ(traffic.pulled_bytes, 0);
  ASSERT_TRUE(Pull({learner}));
  EXPECT_EQ(learner->client->TakeTraffic().pulled_bytes, bytes);
}

TEST_F(ShardServerTest, WaitsForDeadLearnerOnlyUntilLeaseEnds) {
  Start(ByMemory(2), OptionsOf({.learners = 2}));
  Learner* alive = AddLearner(0);
  Learner* dead = AddLearner(1);
  ASSERT_TRUE(Pull({alive, dead}));
  dead->client.reset();
  dead->network.reset();
  Push(alive, 0);
  EXPECT_FALSE(Pull({alive}, 100));
  Pump(60, Milliseconds(100));  // dead_after, then the lease
  EXPECT_TRUE(Pull({alive}));
  EXPECT_EQ(alive->version, 2u);
  // Its next life takes part from its first pull on.
  Learner* again = AddLearner(1, 2);
  ASSERT_TRUE(Pull({again}));
  Push(alive, 1);
  EXPECT_FALSE(Pull({alive}));
  Push(again, 1);
  EXPECT_TRUE(Pull({alive, again}));
  EXPECT_EQ(alive->version, 3u);
  EXPECT_TRUE(SameBytes(alive->value, again->value));
}

TEST_F(ShardServerTest, DoesNotWaitForDepartedLearnerUntilItPulls) {
  Start(ByMemory(2), OptionsOf({.learners = 2}));
  Learner* stays = AddLearner(0);
  Learner* leaves = AddLearner(1);
  ASSERT_TRUE(Pull({stays, leaves}));
  Push(stays, 0);
  ASSERT_FALSE(Pull({stays}));
  const Floats before = leaves->value;
  ASSERT_TRUE(leaves->client->RequestLeave(now_).ok());
  ASSERT_TRUE(Pull({stays}));
  EXPECT_EQ(stays->version, 2u);
  EXPECT_FALSE(leaves->client->pulling());
  EXPECT_TRUE(SameBytes(leaves->value, before)) << "the answer brings nothing";
  Push(stays, 1);
  ASSERT_TRUE(Pull({stays}));
  EXPECT_EQ(stays->version, 3u);
  // A push without a previous pull is refused, since its staleness is unknown.
  Push(leaves, 0);
  Pump();
  EXPECT_EQ(leaves->client->applied(), 0u);
  EXPECT_EQ(leaves->client->refused(), 2u) << "by both shards";
  ASSERT_TRUE(Pull({leaves}));
  EXPECT_TRUE(SameBytes(leaves->value, stays->value));
  Push(stays, 2);
  EXPECT_FALSE(Pull({stays})) << "it takes part again";
  Push(leaves, 2);
  EXPECT_TRUE(Pull({stays, leaves}));
  EXPECT_EQ(stays->version, 4u);
}

TEST_F(ShardServerTest, RestoredShardLosesAndRepeatsNoPush) {
  const auto options = OptionsOf({.learners = 2}, "adam");
  Start(ByMemory(2), options);
  std::vector<Learner*> all{AddLearner(0), AddLearner(1)};
  Buffer snapshot;
  for (std::uint64_t t = 0; t < 12; ++t) {
    ASSERT_TRUE(Pull(all, 3000)) << t;
    Push(all[0], t);
    Pump(2);
    if (t % 3 == 1) {
      // Learner 0's push is held: it was not answered, so it is not in the snapshot.
      auto own = options;
      own.ranges = map_->RangesOf(1);
      snapshot = places_[1].server->Snapshot();
      Stop(1);
      Pump(5);
      Listen(1, std::move(*ParameterShard::Restore(own, std::span(&snapshot, 1))));
    }
    Push(all[1], t);
    Pump(2);
  }
  ASSERT_TRUE(Pull(all, 3000));
  EXPECT_TRUE(SameBytes(all[0]->value, PlainBsp(2, 12)));
}

TEST_F(ShardServerTest, AbsentLearnerDoesNotBlockOthers) {
  auto options = OptionsOf({.learners = 2});
  Start(ByMemory(1), options);
  Learner* learner = AddLearner(0);
  ASSERT_TRUE(Pull({learner}));
  Push(learner, 0);
  EXPECT_FALSE(Pull({learner}, 100));
  Pump(40, Milliseconds(1000));  // learner 1 has not joined in time
  EXPECT_TRUE(Pull({learner}));
  Learner* late = AddLearner(1);
  ASSERT_TRUE(Pull({late}));
  options.ranges = map_->RangesOf(0);
  const Buffer snapshot = places_[0].server->Snapshot();
  Stop(0);
  late->client.reset();  // it dies while the shard is away
  late->network.reset();
  Listen(0, std::move(*ParameterShard::Restore(options, std::span(&snapshot, 1))));
  Pump(5);
  Push(learner, 1);
  EXPECT_FALSE(Pull({learner}, 100));
  Pump(60, Milliseconds(100));
  EXPECT_TRUE(Pull({learner}));
  EXPECT_EQ(learner->version, 3u);
  EXPECT_TRUE(learner->client->error().ok());
}

// Answers the first calls of each kind with "later".
class Flaky final : public Service {
 public:
  explicit Flaky(Service* inner) : inner_(inner) {}
  void Handle(Message message, Reply reply) override {
    if (++calls[message.type] <= 2) return reply.Fail(Unavailable("later"));
    inner_->Handle(std::move(message), std::move(reply));
  }
  std::map<MessageType, int> calls;

 private:
  Service* inner_;
};

TEST_F(ShardServerTest, RetriesCallsAnsweredUnavailable) {
  Start(ByMemory(1), OptionsOf({}));
  Flaky flaky(places_[0].server.get());
  places_[0].listener.reset();
  places_[0].listener = *places_[0].network->Listen(NameOf(0), &flaky);
  Learner* learner = AddLearner(0);
  ASSERT_TRUE(Pull({learner}, 100));
  Push(learner, 0);
  ASSERT_TRUE(Pull({learner}, 100));
  EXPECT_EQ(learner->version, 2u);  // the pull did not overtake the push
  EXPECT_EQ(learner->client->applied(), 1u);
  EXPECT_EQ(flaky.calls[MessageType::kShardPush], 3);
  EXPECT_TRUE(learner->client->error().ok());
  places_[0].listener.reset();
}

// The end of a run: pushes and pulls still wait for another learner.
TEST_F(ShardServerTest, EndingServerMakesWaitingLearnersRetry) {
  Start(ByMemory(1), OptionsOf({}));
  Learner* const first = AddLearner(0);
  Learner* const second = AddLearner(1);
  ASSERT_TRUE(Pull({first, second}, 100));
  Push(first, 0);
  ASSERT_TRUE(first->client->RequestPull(now_).ok());
  Pump(20);
  ASSERT_EQ(first->client->applied(), 0u);
  ASSERT_TRUE(first->client->pulling());
  places_[0].server.reset();
  for (int i = 0; i < 3; ++i) {  // before the retry: the server is gone
    places_[0].network->Pump(now_);
    first->network->Pump(now_);
    first->client->Poll(now_);
  }
  places_[0].listener.reset();
  EXPECT_TRUE(first->client->error().ok()) << first->client->error().ToString();
  EXPECT_TRUE(first->client->pulling());
  EXPECT_EQ(first->client->dropped(), 0u);
}

TEST_F(ShardServerTest, BatchesSmallTensorsAndSplitsLargeOnes) {
  constexpr std::int64_t kMany = 2 * kPartFloatsMax + 5000;
  std::vector<ParamSpec> params;
  for (std::int64_t i = 0; i < 1000; ++i) {
    params.push_back({.name = "t" + std::to_string(i) + ".w", .offset = 16 * i});
  }
  params.push_back({.name = "big.w", .offset = 16000});
  const auto map = *ShardMap::Make(Sharding::kLayer, params, kMany, 1);
  const auto parts = CutIntoParts(map.RangesOf(0));
  EXPECT_EQ(parts.size(), 3u);
  map_ = std::make_unique<ShardMap>(map);
  auto options = OptionsOf({});
  options.ranges = map.RangesOf(0);
  Listen(0, Make(options, Floats(kMany, 1)));
  Learner* learner = AddLearner(0);
  ASSERT_TRUE(Pull({learner}));
  Push(learner, 0);
  ASSERT_TRUE(Pull({learner}));
  EXPECT_EQ(learner->value.size(), std::size_t(kMany));
  EXPECT_NE(learner->value.front(), 1);
  EXPECT_NE(learner->value.back(), 1);
}

TEST_F(ShardServerTest, CompressedPushesConverge) {
  for (const CodecOptions& codec : {CodecOptions{.codec = GradientCodec::kBf16},
                                    CodecOptions{.codec = GradientCodec::kTopK, .keep = 0.1},
                                    CodecOptions{.codec = GradientCodec::kStrom, .threshold = 1}}) {
    learners_.clear();
    Start(ByMemory(3), OptionsOf({.mode = SyncMode::kAsync}));
    Learner* learner = AddLearner(0, 1, codec);
    ASSERT_TRUE(Pull({learner}));
    for (std::uint64_t t = 0; t < 400; ++t) {
      const Floats gradient = learner->value;  // pulls to 0
      ASSERT_TRUE(learner->client->Push(now_, gradient, 0.02f, 1).ok());
      ASSERT_TRUE(Pull({learner}));
    }
    double size = 0;
    for (const float v : learner->value) size = std::max(size, std::abs(double(v)));
    EXPECT_LT(size, 0.1) << EnumName(codec.codec);
  }
}

TEST_F(ShardServerTest, RejectsMalformedRequestsAndWrongRoles) {
  Start(ByMemory(1), OptionsOf({}));
  const auto network = hub_->MakeNetwork();
  const auto code = [&](Role role, Message message) {
    auto channel = *network->Connect(NameOf(0), {.origin = {.role = role, .incarnation = 1}});
    const auto ticket = channel->Send(message, kForever);
    std::optional<Result<Message>> answer;
    for (int i = 0; i < 20 && !answer; ++i) {
      network->Pump(now_);
      Pump(1);
      answer = channel->Poll(*ticket);
    }
    EXPECT_TRUE(answer.has_value());
    return answer ? answer->status().code() : Code::kOk;
  };
  const auto push = [](ShardPushBody body, std::vector<Buffer> parts) {
    return Message{
        .type = MessageType::kShardPush, .body = EncodeBody(body), .parts = std::move(parts)};
  };
  const auto pull = [](std::uint64_t epoch, std::uint64_t exact) {
    return Message{.type = MessageType::kShardPull,
                   .body = EncodeBody(ShardPullBody{epoch, 0, exact})};
  };
  EXPECT_EQ(code(Role::kLearner, {.type = MessageType::kShardPush, .body = "?"}), Code::kDataLoss);
  EXPECT_EQ(code(Role::kLearner, {.type = MessageType::kShardPull, .body = "?"}), Code::kDataLoss);
  EXPECT_EQ(code(Role::kLearner, {.type = MessageType::kInsert}), Code::kInvalidArgument);
  EXPECT_EQ(code(Role::kActor, push({.sequence = 1}, {})), Code::kInvalidArgument);
  EXPECT_EQ(code(Role::kLearner, push({.sequence = 1, .epoch = 1}, {Buffer()})), Code::kDataLoss);
  EXPECT_EQ(code(Role::kLearner, push({.sequence = 1, .epoch = 2}, {Buffer()})),
            Code::kFailedPrecondition);
  CodedGradient huge;
  huge.elements = std::int64_t{1} << 60;
  EXPECT_EQ(code(Role::kLearner, push({.sequence = 1, .epoch = 1, .parts = {huge}}, {Buffer()})),
            Code::kDataLoss);
  EXPECT_EQ(code(Role::kLearner, pull(2, 0)), Code::kFailedPrecondition);
  EXPECT_EQ(code(Role::kActor, pull(1, 7)), Code::kNotFound);
  EXPECT_EQ(code(Role::kActor, pull(1, 0)), Code::kOk);
}

// Sockets of processes, one thread each: shards and learners of different speeds, one of which
// leaves in the middle. Ends by itself or by a deadline.
TEST(ShardServerSocketTest, LearnersConvergeOverSocketsWhenOneLeaves) {
  TempFolder folder;
  const ShardMap map = ByMemory(2);
  const auto name = [&](std::int32_t id) {
    return "ipc://" + folder.path() + "/" + std::to_string(id);
  };
  const SystemClock clock;
  const Time deadline = clock.Now() + Seconds(60);
  std::atomic<int> listening{0}, ended{0};
  const auto serve = [&](std::int32_t id) {
    auto options = OptionsOf({.mode = SyncMode::kSsp, .learners = 3, .staleness = 2}, "adam");
    options.ranges = map.RangesOf(id);
    Floats part(std::size_t(map.LoadOf(id)), 1);
    ShardServer server(Make(options, part), {.lease = Milliseconds(200)});
    auto network = *MakeZmqNetwork({.dead_after = Milliseconds(300)});
    auto listener = *network->Listen(name(id), &server);
    ++listening;
    while (ended < 3 && clock.Now() < deadline) {
      network->Pump(clock.Now());
      server.Tick(clock.Now());
      network->Wait(clock.Now(), clock.Now() + Milliseconds(5));
    }
    EXPECT_EQ(server.shard().staleness().count(), 2 * 30u + 10u);
  };
  const auto learn = [&](std::int32_t index, std::uint64_t steps) {
    auto network = *MakeZmqNetwork({.dead_after = Milliseconds(300)});
    std::vector<std::unique_ptr<Channel>> channels;
    for (const std::int32_t id : map.shards()) {
      channels.push_back(*network->Connect(
          name(id), {.origin = {.role = Role::kLearner, .index = index, .incarnation = 1}}));
    }
    ShardClient client(map, std::move(channels), {});
    const auto pump = [&] {
      network->Pump(clock.Now());
      client.Poll(clock.Now());
      network->Wait(clock.Now(), clock.Now() + Milliseconds(5));
    };
    for (std::uint64_t t = 0; t < steps && clock.Now() < deadline; ++t) {
      ASSERT_TRUE(client.RequestPull(clock.Now()).ok());
      std::optional<ShardClient::Pulled> pulled;
      while (!(pulled = client.TakePull()) && clock.Now() < deadline) pump();
      ASSERT_TRUE(pulled.has_value()) << client.error().ToString();
      const Floats gradient(pulled->value.begin(), pulled->value.end());
      ASSERT_TRUE(client.Push(clock.Now(), gradient, 0.01f, 1).ok());
      while (client.applied() < 2 * (t + 1) && clock.Now() < deadline) pump();
    }
    EXPECT_EQ(client.applied(), 2 * steps);
    EXPECT_TRUE(client.error().ok()) << client.error().ToString();
  };
  std::vector<std::thread> threads;
  for (const std::int32_t id : {0, 1}) threads.emplace_back(serve, id);
  while (listening < 2 && clock.Now() < deadline) std::this_thread::yield();
  for (const int index : {0, 1, 2}) {
    threads.emplace_back([&, index] {
      learn(index, index == 2 ? 10 : 30);
      ++ended;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(clock.Now(), deadline);
}

TEST_F(ShardServerTest, PausedServerChangesAndAnswersNothing) {
  Start(ByMemory(1), OptionsOf({.mode = SyncMode::kAsync}));
  ShardServer* server = places_[0].server.get();
  Learner* learner = AddLearner(0);
  ASSERT_TRUE(Pull({learner}));
  server->SetPaused(true);
  Push(learner, 0);
  // A reader's call waits; a learner's push is refused with a request to retry, and is retried.
  const auto network = hub_->MakeNetwork();
  const auto channel = *network->Connect(
      NameOf(0), {.origin = {.role = Role::kActor, .index = 0, .incarnation = 1}});
  Message pull{.type = MessageType::kShardPull, .body = EncodeBody(ShardPullBody{.epoch = 1})};
  const Ticket ticket = *channel->Send(pull, kForever);
  const auto answered = [&] {
    network->Pump(now_);
    return channel->Poll(ticket).has_value();
  };
  for (int i = 0; i < 50; ++i) {
    Pump(1);
    EXPECT_FALSE(answered());
  }
  EXPECT_EQ(server->shard().version(), 1u);
  EXPECT_EQ(learner->client->pushes_open(), 1u);
  server->SetPaused(false);
  Pump(20);
  EXPECT_TRUE(answered());
  EXPECT_EQ(learner->client->applied(), 1u);
  EXPECT_EQ(server->shard().version(), 2u);
}

// Its state can be read then.
TEST_F(ShardServerTest, PausesAndRestsOnlyOnceItsThreadsAreDone) {
  ThreadExecutor executor(1, nullptr);
  auto options = OptionsOf({.mode = SyncMode::kAsync});
  options.hogwild = &executor;
  Start(ByMemory(1), options);
  ShardServer* server = places_[0].server.get();
  Learner* learner = AddLearner(0);
  ASSERT_TRUE(Pull({learner}));
  for (const bool rests : {false, true}) {
    const std::uint64_t before = server->shard().version();
    std::promise<void> gate;
    ASSERT_TRUE(executor.Submit("gate", [&] { gate.get_future().wait(); }).ok());
    Push(learner, 0);
    Pump(20);
    ASSERT_EQ(server->shard().applying(), 1u);
    if (!rests) server->SetPaused(true);
    for (int i = 0; i < 20; ++i) {
      Pump(1);
      EXPECT_FALSE(rests ? server->PauseUpdates() : server->is_paused());
    }
    EXPECT_EQ(learner->client->applied(), before - 1);
    gate.set_value();
    const Time deadline = SystemClock().Now() + Seconds(20);
    const auto done = [&] { return rests ? server->PauseUpdates() : server->is_paused(); };
    while (!done() && SystemClock().Now() < deadline) Pump(1);
    ASSERT_TRUE(done());
    EXPECT_EQ(server->shard().version(), before + 1);
    Push(learner, 0);  // nothing begins
    Pump(50);
    EXPECT_EQ(server->shard().version(), before + 1);
    EXPECT_EQ(server->shard().applying(), 0u);
    if (rests) server->ResumeUpdates();
    if (!rests) server->SetPaused(false);
    while (learner->client->applied() < before + 1 && SystemClock().Now() < deadline) Pump(1);
    EXPECT_EQ(learner->client->applied(), before + 1);
  }
}

}  // namespace
}  // namespace troop
