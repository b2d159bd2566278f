#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// A set of segment numbers, stored as ranges: the journal's files `removed` and `skipped`, which
// distinguish deliberately missing files from lost ones. Text with a checksum.
class SegmentRanges {
 public:
  struct Range {
    std::uint64_t first = 0, last = 0;
    bool operator==(const Range&) const = default;
  };

  // Add merges ranges that overlap or touch.
  void Add(std::uint64_t id) { Add({id, id}); }
  void Add(Range range);  // REQUIRES: first <= last
  void Add(const SegmentRanges& other);
  bool empty() const { return last_.empty(); }
  // The numbers in 1 … `last` that are not in the set.
  std::vector<Range> Missing(std::uint64_t last) const;

  // Text form: a title, one "first-last" line per range, a CRC-32C.
  std::string Encode() const;
  static Result<SegmentRanges> Parse(std::string_view text);  // kDataLoss

 private:
  std::map<std::uint64_t, std::uint64_t> last_;  // by first; ranges neither overlap nor touch
};

// Human-readable list such as "3, 5-7".
std::string ToString(const std::vector<SegmentRanges::Range>& ranges);

}  // namespace troop
