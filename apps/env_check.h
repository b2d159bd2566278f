#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "envs/environment.h"

namespace troop {

// What was found about one property of an environment.
struct Verdict {
  enum class Kind : std::uint8_t { kOk, kNote, kFail } kind = Kind::kOk;
  std::string item;  // "determinism"
  std::string text;  // what was seen; of a failure also what to mend
};

struct EnvCheckOptions {
  std::string id;
  EnvOptions env;
  bool quick = false;  // seconds instead of a minute: fewer episodes
};

// Plays an environment as agents will, alone and in a vector, and tells a verdict an item
// as soon as it is there. Ends early where nothing more can be tried: the last verdict is then the
// failure. Blocks for as long as that takes; an environment in a process has its deadlines.
std::vector<Verdict> CheckEnvironment(const EnvCheckOptions& options,
                                      const std::function<void(const Verdict&)>& told);

}  // namespace troop
