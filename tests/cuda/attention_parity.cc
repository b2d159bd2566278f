#include "kernels/cuda/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

constexpr std::int64_t kWidth = 64;

struct Packed {
  std::vector<std::int32_t> starts = {0};
  std::int64_t longest = 0;
  explicit Packed(const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t length : lengths) {
      starts.push_back(starts.back() + std::int32_t(length));
      longest = std::max(longest, length);
    }
  }
  std::int64_t tokens() const { return starts.back(); }
  std::int64_t sequences() const { return std::int64_t(starts.size()) - 1; }
};

// In f64, from the formulas, one query after the other.
struct Reference {
  std::vector<double> out, lse, dqkv;
  Reference(const Packed& packed, std::int64_t heads, const std::vector<float>& qkv,
            const std::vector<float>& dout)
      : dqkv(qkv.size()) {
    for (std::int64_t s = 0; s < packed.sequences(); ++s) {
      for (std::int64_t i = packed.starts[std::size_t(s)]; i < packed.starts[std::size_t(s) + 1];
           ++i) {
        for (std::int64_t h = 0; h < heads; ++h) {
          Add(packed.starts[std::size_t(s)], packed.starts[std::size_t(s) + 1], i, h, heads, qkv,
              dout.data() + (i * heads + h) * kWidth);
        }
      }
    }
  }

 private:
  void Add(std::int64_t begin, std::int64_t end, std::int64_t query, std::int64_t head,
           std::int64_t heads, const std::vector<float>& qkv, const float* dout) {
    const auto at = [&](std::int64_t token, int which) {
      return std::size_t(((token * 3 + which) * heads + head) * kWidth);
    };
    const auto dot = [&](std::size_t a, const auto* b) {
      return std::inner_product(b, b + kWidth, qkv.data() + a, 0.0);
    };
    const float* const q = qkv.data() + at(query, 0);
    std::vector<double> p;
    for (std::int64_t j = begin; j < end; ++j) p.push_back(dot(at(j, 1), q) / 8);
    const double largest = *std::max_element(p.begin(), p.end());
    double sum = 0, delta = 0;
    for (double& x : p) sum += x = std::exp(x - largest);
    lse.push_back(largest + std::log(sum));
    for (double& x : p) x /= sum;
    for (std::int64_t d = 0; d < kWidth; ++d) {
      double value = 0;
      for (std::int64_t j = begin; j < end; ++j)
        value += p[std::size_t(j - begin)] * double(qkv[at(j, 2) + std::size_t(d)]);
      out.push_back(value);
      delta += value * double(dout[d]);
    }
    for (std::int64_t j = begin; j < end; ++j) {
      const double weight = p[std::size_t(j - begin)];
      const double ds = weight * (dot(at(j, 2), dout) - delta) / 8;
      for (std::size_t d = 0; d < std::size_t(kWidth); ++d) {
        dqkv[at(query, 0) + d] += ds * double(qkv[at(j, 1) + d]);
        dqkv[at(j, 1) + d] += ds * double(q[d]);
        dqkv[at(j, 2) + d] += weight * double(dout[d]);
      }
    }
  }
};

std::vector<float> RandomBF16s(Parity& parity, std::int64_t n, double size) {
  auto x = parity.Random(n, -size, size);
  for (float& v : x) v = RoundedToBF16(v);
  return x;
}

void Check(Parity& parity, const Packed& packed, std::int64_t heads,
           const std::vector<float>& qkv) {
  const auto dout = RandomBF16s(parity, packed.tokens() * heads * kWidth, 1);
  const Reference want(packed, heads, qkv, dout);
  const auto starts = parity.Upload(packed.starts);
  const auto there = parity.Upload(ToBF16s(qkv)), dout_there = parity.Upload(ToBF16s(dout));
  const auto out = parity.Output<BF16>(packed.tokens() * heads * kWidth);
  const auto dqkv = parity.Output<BF16>(packed.tokens() * 3 * heads * kWidth);
  const auto lse = parity.Output<float>(packed.tokens() * heads);
  const auto delta = parity.Output<float>(packed.tokens() * heads);
  const PackedSequences batch{starts.data(), packed.sequences(), packed.tokens(), packed.longest};
  AttentionForward(parity.stream(), batch, heads, there.data(), out.data(), lse.data());
  AttentionBackward(parity.stream(), batch, heads, there.data(), out.data(), lse.data(),
                    dout_there.data(), dqkv.data(), delta.data());
  parity.Close("out", Doubles(FromBF16s(parity.Download(out))), want.out, 1e-2);
  parity.Close("lse", Doubles(parity.Download(lse)), want.lse, 1e-5);
  // Each of the three by itself: they are not of one size.
  const std::vector<double> got = Doubles(FromBF16s(parity.Download(dqkv)));
  const std::int64_t block = heads * kWidth;
  for (int which = 0; which < 3; ++which) {
    std::vector<double> mine, theirs;
    for (std::int64_t t = 0; t < packed.tokens(); ++t) {
      const auto begin = (t * 3 + which) * block;
      mine.insert(mine.end(), got.begin() + begin, got.begin() + begin + block);
      theirs.insert(theirs.end(), want.dqkv.begin() + begin, want.dqkv.begin() + begin + block);
    }
    parity.Close(std::string("gradients of ") + std::array{"queries", "keys", "values"}[which],
                 mine, theirs, 1e-2);
  }
}

// Lengths on both sides of the tiles of 64, one that needs three of them, and few tokens; size: of
// the numbers: large ones make a softmax of few large elements.
void PackedSequencesOfEveryLength(Parity& parity) {
  const auto check = [&](const std::vector<std::int64_t>& lengths, std::int64_t heads,
                         double size) {
    const Packed packed(lengths);
    Check(parity, packed, heads, RandomBF16s(parity, packed.tokens() * 3 * heads * kWidth, size));
  };
  check({3, 64, 5, 63, 65}, 2, 1);
  check({130}, 1, 1);
  check({16, 17}, 3, 2);
  if (parity.large()) check({512, 257, 2, 400}, 12, 1);
}

// Later keys are larger: what was summed before shrinks, often to nothing.
void ScoresThatGrowFromTileToTile(Parity& parity) {
  constexpr std::int64_t kTokens = 192;
  std::vector<float> qkv = RandomBF16s(parity, kTokens * 3 * kWidth, 1);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t d = 0; d < kWidth; ++d) {
      float& key = qkv[std::size_t((t * 3 + 1) * kWidth + d)];
      key = RoundedToBF16(key * float(1 + t / 16));
    }
  }
  Check(parity, Packed({kTokens}), 1, qkv);
}

}  // namespace

std::vector<ParityCase> AttentionCases() {
  return {{"Attention.PackedSequencesOfEveryLength", PackedSequencesOfEveryLength, 80},
          {"Attention.ScoresThatGrowFromTileToTile", ScoresThatGrowFromTileToTile, 80}};
}

}  // namespace troop::cuda
