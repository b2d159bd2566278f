#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/storage.h"
#include "fleet/launcher/supervisor.h"

namespace troop {

// Writes the health of a `troop join` to a file, for a supervisor on the same machine, such as the
// kubelet: that its loop is running, and how many of its roles have joined. The coordinator is not
// queried: while it is away, these processes must not be killed.
class HealthFile {
 public:
  // With an empty `path` nothing is written. Errors: kInvalidArgument: its folder does not exist.
  static Result<HealthFile> Make(const std::string& path);
  // Writes the file, at most once per second. `wanted`: number of roles that should have joined.
  void Note(Time now, std::int64_t wanted, const Supervisor& supervisor);

 private:
  std::unique_ptr<Storage> folder_;
  std::string name_;
  Time next_{};
};

// Sets the process name ("actor-3"). A role calls it once it has joined: `ps` shows the name, and
// its supervisor counts it.
void SetProcessName(const std::string& name);

// Checks the `text` of a health file: it must be at most 10 s old at `now`, and with `ready` all
// roles must have joined. Errors: kUnavailable, with the problem; kDataLoss: not a health file.
Status CheckHealth(std::string_view text, bool ready, Time now);

// Options of `troop health`.
struct HealthOptions {
  std::string file;
  bool ready = false;
};
// `troop health FILE [--ready]`: returns 0 if healthy; else prints the problem and returns 1.
int ShowHealth(const HealthOptions& options);

}  // namespace troop
