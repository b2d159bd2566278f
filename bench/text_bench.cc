// Tokenizes the 50,000 labeled reviews of IMDB on one core.
//
// text_bench [--quick]
//
// Reads $TROOP_DATA (or ../shared/data): imdb/aclImdb_labeled.tar.xz and tokenizers/; and the small
// tokenizers of tests/fixtures/tokenizers/. First compares the SHA-256 of all ids with that of the
// reference tokenizers; then prints the time, a JSON line per tokenizer. `check` is the number of
// reviews, and of their tokens. With --quick every tenth review is timed.
#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/storage/sha256.h"
#include "datasets/text/labeled_texts.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {
namespace {

constexpr int kRepeats = 3;

struct Case {
  const char* name;
  const char* vocabulary;  // in tokenizers/ of the data, or from the root of the sources
  const char* sha256;      // of each review's length (u32) and ids (u16), little-endian
};
constexpr Case kCases[] = {
    {"bert-uncased-imdb", "bert-base-uncased-vocab.txt",
     "290206ebb66c1cdc88f84a4f3b078a616007d436698193a50aacbab1768f0aa3"},
    {"albert-imdb", "albert-spiece.model",
     "67b0b810d976f923f8968aba02f7c5de1a01d7f24c0f9808a4cbf25ca3732a0c"},
    {"bpe-imdb", "tests/fixtures/tokenizers/roberta/tokenizer.json",
     "e152d4d32c6f3bfb6ba1431f0b10f6fba1d490746af5ceb9c98f644a5f9738ba"},
    {"bert-json-imdb", "tests/fixtures/tokenizers/bert/tokenizer.json",
     "baf58ffad8fe8f098447c5cbdbff577b1f708b85b1d986972e277f1c3683afdf"},
};

using Texts = std::vector<std::string>;

Result<Texts> ReadReviews(const std::string& data) {
  TROOP_ASSIGN_OR_RETURN(LabeledTexts reviews, ReadTexts(data + "/imdb/aclImdb_labeled.tar.xz"));
  Texts texts;
  for (std::vector<LabeledText>* set : {&reviews.train, &reviews.test}) {
    for (LabeledText& review : *set) texts.push_back(std::move(review.text));
  }
  return texts;
}

template <class T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

Status Verify(const Tokenizer& tokenizer, const Texts& texts, const Case& c) {
  std::string bytes;
  for (const std::string& text : texts) {
    const std::vector<TokenId> ids = EncodeWithSpecialTokens(tokenizer, text, std::size_t{1} << 30);
    Append(std::uint32_t(ids.size()), &bytes);
    for (const TokenId id : ids) Append(std::uint16_t(id), &bytes);
  }
  const std::string found = Sha256Hex(bytes);
  if (found == c.sha256) return {};
  return DataLoss("{}: ids with SHA-256 {}, not {}", c.name, found, c.sha256);
}

Status Measure(const std::string& data, const Texts& texts, const Case& c, bool quick) {
  const std::string name = c.vocabulary;
  const std::string path = name.starts_with("tests/") ? name : data + "/tokenizers/" + name;
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, MakeTokenizer(path, {}));
  TROOP_RETURN_IF_ERROR(Verify(*tokenizer, texts, c));
  const std::size_t step = quick ? 10 : 1;
  std::size_t reviews = 0, tokens = 0;
  std::string values;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    reviews = tokens = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::vector<TokenId> ids;
    for (std::size_t i = 0; i < texts.size(); i += step) {
      ids.clear();
      tokenizer->Encode(texts[i], &ids);
      tokens += ids.size() + 2;  // [CLS] and [SEP]
      ++reviews;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    values += fmt::format("{}{:.4f}", repeat > 0 ? ", " : "", taken.count());
  }
  fmt::print(
      "{{\"case\": \"{}\", \"metric\": \"time\", \"unit\": \"s\", \"values\": [{}], "
      "\"check\": [{}, {}]}}\n",
      c.name, values, reviews, tokens);
  return {};
}

Status Run(bool quick) {
  const char* folder = getenv("TROOP_DATA");
  const std::string data = folder != nullptr ? folder : "../shared/data";
  TROOP_ASSIGN_OR_RETURN(const Texts texts, ReadReviews(data));
  for (const Case& c : kCases) TROOP_RETURN_IF_ERROR(Measure(data, texts, c, quick));
  return {};
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) {
  const troop::Status status = troop::Run(argc > 1 && std::strcmp(argv[1], "--quick") == 0);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
