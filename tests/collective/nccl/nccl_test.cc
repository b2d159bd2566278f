#include "collective/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/collective/nccl_ranks.h"
#include "tests/collective/rank_process.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Joins all ranks and returns each rank's group or error; options by rank.
std::vector<Result<std::unique_ptr<Collective>>> MakeAll(
    int size, const std::function<NcclOptions(int)>& options) {
  Ranks hosts = MakeSocketRanks(size, {});
  std::vector<Result<std::unique_ptr<Collective>>> made;
  for (int rank = 0; rank < size; ++rank) made.emplace_back(Internal("not asked"));
  RunRanks(size, [&](int rank) {
    made[std::size_t(rank)] = MakeNcclGroup(std::move(hosts[std::size_t(rank)]), options(rank));
  });
  return made;
}

Ranks MakeRanksOf(int size, const NcclOptions& options = SimulatedNccl()) {
  Ranks ranks;
  for (auto& made : MakeAll(size, [&](int) { return options; })) {
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    ranks.push_back(std::move(*made));
  }
  return ranks;
}

// One all-reduce of ones on each rank: what it ended with.
std::vector<Status> ReduceOnes(Ranks& ranks, Duration timeout = Seconds(20)) {
  std::vector<Status> ended(ranks.size());
  RunRanks(int(ranks.size()), [&](int rank) {
    const DeviceStream stream;
    Collective& group = *ranks[std::size_t(rank)];
    const Tensor x(DType::kF32, {1000}), sum(DType::kF32, {1000});
    std::ranges::fill(x.as<float>(), 1.0f);
    const auto work =
        group.Start({.kind = OpKind::kAllReduce, .timeout = timeout}, x, sum, stream.get());
    Status& status = ended[std::size_t(rank)];
    status = work.ok() ? group.Wait(*work) : work.status();
    if (!status.ok()) return;
    for (const float v : sum.as<float>()) ASSERT_EQ(v, float(ranks.size()));
  });
  return ended;
}

TEST(NcclTest, MissingLibraryOnOneRankFailsAllRanksAlike) {
  const auto made = MakeAll(3, [](int rank) {
    NcclOptions options = SimulatedNccl();
    if (rank == 1) options.library = "libnccl_that_is_not_there.so.2";
    return options;
  });
  for (const auto& group : made) {
    EXPECT_EQ(group.status().code(), Code::kUnavailable);
    EXPECT_THAT(group.status().message(), HasSubstr("rank 1"));
    EXPECT_THAT(group.status().message(), HasSubstr("libnccl_that_is_not_there.so.2"));
  }
}

TEST(NcclTest, NamesWrongLibraryOldVersionOrMissingDevice) {
  NcclOptions options = SimulatedNccl();
  options.driver = "libm.so.6";
  for (const auto& group : MakeAll(2, [&](int) { return options; })) {
    EXPECT_THAT(group.status().message(), HasSubstr("libm.so.6 has no cuInit"));
  }
  const SimOrder old("version", 21300, 22105);
  for (const auto& group : MakeAll(2, [](int) { return SimulatedNccl(); })) {
    EXPECT_EQ(group.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(group.status().message(), HasSubstr("NCCL 2.13.0; 2.14.0 or newer"));
  }
  const SimOrder good("version", 22105, 22105);
  const auto made = MakeAll(2, [](int rank) {
    NcclOptions absent = SimulatedNccl();
    absent.device = rank;
    return absent;
  });
  for (const auto& group : made) {
    EXPECT_EQ(group.status().code(), Code::kUnavailable);
    EXPECT_THAT(group.status().message(), HasSubstr("rank 1: there is no device 1"));
  }
}

TEST(NcclTest, WaitsForSlowConnectionAndTimesOutHungOne) {
  {
    const SimOrder slow("connect_delay_ms", 50);
    Ranks ranks = MakeRanksOf(3);
    for (const Status& status : ReduceOnes(ranks)) EXPECT_TRUE(status.ok()) << status.ToString();
  }
  const SimOrder hangs("connect_hangs", 1);
  NcclOptions options = SimulatedNccl();
  options.connect_timeout = Milliseconds(100);
  for (const auto& group : MakeAll(2, [&](int) { return options; })) {
    EXPECT_EQ(group.status().code(), Code::kDeadlineExceeded) << group.status().ToString();
  }
}

TEST(NcclTest, ReportsNcclErrorOnAllRanksAndAllowsNewGroup) {
  Ranks ranks = MakeRanksOf(3);
  {
    const SimOrder error("error", kNcclRemoteError);  // of whichever rank launches first
    for (const Status& status : ReduceOnes(ranks)) {
      EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("remote process exited"));
    }
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->status().code(), Code::kUnavailable);
    EXPECT_FALSE(rank->Start({.kind = OpKind::kBarrier}, {}, {}).ok());
  }
  ranks.clear();
  Ranks next = MakeRanksOf(3);
  for (const Status& status : ReduceOnes(next)) EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(NcclTest, PollsLaunchInProgress) {
  const SimOrder polls("launch_polls", 20, 1);
  Ranks ranks = MakeRanksOf(2);
  for (int i = 0; i < 5; ++i) {
    for (const Status& status : ReduceOnes(ranks)) EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(NcclTest, EndsOperationAtDeadline) {
  Ranks ranks = MakeRanksOf(2);
  const SimOrder slow("operation_delay_ms", 60'000);
  for (const Status& status : ReduceOnes(ranks, Milliseconds(100))) {
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  }
  EXPECT_THAT(ranks[0]->status().message(), HasSubstr("NCCL does not respond"));
}

// The thread that hangs in NCCL ends by itself, later.
TEST(NcclTest, HungAbortDoesNotBlock) {
  NcclOptions options = SimulatedNccl();
  options.abort_within = Milliseconds(50);
  const SimOrder hangs("abort_delay_ms", 500);
  std::vector<Status> ended;
  const Time begun = SystemClock().Now();
  {
    Ranks ranks = MakeRanksOf(2, options);
    const SimOrder slow("operation_delay_ms", 60'000);
    ended = ReduceOnes(ranks, Milliseconds(50));
  }
  EXPECT_LT(SystemClock().Now() - begun, Seconds(15));
  for (const Status& status : ended) EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  const auto alive = FindInSim<decltype(NcclSimAlive)>("NcclSimAlive");
  while (alive() > 0 && SystemClock().Now() - begun < Seconds(20)) std::this_thread::yield();
  EXPECT_EQ(alive(), 0);
}

// NCCL may still read and write the tensors of an operation that was given up: they are freed when
// its communicator has ended, whether the group is destroyed first or the wait for it ends first.
TEST(NcclTest, KeepsTensorsOfOpenOperationUntilNcclEnds) {
  const auto alive = FindInSim<decltype(NcclSimAlive)>("NcclSimAlive");
  ASSERT_EQ(alive(), 0);
  for (const bool waits : {false, true}) {
    NcclOptions options = SimulatedNccl();
    if (waits) options.abort_within = Milliseconds(50);
    const SimOrder slow("operation_delay_ms", 60'000);
    const SimOrder hangs("abort_delay_ms", 200);
    const DeviceStream stream;
    std::vector<float> memory(1);
    std::atomic<int> alive_when_freed = -1;
    Ranks ranks = MakeRanksOf(1, options);
    {
      const auto free = [&](std::byte*) { alive_when_freed = alive(); };
      auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
      const auto x = Tensor::View(std::shared_ptr<std::byte>(bytes, free), {bytes, sizeof(float)},
                                  {DType::kF32, {1}});
      const auto work = ranks[0]->Start({.kind = OpKind::kAllReduce, .timeout = Milliseconds(20)},
                                        x, x, stream.get());
      ASSERT_TRUE(work.ok()) << work.status().ToString();
      if (waits) {
        EXPECT_EQ(ranks[0]->Wait(*work).code(), Code::kDeadlineExceeded);
      }
    }
    EXPECT_EQ(alive_when_freed, -1);
    ranks.clear();
    const Time begun = SystemClock().Now();
    while (alive_when_freed < 0 && SystemClock().Now() - begun < Seconds(20)) {
      std::this_thread::sleep_for(Milliseconds(1));
    }
    EXPECT_EQ(alive_when_freed, 0);
  }
}

TEST(NcclTest, RejectsHostTensorsWithoutStarting) {
  Ranks ranks = MakeRanksOf(2);
  const Tensor x(DType::kF32, {3});
  const auto refused = ranks[0]->Start({.kind = OpKind::kAllReduce}, x, x);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("stream"));
  for (const Status& status : ReduceOnes(ranks)) EXPECT_TRUE(status.ok()) << status.ToString();
}

// An operation starts after the work that is already queued on its stream.
TEST(NcclTest, OperationWaitsForItsStream) {
  Ranks ranks = MakeRanksOf(2);
  RunRanks(2, [&](int rank) {
    const DeviceStream stream;
    const Tensor x(DType::kF32, {1});
    const auto fill = [](void* to) {
      std::this_thread::sleep_for(Milliseconds(30));
      *static_cast<float*>(to) = 7;
    };
    FindInSim<decltype(NcclSimCall)>("NcclSimCall")(stream.get().handle, fill, x.data<float>());
    Collective& group = *ranks[std::size_t(rank)];
    const auto work = group.Start({.kind = OpKind::kAllReduce}, x, x, stream.get());
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE(group.Wait(*work).ok());
    EXPECT_EQ(x.data<float>()[0], 14);
  });
}

// Later work on the stream runs after the operation, even if no rank waited for it.
TEST(NcclTest, StreamWaitsForOperation) {
  Ranks ranks = MakeRanksOf(2);
  RunRanks(2, [&](int rank) {
    const DeviceStream stream;
    const Tensor x(DType::kF32, {1});
    float seen[2] = {};
    const auto call = FindInSim<decltype(NcclSimCall)>("NcclSimCall");
    struct Copy {
      const float* from;
      float* to;
    } copies[2] = {{x.data<float>(), &seen[0]}, {x.data<float>(), &seen[1]}};
    const auto copy = [](void* which) {
      const auto* c = static_cast<const Copy*>(which);
      *c->to = *c->from;
    };
    Collective& group = *ranks[std::size_t(rank)];
    x.data<float>()[0] = 1;
    std::vector<Work> works;
    for (Copy& one : copies) {
      if (rank == 1) std::this_thread::sleep_for(Milliseconds(30));
      const auto work = group.Start({.kind = OpKind::kAllReduce}, x, x, stream.get());
      ASSERT_TRUE(work.ok());
      ASSERT_TRUE(group.EnqueueWait(*work, stream.get()).ok());
      call(stream.get().handle, copy, &one);
      works.push_back(*work);
    }
    for (const Work work : works) EXPECT_TRUE(group.Wait(work).ok());
    // Waits for what the stream has been given.
    const Tensor last(DType::kF32, {1});
    const auto end = group.Start({.kind = OpKind::kAllReduce}, last, last, stream.get());
    ASSERT_TRUE(end.ok());
    EXPECT_TRUE(group.Wait(*end).ok());
    EXPECT_EQ(seen[0], 2);
    EXPECT_EQ(seen[1], 4);
  });
}

// An aborted operation also ends the wait of the stream that follows it.
TEST(NcclTest, AbortEndsWaitOfFollowingStream) {
  Ranks ranks = MakeRanksOf(2);
  RunRanks(2, [&](int rank) {
    const DeviceStream stream;
    Collective& group = *ranks[std::size_t(rank)];
    if (rank == 1) return group.Abort(Unavailable("it has left"));
    const Tensor x(DType::kF32, {1});
    Status status;
    const auto work = group.Start({.kind = OpKind::kAllReduce}, x, x, stream.get());
    status = work.status();
    if (work.ok()) status = group.EnqueueWait(*work, stream.get());
    if (work.ok() && status.ok()) status = group.Wait(*work);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
  });
}

// The host group may detect the abort first, between two operations.
TEST(NcclTest, StartOnEndedGroupNamesRankThatEndedIt) {
  Ranks hosts = MakeSocketRanks(2, {});
  Collective* const host = hosts[0].get();
  Ranks ranks(2);
  RunRanks(2, [&](int rank) {
    auto made = MakeNcclGroup(std::move(hosts[std::size_t(rank)]), SimulatedNccl());
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    ranks[std::size_t(rank)] = std::move(*made);
  });
  ranks[1]->Abort(Unavailable("it has left"));
  const Time begun = SystemClock().Now();
  while (host->Progress().ok() && SystemClock().Now() - begun < Seconds(20))
    std::this_thread::yield();
  ASSERT_TRUE(ranks[0]->status().ok()) << "the group must not have polled yet";
  const auto work = ranks[0]->Start({.kind = OpKind::kBarrier}, {}, {});
  EXPECT_EQ(work.status().code(), Code::kUnavailable) << work.status().ToString();
  EXPECT_THAT(work.status().message(), HasSubstr("rank 1 ended the group"));
  EXPECT_EQ(ranks[0]->suspect(), 1);
}

// A group of hosts has no streams that could follow.
TEST(NcclTest, RejectsStreamsInHostGroup) {
  Ranks ranks = MakeSocketRanks(1, {});
  EXPECT_EQ(ranks[0]->EnqueueWait(0, {}).code(), Code::kFailedPrecondition);
}

TEST(NcclProcessTest, SurvivorsReportKilledRankAndContinueWithoutIt) {
  RankProcess::wrap = &MakeDeviceRank;
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int i = 0; i < 3; ++i) ranks.push_back(std::make_unique<RankProcess>());
  RankProcess::wrap = nullptr;
  const auto all = [&] {
    std::vector<RankProcess*> all;
    for (const auto& rank : ranks) all.push_back(rank.get());
    return all;
  };
  const auto begin = [&] {
    for (const auto& rank : ranks) rank->Order({.what = RankOrder::kRun, .elements = 100'000});
    for (const auto& rank : ranks) {
      const auto report = rank->Report();
      ASSERT_TRUE(report && report->rounds == 1) << (report ? report->text : "no answer");
    }
  };
  ASSERT_NO_FATAL_FAILURE(JoinProcesses(all(), {.epoch = 1, .timeout_ms = 20'000}, {}));
  ASSERT_NO_FATAL_FAILURE(begin());
  ranks[1]->Kill();
  ranks.erase(ranks.begin() + 1);
  for (const auto& rank : ranks) {
    const auto report = rank->Report();
    ASSERT_TRUE(report);
    EXPECT_EQ(Code(report->code), Code::kUnavailable) << report->text;
    EXPECT_EQ(report->suspect, 1) << report->text;
  }
  ASSERT_NO_FATAL_FAILURE(JoinProcesses(all(), {.epoch = 2, .timeout_ms = 20'000}, {}));
  ASSERT_NO_FATAL_FAILURE(begin());
}

}  // namespace
}  // namespace troop
