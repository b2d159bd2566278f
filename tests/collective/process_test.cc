// Tests that need real processes: killed ranks, hangs, and leftover resources.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/collective/rank_process.h"

namespace troop {
namespace {

struct Way {
  const char* name;
  GroupOptions::Path path;
  std::vector<std::string> hosts;
};
const Way kWays[] = {{"Tcp", GroupOptions::Path::kTcp, {}},
                     {"Shm", GroupOptions::Path::kShm, {}},
                     {"TwoHosts", GroupOptions::Path::kAuto, {"a", "b", "b", "a"}}};

class ProcessTest : public testing::TestWithParam<Way> {
 protected:
  void Join(const std::vector<RankProcess*>& ranks, std::uint64_t epoch, int timeout_ms) {
    std::vector<std::string> hosts = GetParam().hosts;
    hosts.resize(std::min(hosts.size(), ranks.size()));
    JoinProcesses(ranks, {.epoch = epoch, .path = GetParam().path, .timeout_ms = timeout_ms},
                  hosts);
  }
  // Until each has had a round.
  static void Begin(const std::vector<RankProcess*>& ranks, std::int64_t elements) {
    for (RankProcess* rank : ranks) rank->Order({.what = RankOrder::kRun, .elements = elements});
    for (RankProcess* rank : ranks) {
      const auto report = rank->Report();
      ASSERT_TRUE(report && report->rounds == 1) << (report ? report->text : "no answer");
    }
  }
  static std::vector<RankProcess*> All(std::vector<std::unique_ptr<RankProcess>>& ranks) {
    std::vector<RankProcess*> all;
    for (const auto& rank : ranks) all.push_back(rank.get());
    return all;
  }
  static std::vector<std::unique_ptr<RankProcess>> Fork(int count) {
    std::vector<std::unique_ptr<RankProcess>> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(std::make_unique<RankProcess>());
    return ranks;
  }
};

TEST_P(ProcessTest, SurvivorsReportKilledRankAndContinueWithoutIt) {
  for (const std::int64_t elements : {std::int64_t{256}, std::int64_t{1'000'000}}) {
    auto ranks = Fork(4);
    ASSERT_NO_FATAL_FAILURE(Join(All(ranks), 1, 20'000));
    ASSERT_NO_FATAL_FAILURE(Begin(All(ranks), elements));
    ranks[2]->Kill();
    ranks.erase(ranks.begin() + 2);
    for (const auto& rank : ranks) {
      const auto report = rank->Report();
      ASSERT_TRUE(report);
      EXPECT_EQ(Code(report->code), Code::kUnavailable) << report->text;
      EXPECT_EQ(report->suspect, 2) << report->text;
    }
    ASSERT_NO_FATAL_FAILURE(Join(All(ranks), 2, 20'000));
    ASSERT_NO_FATAL_FAILURE(Begin(All(ranks), elements));
  }
}

TEST_P(ProcessTest, ReportsStoppedRankOnAllRanksAtDeadline) {
  auto ranks = Fork(4);
  ASSERT_NO_FATAL_FAILURE(Join(All(ranks), 1, 300));
  ASSERT_NO_FATAL_FAILURE(Begin(All(ranks), 100'000));
  ranks[1]->Signal(SIGSTOP);
  for (const int r : {0, 2, 3}) {
    const auto report = ranks[std::size_t(r)]->Report();
    ASSERT_TRUE(report);
    EXPECT_EQ(Code(report->code), Code::kDeadlineExceeded) << report->text;
  }
  ranks[1]->Signal(SIGCONT);
  const auto report = ranks[1]->Report();
  ASSERT_TRUE(report);
  EXPECT_NE(Code(report->code), Code::kOk);
}

// Unnamed shared memory is freed with the last process that maps it, however that process ends.
TEST_P(ProcessTest, UsesUnnamedSharedMemory) {
  auto ranks = Fork(3);
  ASSERT_NO_FATAL_FAILURE(Join(All(ranks), 1, 20'000));
  for (const auto& rank : ranks) {
    std::ifstream maps("/proc/" + std::to_string(rank->pid()) + "/maps");
    std::string line;
    while (std::getline(maps, line)) {
      if (line.find("rw-s") == std::string::npos) continue;
      EXPECT_NE(line.find("/memfd:troop_collective (deleted)"), std::string::npos) << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, ProcessTest, testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troop
