#include "kernels/cuda/ops/embedding.h"

#include <algorithm>

#include "kernels/cuda/ops/bias.h"
#include "tests/cuda/parity_cases.h"

// Embedding tables against plain f64 loops.
namespace troop::cuda {
namespace {

constexpr std::int64_t kWords = 11;

// Packed tokens with their positions, grouped by token id. Some ids have no token; the first has
// more than a kernel reads at a time.
struct Tokens {
  std::vector<std::int32_t> starts = {0}, id, place;
  std::vector<std::int32_t> word, first = {0}, order;  // WordTokens
  std::int64_t longest = 0;
  std::int64_t size() const { return std::int64_t(id.size()); }
};

Tokens MakeTokens(Parity& parity, const std::vector<std::int32_t>& lengths) {
  Tokens t;
  for (const std::int32_t length : lengths) {
    t.starts.push_back(t.starts.back() + length);
    t.longest = std::max<std::int64_t>(t.longest, length);
    for (std::int32_t i = 0; i < length; ++i) {
      t.place.push_back(i);
      t.id.push_back(std::int32_t(parity.Below(3) > 0 ? 4 : parity.Below(kWords)));
    }
  }
  for (std::int32_t w = 0; w < kWords; ++w) {
    const std::size_t before = t.order.size();
    for (std::size_t i = 0; i < t.id.size(); ++i)
      if (t.id[i] == w) t.order.push_back(std::int32_t(i));
    if (t.order.size() == before) continue;
    t.word.push_back(w);
    t.first.push_back(std::int32_t(t.order.size()));
  }
  return t;
}

template <class T>
void Embed(Parity& parity, const Tokens& t, std::int64_t width) {
  const auto word = parity.Random(kWords * width), position = parity.Random(t.longest * width),
             type = parity.Random(2 * width);
  const auto starts = parity.Upload(t.starts), id = parity.Upload(t.id);
  const auto of_word = parity.Upload(word), of_place = parity.Upload(position),
             of_type = parity.Upload(type);
  const auto out = parity.Output<T>(t.size() * width);
  EmbedTokensArgs args{
      .batch = {starts.data(), std::int64_t(t.starts.size()) - 1, t.size(), t.longest},
      .width = width,
      .id = id.data(),
      .tables = {.word = of_word.data(), .position = of_place.data(), .type = of_type.data()},
      .dtype = kElement<T>,
      .out = out.data()};
  EmbedTokens(parity.stream(), args);
  std::vector<double> want;
  for (std::size_t i = 0; i < t.id.size(); ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      want.push_back(double(word[std::size_t(t.id[i] * width + c)]) +
                     double(position[std::size_t(t.place[i] * width + c)]) +
                     double(type[std::size_t(c)]));
    }
  }
  // Two additions in f32; bf16 adds one rounding of 2^-8.
  const double near = kElement<T> == DType::kBF16 ? 4e-3 : 1e-6;
  parity.Close("rows", parity.DownloadFloats(out), want, near);
  // Three tensor-parallel ranks with 4, 4 and 3 ids: the rank that has an id contributes its row,
  // the second rank the other tables.
  std::vector<double> sum(want.size());
  for (std::int32_t part = 0; part < 3; ++part) {
    const std::int32_t first_word = 4 * part, words = part == 2 ? 3 : 4;
    const auto rows = parity.Upload(std::vector<float>(
        word.begin() + first_word * width, word.begin() + (first_word + words) * width));
    const auto share = parity.Output<T>(t.size() * width);
    args.tables.word = rows.data();
    args.tables.first_word = first_word;
    args.tables.words = words;
    args.tables.places = part == 1;
    args.out = share.data();
    EmbedTokens(parity.stream(), args);
    const std::vector<float> got = parity.DownloadFloats(share);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double(got[i]);
  }
  parity.Close("rows of parts", sum, want, near);
}

template <class T>
void EmbedBackward(Parity& parity, const Tokens& t, std::int64_t width) {
  std::vector<float> dout = parity.Random(t.size() * width);
  if (kElement<T> == DType::kBF16) dout = FromBF16s(ToBF16s(dout));
  // Gradients are added; positions and ids without tokens keep their values.
  const auto word = parity.Random(kWords * width),
             position = parity.Random((t.longest + 2) * width), type = parity.Random(width);
  std::vector<double> dword = Doubles(word), dposition = Doubles(position), dtype0 = Doubles(type);
  for (std::size_t i = 0; i < t.id.size(); ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double d = dout[i * std::size_t(width) + std::size_t(c)];
      dword[std::size_t(t.id[i] * width + c)] += d;
      dposition[std::size_t(t.place[i] * width + c)] += d;
      dtype0[std::size_t(c)] += d;
    }
  }
  const auto starts = parity.Upload(t.starts), numbers = parity.Upload(t.word),
             first = parity.Upload(t.first), order = parity.Upload(t.order);
  const auto on_device = parity.UploadAs<T>(dout);
  const auto of_word = parity.Upload(word), of_place = parity.Upload(position),
             of_type = parity.Upload(type);
  const auto workspace = parity.Output<float>(SumRowsWorkspace(t.size(), width));
  EmbedTokensBackward(
      parity.stream(),
      {.batch = {starts.data(), std::int64_t(t.starts.size()) - 1, t.size(), t.longest},
       .width = width,
       .words = {std::int64_t(t.word.size()), numbers.data(), first.data(), order.data()},
       .dtype = kElement<T>,
       .dout = on_device.data(),
       .gradient = {of_word.data(), of_place.data(), of_type.data()},
       .workspace = workspace.data()});
  // Sequential f32 sums with roundings of 2^-24, over dozens of values, or thousands, whose errors
  // grow with the square root.
  const double tolerance = t.size() > 1000 ? 1e-5 : 1e-6;
  parity.Close("words", parity.Download(of_word), dword, tolerance);
  parity.Close("places", parity.Download(of_place), dposition, tolerance);
  parity.Close("type", parity.Download(of_type), dtype0, tolerance);
}

void EmbedsTokens(Parity& parity) {
  for (const std::int64_t width : {1, 24, 131}) {
    const Tokens t = MakeTokens(parity, {1, 17, 40, 3});
    Embed<float>(parity, t, width);
    Embed<BF16>(parity, t, width);
  }
}

void SumsGradientsOfTables(Parity& parity) {
  for (const std::int64_t width : {1, 24, 131}) {
    const Tokens t = MakeTokens(parity, {1, 17, 40, 3});
    EmbedBackward<float>(parity, t, width);
    EmbedBackward<BF16>(parity, t, width);
  }
  if (parity.large())
    EmbedBackward<BF16>(parity, MakeTokens(parity, std::vector<std::int32_t>(16, 509)), 768);
}

template <class T>
void Rows(Parity& parity, std::int64_t width) {
  const std::vector<std::int32_t> row = {5, 0, 8, 3};
  const auto many = parity.UploadAs<T>(parity.Random(9 * width));
  const auto few = parity.Output<T>(std::int64_t(row.size()) * width);
  const auto at = parity.Upload(row);
  GatherRows(parity.stream(), {.rows = std::int64_t(row.size()),
                               .width = width,
                               .row = at.data(),
                               .dtype = kElement<T>,
                               .from = many.data(),
                               .to = few.data()});
  std::vector<float> all = parity.DownloadFloats(many), want;
  for (const std::int32_t r : row) {
    const auto from = all.begin() + r * width;
    want.insert(want.end(), from, from + width);
  }
  parity.Equal("gathered", parity.DownloadFloats(few), want);
  const std::vector<float> others = parity.Random(std::int64_t(want.size()));
  const auto put = parity.UploadAs<T>(others);
  const std::vector<float> rounded = parity.DownloadFloats(put);
  ScatterRows(parity.stream(), {.rows = std::int64_t(row.size()),
                                .width = width,
                                .row = at.data(),
                                .dtype = kElement<T>,
                                .from = put.data(),
                                .to = many.data()});
  for (std::size_t r = 0; r < row.size(); ++r) {
    const auto from = rounded.begin() + std::int64_t(r) * width;
    std::copy(from, from + width, all.begin() + row[r] * width);
  }
  parity.Equal("scattered", parity.DownloadFloats(many), all);
}

void GathersAndScattersRows(Parity& parity) {
  for (const std::int64_t width : {1, 33, 130}) {
    Rows<float>(parity, width);
    Rows<BF16>(parity, width);
  }
}

}  // namespace

std::vector<ParityCase> EmbeddingCases() {
  return {{"Embedding.EmbedsTokens", EmbedsTokens},
          {"Embedding.SumsGradientsOfTables", SumsGradientsOfTables},
          {"Embedding.GathersAndScattersRows", GathersAndScattersRows}};
}

}  // namespace troop::cuda
