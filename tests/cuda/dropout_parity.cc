#include "kernels/cuda/ops/dropout.h"

#include <functional>

#include "tests/cuda/parity_cases.h"

// Dropout against kernels/transformer/dropout.h: the same factor for every element.
namespace troop::cuda {
namespace {

constexpr std::uint32_t kSite = 5;
constexpr float kRate = 0.3f;

// A packed batch, and the dropout factors that the CPU computes.
struct Packed {
  std::int64_t width = 0;
  std::vector<std::int32_t> starts = {0};
  std::vector<DropoutKey> keys;
  std::vector<float> factor;  // [T, width]
  std::int64_t tokens() const { return starts.back(); }
  std::int64_t sequences() const { return std::int64_t(keys.size()); }
  std::int64_t size() const { return tokens() * width; }
};

Packed Pack(std::int64_t width, const std::vector<std::int64_t>& lengths) {
  Packed p;
  p.width = width;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    p.keys.push_back(MakeDropoutKey(7, s + 3, 11));
    const std::int64_t first = p.size(), n = lengths[s] * width;
    p.starts.push_back(p.starts.back() + std::int32_t(lengths[s]));
    p.factor.resize(std::size_t(first + n));
    DropoutFactors({p.keys.back(), kSite}, kRate, 0, n, &p.factor[std::size_t(first)]);
  }
  return p;
}

template <class T>
float Rounded(float x) {
  return kElement<T> == DType::kBF16 ? RoundedToBF16(x) : x;
}
// Inputs and expected outputs. For ones, the factors bit by bit; for random values with an
// addition, within rounding, since a GPU may fuse multiplication and addition.
struct Elements {
  std::vector<float> x, add;
  std::vector<double> want;
};
template <class T>
Elements MakeElements(Parity& parity, const std::vector<float>& factor) {
  const auto n = std::int64_t(factor.size());
  Elements e{parity.Random(n), parity.Random(n), {}};
  for (std::size_t i = 0; i < factor.size(); ++i) {
    e.want.push_back(double(Rounded<T>(e.x[i])) * factor[i] + Rounded<T>(e.add[i]));
  }
  return e;
}

// For rows with these factors.
using Run = std::function<void(DType, const void* x, const void* add, void* y)>;
template <class T>
void Compare(Parity& parity, const std::vector<float>& factor, const Run& run) {
  const auto n = std::int64_t(factor.size());
  std::vector<float> rounded = factor;
  for (float& f : rounded) f = Rounded<T>(f);
  const auto ones = parity.UploadAs<T>(std::vector<float>(factor.size(), 1));
  const auto y = parity.Output<T>(n);
  run(kElement<T>, ones.data(), nullptr, y.data());
  parity.Equal("factors", parity.DownloadFloats(y), rounded);
  const Elements e = MakeElements<T>(parity, factor);
  const double tolerance = kElement<T> == DType::kBF16 ? 4e-3 : 1e-6;  // one rounding: 2^-8, 2^-24
  const auto x = parity.UploadAs<T>(e.x), add = parity.UploadAs<T>(e.add);
  run(kElement<T>, x.data(), add.data(), y.data());
  parity.Close("dropped and added", parity.DownloadFloats(y), e.want, tolerance);
  run(kElement<T>, x.data(), add.data(), x.data());
  parity.Close("in place", parity.DownloadFloats(x), e.want, tolerance);
}

template <class T>
void Sequences(Parity& parity, const Packed& p, std::int64_t longest) {
  const auto starts = parity.Upload(p.starts);
  const auto keys = parity.Upload(p.keys);
  const PackedSequences batch{starts.data(), p.sequences(), p.tokens(), longest};
  const auto with = [&](const Dropout& dropout) {
    return [&parity, &p, batch, dropout](DType dtype, const void* x, const void* add, void* y) {
      DropAdd(parity.stream(), {.batch = batch,
                                .dropout = dropout,
                                .width = p.width,
                                .dtype = dtype,
                                .x = x,
                                .add = add,
                                .y = y});
    };
  };
  Compare<T>(parity, p.factor, with({keys.data(), kSite, kRate}));
  const std::vector<float> ones(p.factor.size(), 1);
  Compare<T>(parity, ones, with({keys.data(), kSite, 0}));
  Compare<T>(parity, ones, with({nullptr, kSite, kRate}));
}

void SequencesDropWhatTheCpuDrops(Parity& parity) {
  // Widths around whole groups of 128 elements, and sequences that end within one.
  for (const std::int64_t width : {1, 24, 33, 128}) {
    const Packed p = Pack(width, {1, 17, 40, 3});
    Sequences<float>(parity, p, 40);
    Sequences<BF16>(parity, p, 43);  // longest may exceed the actual length
  }
  if (parity.large()) Sequences<BF16>(parity, Pack(768, std::vector<std::int64_t>(32, 509)), 512);
}

void RowsDropWhatTheirSequencesDrop(Parity& parity) {
  for (const std::int64_t width : {7, 300}) {
    const Packed p = Pack(width, {1, 17, 40, 3});
    // First and last tokens of sequences, unordered, one of them twice.
    const std::vector<std::int32_t> token = {60, 0, 1, 17, 18, 30, 57, 58, 17};
    std::vector<float> factor;
    for (const std::int32_t t : token) {
      const auto from = p.factor.begin() + t * width;
      factor.insert(factor.end(), from, from + width);
    }
    const auto starts = parity.Upload(p.starts), tokens = parity.Upload(token);
    const auto keys = parity.Upload(p.keys);
    const PackedSequences batch{starts.data(), p.sequences(), p.tokens(), 40};
    const auto run = [&](DType dtype, const void* x, const void* add, void* y) {
      DropAddRows(parity.stream(), {.batch = batch,
                                    .dropout = {keys.data(), kSite, kRate},
                                    .rows = std::int64_t(token.size()),
                                    .token = tokens.data(),
                                    .width = width,
                                    .dtype = dtype,
                                    .x = x,
                                    .add = add,
                                    .y = y});
    };
    Compare<float>(parity, factor, run);
    Compare<BF16>(parity, factor, run);
  }
}

// Without `starts` each row is a sequence, whose elements are numbered from 0.
void EachRowHasItsOwnKey(Parity& parity) {
  for (const std::int64_t width : {5, 130}) {
    const Packed p = Pack(width, std::vector<std::int64_t>(9, 1));
    const auto keys = parity.Upload(p.keys);
    Compare<float>(parity, p.factor, [&](DType dtype, const void* x, const void* add, void* y) {
      DropAdd(parity.stream(), {.batch = EachRow(p.tokens()),
                                .dropout = {keys.data(), kSite, kRate},
                                .width = width,
                                .dtype = dtype,
                                .x = x,
                                .add = add,
                                .y = y});
    });
  }
}

}  // namespace

std::vector<ParityCase> DropoutCases() {
  return {{"Dropout.SequencesDropWhatTheCpuDrops", SequencesDropWhatTheCpuDrops},
          {"Dropout.RowsDropWhatTheirSequencesDrop", RowsDropWhatTheirSequencesDrop},
          {"Dropout.EachRowHasItsOwnKey", EachRowHasItsOwnKey}};
}

}  // namespace troop::cuda
