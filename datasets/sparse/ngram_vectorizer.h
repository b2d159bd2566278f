#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"
#include "core/tensor/sparse_rows.h"
#include "datasets/sparse/term_table.h"

namespace troop {

class ConfigVisitor;

// Unit of the n-grams, as in scikit-learn:
//   kWord    words of letters, digits and underscores (NgramOptions::word_length_min)
//   kChar    characters; runs of spaces count as one space
//   kCharWb  characters within a word, with a space at both of its ends
enum class NgramAnalyzer : std::uint8_t { kWord, kChar, kCharWb };
constexpr auto EnumNames(NgramAnalyzer) {
  return std::to_array<std::string_view>({"word", "char", "char_wb"});
}

// Norm of a row after weighting.
enum class RowNorm : std::uint8_t { kNone, kL2 };
constexpr auto EnumNames(RowNorm) { return std::to_array<std::string_view>({"none", "l2"}); }

// How texts become rows. Members have the names of scikit-learn's parameters.
struct NgramOptions {
  NgramAnalyzer analyzer = NgramAnalyzer::kWord;
  std::int64_t ngram_min = 1, ngram_max = 1;  // ngram_range
  bool lowercase = true;
  // Shortest words: 2 is scikit-learn's token_pattern \b\w\w+\b, 1 is \b\w+\b, which keeps "I" and
  // the digits of ratings.
  std::int64_t word_length_min = 2;
  bool binary = false;          // 1 for each n-gram of a text, however often it occurs
  std::int64_t n_features = 0;  // columns of hashed n-grams; 0: a vocabulary of counted ones
  std::int64_t min_df = 1;      // texts in which an n-gram of the vocabulary occurs, at least
  bool use_idf = false;         // multiply by ln((1 + n) / (1 + df)) + 1
  bool sublinear_tf = false;    // 1 + ln(count) instead of the count
  RowNorm norm = RowNorm::kNone;
  bool operator==(const NgramOptions&) const = default;
};
// Declares the keys of the section [features].
void VisitKeys(NgramOptions& options, ConfigVisitor& visitor);

// Turns texts into rows of n-gram counts or TF-IDF values, equal to scikit-learn's CountVectorizer,
// TfidfVectorizer and HashingVectorizer (with alternate_sign = False). Immutable once fitted: any
// thread may call Transform.
class NgramVectorizer {
 public:
  // Learns the vocabulary and the document frequencies. A vectorizer without either (hashed, no
  // idf) ignores the texts. O(n-grams). Errors: kInvalidArgument: an n-gram range that is empty or
  // begins below 1; no n-gram is left; more of them than kSparseWidthMax.
  static Result<NgramVectorizer> Fit(const NgramOptions& options,
                                     std::span<const std::string_view> texts);
  // A fitted vectorizer from its parts, such as those of a file: terms() and idf() of it. O(bytes).
  // Errors: kInvalidArgument: wrong options, as Fit; terms that are not in increasing order of
  // their bytes, or are there though n-grams are hashed; not one finite idf for each column.
  static Result<NgramVectorizer> Restore(const NgramOptions& options,
                                         std::vector<std::string> terms, std::vector<float> idf);
  // Appends the row of a text to `rows`, whose width is width(). N-grams outside the vocabulary are
  // left out. O(n-grams log n-grams).
  void Transform(std::string_view text, SparseRows* rows) const;

  const NgramOptions& options() const { return options_; }
  std::int64_t width() const { return width_; }
  // The vocabulary in column order, sorted by bytes; empty: hashed.
  const std::vector<std::string>& terms() const { return terms_; }
  const std::vector<float>& idf() const { return idf_; }  // [width]; empty: not used

 private:
  explicit NgramVectorizer(const NgramOptions& options) : options_(options) {}
  void IndexTerms();
  Status LearnVocabulary(std::span<const std::string_view> texts);
  void LearnFrequencies(std::span<const std::string_view> texts);
  void Columns(std::string_view text, std::vector<std::int32_t>* columns) const;

  NgramOptions options_;
  std::int64_t width_ = 0;
  std::vector<std::string> terms_;
  TermTable columns_;  // maps each term to its column
  std::vector<float> idf_;
};

}  // namespace troop
