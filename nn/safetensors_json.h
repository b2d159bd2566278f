#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// The header of a safetensors file, as it stands there: nothing is checked against the data.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // names are unique
  std::map<std::string, std::string> metadata;
};

// Reads exactly the JSON that the format allows: an object of tensors, each an object of dtype,
// shape and data_offsets, and "__metadata__", an object of strings. Memory is bounded by the text.
// Errors: kDataLoss, with the position.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text);

// A JSON string literal.
std::string QuoteJson(std::string_view text);

}  // namespace troop
