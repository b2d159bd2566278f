#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/storage/storage.h"

namespace troop {

// The files of a trained model in a format that its module does not determine: an optional
// interface of an Algorithm (Algorithm::model_files).
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;
  // Writes the model of value() to the folder `folder` of a run. Blocks on the disk. Owner thread:
  // the algorithm's. Errors: those of the storage.
  virtual Status WriteModelFiles(std::string_view folder, Storage* run) const = 0;
};

}  // namespace troop
