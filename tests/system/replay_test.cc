// Replays of several shards, on disk, and by themselves.

#include "core/tensor/tensor.h"
#include "net/network.h"
#include "replay/service/client.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class ReplaySystemTest : public SystemTest {};

TEST_F(ReplaySystemTest, KilledShardRestoresItemsAndRunTakesExactSteps) {
  const auto troop =
      TrainLong({"replay.shards=2", "replay.persist=true", "replay.durability=disk"});
  ASSERT_TRUE(AwaitSteps(3000)) << troop->output();
  const pid_t process = AwaitRole("replay");
  SendSignal(process, SIGKILL);
  EXPECT_TRUE(Await([&] {
    const auto found = RoleProcesses(Coordinator(), "replay");
    return found.size() == 2 && std::ranges::find(found, process) == found.end();
  })) << LauncherLog();
  ExpectDone(troop.get(), kLongSteps);
  const std::string logs =
      FileText(run() + "/logs/replay-0.log") + FileText(run() + "/logs/replay-1.log");
  EXPECT_NE(logs.find("restored"), std::string::npos) << logs;
}

TEST_F(ReplaySystemTest, ResumedRunRestoresReplay) {
  const std::vector<std::string> keys = {"replay.persist=true",
                                         "run.total_steps=" + std::to_string(kLongSteps)};
  const auto troop = Train(keys);
  ASSERT_TRUE(AwaitSteps(3000) && AwaitCheckpoint()) << troop->output();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  const auto again = Start({"resume", run()});
  ExpectDone(again.get(), kLongSteps);
  const std::string log = FileText(run() + "/logs/replay-0.log");
  EXPECT_NE(log.find("after a clean shutdown"), std::string::npos) << log;
}

// A client of the wire protocol, with its own stream.
class Client {
 public:
  explicit Client(const std::string& endpoint, std::uint64_t incarnation)
      : network_(*MakeZmqNetwork()) {
    const TrajectorySpec spec{{DType::kF32, {2}}, {DType::kI32, {}}};
    const auto connect = [&](Role role) {
      return *network_->Connect(endpoint, {.origin = {.role = role, .incarnation = incarnation}});
    };
    writer_ = MakeReplayWriter(connect(Role::kActor), spec, {});
    sampler_ = MakeReplaySampler(connect(Role::kLearner), spec,
                                 {.batch_size = 16, .prefetch = 1, .view = {.length_max = 1}});
  }
  bool Turn() {
    const Time now = clock_.Now();
    writer_->Poll(now);
    sampler_->Poll(now);
    network_->Pump(now);
    return true;
  }
  // Frames [0, frames) of stream 1, an item at each but the last.
  void Insert(std::uint32_t frames) {
    MutableBuffer observation = MutableBuffer::Zeros(frames * 8), four(frames * 4);
    std::ranges::fill(four.as<float>(), 1.0f);
    const Buffer column = std::move(four).Freeze();
    std::vector<Item> items;
    for (std::uint64_t t = 0; t + 1 < frames; ++t) {
      items.push_back({.stream = 1, .first_frame = t, .length = 1, .priority = 1});
    }
    ASSERT_TRUE(writer_
                    ->Push({{1, 0, frames, std::move(observation).Freeze(),
                             MutableBuffer::Zeros(frames * 4).Freeze(), column, column,
                             MutableBuffer::Zeros(frames).Freeze()}},
                           items)
                    .ok());
    EXPECT_TRUE(Await([&] { return Turn() && writer_->unacked_pushes() == 0; }));
  }
  bool Draws() {
    return Await([&] {
      Turn();
      const auto batch = sampler_->Next();
      return batch.ok() && batch->has_value() && (*batch)->size() == 16;
    });
  }

 private:
  SystemClock clock_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ReplayWriter> writer_;
  std::unique_ptr<ReplaySampler> sampler_;
};

TEST_F(ReplaySystemTest, StandaloneReplayRestoresAfterKill) {
  const std::string config = folder() + "/alone.toml";
  std::ofstream(config) << "[replay]\nlisten = \"ipc://" << folder() << "/replay.sock\"\ndir = \""
                        << folder()
                        << "/kept\"\npersist = true\ndurability = \"disk\"\n[[replay.tables]]\n"
                           "name = \"main\"\nobservation = \"f32[2]\"\n";
  const std::string endpoint = "ipc://" + folder() + "/replay.sock";
  for (int life = 1; life <= 3; ++life) {
    Troop replay({"replay", config}, folder());
    ASSERT_TRUE(Await([&] { return replay.output().find("serving main") != std::string::npos; }))
        << replay.output();
    if (life > 1) {
      EXPECT_NE(replay.output().find("items 50"), std::string::npos) << replay.output();
    }
    Client client(endpoint, std::uint64_t(life));
    if (life == 1) client.Insert(51);
    EXPECT_TRUE(client.Draws());
    replay.Signal(life == 1 ? SIGKILL : SIGTERM);
    EXPECT_EQ(replay.Wait(), life == 1 ? 128 + SIGKILL : 0) << replay.output();
  }
}

TEST_F(ReplaySystemTest, StandaloneReplayReportsConfigErrors) {
  const std::string config = folder() + "/alone.toml";
  std::ofstream(config) << "[[replay.tables]]\nname = \"main\"\nobservation = \"f33[2]\"\n";
  Troop replay({"replay", config}, folder());
  EXPECT_EQ(replay.Wait(), 2);
  EXPECT_NE(replay.output().find("\"f33[2]\" is not a tensor type"), std::string::npos)
      << replay.output();
}

TEST_F(ReplaySystemTest, StandaloneReplayRejectsSizeBeyondMemory) {
  const std::string config = folder() + "/alone.toml";
  std::ofstream(config) << "[replay]\nmemory_bytes_max = 1000000\n[[replay.tables]]\n"
                           "name = \"main\"\nobservation = \"f32[64]\"\n";
  Troop replay({"replay", config}, folder());
  EXPECT_EQ(replay.Wait(), 2);
  EXPECT_NE(replay.output().find("(replay.memory_bytes_max)"), std::string::npos)
      << replay.output();
}

}  // namespace
}  // namespace troop
