#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// Numbers of segments, kept as ranges: a journal's files `removed` and `skipped`, which tell what
// is missing on purpose from what was lost. Text, with its checksum.
class SegmentRanges {
 public:
  struct Range {
    std::uint64_t first = 0, last = 0;
    bool operator==(const Range&) const = default;
  };

  void Add(std::uint64_t id) { Add({id, id}); }
  void Add(Range range);  // REQUIRES: first <= last
  void Add(const SegmentRanges& other);
  bool empty() const { return last_.empty(); }
  // Of 1 … `last`, what is not among them.
  std::vector<Range> Missing(std::uint64_t last) const;

  std::string Encode() const;
  static Result<SegmentRanges> Parse(std::string_view text);  // kDataLoss

 private:
  std::map<std::uint64_t, std::uint64_t> last_;  // by first; neither overlap nor touch
};

// "3, 5-7"
std::string ToString(const std::vector<SegmentRanges::Range>& ranges);

}  // namespace troop
