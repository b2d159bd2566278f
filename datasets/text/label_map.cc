// Implements the search of classes by their names, and learning the names from examples.

#include "datasets/text/label_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/base/log.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// Integers up to 2^53 are exact as a double.
constexpr double kIntegerMax = 9007199254740992.0;

// The label as an integer; nullopt: any other text.
std::optional<std::int64_t> IntegerOf(std::string_view label) {
  const std::optional<double> number = NumberOf(label);
  if (!number || std::abs(*number) > kIntegerMax || *number != std::floor(*number)) return {};
  return std::int64_t(*number);
}

// Numeric order if all are integers, else that of the bytes.
void SortNames(std::vector<std::string>* names) {
  if (std::ranges::all_of(*names, [](const auto& name) { return IntegerOf(name).has_value(); })) {
    std::ranges::sort(*names, {}, [](const auto& name) { return *IntegerOf(name); });
  } else {
    std::ranges::sort(*names);
  }
}

// Ids of labels that are conventional in data sets of sentiments (aclImdb and its tables).
std::optional<std::int32_t> SentimentId(const std::vector<std::string>& names,
                                        const std::string& label) {
  if (names.size() != 2 ||
      !std::ranges::is_permutation(names, std::vector<std::string>{"negative", "positive"})) {
    return std::nullopt;
  }
  const bool positive = label == "1" || label == "pos";
  if (!positive && label != "0" && label != "neg") return std::nullopt;
  return std::int32_t((names[1] == "positive") == positive);
}

}  // namespace

// Other alphabets are compared as written.
std::string LowerAscii(std::string_view label) {
  std::string lower(label);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return lower;
}

// from_chars ignores the locale.
std::optional<double> NumberOf(std::string_view label) {
  if (label.starts_with('+')) label.remove_prefix(1);
  double number = 0;
  const char* const end = label.data() + label.size();
  const auto parsed = std::from_chars(label.data(), end, number);
  // Also rejects "nan", "inf" and numbers that targets cannot hold.
  if (label.empty() || parsed.ec != std::errc() || parsed.ptr != end ||
      !(std::abs(number) <= std::numeric_limits<float>::max())) {
    return std::nullopt;
  }
  return number;
}

// Fractions keep their spelling: 1.5 and 1.50 differ.
std::string CanonicalLabel(std::string_view label) {
  const auto integer = IntegerOf(label);
  return integer ? std::to_string(*integer) : std::string(label);
}

// Counts the spellings of each label first: the class is named after the most frequent one.
Result<LabelMap> LabelMap::Learn(std::span<const LabeledText> train, ProblemType problem) {
  std::map<std::string, std::map<std::string, std::int64_t>> spellings;  // by lower case
  std::map<std::string, std::string> written;  // the first spelling of each integer
  std::int64_t labeled = 0;
  bool reported = false;
  for (const LabeledText& example : train) {
    labeled += example.labeled;
    for (const std::string& label : example.labels) {
      const std::string name = CanonicalLabel(label);
      ++spellings[LowerAscii(name)][name];
      if (reported || !IntegerOf(label)) continue;
      // Codes such as 007 may be meant as text, so one example is shown.
      const std::string& first = written.emplace(name, label).first->second;
      reported = first != label;
      if (!reported) continue;
      LogWarning(
          "labels: {:?} and {:?} are one class ({}), as integers are compared by value; if they "
          "are codes, put a letter before them",
          first, label, name);
    }
  }
  // One name per class.
  std::vector<std::string> names;
  for (const auto& [lower, counts] : spellings) {
    const auto& most =
        *std::ranges::max_element(counts, {}, [](const auto& spelling) { return spelling.second; });
    names.push_back(most.first);
    if (counts.size() == 1) continue;
    LogWarning("labels: {} spellings of {:?} are one class; set model.labels to separate them",
               counts.size(), most.first);
  }
  if (labeled == 0) return InvalidArgument("it has no labeled training examples");
  SortNames(&names);
  // Tables of sentiments may use words and numbers together.
  if (names == std::vector<std::string>{"0", "1", "negative", "positive"} ||
      names == std::vector<std::string>{"0", "negative", "positive"} ||
      names == std::vector<std::string>{"1", "negative", "positive"}) {
    names = {"negative", "positive"};
  }
  if (problem == ProblemType::kSingleLabel && names.size() == 1) {
    return InvalidArgument(
        "all {} labeled training examples have the label {:?}; a classifier needs at least two "
        "classes",
        labeled, names.front());
  }
  return Make(std::move(names), problem);
}

// Both tables are filled in one pass; a repeated lower case is marked as ambiguous.
Result<LabelMap> LabelMap::Make(std::vector<std::string> names, ProblemType problem) {
  const std::size_t least = problem == ProblemType::kSingleLabel ? 2 : 1;
  if (names.size() < least || names.size() > kLabelsMax) {
    return InvalidArgument("there are {} classes, must be from {} to {}", names.size(), least,
                           kLabelsMax);
  }
  LabelMap map;
  for (std::size_t id = 0; id < names.size(); ++id) {
    const std::string& name = names[id];
    if (name.empty()) return InvalidArgument("class {} has no name", id);
    if (!IsUtf8(name)) return InvalidArgument("the name of class {} is not UTF-8", id);
    if (!map.ids_.emplace(CanonicalLabel(name), std::int32_t(id)).second) {
      return InvalidArgument("two classes have the name {:?}", name);
    }
    const auto [at, added] = map.caseless_.emplace(LowerAscii(name), std::int32_t(id));
    if (!added) at->second = -1;
  }
  map.names_ = std::move(names);
  return map;
}

// Exact names win over other spellings.
std::optional<std::int32_t> LabelMap::Find(std::string_view label) const {
  const std::string name = CanonicalLabel(label);
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  const std::string lower = LowerAscii(name);
  if (const auto found = caseless_.find(lower); found != caseless_.end()) {
    return found->second < 0 ? std::nullopt : std::optional(found->second);
  }
  return SentimentId(names_, lower);
}

// Long lists would hide the rest of a message.
std::string LabelMap::Listed() const {
  constexpr std::size_t kShown = 10;
  const auto shown = std::span(names_).first(std::min(kShown, names_.size()));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (names_.size() > kShown) text += fmt::format(", … (of {})", names_.size());
  return text;
}

// A folder's label is its name, so only tables have lines.
Status ConvertLabel(const LabeledText& example, ProblemType problem, const LabelMap* map,
                    ConvertedLabel* label) {
  const std::string place = example.line > 0 ? fmt::format("line {}: ", example.line) : "";
  for (const std::string& text : example.labels) {
    if (problem == ProblemType::kRegression) {
      const std::optional<double> number = NumberOf(text);
      if (!number) {
        return InvalidArgument("{}the label {:?} is not a finite number; a regression needs one",
                               place, text);
      }
      label->targets.front() = float(*number);
      continue;
    }
    const std::optional<std::int32_t> id = map->Find(text);
    if (!id) {
      return InvalidArgument(
          "{}the label {:?} is not a class of the training examples or of model.labels: {}", place,
          text, map->Listed());
    }
    if (problem == ProblemType::kSingleLabel) label->label = *id;
    if (problem == ProblemType::kMultiLabel) label->targets[std::size_t(*id)] = 1;
  }
  return Status::Ok();
}

}  // namespace troop
