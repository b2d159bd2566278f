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

// Targets of a set, 4 bytes each.
constexpr std::int64_t kTargetsMax = std::int64_t{1} << 28;

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
    if (width_ * std::ssize(examples) > kTargetsMax) {
      return InvalidArgument(
          "{} examples with {} labels make more than {} targets; use fewer labels or examples",
          examples.size(), width_, kTargetsMax);
    }
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
        // A masked LM ignores labels; those of aclImdb stratify its splits.
        if (!example.labeled && options_.labeled) continue;
        const Status status = example.labeled ? SetLabel(example, &label, &targets) : Status::Ok();
        if (options_.labeled) TROOP_RETURN_IF_ERROR(status);
      }
      set.Add(Encode(example, &label.second), label);
    }
    return set;
  }

 private:
  // Tokens with the special tokens; *second: begin of the second segment.
  std::vector<TokenId> Encode(const LabeledText& example, std::int32_t* second) const {
    if (pairs_) {
      EncodedPair pair = EncodePair(tokenizer_, example.text, example.second,
                                    std::size_t(options_.max_length), options_.side);
      *second = pair.second;
      return std::move(pair.ids);
    }
    return EncodeWithSpecialTokens(tokenizer_, example.text, std::size_t(options_.max_length),
                                   options_.side);
  }

  // Sets the class, or the targets of multi-label and regression.
  Status SetLabel(const LabeledText& example, TokenizedDataset::Label* label,
                  std::vector<float>* targets) const {
    ConvertedLabel converted{.targets = *targets};
    TROOP_RETURN_IF_ERROR(
        ConvertLabel(example, options_.problem_type, map_ ? &*map_ : nullptr, &converted));
    label->label = converted.label;
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
  // Without room for a token the samples would differ in nothing.
  const std::int32_t specials = 2 + tokenizer.pair_format().separators;
  if (texts.pairs && options.max_length <= specials) {
    return InvalidArgument("data.max_length is {}, must be at least {} for pairs of texts",
                           options.max_length, specials + 1);
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

}  // namespace troop
