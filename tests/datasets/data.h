#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

inline std::string TextFixture(const std::string& name) {
  return TROOP_SOURCE_DIR "/tests/fixtures/text/" + name;
}

// Path of reviews, vocabularies or golden samples, which are too large for the repository or may
// not be redistributed: in $TROOP_DATA, or in shared/data next to the sources.
inline std::string DataPath(const std::string& name) {
  const char* folder = getenv("TROOP_DATA");
  return (folder != nullptr ? std::string(folder) : TROOP_SOURCE_DIR "/../shared/data") + "/" +
         name;
}
#define TROOP_SKIP_WITHOUT_DATA(name)           \
  if (!std::filesystem::exists(DataPath(name))) \
  GTEST_SKIP() << DataPath(name)                \
               << " does not exist"             \
                  " (TROOP_DATA names the folder of data sets)"

inline std::string ReadAll(const std::string& path) {
  Result<std::string> bytes = ReadFile(path, std::size_t{1} << 30);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  return bytes.ok() ? *bytes : std::string();
}

// A JSON object a line, of those that begin with `prefix`.
inline std::vector<JsonValue> ReadJsonLines(const std::string& path, std::string_view prefix = "") {
  std::vector<JsonValue> lines;
  const std::string text = ReadAll(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string_view json = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (!json.starts_with(prefix)) continue;
    Result<JsonValue> line = ParseJson(json);
    EXPECT_TRUE(line.ok()) << line.status().ToString();
    if (line.ok()) lines.push_back(std::move(*line));
  }
  return lines;
}

inline std::vector<TokenId> IdsOf(const JsonValue& line, std::string_view key) {
  std::vector<TokenId> ids;
  const JsonValue* array = line.Find(key);
  EXPECT_NE(array, nullptr) << key;
  if (array == nullptr) return ids;
  for (const JsonValue& id : array->array) ids.push_back(TokenId(id.integer.value_or(-1)));
  return ids;
}

inline std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.Encode(text, &ids);
  return ids;
}

inline std::unique_ptr<Tokenizer> OpenTokenizer(const std::string& path, bool cased = false) {
  Result<std::unique_ptr<Tokenizer>> made = MakeTokenizer(path, {.cased = cased});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(*made) : nullptr;
}

}  // namespace troop
