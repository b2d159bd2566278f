#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

ReplayServer::Options ServerOptions() {
  return {.tables = {{.table = {.trajectory = SmallSpec(),
                                .view = {.length_max = 3},
                                .capacity_items = 100},
                      .samples_per_insert = 0}},
          .batch_size_max = 1000};
}

Message GoodInsert() {
  const EncodedChunk chunk = PlainChunk(MakeChunk(1, 0, 10));
  return PackInsert(0, SmallSpec(), Codec::kNone, {&chunk, 1}, MakeItems(1, 0, 8, 1, 2));
}

// The message with bytes of one part written over.
Message Patched(Message message, std::size_t part, std::size_t offset, const void* bytes,
                std::size_t size) {
  MutableBuffer copy(message.parts[part].size());
  std::memcpy(copy.data(), message.parts[part].data(), copy.size());
  std::memcpy(copy.data() + offset, bytes, size);
  message.parts[part] = std::move(copy).Freeze();
  return message;
}

template <class T>
Message PatchedWith(std::size_t offset, T value) {
  return Patched(GoodInsert(), 0, offset, &value, sizeof value);
}

constexpr std::size_t kItemsEnd = 8 * sizeof(WireItem);
constexpr std::size_t kRewards = kItemsEnd + 10 * 4, kDiscounts = kRewards + 10 * 4,
                      kEnds = kDiscounts + 10 * 4;

void ExpectRefused(const Message& message, std::string_view says,
                   Code code = Code::kInvalidArgument) {
  ReplayWorld world(ServerOptions());
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(channel.get(), message);
  ASSERT_FALSE(answer.ok()) << says;
  EXPECT_EQ(answer.status().code(), code);
  EXPECT_NE(answer.status().message().find(says), std::string::npos)
      << answer.status().message() << "\n  should say: " << says;
  EXPECT_EQ(answer.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(world.Metric("replay/items"), 0);
  EXPECT_EQ(world.Metric("replay/rejected_requests"), 1);
}

TEST(HostileReplayTest, AcceptsValidInsert) {
  ReplayWorld world(ServerOptions());
  const auto channel = world.Connect(Role::kTool);
  EXPECT_TRUE(world.Call(channel.get(), GoodInsert()).ok());
  EXPECT_EQ(world.Metric("replay/items"), 8);
}

TEST(HostileReplayTest, RejectsInsertOfWrongSizes) {
  Message message = GoodInsert();
  message.body = EncodeBody(InsertBody{0, {{1, 0, 10}}, 9});
  ExpectRefused(message, "9 items");
  message = GoodInsert();
  message.body = EncodeBody(InsertBody{0, {{1, 0, 0xFFFFFFFF}}, 8});
  ExpectRefused(message, "4294967295 frames");
  message = GoodInsert();
  message.body = EncodeBody(InsertBody{0, {{1, 0, 0}}, 8});
  ExpectRefused(message, "0 frames");
  message = GoodInsert();
  message.body = EncodeBody(InsertBody{0, {{1, ~0ull - 3, 10}}, 8});
  ExpectRefused(message, "begins at frame");
  message = GoodInsert();
  message.parts[1] = message.parts[1].Slice(0, 79);
  ExpectRefused(message, "79 observation bytes");
  message = GoodInsert();
  message.parts.pop_back();
  ExpectRefused(message, "1 parts for 1 chunks");
  message = GoodInsert();
  message.parts.push_back({});
  ExpectRefused(message, "3 parts for 1 chunks");
  message = GoodInsert();
  message.parts.clear();
  message.body = EncodeBody(InsertBody{});
  ExpectRefused(message, "0 parts for 0 chunks");
}

TEST(HostileReplayTest, RejectsMalformedBody) {
  for (const MessageType type :
       {MessageType::kInsert, MessageType::kSample, MessageType::kUpdatePriorities}) {
    ExpectRefused({.type = type, .body = "garbage"}, "", Code::kDataLoss);
    ExpectRefused({.type = type}, "", Code::kDataLoss);
  }
  ExpectRefused({.type = MessageType::kPublish}, "32 is not served by a replay server");
}

TEST(HostileReplayTest, RejectsInvalidInsertValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    ExpectRefused(PatchedWith(kRewards + 12, bad), "reward");
    ExpectRefused(PatchedWith(kDiscounts + 12, bad), "discount");
    ExpectRefused(PatchedWith(offsetof(WireItem, priority), bad), "must be finite and >= 0");
  }
  ExpectRefused(PatchedWith(kDiscounts, 1.5f), "discount 1.5 is not in [0, 1]");
  ExpectRefused(PatchedWith(kEnds + 2, std::uint8_t{2}), "final mark is not 0 or 1");
  ExpectRefused(PatchedWith(offsetof(WireItem, priority), -1.0f), "must be finite and >= 0");
}

TEST(HostileReplayTest, RejectsItemsWithInvalidFrameRange) {
  ExpectRefused(PatchedWith(offsetof(WireItem, length), std::uint32_t{4}),
                "length must be in [1, 3]");
  ExpectRefused(PatchedWith(offsetof(WireItem, length), ~std::uint32_t{0}),
                "length must be in [1, 3]");
  ExpectRefused(PatchedWith(offsetof(WireItem, first_frame), ~std::uint64_t{0}),
                "ends before frame 10");
  ExpectRefused(PatchedWith(offsetof(WireItem, burn_in), std::uint32_t{1}), "burn_in");
  ExpectRefused(PatchedWith(kEnds + 1, std::uint8_t{1}), "crosses the end of an episode");
}

TEST(HostileReplayTest, RejectsRequestsBeyondLimits) {
  const auto sample = [](const SampleBody& body) {
    return Message{.type = MessageType::kSample, .body = EncodeBody(body)};
  };
  ExpectRefused(sample({.table = 1, .batch_size = 1, .batches = 1}),
                "table number is 1, must be in [0, 0]");
  ExpectRefused(sample({.batch_size = 0, .batches = 65}), "batch size is 0, must be in [1, 1000]");
  ExpectRefused(sample({.batch_size = 1, .batches = 1, .charge = ~0u}),
                "charge of 4294967295 items");
  ExpectRefused(sample({.batch_size = 1, .charge = 1}), "charge of 1 items for 0 batches");
  ExpectRefused(sample({.batch_size = 1001, .batches = 1}),
                "batch size is 1001, must be in [1, 1000]");
  ExpectRefused(sample({.batch_size = 1, .batches = 0}), "0 batches");
  ExpectRefused(sample({.batch_size = 1, .batches = ~0u}), "4294967295 batches");
  ExpectRefused(sample({.batch_size = 1, .batches = 1, .updates = ~0u}), "4294967295 updates");
  Message message = sample({.batch_size = 1, .batches = 1});
  message.parts.push_back(Buffer::Copy("x"));
  ExpectRefused(message, "1 parts");
}

TEST(HostileReplayTest, RejectsOversizedReplyBeforeBuildingIt) {
  ReplayServer::Options options = ServerOptions();
  options.tables[0].table.trajectory.observation = {DType::kU8, {84, 84, 4}};
  options.batch_size_max = 1 << 16;
  ReplayWorld world(options);
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(
      channel.get(), {.type = MessageType::kSample, .body = EncodeBody(SampleBody{0, 1 << 16, 1})});
  EXPECT_EQ(answer.status().code(), Code::kInvalidArgument);
  EXPECT_NE(answer.status().message().find("MiB"), std::string::npos);
}

// Whatever bytes come: an answer, no crash (the sanitizers watch), and a table that still works.
TEST(HostileReplayTest, SurvivesRandomDamage) {
  ReplayWorld world(ServerOptions());
  const auto channel = world.Connect(Role::kTool);
  Rng rng({.run_seed = 8});
  int refused = 0;
  for (StreamId stream = 0; stream < 3000; ++stream) {  // a damaged stream may be beyond repair
    const EncodedChunk chunk = PlainChunk(MakeChunk(stream, 0, 10));
    Message message =
        PackInsert(0, SmallSpec(), Codec::kNone, {&chunk, 1}, MakeItems(stream, 0, 8, 1, 2));
    for (std::uint32_t damage = 1 + rng.Below(3); damage > 0; --damage) {
      const auto byte = std::byte(rng.NextU32());
      if (rng.Below(2) == 0) {
        message.body[rng.Below(std::uint32_t(message.body.size()))] = char(byte);
      } else {
        const std::size_t part = rng.Below(2);
        const auto at = rng.Below(std::uint32_t(message.parts[part].size()));
        message = Patched(std::move(message), part, at, &byte, 1);
      }
    }
    refused += world.Call(channel.get(), std::move(message)).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 2900);
  const auto answer = world.Call(
      channel.get(), {.type = MessageType::kSample, .body = EncodeBody(SampleBody{0, 32, 1})});
  EXPECT_TRUE(answer.ok());
}

// A server of another spec, or none of ours: the sampler says what it expected.
class WrongServer final : public Service {
 public:
  explicit WrongServer(Message answer) : answer_(std::move(answer)) {}
  void Handle(Message, Reply reply) override {
    Message copy = answer_;
    reply.Send(std::move(copy));
  }

 private:
  Message answer_;
};

TEST(HostileReplayTest, SamplerRejectsMismatchedReplies) {
  // A good one, and what may be wrong with it.
  ReplayWorld world(ServerOptions());
  const auto channel = world.Connect(Role::kTool);
  ASSERT_TRUE(world.Call(channel.get(), GoodInsert()).ok());
  const auto good = world.Call(
      channel.get(), {.type = MessageType::kSample, .body = EncodeBody(SampleBody{0, 4, 1, 4})});
  ASSERT_TRUE(good.ok());
  const auto reply = [&good](auto change) {
    SampleReplyBody body = *DecodeBody<SampleReplyBody>(good->body);
    Message message{.type = MessageType::kSampleReply, .parts = good->parts};
    change(&body, &message);
    message.body = EncodeBody(body);
    return message;
  };
  for (const Message& answer :
       {reply([](auto*b, auto*) { b->batch_size = 5; }),
        reply([](auto*b, auto*) { b->batch_size = 0; }),
        reply([](auto*b, auto*) { b->batches = 2; }), reply([](auto*b, auto*) { b->charged = 5; }),
        reply([](auto*b, auto*) { b->total = std::nan(""); }),
        reply([](auto*b, auto*) { b->rows = {5}; }), reply([](auto*b, auto*) { b->rows = {3}; }),
        reply([](auto*b, auto*) { b->rows = {}; }), reply([](auto*b, auto*) {
          b->rows = {2, 2};
        }),
        reply([](auto*, auto*m) { m->parts = {}; }),
        reply([](auto*, auto*m) { m->parts.push_back(m->parts[0]); }),
        reply([](auto*, auto*m) { m->parts[0] = m->parts[0].Slice(0, m->parts[0].size() - 8); }),
        Message{.type = MessageType::kSampleReply, .body = "?"},
        Message{.type = MessageType::kInsertReply}}) {
    WrongServer server(answer);
    const auto hub = MakeSimHub();
    const auto there = hub->MakeNetwork(), here = hub->MakeNetwork();
    const auto listener = *there->Listen("inproc://replay", &server);
    const auto sampler = MakeReplaySampler(
        *here->Connect("inproc://replay", {.origin = {.role = Role::kLearner, .incarnation = 1}}),
        SmallSpec(), {.batch_size = 4});
    Time now{Seconds(1)};
    for (int i = 0; i < 10; ++i) {
      sampler->Poll(now);
      here->Pump(now);
      there->Pump(now);
    }
    EXPECT_FALSE(sampler->Next().ok());
  }
}

}  // namespace
}  // namespace troop
