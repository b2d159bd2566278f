// The health file of `troop join`: one small JSON object, replaced atomically every second.
#include "fleet/launcher/health_file.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "core/storage/json.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// kSilenceMax allows for a slow disk and a suspended machine.
constexpr Duration kEvery = Seconds(1), kSilenceMax = Seconds(10);
constexpr std::size_t kBytesMax = 4096;

// True if the process has set its role name, which it does once it has joined.
bool Plays(const Supervisor::Running& running) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", running.process)), name);
  return name.starts_with(fmt::format("{}-", RoleName(running.role.role)));
}

// The storage of the folder that contains `path`.
Result<std::unique_ptr<Storage>> FolderOf(const std::string& path) {
  const fs::path parent = fs::absolute(path).parent_path();
  return MakeDiskStorage(parent.string());
}

}  // namespace

Result<HealthFile> HealthFile::Make(const std::string& path) {
  HealthFile health;
  if (path.empty()) return health;
  TROOP_ASSIGN_OR_RETURN(health.folder_, FolderOf(path));
  health.name_ = fs::path(path).filename().string();
  return health;
}

void HealthFile::Note(Time now, std::int64_t wanted, const Supervisor& supervisor) {
  if (folder_ == nullptr || now < next_) return;
  next_ = now + kEvery;
  const auto running = supervisor.running();
  const std::string text = JsonObject()
                               .Add("clock_s", ToSeconds(now.time_since_epoch()))
                               .Add("desired", wanted)
                               .Add("running", std::int64_t(std::ranges::count_if(running, Plays)))
                               .str();
  // If the write fails, the file becomes old, and the check reports that.
  static_cast<void>(folder_->WriteAtomic(name_, text + "\n"));
}

// The kernel keeps 15 bytes; Plays compares only the start.
void SetProcessName(const std::string& name) { prctl(PR_SET_NAME, name.c_str()); }

// Checks the JSON, the age of the last update, and (if `ready`) the number of joined roles.
Status CheckHealth(std::string_view text, bool ready, Time now) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue value, ParseJson(text));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t wanted, value.Integer("desired"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t playing, value.Integer("running"));
  const JsonValue* const clock = value.Find("clock_s");
  if (clock == nullptr || clock->kind != JsonValue::Kind::kNumber) {
    return DataLoss("it has no numeric clock_s");
  }
  // The clock is monotonic and common to all processes of the machine. NaN fails the comparison.
  const double age_s = ToSeconds(now.time_since_epoch()) - clock->number;
  if (!(age_s <= ToSeconds(kSilenceMax))) {
    return Unavailable("its last update is {:.0f} s old: the process hangs or has exited", age_s);
  }
  if (!ready || playing == wanted) return Status::Ok();
  return Unavailable("{} of its {} roles have joined", playing, wanted);
}

// Every problem is exit code 1, as probes distinguish only 0 and others.
int ShowHealth(const HealthOptions& options) {
  const SystemClock clock;
  Status status = Status::Ok();
  if (const auto folder = FolderOf(options.file); folder.ok()) {
    const auto text = (*folder)->Read(fs::path(options.file).filename().string(), kBytesMax);
    status = text.ok() ? CheckHealth(text->text(), options.ready, clock.Now()) : text.status();
  } else {
    status = folder.status();
  }
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}: {}\n", options.file, status.message());
  return kExitFailed;
}

}  // namespace troop
