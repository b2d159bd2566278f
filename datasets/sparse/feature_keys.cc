// Declares the config keys of n-gram features.
#include "core/config/config_visitor.h"
#include "datasets/sparse/ngram_vectorizer.h"
#include "datasets/sparse/svmlight.h"

namespace troop {

// Names, meanings and defaults are those of scikit-learn's vectorizers.
void VisitKeys(NgramOptions& c, ConfigVisitor& v) {
  v.Visit({.name = "features.analyzer",
           .doc = "Linear models: unit of the n-grams: words; characters; or characters within "
                  "words, padded with a space at both ends (char_wb)."},
          c.analyzer);
  // Longer n-grams than 64 units would never repeat.
  v.Visit({"features.ngram_min", "Shortest n-grams in units.", Between(1, 64)}, c.ngram_min);
  v.Visit({"features.ngram_max", "Longest n-grams in units.", Between(1, 64)}, c.ngram_max);
  v.Visit({"features.lowercase", "Convert texts to lower case."}, c.lowercase);
  v.Visit({"features.word_length_min",
           "Shortest words in characters; 1 keeps words such as \"I\" and single digits.",
           Between(1, 64)},
          c.word_length_min);
  // Columns.
  v.Visit({"features.n_features",
           "Number of columns of hashed n-grams; 0 means one column for each n-gram of a "
           "vocabulary. Of svmlight files: their number of features; 0 means the largest index.",
           Between(0, double(kSparseWidthMax))},
          c.n_features);
  v.Visit({"features.min_df",
           "Number of training texts in which an n-gram of the vocabulary occurs, at least.",
           Between(1, kConfigMany)},
          c.min_df);
  // Values.
  v.Visit({"features.binary", "Count an n-gram once in a text, however often it occurs."},
          c.binary);
  v.Visit(
      {"features.use_idf",
       "Multiply counts by the inverse document frequency ln((1 + n) / (1 + df)) + 1 (TF-IDF)."},
      c.use_idf);
  v.Visit({"features.sublinear_tf", "Replace a count by 1 + ln(count)."}, c.sublinear_tf);
  v.Visit({.name = "features.norm", .doc = "Norm to which each text's features are scaled."},
          c.norm);
}

}  // namespace troop
