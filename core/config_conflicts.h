#pragma once

// What the files of FindConflicts share.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "core/config_schema.h"

namespace troop {

class Conflicts {
 public:
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

// Learners that agree, and what they learn by: parameter shards, Hogwild, DPG's keys.
void CheckAgreement(const Config& c, Conflicts* out);
// Of runs that learn reviews.
void CheckSupervised(const Config& c, Conflicts* out);
// Slurm, MPI and Kubernetes.
void CheckCluster(const Config& c, Conflicts* out);

}  // namespace troop
