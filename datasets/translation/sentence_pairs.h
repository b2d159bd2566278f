#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Sentences and their translations; both vectors have one size.
struct SentencePairs {
  std::vector<std::string> source, target;
  std::int64_t blank = 0;  // pairs left out because a side has no word
  std::int64_t size() const { return std::int64_t(source.size()); }
};

// Reads sentence pairs, one per line: from two aligned files, or, if `target` is empty, from a
// table SOURCE <tab> TARGET. A line may end in \r\n, and the last one without line end. Blocks on
// the disk. Errors: those of ReadFile; kInvalidArgument, naming file and line: files with different
// numbers of lines (both numbers), a line of a table without exactly one tab, a line that is not
// UTF-8 or longer than kLineBytesMax, no pairs.
Result<SentencePairs> ReadSentencePairs(const std::string& source, const std::string& target);

// Reads the lines of a file, as ReadSentencePairs does.
Result<std::vector<std::string>> ReadSentences(const std::string& path);

// Bytes of a line. Encoding a word takes time in the square of its length.
inline constexpr std::size_t kLineBytesMax = 1 << 14;

}  // namespace troop
