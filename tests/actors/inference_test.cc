#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "actors/inference/inference_server.h"
#include "actors/inference/messages.h"
#include "actors/inference/remote_policy.h"
#include "core/base/executor.h"
#include "core/base/philox.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

constexpr int kActions = 3;
constexpr std::int64_t kFeatures = 5;
constexpr char kServer[] = "inproc://inference";

EnvSpec Env() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {kFeatures}};
  env.action.count = kActions;
  return env;
}

EnvSpec ContinuousEnv() {
  EnvSpec env = Env();
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, -1}, .high = {2, 3}};
  return env;
}

ActingConfig ServedConfig() {
  ActingConfig config;
  config.actor.inference = InferencePlace::kServer;
  config.inference.max_batch_size = 8;
  config.inference.batch_timeout_s = 0.005;
  config.inference.weight_sync_s = 0.02;
  config.inference.device = DeviceChoice::kCpu;
  return config;
}

ActingConfig ContinuousConfig() {
  ActingConfig config = ServedConfig();
  config.model.algorithm = AlgorithmKind::kDpg;
  return config;
}

ActingConfig ActorCriticConfig() {
  ActingConfig config = ServedConfig();
  config.model.algorithm = AlgorithmKind::kVtrace;
  return config;
}

// One caller's request.
struct Question {
  Tensor observation;
  std::vector<ExploreKey> keys;
};
Question Ask(std::int64_t rows, std::uint64_t number, double epsilon = 0.3) {
  Question q{Tensor(DType::kF32, {rows, kFeatures}), {}};
  Rng rng({.run_seed = 17, .index = number});
  for (float& x : q.observation.as<float>()) x = float(rng.Normal());
  for (std::int64_t i = 0; i < rows; ++i) {
    q.keys.push_back({.env = number * 100 + std::uint64_t(i),
                      .episode = number,
                      .step = std::uint64_t(7 * i),
                      .epsilon = epsilon,
                      .noise_sigma = 0.2});
  }
  return q;
}

// A server with weights from a parameter server, and callers of it.
class World {
 public:
  explicit World(ActingConfig config = ServedConfig(), EnvSpec env = Env())
      : config_(std::move(config)), env_(std::move(env)) {
    const auto module = MakeNetwork(config_.model, env_);
    weights_.resize(std::size_t(ParameterCount(**module)));
    InitParameters(**module, 5, weights_);
    parameters_ = MakeWeightsServer({.parameters = std::int64_t(weights_.size())});
    weights_listener_ = *network_->Listen("inproc://weights", parameters_.get());
    publisher_ = MakeWeightPublisher(*network_->Connect(
        "inproc://weights", {.origin = {.role = Role::kLearner, .incarnation = 1}}));
    StartServer();
  }

  void StartServer() {
    const auto connect = [this]() -> Result<std::unique_ptr<WeightSubscriber>> {
      const Origin origin{.role = Role::kInference, .incarnation = ++lives_};
      TROOP_ASSIGN_OR_RETURN(auto channel,
                             network_->Connect("inproc://weights", {.origin = origin}));
      return MakeWeightSubscriber(std::move(channel));
    };
    auto server = MakeInferenceServer(config_, env_, &executor_, connect);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
    listener_ = *servers_->Listen(kServer, server_.get());
  }
  void StopServer() {
    listener_.reset();
    server_.reset();
  }
  void Publish(std::uint64_t version) {
    publisher_->Publish({version, Buffer::Copy(std::as_bytes(std::span<const float>(weights_)))});
    Turns(60);  // more than a refresh
  }
  void Turns(int count) {
    for (int i = 0; i < count; ++i) {
      now_ += Milliseconds(1);
      network_->Pump(now_);
      servers_->Pump(now_);
      publisher_->Poll(now_);
      if (server_) server_->Tick(now_);
    }
  }
  std::unique_ptr<Channel> Connect(std::int32_t index, int window = 4) {
    return *network_->Connect(
        kServer,
        {.origin = {.role = Role::kActor, .index = index, .incarnation = 1}, .window = window});
  }
  Ticket Send(Channel* channel, const Question& q) {
    Message message{.type = MessageType::kInfer,
                    .parts = {Buffer::Copy(q.observation.bytes()),
                              Buffer::Copy(std::as_bytes(std::span(q.keys)))}};
    return *channel->Send(message, now_ + Seconds(100));
  }
  std::unique_ptr<Policy> Local(std::uint64_t version, std::int64_t rows) {
    auto policy = *MakeLocalPolicy(config_, env_, int(rows));
    EXPECT_TRUE(policy->SetWeights(version, weights_).ok());
    return policy;
  }
  double Metric(const char* name) const {
    Metrics metrics;
    server_->Report(&metrics);
    return metrics.Get(name);
  }
  // Turns until it is there, at most so many; how many it took.
  int Await(Channel* channel, Ticket ticket, int most, std::optional<Result<Message>>* answer) {
    for (int i = 0; i <= most; ++i) {
      *answer = channel->Poll(ticket);
      if (answer->has_value()) return i;
      Turns(1);
    }
    return -1;
  }

  Time now() const { return now_; }
  std::vector<float>& weights() { return weights_; }
  InferenceServer& server() { return *server_; }

 private:
  ActingConfig config_;
  EnvSpec env_;
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::unique_ptr<Network> network_ = hub_->MakeNetwork(), servers_ = hub_->MakeNetwork();
  InlineExecutor executor_;
  std::vector<float> weights_;
  std::unique_ptr<WeightsServer> parameters_;
  std::unique_ptr<Listener> weights_listener_;
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<InferenceServer> server_;
  std::unique_ptr<Listener> listener_;
  std::uint64_t lives_ = 0;
  Time now_{Seconds(1)};
};

template <class T>
std::span<const T> Part(const Message& message, std::size_t i) {
  return message.parts[i].as<T>();
}

void ChoosesAsLocalPoliciesDo(const ActingConfig& config, const EnvSpec& env) {
  World world(config, env);
  world.Publish(3);
  const bool discrete = env.action.discrete();
  std::vector<Question> questions;
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<Ticket> tickets;
  for (const std::int64_t rows : {1, 3, 2}) {
    questions.push_back(Ask(rows, std::uint64_t(rows)));
    channels.push_back(world.Connect(std::int32_t(rows)));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    tickets.push_back(world.Send(channels[i].get(), questions[i]));
  }
  world.Turns(20);
  EXPECT_EQ(world.Metric("inference/batches"), 1);
  EXPECT_EQ(world.Metric("inference/actions"), 6);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto answer = channels[i]->Poll(tickets[i]);
    ASSERT_TRUE(answer && answer->ok());
    const Message& message = **answer;
    ASSERT_EQ(message.parts.size(), 4u);
    EXPECT_EQ(DecodeBody<InferReplyBody>(message.body)->version, 3u);
    const auto rows = std::int64_t(questions[i].keys.size());
    const auto local = world.Local(3, rows);
    local->Submit(questions[i].observation, questions[i].keys);
    const PolicyOutput* const want = local->Poll();
    if (discrete) {
      EXPECT_TRUE(
          std::ranges::equal(Part<std::int32_t>(message, 0), want->action.as<std::int32_t>()));
    } else {
      ASSERT_EQ(message.parts[0].size(), want->action.bytes().size());
      for (std::size_t k = 0; k < want->action.as<float>().size(); ++k) {
        EXPECT_NEAR(Part<float>(message, 0)[k], want->action.as<float>()[k], 1e-5);
      }
    }
    std::size_t part = 1;
    for (const ConstTensor* t : {&want->q, &want->q_taken, &want->q_max}) {
      const auto got = Part<float>(message, part++);
      ASSERT_EQ(got.size(), t->as<float>().size());
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], t->as<float>()[k], 1e-5);
    }
  }
}

TEST(InferenceServerTest, BatchedActionsMatchLocalPolicies) {
  ChoosesAsLocalPoliciesDo(ServedConfig(), Env());
  ChoosesAsLocalPoliciesDo(ContinuousConfig(), ContinuousEnv());
  ChoosesAsLocalPoliciesDo(ActorCriticConfig(), Env());
}

TEST(InferenceServerTest, DoesNotReplyBeforeItHasWeights) {
  World world;
  const auto channel = world.Connect(0);
  const Ticket ticket = world.Send(channel.get(), Ask(2, 1));
  world.Turns(500);
  EXPECT_FALSE(channel->Poll(ticket));
  world.Publish(1);
  EXPECT_TRUE(channel->Poll(ticket));
}

// Polling without a pause would occupy a core.
TEST(InferenceServerTest, WaitsBetweenSearchesForWeightServer) {
  InlineExecutor executor;
  int looked = 0;
  const auto server = *MakeInferenceServer(ServedConfig(), Env(), &executor, [&looked] {
    ++looked;
    return Result<std::unique_ptr<WeightSubscriber>>(std::unique_ptr<WeightSubscriber>());
  });
  for (Time now{Seconds(1)}; now < Time{Seconds(2)};) {
    const Time next = server->Tick(now);
    ASSERT_GE(next, now + Milliseconds(1));
    now = next;
  }
  EXPECT_GE(looked, 100);
}

// Two clients send a request each round and one stops: the batch waits for it only once.
TEST(InferenceServerTest, BatchWaitsOnlyForActiveClients) {
  World world;
  world.Publish(1);
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 3; ++i) channels.push_back(world.Connect(i));
  std::optional<Result<Message>> answer;
  const auto rounds = [&](int count, std::size_t askers) {
    std::vector<int> turns;
    for (int round = 0; round < count; ++round) {
      std::vector<Ticket> tickets;
      for (std::size_t i = 0; i < askers; ++i) {  // not at once
        if (i > 0) world.Turns(1);
        tickets.push_back(world.Send(channels[i].get(), Ask(2, i)));
      }
      turns.push_back(0);
      for (std::size_t i = 0; i < askers; ++i) {
        const int took = world.Await(channels[i].get(), tickets[i], 50, &answer);
        EXPECT_GE(took, 0);
        turns.back() = std::max(turns.back(), took);
      }
    }
    return turns;
  };
  rounds(3, 3);
  const double before = world.Metric("inference/batches");
  const std::vector<int> all = rounds(10, 3);
  EXPECT_EQ(world.Metric("inference/batches") - before, 10);  // each of all three
  const int quick = *std::ranges::max_element(all);
  EXPECT_LE(quick, 3);
  const std::vector<int> two = rounds(10, 2);
  EXPECT_GE(two[0], 5);  // inference.batch_timeout_s
  EXPECT_LE(two[0], 5 + quick + 1);
  for (std::size_t i = 1; i < two.size(); ++i) EXPECT_LE(two[i], quick) << i;
  EXPECT_EQ(world.Metric("inference/batches") - before, 20);
}

TEST(InferenceServerTest, BatchesWholeRequestsUpToMaximum) {
  World world;
  world.Publish(1);
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4; ++i) channels.push_back(world.Connect(i));
  for (int i = 0; i < 4; ++i)
    tickets.push_back(world.Send(channels[std::size_t(i)].get(), Ask(3, 1)));
  world.Turns(20);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(channels[i]->Poll(tickets[i])) << i;
  EXPECT_EQ(world.Metric("inference/batches"), 2);  // of 8: two of 3 each
  EXPECT_EQ(world.Metric("inference/actions"), 12);
}

TEST(InferenceServerTest, RejectsInvalidRequests) {
  World world;
  world.Publish(1);
  const auto channel = world.Connect(0, 4096);
  const Question good = Ask(2, 1);
  const Buffer observation = Buffer::Copy(good.observation.bytes());
  const Buffer keys = Buffer::Copy(std::as_bytes(std::span(good.keys)));
  const auto code = [&](MessageType type, std::vector<Buffer> parts) {
    Message message{.type = type, .parts = std::move(parts)};
    const Ticket ticket = *channel->Send(message, world.now() + Seconds(100));
    std::optional<Result<Message>> answer;
    EXPECT_GE(world.Await(channel.get(), ticket, 20, &answer), 0);
    return answer && !answer->ok() ? answer->status().code() : Code::kOk;
  };
  EXPECT_EQ(code(MessageType::kPull, {observation, keys}), Code::kInvalidArgument);
  for (const std::vector<Buffer>& parts :
       std::vector<std::vector<Buffer>>{{},
                                        {observation},
                                        {observation, {}},
                                        {{}, {}},
                                        {observation, keys, keys},
                                        {observation, keys.Slice(0, 40)},
                                        {observation, keys.Slice(0, 41)},
                                        {observation.Slice(0, 20), keys},
                                        {observation.Slice(0, 39), keys}}) {
    EXPECT_EQ(code(MessageType::kInfer, parts), Code::kInvalidArgument) << parts.size();
  }
  const Question large = Ask(9, 1);  // of 8
  EXPECT_EQ(code(MessageType::kInfer, {Buffer::Copy(large.observation.bytes()),
                                       Buffer::Copy(std::as_bytes(std::span(large.keys)))}),
            Code::kInvalidArgument);
  EXPECT_EQ(code(MessageType::kInfer, {observation, keys}), Code::kOk);
  EXPECT_EQ(world.Metric("inference/rejected_requests"), 11);
}

TEST(InferenceServerTest, LimitsQueuedRequests) {
  World world;  // no weights: all wait
  const auto channel = world.Connect(0, 4096);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 70; ++i) tickets.push_back(world.Send(channel.get(), Ask(8, 1)));
  world.Turns(10);
  int turned_away = 0;
  for (const Ticket ticket : tickets) {
    const auto answer = channel->Poll(ticket);
    if (!answer) continue;
    ++turned_away;
    EXPECT_EQ(answer->status().code(), Code::kResourceExhausted);
  }
  EXPECT_EQ(turned_away, 6);
  EXPECT_EQ(world.Metric("inference/waiting_requests"), 64 * 8);
}

TEST(InferenceServerTest, UsesNewWeightsAndIgnoresNonFiniteOnes) {
  World world;
  world.Publish(1);
  const auto channel = world.Connect(0);
  const auto version = [&] {
    const Ticket ticket = world.Send(channel.get(), Ask(2, 1));
    std::optional<Result<Message>> answer;
    EXPECT_GE(world.Await(channel.get(), ticket, 20, &answer), 0);
    return DecodeBody<InferReplyBody>((*answer)->body)->version;
  };
  EXPECT_EQ(version(), 1u);
  for (float& w : world.weights()) w = -w;
  world.Publish(2);
  EXPECT_EQ(version(), 2u);
  const auto local = world.Local(2, 2);
  const Question q = Ask(2, 1);
  local->Submit(q.observation, q.keys);
  const Ticket ticket = world.Send(channel.get(), q);
  std::optional<Result<Message>> answer;
  EXPECT_GE(world.Await(channel.get(), ticket, 20, &answer), 0);
  EXPECT_NEAR(Part<float>(**answer, 1)[0], local->Poll()->q.as<float>()[0], 1e-5);
  {
    const CapturedLog log;
    world.weights()[4] = std::numeric_limits<float>::infinity();
    world.Publish(3);
    EXPECT_NE(log.text().find("value 4 is inf"), std::string::npos) << log.text();
  }
  EXPECT_EQ(version(), 2u);
  EXPECT_EQ(world.Metric("inference/nonfinite_weights"), 1);
}

TEST(RemotePolicyTest, MatchesLocalPolicyAcrossServerReplacement) {
  World world;
  world.Publish(2);
  RemotePolicy policy(Env().observation, Env().action, kActions);
  policy.Connect(world.Connect(0));
  for (int step = 0; step < 6; ++step) {
    if (step == 3) world.StopServer();
    const Question q = Ask(3, std::uint64_t(step));
    policy.Advance(world.now());
    policy.Submit(q.observation, q.keys);
    const PolicyOutput* output = nullptr;
    for (int turn = 0; turn < 3000 && output == nullptr; ++turn) {
      if (step == 3 && turn == 500) world.StartServer();
      world.Turns(1);
      policy.Advance(world.now());
      output = policy.Poll();
    }
    ASSERT_NE(output, nullptr) << step;
    const auto local = world.Local(2, 3);
    local->Submit(q.observation, q.keys);
    const PolicyOutput* const want = local->Poll();
    EXPECT_TRUE(
        std::ranges::equal(output->action.as<std::int32_t>(), want->action.as<std::int32_t>()));
    EXPECT_NEAR(output->q_taken.as<float>()[2], want->q_taken.as<float>()[2], 1e-5);
    EXPECT_EQ(output->version, 2u);
    EXPECT_EQ(policy.Poll(), nullptr);  // an output comes once
  }
  EXPECT_TRUE(policy.status().ok());
}

// A server whose replies the test modifies.
class Forger final : public Service {
 public:
  std::function<void(Message*)> forge;
  int asked = 0;
  void Handle(Message message, Reply reply) override {
    ++asked;
    const std::size_t rows = message.parts[1].size() / sizeof(ExploreKey);
    const std::vector<std::int32_t> actions(rows, kActions - 1);
    const std::vector<float> q(rows * kActions, 0.5f), one(rows, 0.5f);
    Message answer{.type = MessageType::kInferReply,
                   .body = EncodeBody(InferReplyBody{9}),
                   .parts = {Buffer::Copy(std::as_bytes(std::span(actions))),
                             Buffer::Copy(std::as_bytes(std::span(q))),
                             Buffer::Copy(std::as_bytes(std::span(one))),
                             Buffer::Copy(std::as_bytes(std::span(one)))}};
    if (forge) forge(&answer);
    reply.Send(std::move(answer));
  }
};

// The reply has a column more than there are actions.
TEST(RemotePolicyTest, TakesLogitsAndValueOfActorCritics) {
  World world(ActorCriticConfig());
  world.Publish(2);
  RemotePolicy policy(Env().observation, Env().action, kActions + 1);
  policy.Connect(world.Connect(0));
  const Question q = Ask(3, 1);
  policy.Submit(q.observation, q.keys);
  const PolicyOutput* output = nullptr;
  for (int i = 0; i < 100 && !output; ++i) {
    policy.Advance(world.now());
    world.Turns(1);
    output = policy.Poll();
  }
  ASSERT_NE(output, nullptr);
  const auto local = world.Local(2, 3);
  local->Submit(q.observation, q.keys);
  const PolicyOutput* const want = local->Poll();
  EXPECT_EQ(output->q.shape(), (Shape{3, kActions + 1}));
  EXPECT_TRUE(
      std::ranges::equal(output->action.as<std::int32_t>(), want->action.as<std::int32_t>()));
}

TEST(RemotePolicyTest, RetriesAfterDamagedReplies) {
  const auto hub = MakeSimHub();
  const auto network = hub->MakeNetwork(), servers = hub->MakeNetwork();
  Forger forger;
  const auto listener = *servers->Listen(kServer, &forger);
  RemotePolicy policy(Env().observation, Env().action, kActions);
  policy.Connect(*network->Connect(kServer, {.origin = {.role = Role::kActor, .incarnation = 1}}));
  Time now{Seconds(1)};
  const Question q = Ask(2, 1);
  const std::int32_t too_large[] = {0, kActions}, negative[] = {-1, 0};
  const std::vector<std::function<void(Message*)>> forgeries = {
      [](Message* m) { m->parts.pop_back(); },
      [](Message* m) { m->parts.push_back({}); },
      [](Message* m) { m->parts[0] = m->parts[0].Slice(0, 4); },
      [](Message* m) { m->parts[1] = m->parts[2]; },
      [](Message* m) { m->body += 'x'; },
      [](Message* m) { m->body.clear(); },
      [&](Message* m) { m->parts[0] = Buffer::Copy(std::as_bytes(std::span(too_large))); },
      [&](Message* m) { m->parts[0] = Buffer::Copy(std::as_bytes(std::span(negative))); }};
  for (std::size_t i = 0; i < forgeries.size(); ++i) {
    const CapturedLog log;
    forger.forge = forgeries[i];
    const int before = forger.asked;
    policy.Advance(now);
    policy.Submit(q.observation, q.keys);
    const PolicyOutput* output = nullptr;
    for (int turn = 0; turn < 1000 && output == nullptr; ++turn) {
      now += Milliseconds(1);
      if (forger.asked >= before + 2) forger.forge = nullptr;
      network->Pump(now);
      servers->Pump(now);
      policy.Advance(now);
      output = policy.Poll();
    }
    ASSERT_NE(output, nullptr) << i;
    EXPECT_EQ(forger.asked, before + 3) << i;
    EXPECT_EQ(output->action.as<std::int32_t>()[1], kActions - 1);
    EXPECT_EQ(output->version, 9u);
    EXPECT_EQ(policy.retries(), std::int64_t(2 * (i + 1)));
  }
}

TEST(RemotePolicyTest, RefusalEndsPolicy) {
  World world;
  world.Publish(1);
  RemotePolicy policy({DType::kF32, {kFeatures + 1}}, Env().action,
                      kActions);  // of another config
  policy.Connect(world.Connect(0));
  policy.Advance(world.now());
  policy.Submit(Tensor(DType::kF32, {1, kFeatures + 1}), std::vector<ExploreKey>(1));
  for (int turn = 0; turn < 50; ++turn) {
    world.Turns(1);
    policy.Advance(world.now());
    EXPECT_EQ(policy.Poll(), nullptr);
  }
  EXPECT_EQ(policy.status().code(), Code::kInvalidArgument);
  EXPECT_NE(policy.status().message().find("different configs"), std::string::npos)
      << policy.status().message();
}

}  // namespace
}  // namespace troop
