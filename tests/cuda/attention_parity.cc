#include "kernels/cuda/ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

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

// A case, for either element type.
struct Form {
  std::int64_t heads = 1, width = 64;
  DType dtype = DType::kBF16;
  float rate = 0;
  std::vector<DropoutKey> keys = {};  // per sequence; empty: no dropout
  std::int64_t first_head = 0;
};
constexpr std::uint32_t kSite = 7;

// Reference in f64 from the formulas, one query after the other.
struct Reference {
  std::vector<double> out, lse, dqkv;
  Reference(const Packed& packed, const Form& form, const std::vector<float>& qkv,
            const std::vector<float>& dout)
      : dqkv(qkv.size()), form_(form), width_(std::size_t(form.width)) {
    for (std::int64_t s = 0; s < packed.sequences(); ++s) {
      begin_ = packed.starts[std::size_t(s)];
      end_ = packed.starts[std::size_t(s) + 1];
      for (std::int64_t i = begin_; i < end_; ++i) {
        for (std::int64_t h = 0; h < form.heads; ++h)
          Add(std::size_t(s), i, h, qkv, dout.data() + (i * form.heads + h) * form.width);
      }
    }
  }

 private:
  void Add(std::size_t sequence, std::int64_t query, std::int64_t head,
           const std::vector<float>& qkv, const float* dout) {
    const auto at = [&](std::int64_t token, int which) {
      return std::size_t(((token * 3 + which) * form_.heads + head) * form_.width);
    };
    const auto dot = [&](std::size_t a, const auto* b) {
      return std::inner_product(b, b + width_, qkv.data() + a, 0.0);
    };
    const float* const q = qkv.data() + at(query, 0);
    const double scale = 1 / std::sqrt(double(form_.width));
    std::vector<double> p;
    for (std::int64_t j = begin_; j < end_; ++j) p.push_back(dot(at(j, 1), q) * scale);
    const double largest = *std::max_element(p.begin(), p.end());
    double sum = 0, delta = 0;
    for (double& x : p) sum += x = std::exp(x - largest);
    lse.push_back(largest + std::log(sum));
    for (double& x : p) x /= sum;
    const std::int64_t length = end_ - begin_;
    std::vector<float> factor(std::size_t(length), 1.0f);
    if (!form_.keys.empty()) {
      DropoutFactors({form_.keys[sequence], kSite}, form_.rate,
                     ((form_.first_head + head) * length + query - begin_) * length, length,
                     factor.data());
    }
    for (std::size_t d = 0; d < width_; ++d) {
      double value = 0;
      for (std::size_t j = 0; j < p.size(); ++j)
        value += p[j] * factor[j] * double(qkv[at(begin_ + std::int64_t(j), 2) + d]);
      out.push_back(value);
      delta += value * double(dout[d]);
    }
    for (std::size_t j = 0; j < p.size(); ++j) {
      const auto token = begin_ + std::int64_t(j);
      const double ds = p[j] * (factor[j] * dot(at(token, 2), dout) - delta) * scale;
      for (std::size_t d = 0; d < width_; ++d) {
        dqkv[at(query, 0) + d] += ds * double(qkv[at(token, 1) + d]);
        dqkv[at(token, 1) + d] += ds * double(q[d]);
        dqkv[at(token, 2) + d] += p[j] * factor[j] * double(dout[d]);
      }
    }
  }

  const Form& form_;
  const std::size_t width_;
  std::int64_t begin_ = 0, end_ = 0;
};

std::vector<float> RandomOf(Parity& parity, DType dtype, std::int64_t n, double size) {
  auto x = parity.Random(n, -size, size);
  if (dtype == DType::kBF16) {
    for (float& v : x) v = RoundedToBF16(v);
  }
  return x;
}

// T: float or BF16.
template <class T>
void CheckOf(Parity& parity, const Packed& packed, const Form& form,
             const std::vector<float>& qkv) {
  const auto upload = [&](const std::vector<float>& x) {
    if constexpr (std::is_same_v<T, BF16>) {
      return parity.Upload(ToBF16s(x));
    } else {
      return parity.Upload(x);
    }
  };
  const auto download = [&](const DeviceArray<T>& x) {
    if constexpr (std::is_same_v<T, BF16>) {
      return Doubles(FromBF16s(parity.Download(x)));
    } else {
      return Doubles(parity.Download(x));
    }
  };
  // bf16: probabilities and outputs are rounded to 2^-9 each. f32: sums of up to some hundred
  // products, and exponentials, with a few roundings each (2^-24).
  const double near = form.dtype == DType::kBF16 ? 1e-2 : 1e-5;
  const std::int64_t sums = packed.tokens() * form.heads, elements = sums * form.width;
  const auto dout = RandomOf(parity, form.dtype, elements, 1);
  const Reference want(packed, form, qkv, dout);
  const auto starts = parity.Upload(packed.starts);
  const auto keys = parity.Upload(form.keys);
  const auto there = upload(qkv), dout_there = upload(dout);
  const auto out = parity.Output<T>(elements), dqkv = parity.Output<T>(3 * elements);
  const auto lse = parity.Output<float>(sums), delta = parity.Output<float>(sums);
  const PackedSequences batch{starts.data(), packed.sequences(), packed.tokens(), packed.longest};
  const auto kept = parity.Output<std::uint32_t>(
      KeptScoresWords(packed.sequences(), packed.tokens(), packed.longest, form.heads));
  const AttentionForm asked{form.heads,
                            form.width,
                            form.first_head,
                            form.dtype,
                            {form.keys.empty() ? nullptr : keys.data(), kSite, form.rate},
                            kept.data()};
  AttentionForward(
      parity.stream(),
      {.batch = batch, .form = asked, .qkv = there.data(), .out = out.data(), .lse = lse.data()});
  AttentionBackward(parity.stream(), {.batch = batch,
                                      .form = asked,
                                      .qkv = there.data(),
                                      .out = out.data(),
                                      .lse = lse.data(),
                                      .dout = dout_there.data(),
                                      .dqkv = dqkv.data(),
                                      .delta = delta.data()});
  static_cast<void>(parity.Download(kept));  // checks that nothing was written after it
  parity.Close("out", download(out), want.out, near);
  parity.Close("lse", Doubles(parity.Download(lse)), want.lse, 1e-5);
  // Each of the three separately: their magnitudes differ.
  const std::vector<double> got = download(dqkv);
  const std::int64_t block = form.heads * form.width;
  for (int which = 0; which < 3; ++which) {
    std::vector<double> mine, theirs;
    for (std::int64_t t = 0; t < packed.tokens(); ++t) {
      const auto begin = (t * 3 + which) * block;
      mine.insert(mine.end(), got.begin() + begin, got.begin() + begin + block);
      theirs.insert(theirs.end(), want.dqkv.begin() + begin, want.dqkv.begin() + begin + block);
    }
    parity.Close(std::string("gradients of ") + std::array{"queries", "keys", "values"}[which],
                 mine, theirs, near);
  }
}

void Check(Parity& parity, const Packed& packed, const Form& form, double size) {
  const auto qkv =
      RandomOf(parity, form.dtype, packed.tokens() * 3 * form.heads * form.width, size);
  if (form.dtype == DType::kBF16) return CheckOf<BF16>(parity, packed, form, qkv);
  CheckOf<float>(parity, packed, form, qkv);
}

std::vector<DropoutKey> Keys(std::size_t n) {
  std::vector<DropoutKey> keys;
  for (std::uint32_t i = 0; i < n; ++i) keys.push_back({{i + 1, 40 + i}, {7 * i, 9}});
  return keys;
}

// Lengths around the tiles of 64, one that needs three tiles, and few tokens. size: of the inputs;
// with large ones the softmax has few large elements.
void PackedSequencesOfEveryLength(Parity& parity) {
  Check(parity, Packed({3, 64, 5, 63, 65}), {.heads = 2}, 1);
  Check(parity, Packed({130}), {}, 1);
  Check(parity, Packed({16, 17}), {.heads = 3}, 2);
  if (parity.large()) Check(parity, Packed({512, 257, 2, 400}), {.heads = 12}, 1);
}

void SequencesOfF32(Parity& parity) {
  const auto check = [&](const std::vector<std::int64_t>& lengths, std::int64_t heads,
                         std::int64_t width) {
    Check(parity, Packed(lengths), {.heads = heads, .width = width, .dtype = DType::kF32}, 1);
  };
  check({3, 32, 1, 33, 65}, 2, 64);
  check({5, 2}, 3, 12);
  check({9}, 1, 32);
  check({4, 7}, 2, 100);
  check({6}, 1, 256);
  if (parity.large()) check({512, 257, 2, 400}, 12, 64);
}

// Dropout numbers elements over heads and queries, independent of tiles: lengths that are not
// multiples of anything, and lengths whose rows start at groups of 128.
void DroppedScores(Parity& parity) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const auto check = [&](const std::vector<std::int64_t>& lengths, float rate) {
      Check(parity, Packed(lengths),
            {.heads = 2, .dtype = dtype, .rate = rate, .keys = Keys(lengths.size())}, 1);
    };
    check({37, 70}, 0.1f);
    check({128}, 0.5f);
    check({67, 1}, 0.9f);
    Check(parity, Packed({37, 66}),
          {.heads = 2, .dtype = dtype, .rate = 0.5f, .keys = Keys(2), .first_head = 3}, 1);
  }
}

// Later keys have larger scores, so the earlier sums shrink, often to nothing.
void ScoresThatGrow(Parity& parity, DType dtype) {
  constexpr std::int64_t kTokens = 192, kWidth = 64;
  std::vector<float> qkv = RandomOf(parity, dtype, kTokens * 3 * kWidth, 1);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t d = 0; d < kWidth; ++d) {
      float& key = qkv[std::size_t((t * 3 + 1) * kWidth + d)];
      key *= float(1 + t / 16);
      if (dtype == DType::kBF16) key = RoundedToBF16(key);
    }
  }
  if (dtype == DType::kBF16) return CheckOf<BF16>(parity, Packed({kTokens}), {}, qkv);
  CheckOf<float>(parity, Packed({kTokens}), {.dtype = dtype}, qkv);
}
void ScoresThatGrowFromTileToTile(Parity& parity) {
  ScoresThatGrow(parity, DType::kBF16);
  ScoresThatGrow(parity, DType::kF32);
}

}  // namespace

std::vector<ParityCase> AttentionCases() {
  return {{"Attention.PackedSequencesOfEveryLength", PackedSequencesOfEveryLength, 80},
          {"Attention.SequencesOfF32", SequencesOfF32},
          {"Attention.DroppedScores", DroppedScores, 80},
          {"Attention.ScoresThatGrowFromTileToTile", ScoresThatGrowFromTileToTile, 80}};
}

}  // namespace troop::cuda
