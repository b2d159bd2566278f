#pragma once

// Tests of the contract of every Collective. Instantiate with makers of groups:
//   INSTANTIATE_TEST_SUITE_P(Sim, CollectiveContract, testing::Values(&MakeSimRanks));
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "core/base/philox.h"
#include "kernels/elementwise/cast.h"
#include "tests/collective/ranks.h"

namespace troop {

// Makes a group of `size` ranks, each for its own thread.
using MakeRanks = Ranks (*)(int size);

class CollectiveContract : public testing::TestWithParam<MakeRanks> {
 protected:
  static constexpr int kSizes[] = {1, 2, 3, 4, 5};
  // Zero, one, fewer than the ranks, odd; lengths for the short and the long algorithms.
#ifdef __SANITIZE_THREAD__  // lengths do not matter to it, and it is ten times slower
  static constexpr std::int64_t kElements[] = {0, 3, 1000, 16'411};
#else
  static constexpr std::int64_t kElements[] = {0, 1, 3, 17, 1000, 16'411, 40'003};
#endif

  static std::vector<double> Draw(std::int64_t n, int rank) {
    Rng rng({.run_seed = 7, .index = std::uint64_t(rank)});
    std::vector<double> x(static_cast<std::size_t>(n));
    for (double& v : x) v = double(12 * rng.UniformF32() - 6);
    return x;
  }
  static Tensor ToTensor(const std::vector<double>& x) {
    Tensor t(DType::kF32, {std::int64_t(x.size())});
    for (std::size_t i = 0; i < x.size(); ++i) t.data<float>()[i] = float(x[i]);
    return t;
  }
  static std::vector<double> ToVector(const Tensor& t) {
    return {t.as<float>().begin(), t.as<float>().end()};
  }

  // The expected output of rank r, from the inputs of all ranks: plain loops in f64.
  static std::vector<double> Expected(const Op& op, const std::vector<std::vector<double>>& in,
                                      int rank) {
    const std::size_t ranks = in.size(), n = in[0].size();
    const std::size_t piece = n / ranks;
    std::vector<double> out;
    switch (op.kind) {
      case OpKind::kAllReduce:
      case OpKind::kReduceScatter: {
        const bool all = op.kind == OpKind::kAllReduce;
        const std::size_t begin = all ? 0 : piece * std::size_t(rank);
        const std::size_t end = all ? n : begin + piece;
        for (std::size_t i = begin; i < end; ++i) {
          double value = in[0][i];
          for (std::size_t r = 1; r < ranks; ++r) {
            const double x = in[r][i];
            value = op.reduction == Reduction::kSum   ? value + x
                    : op.reduction == Reduction::kMax ? std::max(value, x)
                                                      : std::min(value, x);
          }
          out.push_back(value);
        }
        break;
      }
      case OpKind::kAllGather:
        for (const auto& x : in) out.insert(out.end(), x.begin(), x.end());
        break;
      case OpKind::kAllToAll:
        for (const auto& x : in) {
          const auto begin = x.begin() + std::ptrdiff_t(piece) * rank;
          out.insert(out.end(), begin, begin + std::ptrdiff_t(piece));
        }
        break;
      case OpKind::kBroadcast:
        out = in[std::size_t(op.peer)];
        break;
      default:
        break;
    }
    return out;
  }

  static std::int64_t InElements(OpKind kind, std::int64_t n, int size) {
    return kind == OpKind::kReduceScatter || kind == OpKind::kAllToAll ? n * size : n;
  }
  static std::int64_t OutElements(OpKind kind, std::int64_t n, int size) {
    return kind == OpKind::kAllGather || kind == OpKind::kAllToAll ? n * size : n;
  }

  // Runs the operation on all ranks, out of place and, if allowed, in place.
  static void Check(Ranks& ranks, const Op& op, std::int64_t n) {
    const int size = int(ranks.size());
    std::vector<std::vector<double>> in;
    for (int r = 0; r < size; ++r) in.push_back(Draw(InElements(op.kind, n, size), r));
    for (const bool in_place : {false, true}) {
      if (in_place && op.kind != OpKind::kAllReduce && op.kind != OpKind::kBroadcast) break;
      std::vector<Tensor> out(static_cast<std::size_t>(size));
      RunRanks(size, [&](int r) {
        const Tensor mine = ToTensor(in[std::size_t(r)]);
        Tensor& result = out[std::size_t(r)];
        result = in_place ? mine : Tensor(DType::kF32, {OutElements(op.kind, n, size)});
        const Status status = RunOp(*ranks[std::size_t(r)], op, mine, result);
        EXPECT_TRUE(status.ok()) << status.ToString();
        EXPECT_TRUE(in_place || ToVector(mine) == in[std::size_t(r)]) << "in has changed";
      });
      for (int r = 0; r < size; ++r) {
        CompareOne(op, Expected(op, in, r), ToVector(out[std::size_t(r)]), size);
        if (op.kind == OpKind::kAllReduce && n > 0) {
          EXPECT_EQ(std::memcmp(out[0].bytes().data(), out[std::size_t(r)].bytes().data(),
                                out[0].bytes().size()),
                    0)
              << "ranks 0 and " << r << " have other bits";
        }
      }
    }
  }

  static void CompareOne(const Op& op, const std::vector<double>& want,
                         const std::vector<double>& got, int size) {
    ASSERT_EQ(got.size(), want.size());
    const bool sums = op.reduction == Reduction::kSum &&
                      (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter);
    // |x| <= 6 for each of `size` values; each addition rounds once in f32.
    const double tolerance = sums ? 6.0 * size * size * 6e-8 : 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance)
          << OpKindName(op.kind) << " of " << want.size() << " on " << size << ", element " << i;
    }
  }
};

TEST_P(CollectiveContract, OperationsMatchPlainLoops) {
  for (const int size : kSizes) {
    Ranks ranks = GetParam()(size);
    for (const std::int64_t n : kElements) {
      Check(ranks, {.kind = OpKind::kAllReduce}, n);
      Check(ranks, {.kind = OpKind::kReduceScatter}, n);
      Check(ranks, {.kind = OpKind::kAllGather}, n);
      Check(ranks, {.kind = OpKind::kAllToAll}, n);
      Check(ranks, {.kind = OpKind::kBroadcast, .peer = size - 1}, n);
      Check(ranks, {.kind = OpKind::kBroadcast, .peer = 0}, n);
    }
    Check(ranks, {.kind = OpKind::kAllReduce, .reduction = Reduction::kMax}, 20'001);
    Check(ranks, {.kind = OpKind::kReduceScatter, .reduction = Reduction::kMin}, 1001);
  }
}

// <F x, y> = <x, F* y>: the adjoint of each linear operation is another operation.
TEST_P(CollectiveContract, LinearOperationsMatchTheirAdjoints) {
  struct Pair {
    OpKind kind, adjoint;
  };
  constexpr Pair kPairs[] = {{OpKind::kAllReduce, OpKind::kAllReduce},
                             {OpKind::kReduceScatter, OpKind::kAllGather},
                             {OpKind::kAllGather, OpKind::kReduceScatter},
                             {OpKind::kAllToAll, OpKind::kAllToAll}};
  constexpr std::int64_t kPiece = 5000;
  for (const int size : {1, 2, 3, 4}) {
    Ranks ranks = GetParam()(size);
    for (const Pair& pair : kPairs) {
      std::vector<double> left(static_cast<std::size_t>(size)), right(left);
      RunRanks(size, [&](int r) {
        const std::int64_t in = InElements(pair.kind, kPiece, size);
        const std::int64_t out = OutElements(pair.kind, kPiece, size);
        const auto draw = [](std::int64_t count, int stream) {
          Tensor t(DType::kF64, {count});
          Rng rng({.run_seed = 3, .index = std::uint64_t(stream)});
          for (double& v : t.as<double>()) v = rng.Normal();
          return t;
        };
        const Tensor x = draw(in, r), y = draw(out, 100 + r);
        const Tensor fx(DType::kF64, {out}), fy(DType::kF64, {in});
        EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = pair.kind}, x, fx).ok());
        EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = pair.adjoint}, y, fy).ok());
        for (std::int64_t i = 0; i < out; ++i) {
          left[std::size_t(r)] += fx.data<double>()[i] * y.data<double>()[i];
        }
        for (std::int64_t i = 0; i < in; ++i) {
          right[std::size_t(r)] += x.data<double>()[i] * fy.data<double>()[i];
        }
      });
      double difference = 0;
      for (int r = 0; r < size; ++r) {
        difference += left[std::size_t(r)] - right[std::size_t(r)];
      }
      EXPECT_NEAR(difference, 0, 1e-9 * size * size) << OpKindName(pair.kind) << " " << size;
    }
    // The adjoint of broadcast is the sum at the root; that of send is the send back.
    double left = 0, right = 0;
    std::mutex mutex;
    RunRanks(size, [&](int r) {
      Tensor x(DType::kF64, {3}), y(DType::kF64, {3}), fx(DType::kF64, {3}), fy(DType::kF64, {3});
      Rng rng({.run_seed = 4, .index = std::uint64_t(r)});
      for (double& v : x.as<double>()) v = rng.Normal();
      for (double& v : y.as<double>()) v = rng.Normal();
      const Op broadcast{.kind = OpKind::kBroadcast, .peer = size - 1};
      EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], broadcast, x, fx).ok());
      EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = OpKind::kAllReduce}, y, fy).ok());
      const std::lock_guard lock(mutex);
      for (int i = 0; i < 3; ++i) {
        left += fx.data<double>()[i] * y.data<double>()[i];
        if (r == size - 1) right += x.data<double>()[i] * fy.data<double>()[i];
      }
    });
    EXPECT_NEAR(left, right, 1e-12 * size);
  }
}

TEST_P(CollectiveContract, ReduceScatterThenAllGatherEqualsAllReduce) {
  for (const int size : {2, 3, 4}) {
    Ranks ranks = GetParam()(size);
    const std::int64_t piece = 30'000;
    RunRanks(size, [&](int r) {
      const Tensor x = ToTensor(Draw(piece * size, r));
      const Tensor sum(DType::kF32, x.shape()), part(DType::kF32, {piece});
      const Tensor whole(DType::kF32, x.shape());
      Collective& group = *ranks[std::size_t(r)];
      EXPECT_TRUE(RunOp(group, {.kind = OpKind::kAllReduce}, x, sum).ok());
      EXPECT_TRUE(RunOp(group, {.kind = OpKind::kReduceScatter}, x, part).ok());
      EXPECT_TRUE(RunOp(group, {.kind = OpKind::kAllGather}, part, whole).ok());
      const double tolerance = 6.0 * size * size * 6e-8;
      for (std::int64_t i = 0; i < x.elements(); ++i) {
        ASSERT_NEAR(whole.data<float>()[i], sum.data<float>()[i], tolerance) << i;
      }
    });
  }
}

TEST_P(CollectiveContract, ReducesIntegerAndBfloat16Types) {
  Ranks ranks = GetParam()(3);
  RunRanks(3, [&](int r) {
    Collective& group = *ranks[std::size_t(r)];
    const Tensor bytes(DType::kU8, {70'001}), ints(DType::kI32, {5}), half(DType::kBF16, {70'001});
    for (std::int64_t i = 0; i < 70'001; ++i) {
      bytes.data<std::uint8_t>()[i] = std::uint8_t(i * (r + 1));
      half.data<BF16>()[i] = ToBF16(float(i % 64));
    }
    for (std::int32_t i = 0; i < 5; ++i) ints.data<std::int32_t>()[i] = i - r;
    EXPECT_TRUE(
        RunOp(group, {.kind = OpKind::kAllReduce, .reduction = Reduction::kMax}, bytes, bytes)
            .ok());
    EXPECT_TRUE(RunOp(group, {.kind = OpKind::kAllReduce}, ints, ints).ok());
    EXPECT_TRUE(RunOp(group, {.kind = OpKind::kAllReduce}, half, half).ok());
    for (std::int64_t i = 0; i < 70'001; ++i) {
      const int want = std::max({i % 256, i * 2 % 256, i * 3 % 256});
      ASSERT_EQ(bytes.data<std::uint8_t>()[i], want) << i;
      ASSERT_EQ(ToF32(half.data<BF16>()[i]), float(3 * (i % 64))) << i;  // exact in bf16
    }
    for (std::int32_t i = 0; i < 5; ++i) EXPECT_EQ(ints.data<std::int32_t>()[i], 3 * i - 3);
  });
}

TEST_P(CollectiveContract, ExchangesPairsInBothDirectionsAtOnce) {
  Ranks ranks = GetParam()(3);
  constexpr std::int64_t kMany = 300'000;
  RunRanks(3, [&](int r) {
    Collective& group = *ranks[std::size_t(r)];
    std::vector<Work> works;
    std::vector<Tensor> come;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == r) continue;
      for (const std::int64_t n : {kMany, std::int64_t{1}}) {  // in order of their starts
        Tensor mine(DType::kF32, {n});
        std::ranges::fill(mine.as<float>(), float(10 * r + peer));
        come.push_back(Tensor(DType::kF32, {n}));
        works.push_back(*group.Start({.kind = OpKind::kSend, .peer = peer}, mine, {}));
        works.push_back(*group.Start({.kind = OpKind::kReceive, .peer = peer}, {}, come.back()));
      }
    }
    for (const Work work : works) EXPECT_TRUE(group.Wait(work).ok());
    std::size_t i = 0;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == r) continue;
      for (int k = 0; k < 2; ++k) {
        const auto values = come[i++].as<float>();
        EXPECT_TRUE(std::ranges::all_of(values, [&](float v) { return v == 10 * peer + r; }));
      }
    }
  });
}

TEST_P(CollectiveContract, RunsManyBucketsConcurrentlyInAnyOrder) {
  Ranks ranks = GetParam()(3);
  RunRanks(3, [&](int r) {
    Collective& group = *ranks[std::size_t(r)];
    std::vector<Tensor> buckets;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      buckets.push_back(Tensor(DType::kF32, {i % 3 == 0 ? 10 : 40'000 + i}));
      std::ranges::fill(buckets.back().as<float>(), float(i + r));
      works.push_back(*group.Start({.kind = OpKind::kAllReduce}, buckets.back(), buckets.back()));
    }
    for (int i = 11; i >= 0; --i) {
      std::optional<Status> status;
      while (!(status = group.Poll(works[std::size_t(i)]))) std::this_thread::yield();
      EXPECT_TRUE(status->ok()) << status->ToString();
      for (const float v : buckets[std::size_t(i)].as<float>()) ASSERT_EQ(v, 3 * i + 3);
    }
  });
}

TEST_P(CollectiveContract, BarrierWaitsForAllRanks) {
  for (const int size : kSizes) {
    Ranks ranks = GetParam()(size);
    std::atomic<int> come = 0;
    RunRanks(size, [&](int r) {
      for (int round = 1; round <= 5; ++round) {
        come.fetch_add(1);
        EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = OpKind::kBarrier}, {}, {}).ok());
        EXPECT_GE(come.load(), round * size);
      }
    });
  }
}

TEST_P(CollectiveContract, SplitsIntoMeshAxes) {
  Ranks ranks = GetParam()(4);
  RunRanks(4, [&](int r) {
    Collective& group = *ranks[std::size_t(r)];
    auto row = group.Split(r / 2, r);
    auto column = group.Split(r % 2, -r);  // ordered by key, so reversed
    auto none = group.Split(r == 0 ? -1 : 0, 0);
    ASSERT_TRUE(row.ok() && column.ok() && none.ok());
    EXPECT_EQ((*row)->rank(), r % 2);
    EXPECT_EQ((*column)->rank(), 1 - r / 2);
    EXPECT_EQ(*none == nullptr, r == 0);
    Tensor x(DType::kI32, {1}), y(DType::kI32, {1});
    x.data<std::int32_t>()[0] = y.data<std::int32_t>()[0] = r;
    EXPECT_TRUE(RunOp(**row, {.kind = OpKind::kAllReduce}, x, x).ok());
    EXPECT_TRUE(RunOp(**column, {.kind = OpKind::kAllReduce}, y, y).ok());
    EXPECT_EQ(x.data<std::int32_t>()[0], r / 2 == 0 ? 1 : 5);
    EXPECT_EQ(y.data<std::int32_t>()[0], r % 2 == 0 ? 2 : 4);
  });
}

TEST_P(CollectiveContract, MismatchedSizeFailsAllRanksAlike) {
  for (const std::int64_t n : {std::int64_t{100}, std::int64_t{300'000}}) {
    for (int odd = 0; odd < 4; ++odd) {
      Ranks ranks = GetParam()(4);
      RunRanks(4, [&](int r) {
        Collective& group = *ranks[std::size_t(r)];
        const Tensor x(DType::kF32, {r == odd ? n + 16 : n});
        const Status status =
            RunOp(group, {.kind = OpKind::kAllReduce, .timeout = Seconds(20)}, x, x);
        // A rank may complete before another one detects the error; then its next operation fails.
        const Status next =
            RunOp(group, {.kind = OpKind::kBarrier, .timeout = Seconds(20)}, {}, {});
        EXPECT_EQ(next.code(), Code::kInvalidArgument) << r << ": " << next.ToString();
        EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument) << status.ToString();
        EXPECT_EQ(group.status().code(), Code::kInvalidArgument);
        EXPECT_FALSE(group.Start({.kind = OpKind::kBarrier}, {}, {}).ok());
      });
    }
  }
}

TEST_P(CollectiveContract, MismatchedOperationOrTypeFailsAllRanks) {
  for (int what = 0; what < 4; ++what) {
    Ranks ranks = GetParam()(3);
    RunRanks(3, [&](int r) {
      Collective& group = *ranks[std::size_t(r)];
      const bool odd = r == 1;
      const Tensor x(odd && what == 0 ? DType::kI32 : DType::kF32, {6});
      const Tensor y(x.dtype(), {6});
      Op op{.kind = OpKind::kAllReduce, .timeout = Seconds(20)};
      if (odd && what == 1) op.reduction = Reduction::kMax;
      if (odd && what == 2) op.kind = OpKind::kAllToAll;
      if (odd && what == 3) op.kind = OpKind::kBroadcast;
      static_cast<void>(RunOp(group, op, x, y));
      const Status next = RunOp(group, {.kind = OpKind::kBarrier, .timeout = Seconds(20)}, {}, {});
      EXPECT_EQ(next.code(), Code::kInvalidArgument) << what << ": " << next.ToString();
    });
  }
}

TEST_P(CollectiveContract, RejectsInvalidArgumentsWithoutStarting) {
  Ranks ranks = GetParam()(2);
  RunRanks(2, [&](int r) {
    Collective& group = *ranks[std::size_t(r)];
    const Tensor three(DType::kF32, {3}), four(DType::kF32, {4}), ints(DType::kI32, {3});
    const auto code = [&](const Op& op, const Tensor& in, const Tensor& out) {
      return group.Start(op, in, out).status().code();
    };
    EXPECT_EQ(code({.kind = OpKind::kAllReduce}, three, four), Code::kInvalidArgument);
    EXPECT_EQ(code({.kind = OpKind::kAllReduce}, three, ints), Code::kInvalidArgument);
    EXPECT_EQ(code({.kind = OpKind::kReduceScatter}, three, three), Code::kInvalidArgument);
    EXPECT_EQ(code({.kind = OpKind::kAllToAll}, three, three), Code::kInvalidArgument);
    EXPECT_EQ(code({.kind = OpKind::kSend, .peer = r}, three, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({.kind = OpKind::kBroadcast, .peer = 2}, three, three), Code::kInvalidArgument);
    const Stream device{.handle = &group};
    EXPECT_EQ(group.Start({.kind = OpKind::kAllReduce}, three, three, device).status().code(),
              Code::kInvalidArgument);
    EXPECT_TRUE(RunOp(group, {.kind = OpKind::kAllReduce}, four, four).ok());
  });
}

TEST_P(CollectiveContract, DeliversDataSentBeforeRankLeft) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    Ranks ranks = GetParam()(3);
    RunRanks(3, [&](int r) {
      std::unique_ptr<Collective>& group = ranks[std::size_t(r)];
      const Tensor x(DType::kF32, {100'000});
      const Status status = RunOp(*group, {.kind = OpKind::kAllReduce}, x, x);
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (r == leaver) group.reset();
    });
  }
}

TEST_P(CollectiveContract, ReportsErrorToWaitersWhenRankLeaves) {
  Ranks ranks = GetParam()(3);
  std::barrier all_have_ended(3);
  RunRanks(3, [&](int r) {
    std::unique_ptr<Collective>& group = ranks[std::size_t(r)];
    const Tensor x(DType::kF32, {100'000});
    EXPECT_TRUE(RunOp(*group, {.kind = OpKind::kAllReduce}, x, x).ok());
    all_have_ended.arrive_and_wait();  // a rank whose next call fails ends the group for all
    if (r == 1) return group.reset();
    const Op op{.kind = OpKind::kAllReduce, .timeout = Seconds(20)};
    EXPECT_EQ(RunOp(*group, op, x, x).code(), Code::kUnavailable);
  });
}

TEST_P(CollectiveContract, AbortEndsGroupOnAllRanks) {
  Ranks ranks = GetParam()(3);
  RunRanks(3, [&](int r) {
    Collective& group = *ranks[std::size_t(r)];
    if (r == 2) return group.Abort(Cancelled("no more"));
    const Tensor x(DType::kF32, {100});
    const Op op{.kind = OpKind::kAllReduce, .timeout = Seconds(20)};
    const Status status = RunOp(group, op, x, x);
    EXPECT_EQ(status.code(), Code::kCancelled) << status.ToString();
    EXPECT_EQ(group.suspect(), 2);
  });
}

TEST_P(CollectiveContract, ReportsAbsentRankAtDeadline) {
  Ranks ranks = GetParam()(3);
  RunRanks(3, [&](int r) {
    if (r == 2) return;
    Collective& group = *ranks[std::size_t(r)];
    const Tensor x(DType::kF32, {100});
    const Op op{.kind = OpKind::kAllReduce, .timeout = Milliseconds(50)};
    const Status status = RunOp(group, op, x, x);
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.ToString();
  });
  // It may even complete with what the others have sent, but the next operation fails.
  const Tensor x(DType::kF32, {100});
  static_cast<void>(RunOp(*ranks[2], {.kind = OpKind::kAllReduce}, x, x));
  EXPECT_EQ(RunOp(*ranks[2], {.kind = OpKind::kBarrier}, {}, {}).code(), Code::kDeadlineExceeded);
}

TEST_P(CollectiveContract, RejectsTooManyOpenWorks) {
  Ranks ranks = GetParam()(2);
  const Tensor x(DType::kF32, {1});
  for (std::size_t i = 0; i < kWorksMax; ++i) {
    ASSERT_TRUE(ranks[0]->Start({.kind = OpKind::kReceive, .peer = 1}, {}, x).ok());
  }
  EXPECT_EQ(ranks[0]->Start({.kind = OpKind::kReceive, .peer = 1}, {}, x).status().code(),
            Code::kResourceExhausted);
}

}  // namespace troop
