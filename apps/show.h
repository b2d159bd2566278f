#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace troop {

// What looks at runs and checkpoints: eval, play. Each returns the exit code.
struct ShowOptions {
  std::string path;  // a run's folder, or one of its checkpoints
  std::optional<std::int64_t> episodes;
  std::optional<double> epsilon;
  std::optional<std::int64_t> seed;
  bool json = false;
  std::string gif, png;      // play: files to write instead of the terminal
  double frames_per_s = 30;  // play
};
int Evaluate(const ShowOptions& options);
int Play(const ShowOptions& options);

}  // namespace troop
