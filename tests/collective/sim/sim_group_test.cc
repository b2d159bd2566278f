#include "collective/sim/sim_group.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/collective/ranks.h"

namespace troop {
namespace {

constexpr SimGroupOptions kLate{.size = 4,
                                .seed = 5,
                                .delay_min = Milliseconds(1),
                                .delay_max = Milliseconds(9),
                                .piece_bytes_max = 30'000};

Ranks RanksOf(SimGroup& group, int size) {
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(group.Rank(rank));
  return ranks;
}

// Polls all ranks in turn until each has ended, one millisecond a round; what they ended with.
std::vector<Status> PollAll(SimGroup& group, Ranks& ranks, const std::vector<Work>& works) {
  std::vector<std::optional<Status>> ended(works.size());
  for (int round = 0; round < 100'000; ++round) {
    bool all = true;
    for (std::size_t r = 0; r < works.size(); ++r) {
      if (works[r] != 0 && !ended[r]) ended[r] = ranks[r]->Poll(works[r]);
      all &= works[r] == 0 || ended[r].has_value();
    }
    if (all) break;
    group.Advance(Milliseconds(1));
  }
  std::vector<Status> statuses;
  for (const auto& status : ended) {
    statuses.push_back(status.value_or(Internal("it has not ended, or was not asked")));
  }
  return statuses;
}

struct Outcome {
  std::string bytes;
  Time end{};
  bool operator==(const Outcome&) const = default;
};

Outcome PlayOnce(std::uint64_t seed) {
  SimGroupOptions options = kLate;
  options.seed = seed;
  SimGroup group(options);
  Ranks ranks = RanksOf(group, 4);
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r) {
    tensors.push_back(Tensor(DType::kF32, {50'000}));
    for (std::int64_t i = 0; i < 50'000; ++i) tensors.back().data<float>()[i] = 0.1f * float(r + i);
    works.push_back(*ranks[std::size_t(r)]->Start({.kind = OpKind::kAllReduce}, tensors.back(),
                                                  tensors.back()));
  }
  for (const Status& status : PollAll(group, ranks, works)) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  const auto bytes = tensors[0].bytes();
  return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), group.Now()};
}

TEST(SimGroupTest, SameSeedGivesSameBytesAndTimes) {
  const Outcome first = PlayOnce(5), other_seed = PlayOnce(6);
  EXPECT_TRUE(first == PlayOnce(5));
  EXPECT_NE(first.end, other_seed.end);
  EXPECT_TRUE(first.bytes == other_seed.bytes) << "the sum depends on delays";
}

TEST(SimGroupTest, ReportsRankKilledAtAnyTimeOnAllOthers) {
  for (int polls = 0; polls < 3; ++polls) {
    SimGroup group(kLate);
    Ranks ranks = RanksOf(group, 4);
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int r = 0; r < 4; ++r) {
      tensors.push_back(Tensor(DType::kF32, {100'000}));
      works.push_back(*ranks[std::size_t(r)]->Start({.kind = OpKind::kAllReduce}, tensors.back(),
                                                    tensors.back()));
    }
    for (int i = 0; i < polls; ++i) {
      for (int r = 0; r < 4; ++r) ASSERT_FALSE(ranks[std::size_t(r)]->Poll(works[std::size_t(r)]));
    }
    group.Kill(1);
    const std::vector<Status> statuses = PollAll(group, ranks, works);
    for (const int r : {0, 2, 3}) {
      EXPECT_EQ(statuses[std::size_t(r)].code(), Code::kUnavailable)
          << statuses[std::size_t(r)].ToString();
      EXPECT_EQ(ranks[std::size_t(r)]->suspect(), 1);
    }
    EXPECT_EQ(statuses[1].code(), Code::kCancelled);
  }
}

TEST(SimGroupTest, ReportsCutLinkOnAllRanksAtDeadline) {
  SimGroup group(kLate);
  Ranks ranks = RanksOf(group, 4);
  group.Cut(1, 2);
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int r = 0; r < 4; ++r) {
    tensors.push_back(Tensor(DType::kF32, {100'000}));
    works.push_back(*ranks[std::size_t(r)]->Start(
        {.kind = OpKind::kAllReduce, .timeout = Seconds(5)}, tensors.back(), tensors.back()));
  }
  for (const Status& status : PollAll(group, ranks, works)) {
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  }
  EXPECT_GE(group.Now(), Time(Seconds(5)));
}

}  // namespace
}  // namespace troop
