#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "datasets/text/labeled_texts.h"

namespace troop {

// Names of the classes by id, and their search. Immutable: any thread may call it.
class LabelMap {
 public:
  // The classes of training examples: distinct labels in numeric order if all are integers, else by
  // their bytes. Labels that differ in case only are one class, of the most frequent spelling,
  // which is logged, as are different spellings of an integer, once. Examples without label are
  // skipped. Errors: kInvalidArgument: fewer than two
  // classes (multi-label: none), or more than kLabelsMax. O(n log n).
  static Result<LabelMap> Learn(std::span<const LabeledText> train, ProblemType problem);
  // Given classes. Errors: kInvalidArgument: an empty name, one that is not UTF-8 or occurs twice
  // (1 and 1.0 are one name); too few or too many names, as above.
  static Result<LabelMap> Make(std::vector<std::string> names, ProblemType problem);

  // Id of a label as written: an equal name, else the only name that is equal in lower case, else
  // the same number (1.0 for 1). In a map of "negative" and "positive" also neg, pos, 0 and 1.
  // nullopt: no such class, or several in lower case.
  std::optional<std::int32_t> Find(std::string_view label) const;
  const std::vector<std::string>& names() const { return names_; }
  // The names for messages, at most ten: "a, b, c (of 12)".
  std::string Listed() const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::int32_t> ids_;       // by name, and by canonical number
  std::unordered_map<std::string, std::int32_t> caseless_;  // by lower case; -1: several
};

// Label of an example as numbers.
struct ConvertedLabel {
  std::int32_t label = -1;     // class; -1: none, as in multi-label and regression
  std::span<float> targets{};  // [width] receives 1 for each label, or the number
};
// Converts the labels of an example. map: the classes; not used for kRegression. Errors:
// kInvalidArgument with the example's line: a label that is not in the map, or is not a number.
Status ConvertLabel(const LabeledText& example, ProblemType problem, const LabelMap* map,
                    ConvertedLabel* label);

// More classes than any data set for text classification has (Wiki10-31K: 31,000): a column of
// texts was taken for the label.
inline constexpr std::size_t kLabelsMax = 100000;

// A label without the case of its ASCII letters.
std::string LowerAscii(std::string_view label);
// A label as a number of finite f32 range; nullopt: any other text.
std::optional<double> NumberOf(std::string_view label);
// "1" for "1.0" and "+1"; other labels are unchanged.
std::string CanonicalLabel(std::string_view label);

}  // namespace troop
