// Hostile files of reviews. The first byte says what the rest is: a tar archive, an .xz file, a
// table (CSV), or a file of cached tokens. What is accepted has sentiments and ids in their bounds,
// and a cache is written again as the same bytes.
#include <string>

#include "core/base/check.h"
#include "datasets/text/archive_reader.h"
#include "datasets/text/csv.h"
#include "datasets/text/imdb_reviews.h"
#include "datasets/text/token_cache.h"
#include "tests/datasets/tar_file.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

constexpr std::size_t kUnpackedMax = 1 << 20, kFileMax = 1 << 16;
const TokenCacheKey kKey = {.tokenizer = 1, .vocabulary = 50, .max_length = 6, .source = 2};

void CheckReviews(const Result<Reviews>& reviews) {
  if (!reviews.ok()) {
    TROOP_CHECK(!reviews.status().message().empty(), "no reason is given");
    return;
  }
  for (const auto* set : {&reviews->train, &reviews->test}) {
    for (const Review& review : *set) {
      TROOP_CHECK(review.sentiment != Sentiment::kNone, "a labelled review without a label");
    }
  }
}

// Files are within the limits, and the archive ends.
void CheckArchive(std::string_view bytes, bool xz) {
  Result<ArchiveReader> reader =
      ArchiveReader::Make(bytes, {.xz = xz, .bytes_max = kUnpackedMax, .file_bytes_max = kFileMax});
  while (reader.ok()) {
    const Result<bool> more = reader->Next();
    if (!more.ok()) TROOP_CHECK(!more.status().message().empty(), "no reason is given");
    if (!more.ok() || !*more) return;
    TROOP_CHECK(!reader->name().empty(), "a file without a name");
    const Result<std::string> content = reader->Read();
    if (!content.ok()) return;
    TROOP_CHECK(content->size() <= kFileMax, "{} bytes", content->size());
  }
}

// A table of fields, written in quotes, reads as the same table.
void CheckCsv(std::string_view text) {
  CsvReader reader(text);
  std::vector<std::string> fields, again;
  for (;;) {
    const Result<bool> more = reader.Next(&fields);
    if (!more.ok() || !*more) return;
    std::string line;
    for (const std::string& field : fields) {
      line += line.empty() ? "\"" : ",\"";
      for (const char c : field) line += c == '"' ? std::string("\"\"") : std::string(1, c);
      line += '"';
    }
    const Result<bool> read = CsvReader(line).Next(&again);
    TROOP_CHECK(read.ok() && *read && again == fields, "another row came back");
  }
}

void CheckCache(std::string_view bytes) {
  const Result<TokenizedReviews> reviews = DecodeTokenCache(bytes, kKey);
  if (!reviews.ok()) return;
  TROOP_CHECK(EncodeTokenCache(*reviews, kKey) == bytes, "the bytes are not the same");
}

TokenizedReviews SmallSet() {
  TokenizedReviews reviews;
  reviews.train.Add(std::vector<TokenId>{2, 49, 3}, Sentiment::kPositive);
  reviews.unlabeled.Add(std::vector<TokenId>{2, 3}, Sentiment::kNone);
  return reviews;
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  write("tar", '\0' + TarFile("aclImdb/train/pos/0_9.txt", "good") +
                   TarFile("aclImdb/test/neg/0_1.txt", "bad") + TarFile("x", "", '5') + kTarEnd);
  write("tar_pax", '\0' + TarFile("x", "30 mtime=1320000000.123456789\n", 'x') +
                       TarFile("train/unsup/0_0.txt", "?", '0', "aclImdb") + kTarEnd);
  write("xz", std::string("\1\xFD\x37zXZ\0\0\4\xE6\xD6\xB4\x46\0\0\0\0\x1C\xDF\x44\x21", 21) +
                  std::string("\x1F\xB6\xF3\x7D\1\0\0\0\0\4YZ", 12));  // of nothing
  write("csv", "\2review,sentiment\r\n\"a \"\"b\"\",\nc\",positive\r\nd,0\n");
  write("cache", '\3' + EncodeTokenCache(SmallSet(), kKey));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const auto kind = input.Take<std::uint8_t>();
  const std::span<std::byte> rest = input.TakeRest();
  const std::string_view bytes = TextOf(rest);
  switch (kind % 4) {
    case 0:
      CheckReviews(ReadReviewArchive(bytes, Compression::kNone));
      CheckArchive(bytes, false);
      break;
    case 1:
      CheckArchive(bytes, true);
      break;
    case 2:
      CheckReviews(ReadReviewCsv(bytes));
      CheckCsv(bytes);
      break;
    default:
      CheckCache(bytes);
  }
  return 0;
}
