#pragma once

// Interface between the config_conflicts_*.cc files, which implement FindConflicts.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fleet/config/config_keys.h"

namespace troop {

// Collects the violated rules about combinations of keys.
class Conflicts {
 public:
  // Adds a conflict if `wrong`. keys[0] is the key that the message is about; the message continues
  // the line "place: key: ".
  template <class... Args>
  void If(bool wrong, std::vector<std::string> keys, fmt::format_string<Args...> format,
          Args&&... args) {
    if (wrong)
      found_.push_back({std::move(keys), fmt::format(format, std::forward<Args>(args)...)});
  }
  std::vector<ConfigConflict> Take() { return std::move(found_); }

 private:
  std::vector<ConfigConflict> found_;
};

// Checks synchronization and algorithm: parameter shards, Hogwild threads, DPG's keys.
void CheckConsistency(const Config& c, Conflicts* out);
// Checks the keys of runs whose items are unrolls, and those keys in other runs.
void CheckUnrolls(const Config& c, Conflicts* out);
// Checks the keys of supervised runs, and the sizes of a model that is not pre-trained.
void CheckSupervised(const Config& c, Conflicts* out);
// Checks the mesh of a supervised run and its pipelines. Returns the number of workers: learners,
// or groups of learners with the parts of one model.
std::int64_t CheckMesh(const Config& c, Conflicts* out);
// Checks image classifiers, and the keys of a supervised run that only texts or images have.
void CheckImages(const Config& c, Conflicts* out);
// Keys, each with true if its value differs from its default.
using SetKeys = std::vector<std::pair<const char*, bool>>;
// The keys of tokenizers and text models, which a run with another kind of model would ignore.
SetKeys KeysOfTextModels(const Config& c);
// Checks linear models, and the keys of a supervised run that only they have.
void CheckLinear(const Config& c, Conflicts* out);
// Checks the sizes of the text model of a supervised run.
void CheckModelSizes(const Config& c, Conflicts* out);
// Checks the keys of Slurm, MPI and Kubernetes.
void CheckCluster(const Config& c, Conflicts* out);

}  // namespace troop
