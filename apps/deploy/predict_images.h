#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "learners/checkpoint.h"

namespace troop {

// True if `path` is the folder of a run that classifies images, or of one of its checkpoints, by
// the config.toml of the run.
bool IsImageRun(const std::string& path);

// Writes the classes of each image file to `out`, one line per file: the five most probable, or
// with `json` an object with all. Errors: those of LoadCheckpoint and ImagePredictor, with the
// file; kInvalidArgument: no files.
Status PredictImages(const std::string& path, CheckpointChoice choice,
                     const std::vector<std::string>& files, bool json, std::ostream& out);

}  // namespace troop
