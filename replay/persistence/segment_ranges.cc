// SegmentRanges: a set of segment numbers as merged ranges, and its text form.
#include "replay/persistence/segment_ranges.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>

#include "core/storage/crc32c.h"

namespace troop {
namespace {

// Title with the version of the text format.
constexpr std::string_view kRangesTitle = "troop replay segments 1\n";
constexpr std::string_view kRangesChecksum = "checksum ";

std::string WithChecksum(std::string text) {
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(text)));
  return fmt::format("{}{}{}\n", text, kRangesChecksum, crc);
}

// Removes a number and the character `behind` it from the front of `text`.
bool TakeNumber(std::string_view* text, char behind, std::uint64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || end == text->data() + text->size() || *end != behind) return false;
  text->remove_prefix(std::size_t(end - text->data()) + 1);
  return true;
}

}  // namespace

void SegmentRanges::Add(Range range) {
  // Merge with the previous range if it overlaps or touches, then with all following ones that do.
  auto next = last_.upper_bound(range.first);
  if (next != last_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= range.first - 1) {
      range = {before->first, std::max(before->second, range.last)};
      next = last_.erase(before);
    }
  }
  while (next != last_.end() && next->first - 1 <= range.last) {
    range.last = std::max(range.last, next->second);
    next = last_.erase(next);
  }
  last_[range.first] = range.last;
}

void SegmentRanges::Add(const SegmentRanges& other) {
  for (const auto& [first, last] : other.last_) Add({first, last});
}

// Walks the gaps between the ranges.
std::vector<SegmentRanges::Range> SegmentRanges::Missing(std::uint64_t last) const {
  std::vector<Range> missing;
  std::uint64_t next = 1;
  for (const auto& [first, end] : last_) {
    if (next > last) break;
    if (first > next) missing.push_back({next, std::min(first - 1, last)});
    next = std::max(next, end + 1);
  }
  if (next <= last) missing.push_back({next, last});
  return missing;
}

std::string SegmentRanges::Encode() const {
  std::string text(kRangesTitle);
  for (const auto& [first, last] : last_) text += fmt::format("{}-{}\n", first, last);
  return WithChecksum(std::move(text));
}

Result<SegmentRanges> SegmentRanges::Parse(std::string_view text) {
  const Status damaged = DataLoss("damaged, or of another version");
  // The whole text must match its re-encoded checksum.
  const std::size_t end = text.rfind(kRangesChecksum);
  if (end == text.npos || !text.starts_with(kRangesTitle) ||
      WithChecksum(std::string(text.substr(0, end))) != text) {
    return damaged;
  }
  SegmentRanges ranges;
  std::string_view rest = text.substr(0, end).substr(kRangesTitle.size());
  while (!rest.empty()) {
    Range range;
    if (!TakeNumber(&rest, '-', &range.first) || !TakeNumber(&rest, '\n', &range.last) ||
        range.first == 0 || range.last < range.first || range.last == ~std::uint64_t{0}) {
      return damaged;
    }
    ranges.Add(range);
  }
  return ranges;
}

// For log messages.
std::string ToString(const std::vector<SegmentRanges::Range>& ranges) {
  std::string text;
  for (const auto& [first, last] : ranges) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

}  // namespace troop
