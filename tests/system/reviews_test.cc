// The real reviews, where they are: shared/data, or $TROOP_DATA.

#include <gtest/gtest.h>

#include <string>

#include "core/storage/sha256.h"
#include "datasets/text/imdb_reviews.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

template <class T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Hashes of each review its length (u32) and its ids with [CLS] and [SEP] (u16), little-endian.
std::string IdsSha256(const Reviews& reviews, const std::string& vocabulary) {
  const auto tokenizer = OpenTokenizer(DataPath("tokenizers/" + vocabulary));
  std::string bytes;
  for (const auto* set : {&reviews.train, &reviews.test}) {
    for (const Review& review : *set) {
      const auto ids = EncodeWithSpecialTokens(*tokenizer, review.text, std::size_t{1} << 30);
      Append(std::uint32_t(ids.size()), &bytes);
      for (const TokenId id : ids) Append(std::uint16_t(id), &bytes);
    }
  }
  return Sha256Hex(bytes);
}

// Published ids: transformers' slow tokenizer for BERT, and SentencePiece 0.1.97 after ALBERT's
// normalization, on all 50,000 reviews.
TEST(ImdbTest, TokenIdsOfAllReviewsMatchPublishedOnes) {
  const std::string path = DataPath("imdb/aclImdb_labeled.tar.xz");
  TROOP_SKIP_WITHOUT_DATA("imdb/aclImdb_labeled.tar.xz");
  const Result<Reviews> reviews = ReadReviews(path);
  ASSERT_TRUE(reviews.ok()) << reviews.status().ToString();
  EXPECT_EQ(reviews->train.size(), 25000);
  EXPECT_EQ(reviews->test.size(), 25000);
  EXPECT_EQ(IdsSha256(*reviews, "bert-base-uncased-vocab.txt"),
            "290206ebb66c1cdc88f84a4f3b078a616007d436698193a50aacbab1768f0aa3");
  EXPECT_EQ(IdsSha256(*reviews, "albert-spiece.model"),
            "ab54861b7a7e1a3783864b4aa39a30598e4c2ed823fbac207d7ac0ee2a4c32f3");
}

}  // namespace
}  // namespace troop
