// Implements the readers of sentence pairs.

#include "datasets/translation/sentence_pairs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/storage/read_file.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// A file of this size has tens of millions of pairs, which is more than a run can hold.
constexpr std::size_t kBytesMax = std::size_t{1} << 32;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// True if the sentence has a word.
bool HasWord(std::string_view sentence) {
  return sentence.find_first_not_of(" \t") != sentence.npos;
}

// Adds a pair, or counts it if a side is blank.
void AddPair(std::string source, std::string target, SentencePairs* pairs) {
  if (!HasWord(source) || !HasWord(target)) {
    ++pairs->blank;
    return;
  }
  pairs->source.push_back(std::move(source));
  pairs->target.push_back(std::move(target));
}

// Cuts the lines of a table at their tabs.
Status AddTable(const std::string& path, const std::vector<std::string>& lines,
                SentencePairs* pairs) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto tabs = std::ranges::count(lines[i], '\t');
    if (tabs != 1) {
      return InvalidArgument(
          "{}: line {}: has {} tabs, must have one between a sentence and its translation; correct "
          "it, or set data.target to the second of two aligned files",
          path, i + 1, tabs);
    }
    const std::size_t tab = lines[i].find('\t');
    AddPair(lines[i].substr(0, tab), lines[i].substr(tab + 1), pairs);
  }
  return Status::Ok();
}

// Pairs the lines of two files.
Status AddAligned(const std::pair<std::string, std::vector<std::string>>& source,
                  const std::pair<std::string, std::vector<std::string>>& target,
                  SentencePairs* pairs) {
  if (source.second.size() != target.second.size()) {
    return InvalidArgument(
        "{} has {} lines, but {} has {}; aligned files must have one translation per line",
        source.first, source.second.size(), target.first, target.second.size());
  }
  for (std::size_t i = 0; i < source.second.size(); ++i)
    AddPair(source.second[i], target.second[i], pairs);
  return Status::Ok();
}

}  // namespace

// Lines are cut by hand, since std::getline cannot bound their length.
Result<std::vector<std::string>> ReadSentences(const std::string& path) {
  // A byte order mark is not a part of the first sentence.
  TROOP_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kBytesMax));
  std::string_view rest = content;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  std::vector<std::string> lines;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    // Both checks name the line, which an editor finds.
    if (line.size() > kLineBytesMax) {
      return InvalidArgument("{}: line {}: has {} bytes, must have at most {}; split it", path,
                             lines.size() + 1, line.size(), kLineBytesMax);
    }
    if (!IsUtf8(line)) {
      return InvalidArgument("{}: line {}: is not UTF-8; convert the file", path, lines.size() + 1);
    }
    lines.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

// Blank pairs are left out after the comparison, so that both files stay aligned.
Result<SentencePairs> ReadSentencePairs(const std::string& source, const std::string& target) {
  TROOP_ASSIGN_OR_RETURN(auto lines, ReadSentences(source));
  SentencePairs pairs;
  if (target.empty()) {
    TROOP_RETURN_IF_ERROR(AddTable(source, lines, &pairs));
  } else {
    TROOP_ASSIGN_OR_RETURN(auto others, ReadSentences(target));
    TROOP_RETURN_IF_ERROR(
        AddAligned({source, std::move(lines)}, {target, std::move(others)}, &pairs));
  }
  if (pairs.size() == 0) {
    return InvalidArgument(
        "{}: has no sentence pairs ({} blank ones were left out); name another "
        "file",
        source, pairs.blank);
  }
  return pairs;
}

}  // namespace troop
