// Tokenizes sets of examples and converts their labels, with one progress line for all of them.

#include "datasets/text/tokenized_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/check.h"
#include "core/base/phase_progress.h"
#include "datasets/text/label_map.h"

namespace troop {
namespace {

// Converts labels and tokenizes examples of one data set.
class Converter {
 public:
  // map: nullopt: labels are not classes, or not used.
  Converter(const LabeledTexts& texts, std::optional<LabelMap> map, bool labeled,
            const Tokenizer& tokenizer, const TokenizationOptions& options)
      : pairs_(texts.pairs),
        map_(std::move(map)),
        labeled_(labeled),
        tokenizer_(tokenizer),
        options_(options),
        progress_("tokenizing", "examples", std::int64_t(texts.size())) {
    // Targets per sample: one per class, or the number.
    if (!labeled_) return;
    if (options.problem_type == ProblemType::kMultiLabel) width_ = std::ssize(map_->names());
    if (options.problem_type == ProblemType::kRegression) width_ = 1;
  }

  // labeled: examples without label are left out, unless no labels are used.
  Result<TokenizedDataset> Convert(const std::vector<LabeledText>& examples, bool labeled) {
    TokenizedDataset set;
    set.width = width_;
    set.begins.reserve(examples.size() + 1);
    set.labels.reserve(examples.size());
    for (const LabeledText& example : examples) {
      progress_.Show(++done_);
      // An example of no class has only zeros.
      std::vector<float> targets(std::size_t(width_), 0.0f);
      TokenizedDataset::Label label{.targets = targets};
      if (labeled && labeled_) {
        if (!example.labeled) continue;
        TROOP_RETURN_IF_ERROR(SetLabel(example, &label, &targets));
      }
      set.Add(Encode(example, &label.second), label);
    }
    return set;
  }

 private:
  // Tokens with the special tokens; *second: begin of the second segment.
  std::vector<TokenId> Encode(const LabeledText& example, std::int32_t* second) const {
    if (pairs_) return EncodeTextPair(tokenizer_, example.text, example.second, options_, second);
    return EncodeWithSpecialTokens(tokenizer_, example.text, std::size_t(options_.max_length),
                                   options_.side);
  }

  // Sets the class, or the targets of multi-label and regression.
  Status SetLabel(const LabeledText& example, TokenizedDataset::Label* label,
                  std::vector<float>* targets) const {
    // "line 7: " of a table; a folder's label is its name.
    const std::string place = example.line > 0 ? fmt::format("line {}: ", example.line) : "";
    for (const std::string& text : example.labels) {
      if (options_.problem_type == ProblemType::kRegression) {
        const std::optional<double> number = NumberOf(text);
        if (!number) {
          return InvalidArgument("{}the label {:?} is not a finite number; a regression needs one",
                                 place, text);
        }
        targets->front() = float(*number);
        continue;
      }
      const std::optional<std::int32_t> id = map_->Find(text);
      if (!id) {
        return InvalidArgument(
            "{}the label {:?} is not a class of the training examples or of model.labels: {}",
            place, text, map_->Listed());
      }
      if (options_.problem_type == ProblemType::kSingleLabel) label->label = *id;
      if (options_.problem_type == ProblemType::kMultiLabel) (*targets)[std::size_t(*id)] = 1;
    }
    return Status::Ok();
  }

  const bool pairs_;
  const std::optional<LabelMap> map_;
  const bool labeled_;
  const Tokenizer& tokenizer_;
  const TokenizationOptions options_;
  std::int64_t width_ = 0;
  PhaseProgress progress_;  // one for all sets, so that it shows the share of all examples
  std::int64_t done_ = 0;
};

}  // namespace

// Samples are contiguous in `ids`; begins[i + 1] is the end of sample i.
void TokenizedDataset::Add(std::span<const TokenId> tokens, const Label& label) {
  TROOP_CHECK(std::int64_t(label.targets.size()) == width, "{} targets, expected {}",
              label.targets.size(), width);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  begins.push_back(std::int64_t(ids.size()));
  labels.push_back(label.label);
  second.push_back(label.second);
  targets.insert(targets.end(), label.targets.begin(), label.targets.end());
}

// The map is made once for all sets.
Result<TokenizedTexts> TokenizeTexts(const LabeledTexts& texts,
                                     const std::vector<std::string>& names,
                                     const Tokenizer& tokenizer,
                                     const TokenizationOptions& options) {
  const bool numbers = options.problem_type == ProblemType::kRegression;
  std::optional<LabelMap> map;
  if (!numbers && !names.empty()) {
    TROOP_ASSIGN_OR_RETURN(map, LabelMap::Make(names, options.problem_type));
  }
  const bool labeled = numbers || map.has_value();
  TokenizedTexts out{.names = names};
  Converter converter(texts, std::move(map), labeled, tokenizer, options);
  TROOP_ASSIGN_OR_RETURN(out.train, converter.Convert(texts.train, true));
  TROOP_ASSIGN_OR_RETURN(out.validation, converter.Convert(texts.validation, true));
  TROOP_ASSIGN_OR_RETURN(out.test, converter.Convert(texts.test, true));
  TROOP_ASSIGN_OR_RETURN(out.unlabeled, converter.Convert(texts.unlabeled, false));
  return out;
}

// Both lengths follow from the room; nothing is tokenized twice.
std::vector<TokenId> EncodeTextPair(const Tokenizer& tokenizer, std::string_view first,
                                    std::string_view second, const TokenizationOptions& options,
                                    std::int32_t* second_begin) {
  constexpr std::size_t kSpecials = 3;
  TROOP_CHECK(options.max_length >= std::int32_t(kSpecials), "max_length is {}, must be at least 3",
              options.max_length);
  std::vector<TokenId> a, b;
  tokenizer.Encode(first, &a);
  tokenizer.Encode(second, &b);
  // The lengths after truncation: the shorter text is cut only where half of the room is less.
  const std::size_t room = std::size_t(options.max_length) - kSpecials;
  const bool first_longer = a.size() > b.size();
  std::size_t kept_a = a.size(), kept_b = b.size();
  std::size_t& shorter = first_longer ? kept_b : kept_a;
  std::size_t& longer = first_longer ? kept_a : kept_b;
  if (kept_a + kept_b > room) {
    shorter = std::min(shorter, room / 2);
    longer = room - shorter;
  }
  // Keeps the ids of one text, and ends its segment.
  const bool left = options.side == TruncationSide::kLeft;
  const auto append = [&](const std::vector<TokenId>& from, std::size_t kept,
                          std::vector<TokenId>* ids) {
    const auto begin = from.begin() + std::ptrdiff_t(left ? from.size() - kept : 0);
    ids->insert(ids->end(), begin, begin + std::ptrdiff_t(kept));
    ids->push_back(tokenizer.special().end);
  };
  std::vector<TokenId> ids = {tokenizer.special().begin};
  append(a, kept_a, &ids);
  *second_begin = std::int32_t(ids.size());
  append(b, kept_b, &ids);
  return ids;
}

}  // namespace troop
