#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/datasets/data.h"

namespace troop {

// Files of tools/make_tokenizer_fixtures.py.
inline std::string HubFixture(const std::string& name) {
  return TROOP_SOURCE_DIR "/tests/fixtures/tokenizers/" + name;
}

inline std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(char(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Compares the ids of all texts with those that the fixture has under `key`.
inline void ExpectIdsOfSamples(const Tokenizer& tokenizer, const std::string& key) {
  int samples = 0;
  for (const JsonValue& line : ReadJsonLines(HubFixture("samples.jsonl"))) {
    const std::string text = FromHex(line.Find("hex")->string);
    EXPECT_EQ(Encode(tokenizer, text), IdsOf(line, key)) << key << ": " << text;
    ++samples;
  }
  EXPECT_GT(samples, 60);
}

// Replaces `from`, which must be there, in a document.
inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  if (at != text.npos) text.replace(at, from.size(), to);
  return text;
}

}  // namespace troop
