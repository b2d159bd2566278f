#include "kernels/cuda/ops/embedding.h"

#include <algorithm>

#include "kernels/cuda/ops/bias.h"
#include "tests/cuda/parity_cases.h"

// Embedding tables against plain f64 loops.
namespace troop::cuda {
namespace {

constexpr std::int64_t kWords = 11;

// Tokens grouped by a number (WordTokens).
struct Groups {
  std::vector<std::int32_t> word, first = {0}, order;
};

// Packed tokens with their positions and types, grouped by token id and by position. Some ids have
// no token; the first has more than a kernel reads at a time.
struct Tokens {
  bool indexed = false;  // types and positions are given; otherwise 0 and the index in the sequence
  std::vector<std::int32_t> starts = {0}, id, place, type;
  Groups by_id, by_place;
  std::int64_t longest = 0;
  std::int64_t size() const { return std::int64_t(id.size()); }
  std::int64_t positions() const { return longest + 4; }
};
constexpr std::int32_t kTypes = 3;

Groups GroupsOf(const std::vector<std::int32_t>& number, std::int64_t count) {
  Groups groups;
  for (std::int32_t w = 0; w < count; ++w) {
    const std::size_t before = groups.order.size();
    for (std::size_t i = 0; i < number.size(); ++i)
      if (number[i] == w) groups.order.push_back(std::int32_t(i));
    if (groups.order.size() == before) continue;
    groups.word.push_back(w);
    groups.first.push_back(std::int32_t(groups.order.size()));
  }
  return groups;
}

// indexed: positions begin at 2, and some tokens have position 1, as padding ids of RoBERTa.
Tokens MakeTokens(Parity& parity, const std::vector<std::int32_t>& lengths, bool indexed) {
  Tokens t;
  t.indexed = indexed;
  for (const std::int32_t length : lengths) {
    t.starts.push_back(t.starts.back() + length);
    t.longest = std::max<std::int64_t>(t.longest, length);
    for (std::int32_t i = 0; i < length; ++i) {
      t.place.push_back(!indexed ? i : parity.Below(4) > 0 ? i + 2 : 1);
      t.type.push_back(indexed ? std::int32_t(parity.Below(kTypes)) : 0);
      t.id.push_back(std::int32_t(parity.Below(3) > 0 ? 4 : parity.Below(kWords)));
    }
  }
  t.by_id = GroupsOf(t.id, kWords);
  t.by_place = GroupsOf(t.place, t.positions());
  return t;
}

template <class T>
void Embed(Parity& parity, const Tokens& t, std::int64_t width) {
  const auto word = parity.Random(kWords * width), position = parity.Random(t.positions() * width),
             type = parity.Random(kTypes * width);
  const auto starts = parity.Upload(t.starts), id = parity.Upload(t.id);
  const auto types = parity.Upload(t.type), places = parity.Upload(t.place);
  const auto of_word = parity.Upload(word), of_place = parity.Upload(position),
             of_type = parity.Upload(type);
  const auto out = parity.Output<T>(t.size() * width);
  EmbedTokensArgs args{
      .batch = {starts.data(), std::int64_t(t.starts.size()) - 1, t.size(), t.longest},
      .width = width,
      .id = id.data(),
      .type = t.indexed ? types.data() : nullptr,
      .place = t.indexed ? places.data() : nullptr,
      .tables = {.word = of_word.data(), .position = of_place.data(), .type = of_type.data()},
      .dtype = kElement<T>,
      .out = out.data()};
  EmbedTokens(parity.stream(), args);
  std::vector<double> want;
  for (std::size_t i = 0; i < t.id.size(); ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      want.push_back(double(word[std::size_t(t.id[i] * width + c)]) +
                     double(position[std::size_t(t.place[i] * width + c)]) +
                     double(type[std::size_t(t.type[i] * width + c)]));
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
  const auto word = parity.Random(kWords * width), position = parity.Random(t.positions() * width),
             type = parity.Random(kTypes * width);
  std::vector<double> dword = Doubles(word), dposition = Doubles(position), dtype = Doubles(type);
  for (std::size_t i = 0; i < t.id.size(); ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double d = dout[i * std::size_t(width) + std::size_t(c)];
      dword[std::size_t(t.id[i] * width + c)] += d;
      dposition[std::size_t(t.place[i] * width + c)] += d;
      dtype[std::size_t(t.type[i] * width + c)] += d;
    }
  }
  struct OnDevice {
    DeviceArray<std::int32_t> word, first, order;
    WordTokens tokens;
  };
  const auto group = [&](const Groups& from) {
    OnDevice to{parity.Upload(from.word), parity.Upload(from.first), parity.Upload(from.order), {}};
    to.tokens = {std::int64_t(from.word.size()), to.word.data(), to.first.data(), to.order.data()};
    return to;
  };
  const OnDevice by_id = group(t.by_id), by_place = group(t.by_place);
  const auto starts = parity.Upload(t.starts), types = parity.Upload(t.type);
  const auto on_device = parity.UploadAs<T>(dout);
  const auto of_word = parity.Upload(word), of_place = parity.Upload(position),
             of_type = parity.Upload(type);
  const auto workspace = parity.Output<float>(SumRowsWorkspace(t.size(), width));
  EmbedTokensBackward(
      parity.stream(),
      {.batch = {starts.data(), std::int64_t(t.starts.size()) - 1, t.size(), t.longest},
       .width = width,
       .words = by_id.tokens,
       .places = t.indexed ? by_place.tokens : WordTokens(),
       .type = t.indexed ? types.data() : nullptr,
       .types = kTypes,
       .dtype = kElement<T>,
       .dout = on_device.data(),
       .gradient = {of_word.data(), of_place.data(), of_type.data()},
       .workspace = workspace.data()});
  // Sequential f32 sums with roundings of 2^-24, over dozens of values, or thousands, whose errors
  // grow with the square root.
  const double tolerance = t.size() > 1000 ? 1e-5 : 1e-6;
  parity.Close("words", parity.Download(of_word), dword, tolerance);
  parity.Close("places", parity.Download(of_place), dposition, tolerance);
  parity.Close("type", parity.Download(of_type), dtype, tolerance);
}

void EmbedsTokens(Parity& parity) {
  for (const bool indexed : {false, true}) {
    for (const std::int64_t width : {1, 24, 131}) {
      const Tokens t = MakeTokens(parity, {1, 17, 40, 3}, indexed);
      Embed<float>(parity, t, width);
      Embed<BF16>(parity, t, width);
    }
  }
}

void SumsGradientsOfTables(Parity& parity) {
  for (const bool indexed : {false, true}) {
    for (const std::int64_t width : {1, 24, 131}) {
      const Tokens t = MakeTokens(parity, {1, 17, 40, 3}, indexed);
      EmbedBackward<float>(parity, t, width);
      EmbedBackward<BF16>(parity, t, width);
    }
    if (!parity.large()) continue;
    const std::vector<std::int32_t> lengths(16, 509);
    EmbedBackward<BF16>(parity, MakeTokens(parity, lengths, indexed), 768);
  }
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
