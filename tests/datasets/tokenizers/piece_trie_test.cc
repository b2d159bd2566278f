#include "datasets/lookup/piece_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/base/philox.h"

namespace troop {
namespace {

std::int32_t Find(const PieceTrie& trie, std::string_view text) {
  std::int32_t node = PieceTrie::kRoot;
  for (const char byte : text) {
    if ((node = trie.Next(node, byte)) == PieceTrie::kNone) return PieceTrie::kNone;
  }
  return trie.value(node);
}

// Against std::map, strings of few and of all bytes, found and not found.
TEST(PieceTrieTest, MatchesMap) {
  for (const std::uint32_t bytes : {2u, 7u, 256u}) {
    Rng rng({.run_seed = bytes, .purpose = Purpose::kTest});
    std::map<std::string, std::int32_t> map;
    const auto draw = [&] {
      std::string text(1 + rng.Below(6), ' ');
      for (char& c : text) c = char(rng.Below(bytes));
      return text;
    };
    for (int i = 0; i < 400; ++i) map.emplace(draw(), i);
    std::vector<PieceTrie::Entry> entries;
    for (const auto& [text, value] : map) entries.push_back({text, value});
    const auto trie = PieceTrie::Make(entries);
    ASSERT_TRUE(trie.ok());
    for (const auto& [text, value] : map) EXPECT_EQ(Find(*trie, text), value);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = draw();
      const auto found = map.find(text);
      EXPECT_EQ(Find(*trie, text), found == map.end() ? PieceTrie::kNone : found->second);
    }
  }
}

TEST(PieceTrieTest, EmptyTrieFindsNothing) {
  const auto trie = PieceTrie::Make({});
  ASSERT_TRUE(trie.ok());
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(trie->Next(PieceTrie::kRoot, char(byte)), PieceTrie::kNone);
  }
}

TEST(PieceTrieTest, RejectsDuplicatesAndInvalidLengths) {
  EXPECT_EQ(PieceTrie::Make({{"a", 1}, {"b", 2}, {"a", 3}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_FALSE(PieceTrie::Make({{"", 1}}).ok());
  const std::string longest(PieceTrie::kBytesMax, 'x');
  EXPECT_TRUE(PieceTrie::Make({{longest, 1}}).ok());
  EXPECT_FALSE(PieceTrie::Make({{longest + "x", 1}}).ok());
}

}  // namespace
}  // namespace troop
