#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/sparse_rows.h"
#include "datasets/sparse/ngram_vectorizer.h"
#include "learners/linear/linear_training.h"
#include "learners/supervised/dataset.h"
#include "learners/training_config.h"

namespace troop {

// Labeled rows; members as those of TokenizedDataset.
struct LinearSet {
  SparseRows rows;                   // [n, features]
  std::vector<std::int32_t> labels;  // [n] class; -1: none, as in multi-label and regression
  std::int64_t width = 0;            // targets of a row: classes (multi-label), 1 or 0
  std::vector<float> targets;        // [n, width]: 0 or 1 (multi-label), or a number (regression)
  std::int64_t size() const { return std::int64_t(labels.size()); }
};

// Data of a run with a linear model. Immutable, so usable from any thread.
struct LinearData {
  LinearSet train;                            // without the splits
  LinearSet validation_split;                 // evaluated during training; if empty: `test`
  LinearSet test;                             // evaluated at the end; if empty: `validation_split`
  std::vector<std::string> names;             // classes by id; regression: none
  std::optional<NgramVectorizer> vectorizer;  // fitted on `train`; nullopt: svmlight files
  // Human-readable fingerprint: the sizes, and a checksum of all rows, labels and terms.
  // Learners may share batches if it is equal. O(entries).
  std::string Identity() const;
};

// True if the path is that of an svmlight file: .svm, .svmlight or .libsvm.
bool IsSvmlightPath(const std::string& path);

// Reads the data set named by config.data: texts, which become n-grams as config.features has it,
// or svmlight files, whose width is features.n_features, or the largest index of the training file.
// The classes are those of config.model.labels, or learned; splits are stratified, as those of
// other supervised runs. Examples without label are left out. Features of texts are cached in
// data.cache (FeatureCache). Blocks on the disk. Errors:
// kInvalidArgument: no training examples are left, pairs of texts, svmlight files next to texts, a
// split of a set that exists, no examples to evaluate, data that do not match
// config.data_identity, and the errors of labels; those of ReadSources, ReadSvmlight and
// NgramVectorizer::Fit.
Result<std::shared_ptr<const LinearData>> LoadLinearData(const TrainingConfig& config);
// Derives the settings of a run that depend on the data, as DeriveDataSettings. Errors: those of
// LoadLinearData; kInvalidArgument: model.num_features is not the number of features.
Result<DataSettings> DeriveLinearSettings(const TrainingConfig& config);

// The training examples with targets of ±1 for classes and labels. classes: number of them.
std::shared_ptr<const LinearExamples> LinearExamplesOf(const LinearSet& set, ProblemType problem,
                                                       std::int64_t classes);

}  // namespace troop
