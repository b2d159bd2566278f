#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/storage/storage.h"
#include "learners/linear/linear_data.h"
#include "learners/training_config.h"

namespace troop {

// Largest cache of features. Larger data are made again by each role.
inline constexpr std::size_t kFeatureCacheBytesMax = std::size_t{2} << 30;

// Encodes the data of a run with n-grams as safetensors: rows, labels, terms, and a checksum of
// these. key: everything that determines them.
Buffer EncodeFeatures(const LinearData& data, const std::string& key);
// Decodes untrusted bytes: rows, labels and terms are checked before use. options: those of the
// vectorizer. Errors: kDataLoss: damaged; kFailedPrecondition: another key or version.
Result<std::shared_ptr<LinearData>> DecodeFeatures(const Buffer& bytes, const std::string& key,
                                                   const NgramOptions& options);

// The features of a run in the folder data.cache: one file per settings, replaced when the data
// change. A cache that cannot be read or written costs time and a log line, but is not an error.
class FeatureCache {
 public:
  // Blocks on the disk: the files of the data are read for their checksum.
  explicit FeatureCache(const TrainingConfig& config);
  // The cached data; nullptr: none, or of other data.
  std::shared_ptr<LinearData> Read() const;
  void Write(const LinearData& data) const;

 private:
  const NgramOptions options_;
  const std::vector<std::string> labels_;  // names of the classes; empty: those of the data
  std::unique_ptr<Storage> storage_;       // nullptr: no cache
  std::string path_, key_;
};

}  // namespace troop
