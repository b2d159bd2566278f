#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/storage/json.h"

namespace troop {

// An array of arrays … of numbers, collected from the events of ReadJson. It must be regular, as a
// tensor is. true and false count as 1 and 0. Memory: 8 bytes per number, at most `numbers_max`.
class NestedNumbers {
 public:
  explicit NestedNumbers(std::int64_t numbers_max) : numbers_max_(numbers_max) {}
  // Takes the next event, beginning with that of the outermost array. Errors: kInvalidArgument:
  // irregular, no number, or too many numbers.
  Status Take(const JsonEvent& event);
  // True between the begin and the end of the outermost array.
  bool open() const { return !counts_.empty(); }

  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<double>& values() const { return values_; }

 private:
  Status Number(double value);
  Status Count(std::size_t level);

  const std::int64_t numbers_max_;
  std::vector<std::int64_t> shape_;   // of the levels that have ended once; -1: not yet
  std::vector<std::int64_t> counts_;  // elements so far, of each open array
  std::vector<double> values_;
  std::size_t leaf_ = 0;  // level of the numbers; 0: not known yet
};

// "[2, 3]".
std::string ShapeText(const std::vector<std::int64_t>& shape);

}  // namespace troop
