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
  std::string item;  // "determinism"
  std::string text;  // what was observed, and for a failure the fix
};

// The environment to check.
struct EnvCheckOptions {
  std::string id;
  EnvOptions env;
  bool quick = false;  // seconds instead of a minute: fewer episodes
};

// Runs an environment as actors will, alone and in a vector, and passes each verdict to `told` as
// soon as it is known. Returns early if nothing more can be checked; the last verdict is then the
// failure. Blocks meanwhile; the calls of an environment in another process have deadlines.
std::vector<Verdict> CheckEnvironment(const EnvCheckOptions& options,
                                      const std::function<void(const Verdict&)>& told);

}  // namespace troop
