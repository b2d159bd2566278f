// The bytes of the control messages: the order and width of their fields is the wire format.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>

#include "core/storage/crc32c.h"
#include "net/control/heartbeat_request.h"
#include "net/control/join_request.h"
#include "net/control/register_request.h"
#include "net/control/scale_request.h"
#include "net/control/status_reply.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Size and checksum of an encoded body.
using BodyDigest = std::pair<std::size_t, std::uint32_t>;
template <class Body>
BodyDigest DigestOf(const Body& body) {
  const std::string bytes = EncodeBody(body);
  return {bytes.size(), Crc32c(std::as_bytes(std::span(bytes)))};
}

// A change of these values is a change of the wire format: members of other versions would
// misread each other.
TEST(ControlBytesTest, RegistrationKeepsItsLayout) {
  EXPECT_EQ(DigestOf(RegisterRequest{Role::kActor, 3, "1.2.3", 4242, "host", "10.0.0.1"}),
            BodyDigest(42, 1179701430u));
  const EnvSpecBody env{"CartPole-v1", "f32[4]", 0.5f, 2, {-1.5f}, {2.5f}, true, 500, "code"};
  EXPECT_EQ(DigestOf(env), BodyDigest(74, 2220554652u));
  EXPECT_EQ(DigestOf(RegisterReply{9, 3, "config", "tcp://h:1", "c/1", env, "secret", "data"}),
            BodyDigest(134, 611068230u));
}

// Every member of a specification survives the message.
TEST(ControlBytesTest, EnvSpecArrivesUnchanged) {
  EnvSpec spec{.id = "Game",
               .observation = {DType::kU8, {12 + 3 + 2}},
               .action = {.count = 3},
               .max_episode_steps = 9,
               .code = "code"};
  spec.parts = {{.name = "image", .shape = {2, 2, 3}, .scale = 0.25F},
                {.name = "mask", .shape = {3}, .action_mask = true},
                {.name = "numbers", .shape = {2}}};
  EnvSpecBody body = ToBody(spec);
  const Result<EnvSpec> same = FromBody(body);
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ(*same, spec);
  EnvSpec dials{.id = "Dials", .observation = {DType::kF32, {3}}};
  dials.action = {
      .kind = ActionSpec::Kind::kContinuous, .low = {0, 0}, .high = {3, 4}, .integers = true};
  EXPECT_EQ(*FromBody(ToBody(dials)), dials);
  body.parts[0].shape = "u8[2, 2, 4]";
  EXPECT_EQ(FromBody(body).status().code(), Code::kInvalidArgument);
  body.parts[0].shape = "u8[1099511627776, 1099511627776]";
  EXPECT_EQ(FromBody(body).status().code(), Code::kInvalidArgument);
}

TEST(ControlBytesTest, HeartbeatKeepsItsLayout) {
  const EvaluationReport evaluation{7,
                                    100,
                                    10,
                                    1.5,
                                    0.25,
                                    -1,
                                    3,
                                    42,
                                    true,
                                    0.125,
                                    {{"f1_macro", 0.5, 0.25, 0.75}},
                                    {{1, 2, 3, 4, 5, 6}},
                                    {7}};
  EXPECT_EQ(DigestOf(evaluation), BodyDigest(177, 777231387u));
  HeartbeatRequest request{.endpoint = "tcp://h:2",
                           .steps_done = 11,
                           .steps_wanted = 12,
                           .finished = true,
                           .checkpoint = "c/2",
                           .checkpoint_updates = 13,
                           .evaluations = {evaluation},
                           .shard_term = 14,
                           .shard_move = 15,
                           .fleet_epoch = 16,
                           .blocked = "full disk",
                           .ended = "stopped"};
  request.metrics["actor/steps"].value = 17;
  EXPECT_EQ(DigestOf(request), BodyDigest(303, 2848113535u));
  const HeartbeatReply reply{.phase = Phase::kDraining,
                             .stop = true,
                             .steps_granted = 21,
                             .steps_total_done = 22,
                             .peers = {{"replay-0", {"tcp://h:3", 23}}},
                             .shards = {{1, 2, 3, 4, 5, 6, 7}},
                             .shard_epochs = {{3, 8}},
                             .shard_move = {9, 4, ShardMoveStage::kPausing},
                             .place = 24,
                             .places = 25,
                             .fleet = {10, 2, 3, 1},
                             .heartbeat_every_ms = 26,
                             .issued = {27, 28}};
  EXPECT_EQ(DigestOf(reply), BodyDigest(189, 3058124801u));
}

TEST(ControlBytesTest, MessagesOfToolsKeepTheirLayout) {
  EXPECT_EQ(DigestOf(JoinRequest{Role::kReplay, 2, "1.2.3", "host"}), BodyDigest(22, 2560946775u));
  EXPECT_EQ(DigestOf(JoinReply{"config", 1}), BodyDigest(14, 1033144030u));
  EXPECT_EQ(DigestOf(ScaleRequest{"actors", 4}), BodyDigest(18, 1133859136u));
  EXPECT_EQ(DigestOf(ScaleReply{1, 2, 3, 4, 5, 0.5}), BodyDigest(48, 258139874u));
  EXPECT_EQ(DigestOf(StatusReply{"{}"}), BodyDigest(6, 1421638449u));
}

}  // namespace
}  // namespace troop
