#include "apps/restore_point.h"

#include <fmt/format.h>

#include <vector>

#include "core/json.h"
#include "core/log.h"
#include "core/storage_path.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

constexpr char kFolder[] = "restore";
constexpr char kPoint[] = "point.json";
constexpr char kCheckpoint[] = "checkpoint";
constexpr char kIncarnation[] = "incarnation";
constexpr std::string_view kReplay = "replay-";
constexpr std::size_t kTextBytesMax = 1 << 16;

std::string FolderOf(const RestorePoint& point) {
  return fmt::format("{}/{:010}", kFolder, point.leg);
}

// The shards' folders in `folder`.
Result<std::vector<std::string>> ReplaysIn(Storage* run, const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run->List(folder));
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with(kReplay) || !name.ends_with('/');
  });
  for (std::string& name : names) name = std::string(WithoutSlash(name));
  return names;
}

// All of a folder but locks, which are of those who hold them.
Status LinkFolder(Storage* run, const std::string& from, const std::string& to) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(from));
  for (const std::string& name : names) {
    if (name == "lock") continue;
    const std::string below = fmt::format("/{}", WithoutSlash(name));
    TROOP_RETURN_IF_ERROR(name.ends_with('/') ? LinkFolder(run, from + below, to + below)
                                              : run->Link(from + below, to + below));
  }
  return Status::Ok();
}

Status Fill(Storage* run, const RestorePoint& point, const std::string& folder) {
  if (!point.checkpoint.empty()) {
    TROOP_RETURN_IF_ERROR(LinkFolder(run, point.checkpoint, folder + "/" + kCheckpoint));
  }
  if (run->Exists(kIncarnation)) {
    TROOP_RETURN_IF_ERROR(run->Link(kIncarnation, folder + "/" + kIncarnation));
  }
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> replays, ReplaysIn(run, ""));
  for (const std::string& name : replays) {
    TROOP_RETURN_IF_ERROR(LinkFolder(run, name, folder + "/" + name));
  }
  return run->WriteAtomic(folder + "/" + kPoint,
                          JsonObject()
                                  .Add("checkpoint", point.checkpoint)
                                  .Add("leg", point.leg)
                                  .Add("steps", point.steps)
                                  .Add("updates", std::int64_t(point.updates))
                                  .str() +
                              "\n");
}

Result<RestorePoint> ReadPoint(Storage* run, const std::string& folder) {
  const std::string file = folder + "/" + kPoint;
  TROOP_ASSIGN_OR_RETURN(const Buffer text, run->Read(file, kTextBytesMax));
  const auto read = [&]() -> Result<RestorePoint> {
    TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text.text()));
    RestorePoint point;
    TROOP_ASSIGN_OR_RETURN(point.leg, json.Integer("leg"));
    TROOP_ASSIGN_OR_RETURN(point.steps, json.Integer("steps"));
    TROOP_ASSIGN_OR_RETURN(const std::int64_t updates, json.Integer("updates"));
    TROOP_ASSIGN_OR_RETURN(point.checkpoint, json.String("checkpoint"));
    if (point.leg < 0 || point.steps < 0 || updates < 0 || FolderOf(point) != folder) {
      return InvalidArgument("it names no restore point");
    }
    point.updates = std::uint64_t(updates);
    return point;
  };
  Result<RestorePoint> point = read();
  if (!point.ok()) return DataLoss("{} is damaged: {}", file, point.status().message());
  return point;
}

}  // namespace

Status WriteRestorePoint(Storage* run, const RestorePoint& point) {
  const std::string folder = FolderOf(point);
  TROOP_RETURN_IF_ERROR(run->Remove(folder));
  if (const Status filled = Fill(run, point, folder); !filled.ok()) {
    const Status removed = run->Remove(folder);
    if (!removed.ok()) LogWarning("{}", removed.message());
    return filled;
  }
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(kFolder));
  for (const std::string& name : names) {
    const std::string other = fmt::format("{}/{}", kFolder, WithoutSlash(name));
    if (other != folder) TROOP_RETURN_IF_ERROR(run->Remove(other));
  }
  return Status::Ok();
}

Result<RestorePoint> NewestRestorePoint(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(kFolder));
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const std::string folder = fmt::format("{}/{}", kFolder, WithoutSlash(*name));
    if (!run->Exists(folder + "/" + kPoint)) continue;
    TROOP_ASSIGN_OR_RETURN(RestorePoint point, ReadPoint(run, folder));
    if (!point.checkpoint.empty()) {
      TROOP_RETURN_IF_ERROR(ReadCheckpoint(run, folder + "/" + kCheckpoint).status());
    }
    return point;
  }
  return NotFound("no restore point");
}

Status GoBackTo(Storage* run, const RestorePoint& point) {
  const std::string folder = FolderOf(point);
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> later, ReplaysIn(run, ""));
  for (const std::string& name : later) TROOP_RETURN_IF_ERROR(run->Remove(name));
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> replays, ReplaysIn(run, folder));
  for (const std::string& name : replays) {
    TROOP_RETURN_IF_ERROR(LinkFolder(run, folder + "/" + name, name));
  }
  const std::string incarnation = folder + "/" + kIncarnation;
  TROOP_RETURN_IF_ERROR(run->Exists(incarnation) ? run->Link(incarnation, kIncarnation)
                                                 : run->Remove(kIncarnation));
  // A learner would go on from them.
  TROOP_RETURN_IF_ERROR(RemoveCheckpointsAfter(run, point.checkpoint));
  if (point.checkpoint.empty()) return Status::Ok();
  // Under its name a checkpoint is whole.
  const std::string aside = point.checkpoint + ".tmp";
  TROOP_RETURN_IF_ERROR(run->Remove(aside));
  TROOP_RETURN_IF_ERROR(LinkFolder(run, folder + "/" + kCheckpoint, aside));
  TROOP_RETURN_IF_ERROR(run->Remove(point.checkpoint));
  return run->Rename(aside, point.checkpoint);
}

Status RemoveRestorePoints(Storage* run) { return run->Remove(kFolder); }

}  // namespace troop
