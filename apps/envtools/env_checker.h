#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "envs/environment.h"

namespace troop {

// The result of checking one property.
struct Verdict {
  enum class Kind : std::uint8_t { kOk, kNote, kFail } kind = Kind::kOk;
  std::string item;  // name of the property, such as "determinism"
  std::string text;  // what was observed, and for a failure the fix
};

// The environment to check, and how thoroughly.
struct EnvCheckOptions {
  std::string id;  // as in env.id
  EnvOptions env;
  bool quick = false;  // true if fewer episodes are played: seconds instead of a minute
};

// Runs an environment in the way of the actors, both alone and in a vector environment. Passes each
// verdict to `report` as soon as it is known, and returns all of them. If a failure prevents
// further checks, it is the last verdict. Blocks until then; calls to an environment in another
// process have deadlines.
std::vector<Verdict> CheckEnvironment(const EnvCheckOptions& options,
                                      const std::function<void(const Verdict&)>& report);

}  // namespace troop
