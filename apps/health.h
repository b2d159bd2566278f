#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/supervisor.h"
#include "core/status.h"
#include "core/storage.h"
#include "core/time.h"

namespace troop {

// What a `troop join` leaves in a file for whoever looks after it on the same machine, such as the
// kubelet: that its loop turns, and how many of its roles have been taken in. Asking the
// coordinator would tell of the coordinator: while that is away, nobody here should be killed.
class HealthFile {
 public:
  // Errors: kInvalidArgument: no folder for it. `path` empty: writes nothing.
  static Result<HealthFile> Make(const std::string& path);
  // At most once a second. `wanted`: roles that should play.
  void Note(Time now, std::int64_t wanted, const Supervisor& supervisor);

 private:
  std::unique_ptr<Storage> folder_;
  std::string name_;
  Time next_{};
};

// What a role process calls itself once the coordinator has taken it in ("actor-3"): `ps` shows it,
// and its supervisor counts it.
void SetProcessName(const std::string& name);

// Whether the process that writes a HealthFile turns (its last word is at most 10 s old at `now`),
// and with `ready` also whether all its roles play. `text`: of the file. Errors: kUnavailable, with
// what is wrong; kDataLoss: no such file's text.
Status CheckHealth(std::string_view text, bool ready, Time now);

struct HealthOptions {
  std::string file;
  bool ready = false;
};
// `troop health FILE [--ready]`: 0 when it is so, else 1 and a line.
int ShowHealth(const HealthOptions& options);

}  // namespace troop
