#include "kernels/transformer/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct World {
  AttentionShape shape;
  std::vector<std::int32_t> starts;
  std::vector<DropoutKey> keys = {};  // empty: no dropout
  std::uint32_t site = 3;
  std::optional<std::vector<std::int32_t>> asking;
  Floats qkv, dout, out, lse, dqkv, scratch;

  World(const AttentionShape& s, std::vector<std::int32_t> at, bool drops) : shape(s), starts(at) {
    Rng rng({5, Purpose::kTest});
    const auto tokens = std::size_t(starts.back()), wide = std::size_t(s.heads * s.width);
    for (std::size_t i = 0; drops && i + 1 < starts.size(); ++i)
      keys.push_back(MakeDropoutKey(1, 100 + i, 2));
    for (std::size_t i = 0; i < tokens * wide * 3; ++i) qkv.push_back(float(rng.Normal()));
    for (std::size_t i = 0; i < tokens * wide; ++i) dout.push_back(float(rng.Normal()));
    out.assign(tokens * wide, kNaN);
    lse.assign(tokens * std::size_t(s.heads), kNaN);
    dqkv.assign(qkv.size(), kNaN);
    scratch.assign(std::size_t(AttentionScratch(LongestSequence(starts))), kNaN);
  }
  void Run() {
    AttentionBatch batch{starts, keys, site, {}};
    if (asking) batch.asking = *asking;
    AttentionForward({.shape = shape,
                      .batch = batch,
                      .qkv = qkv.data(),
                      .out = out.data(),
                      .lse = lse.data(),
                      .scratch = scratch.data()});
    AttentionBackward({.shape = shape,
                       .batch = batch,
                       .qkv = qkv.data(),
                       .out = out.data(),
                       .lse = lse.data(),
                       .dout = dout.data(),
                       .dqkv = dqkv.data(),
                       .scratch = scratch.data()});
  }
};

// softmax, dropout and the product with V, each in a separate loop.
struct Reference {
  Doubles out, dqkv;

  explicit Reference(const World& w) : out(w.out.size()), dqkv(w.qkv.size()) {
    for (std::size_t s = 0; s + 1 < w.starts.size(); ++s) {
      for (std::int64_t head = 0; head < w.shape.heads; ++head) Add(w, s, head);
    }
  }
  void Add(const World& w, std::size_t s, std::int64_t head) {
    const std::int64_t first = w.starts[s], n = w.starts[s + 1] - first, d = w.shape.width;
    const auto in = [&](std::int64_t token, int which, std::int64_t i) {
      return std::size_t((((first + token) * 3 + which) * w.shape.heads + head) * d + i);
    };
    const auto at = [&](std::int64_t token, std::int64_t i) {
      return std::size_t(((first + token) * w.shape.heads + head) * d + i);
    };
    Floats factor(std::size_t(n * n), 1);
    if (!w.keys.empty()) {
      DropoutFactors({w.keys[s], w.site}, w.shape.rate, (w.shape.first_head + head) * n * n, n * n,
                     factor.data());
    }
    for (std::int64_t q = 0; q < n; ++q) {
      Doubles p, dp;
      double sum = 0, delta = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        double score = 0;
        for (std::int64_t i = 0; i < d; ++i)
          score += double(w.qkv[in(q, 0, i)]) * w.qkv[in(k, 1, i)];
        p.push_back(std::exp(score / std::sqrt(double(d))));
        sum += p.back();
      }
      for (std::int64_t k = 0; k < n; ++k) {
        const auto f = double(factor[std::size_t(q * n + k)]);
        double& pk = p[std::size_t(k)];
        pk /= sum;
        double dpk = 0;
        for (std::int64_t i = 0; i < d; ++i) {
          out[at(q, i)] += pk * f * w.qkv[in(k, 2, i)];
          dqkv[in(k, 2, i)] += pk * f * w.dout[at(q, i)];
          dpk += f * w.qkv[in(k, 2, i)] * w.dout[at(q, i)];
        }
        dp.push_back(dpk);
        delta += dpk * pk;
      }
      for (std::int64_t k = 0; k < n; ++k) {
        const double ds = p[std::size_t(k)] * (dp[std::size_t(k)] - delta) / std::sqrt(double(d));
        for (std::int64_t i = 0; i < d; ++i) {
          dqkv[in(q, 0, i)] += ds * w.qkv[in(k, 1, i)];
          dqkv[in(k, 1, i)] += ds * w.qkv[in(q, 0, i)];
        }
      }
    }
  }
};

// Sums of up to 130 products of numbers of size 1: 1e-5 covers their rounding tenfold.
void ExpectNear(const Floats& got, const Doubles& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << what << " " << i;
}

// Sequences of one token, of less and of more than a block of 64 queries, and of none.
TEST(AttentionTest, MatchesF64ReferenceForEverySequence) {
  for (const bool drops : {false, true}) {
    for (const std::int64_t width : {5, 16}) {
      World world({.heads = 3, .width = width, .first_head = 2, .rate = 0.25f},
                  {0, 1, 8, 8, 72, 202}, drops);
      const Reference expected(world);
      world.Run();
      ExpectNear(world.out, expected.out, "out");
      ExpectNear(world.dqkv, expected.dqkv, "dqkv");
    }
  }
}

// Returns the same problem with selected query tokens: keys and values of all tokens, then the
// queries of the selected ones.
World OfAsking(const World& all, const std::vector<std::int32_t>& asking) {
  World some = all;
  some.asking = asking;
  const std::size_t n = std::size_t(all.shape.heads * all.shape.width);
  some.qkv.clear();
  some.dout.clear();
  const auto take = [n](const Floats& from, std::size_t begin, Floats* to) {
    to->insert(to->end(), from.begin() + std::ptrdiff_t(begin),
               from.begin() + std::ptrdiff_t(begin + n));
  };
  for (std::size_t token = 0; token < all.out.size() / n; ++token) {
    take(all.qkv, (3 * token + 1) * n, &some.qkv);
    take(all.qkv, (3 * token + 2) * n, &some.qkv);
  }
  for (const std::int32_t token : asking) {
    take(all.qkv, 3 * std::size_t(token) * n, &some.qkv);
    take(all.dout, std::size_t(token) * n, &some.dout);
  }
  some.out.assign(some.dout.size(), kNaN);
  some.lse.assign(asking.size() * std::size_t(all.shape.heads), kNaN);
  some.dqkv.assign(some.qkv.size(), kNaN);
  return some;
}

// Sequences of which all, some and no tokens ask, more than a block of them among those.
TEST(AttentionTest, SelectedQueriesMatchReference) {
  for (const bool drops : {false, true}) {
    World all({.heads = 3, .width = 5, .first_head = 2, .rate = 0.25f}, {0, 1, 8, 8, 72, 202, 208},
              drops);
    std::vector<std::int32_t> asking = {0, 3, 7};
    for (std::int32_t token = 75; token < 202; token += token % 3 == 0 ? 2 : 1)
      asking.push_back(token);
    World some = OfAsking(all, asking);
    some.Run();
    // Tokens without a query receive no gradient.
    const std::size_t n = 15;
    std::size_t next = 0;
    for (std::size_t token = 0; token < all.dout.size() / n; ++token) {
      if (next < asking.size() && std::size_t(asking[next]) == token) {
        ++next;
      } else {
        std::fill_n(all.dout.begin() + std::ptrdiff_t(token * n), n, 0.0f);
      }
    }
    const Reference whole(all);
    Doubles out, dqkv, dq;
    const auto take = [](const Doubles& from, std::size_t begin, Doubles* to) {
      to->insert(to->end(), from.begin() + std::ptrdiff_t(begin),
                 from.begin() + std::ptrdiff_t(begin + n));
    };
    for (std::size_t token = 0; token < all.dout.size() / n; ++token) {
      take(whole.dqkv, (3 * token + 1) * n, &dqkv);
      take(whole.dqkv, (3 * token + 2) * n, &dqkv);
    }
    for (const std::int32_t token : asking) {
      take(whole.out, std::size_t(token) * n, &out);
      take(whole.dqkv, 3 * std::size_t(token) * n, &dq);
    }
    dqkv.insert(dqkv.end(), dq.begin(), dq.end());
    ExpectNear(some.out, out, "out");
    ExpectNear(some.dqkv, dqkv, "dqkv");
  }
}

// Data parallelism relies on this: a sample's values do not depend on what it is packed with.
TEST(AttentionTest, SequencesAreBitExactForAnyPacking) {
  World both({.heads = 2, .width = 8, .rate = 0.1f}, {0, 11, 81}, true);
  both.Run();
  World one({.heads = 2, .width = 8, .rate = 0.1f}, {0, 70}, true);
  one.keys = {both.keys[1]};
  std::copy(both.qkv.begin() + 11 * 48, both.qkv.end(), one.qkv.begin());
  std::copy(both.dout.begin() + 11 * 16, both.dout.end(), one.dout.begin());
  one.Run();
  EXPECT_EQ(one.out, Floats(both.out.begin() + 11 * 16, both.out.end()));
  EXPECT_EQ(one.dqkv, Floats(both.dqkv.begin() + 11 * 48, both.dqkv.end()));
}

}  // namespace
}  // namespace troop
