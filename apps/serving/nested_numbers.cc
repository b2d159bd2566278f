// Implements the collection of a regular array of numbers, without recursion: the depth of the
// brackets comes from the network.
#include "apps/serving/nested_numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troop {
namespace {

constexpr std::size_t kLevelsMax = 10;  // more than a batch of stacks of any observation has

}  // namespace

// An element of the array at `level`; more than a sibling had is irregular.
Status NestedNumbers::Count(std::size_t level) {
  if (level == 0) return Status::Ok();
  const std::int64_t count = ++counts_[level - 1];
  if (const std::int64_t limit = shape_[level - 1]; limit >= 0 && count > limit) {
    return InvalidArgument("an array of level {} has more than {} elements, as the one before has",
                           level, limit);
  }
  return Status::Ok();
}

// All numbers are at one level; the first one sets it.
Status NestedNumbers::Number(double value) {
  if (leaf_ == 0) leaf_ = counts_.size();
  if (leaf_ != counts_.size()) {
    return InvalidArgument("numbers are nested {} deep and {} deep", leaf_, counts_.size());
  }
  if (std::int64_t(values_.size()) >= numbers_max_)
    return InvalidArgument("more than {} numbers; send fewer rows per request", numbers_max_);
  values_.push_back(value);
  return Count(counts_.size());
}

// The first array of each level sets the size that the others must have.
Status NestedNumbers::Take(const JsonEvent& event) {
  using Kind = JsonEvent::Kind;
  switch (event.kind) {
    case Kind::kNumber:
      return Number(event.number);
    case Kind::kBool:
      return Number(event.boolean ? 1 : 0);
    case Kind::kBeginArray: {
      // Both checks come before any memory is used.
      if (counts_.size() >= kLevelsMax)
        return InvalidArgument("nested more than {} deep", kLevelsMax);
      if (leaf_ != 0 && counts_.size() >= leaf_)
        return InvalidArgument("numbers are nested {} deep and more", leaf_);
      TROOP_RETURN_IF_ERROR(Count(counts_.size()));
      counts_.push_back(0);
      if (shape_.size() < counts_.size()) shape_.push_back(-1);
      return Status::Ok();
    }
    case Kind::kEndArray: {
      std::int64_t& size = shape_[counts_.size() - 1];
      if (size >= 0 && size != counts_.back()) {
        return InvalidArgument("arrays of level {} have {} and {} elements", counts_.size(), size,
                               counts_.back());
      }
      size = counts_.back();
      counts_.pop_back();
      return Status::Ok();
    }
    default:
      return InvalidArgument("contains something else than numbers");
  }
}

// For messages.
std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace troop
