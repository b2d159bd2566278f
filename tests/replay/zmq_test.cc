#include <gtest/gtest.h>

#include <unistd.h>

#include "tests/replay/replay_world.h"

namespace troop {
namespace {

class ReplayOverZmqTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(EachTransport, ReplayOverZmqTest, testing::Values("inproc", "ipc", "tcp"),
                         [](const auto& info) { return info.param; });

std::string EndpointOf(const std::string& transport) {
  if (transport == "inproc") return "inproc://replay";
  if (transport == "tcp") return "tcp://127.0.0.1:0";
  return "ipc://" + testing::TempDir() + "replay_zmq_test_" + std::to_string(getpid());
}

// Frames of 8 KiB: a chunk of 64 is large enough to travel without copies.
TrajectorySpec LargeSpec() {
  return {.observation = {DType::kU8, {8192}}, .action = {DType::kI32, {}}};
}

Chunk LargeChunk(std::uint64_t first, std::uint32_t frames) {
  Chunk chunk = MakeChunk(1, first, frames);
  MutableBuffer observation(frames * 8192);
  for (std::uint32_t i = 0; i < frames; ++i) {
    std::fill_n(observation.data() + i * 8192, 8192, std::byte(first + i));
  }
  chunk.observation = std::move(observation).Freeze();
  return chunk;
}

TEST_P(ReplayOverZmqTest, RunsPushSampleUpdateLoop) {
  auto server = MakeReplayServer(
      {.tables = {{.table = {.trajectory = LargeSpec(), .capacity_items = 1000, .min_items = 50},
                   .samples_per_insert = 4}}});
  ASSERT_TRUE(server.ok());
  const auto there = *MakeZmqNetwork(), here = *MakeZmqNetwork();
  const auto listener = there->Listen(EndpointOf(GetParam()), server->get());
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  const std::string endpoint = (*listener)->endpoint();
  const auto connect = [&](Role role) {
    return *here->Connect(endpoint, {.origin = {.role = role, .incarnation = 1}});
  };
  const auto writer = MakeReplayWriter(connect(Role::kActor), LargeSpec(), {});
  const auto sampler = MakeReplaySampler(connect(Role::kLearner), LargeSpec(), {.batch_size = 32});
  const SystemClock clock;
  const Time deadline = clock.Now() + Seconds(100);
  std::uint64_t frame = 0;
  int batches = 0;
  while (batches < 20 && clock.Now() < deadline) {
    const Time now = clock.Now();
    (*server)->Tick(now);
    writer->Poll(now);
    sampler->Poll(now);
    if (writer->CanPush()) {
      ASSERT_TRUE(writer->Push({LargeChunk(frame, 64)}, MakeItems(1, frame, 61, 1, 3)).ok());
      frame += 64;
    }
    const auto batch = sampler->Next();
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    if (batch->has_value()) {
      ++batches;
      for (std::size_t i = 0; i < 32; ++i) {
        const auto pixel = std::uint8_t((*batch)->policy_version[i]);
        ASSERT_EQ((*batch)->observation.as<std::uint8_t>()[i * 8192 + 8191], pixel);
        ASSERT_EQ((*batch)->next_observation.as<std::uint8_t>()[i * 8192], std::uint8_t(pixel + 3));
      }
      sampler->UpdatePriorities((*batch)->key, std::vector<float>(32, 0.5f));
    }
    here->Pump(now);
    there->Pump(now);
  }
  EXPECT_EQ(batches, 20);
  EXPECT_TRUE(writer->error().ok()) << writer->error().ToString();
  Metrics metrics;
  (*server)->Report(&metrics);
  EXPECT_GE(metrics.Get("replay/updates"), 32 * 15);
}

}  // namespace
}  // namespace troop
