// The real reviews, where they are: shared/data, or $TROOP_DATA.

#include <gtest/gtest.h>

#include <string>

#include "core/storage/sha256.h"
#include "datasets/text/labeled_texts.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

template <class T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Hashes of each review its length (u32) and its ids with [CLS] and [SEP] (u16), little-endian.
std::string IdsSha256(const LabeledTexts& reviews, const std::string& vocabulary) {
  const auto tokenizer = OpenTokenizer(DataPath("tokenizers/" + vocabulary));
  std::string bytes;
  for (const auto* set : {&reviews.train, &reviews.test}) {
    for (const LabeledText& review : *set) {
      const auto ids = EncodeWithSpecialTokens(*tokenizer, review.text, std::size_t{1} << 30);
      Append(std::uint32_t(ids.size()), &bytes);
      for (const TokenId id : ids) Append(std::uint16_t(id), &bytes);
    }
  }
  return Sha256Hex(bytes);
}

// transformers' slow tokenizer for BERT, and SentencePiece 0.2.3 after ALBERT's normalization
// (tools/make_text_fixtures.py --corpus), on all 50,000 reviews.
TEST(ImdbTest, TokenIdsOfAllReviewsMatchPublishedOnes) {
  const std::string path = DataPath("imdb/aclImdb_labeled.tar.xz");
  TROOP_SKIP_WITHOUT_DATA("imdb/aclImdb_labeled.tar.xz");
  const Result<LabeledTexts> reviews = ReadTexts(path);
  ASSERT_TRUE(reviews.ok()) << reviews.status().ToString();
  EXPECT_EQ(reviews->train.size(), 25000);
  EXPECT_EQ(reviews->test.size(), 25000);
  EXPECT_EQ(IdsSha256(*reviews, "bert-base-uncased-vocab.txt"),
            "290206ebb66c1cdc88f84a4f3b078a616007d436698193a50aacbab1768f0aa3");
  EXPECT_EQ(IdsSha256(*reviews, "albert-spiece.model"),
            "67b0b810d976f923f8968aba02f7c5de1a01d7f24c0f9808a4cbf25ca3732a0c");
}

// Hashes all ids, with begin and end tokens, as i32 in little-endian order.
std::string WideIdsSha256(const LabeledTexts& reviews, const std::string& vocabulary) {
  const auto tokenizer = OpenTokenizer(TROOP_SOURCE_DIR "/tests/fixtures/tokenizers/" + vocabulary);
  std::string bytes;
  for (const auto* set : {&reviews.train, &reviews.test}) {
    for (const LabeledText& review : *set) {
      for (const TokenId id :
           EncodeWithSpecialTokens(*tokenizer, review.text, std::size_t{1} << 30)) {
        Append(id, &bytes);
      }
    }
  }
  return Sha256Hex(bytes);
}

// Hugging Face's tokenizers 0.23.3: tools/make_tokenizer_fixtures.py --corpus.
TEST(ImdbTest, TokenIdsOfSmallHubTokenizersMatchHuggingFace) {
  TROOP_SKIP_WITHOUT_DATA("imdb/aclImdb_labeled.tar.xz");
  const Result<LabeledTexts> reviews = ReadTexts(DataPath("imdb/aclImdb_labeled.tar.xz"));
  ASSERT_TRUE(reviews.ok()) << reviews.status().ToString();
  EXPECT_EQ(WideIdsSha256(*reviews, "roberta/vocab.json"),
            "c665f36115badaffcae1e2dd5d42475566ba0a78f09bf81bbaf5015a8c2fb75d");
  EXPECT_EQ(WideIdsSha256(*reviews, "roberta/tokenizer.json"),
            "7a7c2905293f07e1235ec7a7e2ec3701a755cf74f5e55a971f39ffaf235cb36b");
  EXPECT_EQ(WideIdsSha256(*reviews, "bert/tokenizer.json"),
            "88617c590458a2c41efc04ffc15a2e1515715e42845bc5e179ad006124470dad");
  EXPECT_EQ(WideIdsSha256(*reviews, "albert/tokenizer.json"),
            "e6102e0988bc7fff30c1210675632030f18787a9010543affe30e57c50a7d6a1");
  EXPECT_EQ(WideIdsSha256(*reviews, "xlmr/tokenizer.json"),
            "8ea0ea4817fe9d0f2e7857c60f63f91d405ef3e0d087b716382aca9d591acae8");
}

}  // namespace
}  // namespace troop
