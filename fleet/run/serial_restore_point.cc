// Restore points as folders of hard links: the files of a leg's start cost no extra disk space, and
// stay when the run replaces them.
#include "fleet/run/serial_restore_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "core/storage/path.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

constexpr char kFolder[] = "restore";
constexpr char kPoint[] = "point.json";
constexpr char kCheckpoint[] = "checkpoint";
constexpr char kIncarnation[] = "incarnation";
constexpr std::string_view kReplay = "replay-";
constexpr std::size_t kTextBytesMax = std::size_t{16} << 20;  // enough for about 150,000 files

std::string FolderOf(const RestorePoint& point) {
  return fmt::format("{}/{:010}", kFolder, point.leg);
}

// Names of the replay shard folders in `folder`.
Result<std::vector<std::string>> ReplaysIn(Storage* run, const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run->List(folder));
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with(kReplay) || !name.ends_with('/');
  });
  for (std::string& name : names) name = std::string(StripTrailingSlash(name));
  return names;
}

// Hard-links the files of a folder recursively, except locks, which belong to running processes.
// `linked`: receives the new names.
Status LinkFolder(Storage* run, const std::string& from, const std::string& to,
                  std::vector<std::string>* linked) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(from));
  for (const std::string& name : names) {
    if (name == "lock") continue;
    const std::string below = fmt::format("/{}", StripTrailingSlash(name));
    if (name.ends_with('/')) {
      TROOP_RETURN_IF_ERROR(LinkFolder(run, from + below, to + below, linked));
    } else {
      TROOP_RETURN_IF_ERROR(run->Link(from + below, to + below));
      linked->push_back(to + below);
    }
  }
  return Status::Ok();
}

// Links all files that a leg starts from into `folder`.
Result<std::vector<std::string>> LinkAll(Storage* run, const RestorePoint& point,
                                         const std::string& folder) {
  std::vector<std::string> linked;
  if (!point.checkpoint.empty()) {
    TROOP_RETURN_IF_ERROR(LinkFolder(run, point.checkpoint, folder + "/" + kCheckpoint, &linked));
  }
  if (run->Exists(kIncarnation)) {
    TROOP_RETURN_IF_ERROR(run->Link(kIncarnation, folder + "/" + kIncarnation));
    linked.push_back(folder + "/" + kIncarnation);
  }
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> replays, ReplaysIn(run, ""));
  for (const std::string& name : replays) {
    TROOP_RETURN_IF_ERROR(LinkFolder(run, name, folder + "/" + name, &linked));
  }
  return linked;
}

// The text of point.json; its last field is the CRC-32C of the fields before it.
std::string EncodePoint(const RestorePoint& point) {
  JsonObject files;
  for (const auto& [name, file] : point.files) {
    files.Add(name, JsonObject().Add("bytes", file.bytes).Add("crc32c", file.crc32c));
  }
  JsonObject text;
  text.Add("checkpoint", point.checkpoint)
      .Add("leg", point.leg)
      .Add("steps", point.steps)
      .Add("updates", std::int64_t(point.updates))
      .Add("files", files);
  const std::string summed = text.str();
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(summed)));
  return text.Add("crc32c", std::uint64_t(crc)).str() + "\n";
}

// Links the files, then writes point.json with their sizes and checksums.
Status Fill(Storage* run, const RestorePoint& point, const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> linked, LinkAll(run, point, folder));
  RestorePoint whole = point;
  whole.files.clear();
  for (const std::string& path : linked) {
    TROOP_ASSIGN_OR_RETURN(const Buffer bytes,
                           run->Read(path, std::numeric_limits<std::size_t>::max()));
    whole.files[path.substr(folder.size() + 1)] = {std::int64_t(bytes.size()),
                                                   Crc32c(bytes.bytes())};
  }
  return run->WriteAtomic(folder + "/" + kPoint, EncodePoint(whole));
}

// Verifies by encoding again: the text must be equal, including the checksum.
Result<RestorePoint> DecodePoint(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  RestorePoint point;
  TROOP_ASSIGN_OR_RETURN(point.leg, json.Integer("leg"));
  TROOP_ASSIGN_OR_RETURN(point.steps, json.Integer("steps"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t updates, json.Integer("updates"));
  TROOP_ASSIGN_OR_RETURN(point.checkpoint, json.String("checkpoint"));
  point.updates = std::uint64_t(updates);
  const JsonValue* const files = json.Find("files");
  if (files == nullptr) return DataLoss("the list of files is missing");
  for (const auto& [name, entry] : files->object) {
    TROOP_ASSIGN_OR_RETURN(const std::int64_t bytes, entry.Integer("bytes"));
    TROOP_ASSIGN_OR_RETURN(const std::int64_t crc, entry.Integer("crc32c"));
    point.files[name] = {bytes, std::uint32_t(crc)};
  }
  if (EncodePoint(point) != text) return DataLoss("its checksum does not match");
  return point;
}

// A copied folder of another leg is damage too: its files would not fit together.
Result<RestorePoint> ReadPoint(Storage* run, const std::string& folder) {
  const std::string file = folder + "/" + kPoint;
  TROOP_ASSIGN_OR_RETURN(const Buffer text, run->Read(file, kTextBytesMax));
  Result<RestorePoint> point = DecodePoint(text.text());
  if (!point.ok()) return DataLoss("{} is damaged: {}", file, point.status().message());
  if (FolderOf(*point) != folder) return DataLoss("{} belongs to another restore point", file);
  return point;
}

// Verifies every file. A replay would load damaged files as after a crash, with fewer items and
// without a failure, so damage must be detected here.
Status CheckFiles(Storage* run, const RestorePoint& point) {
  for (const auto& [name, file] : point.files) {
    const std::string path = FolderOf(point) + "/" + name;
    const Result<Buffer> bytes = run->Read(path, std::size_t(file.bytes));
    if (bytes.status().code() == Code::kNotFound) return DataLoss("{} is missing", path);
    if (!bytes.ok()) return DataLoss("{} can't be read: {}", path, bytes.status().message());
    if (std::int64_t(bytes->size()) != file.bytes) {
      return DataLoss("{} has {} bytes, must have {}", path, bytes->size(), file.bytes);
    }
    if (const std::uint32_t crc = Crc32c(bytes->bytes()); crc != file.crc32c) {
      return DataLoss("{} is damaged: its checksum is {:08x}, must be {:08x}", path, crc,
                      file.crc32c);
    }
  }
  return Status::Ok();
}

// Links the files of the point whose names begin with `prefix` back, with `to` in its place.
Status LinkBack(Storage* run, const RestorePoint& point, std::string_view prefix,
                const std::string& to) {
  for (const auto& [name, file] : point.files) {
    if (!name.starts_with(prefix)) continue;
    TROOP_RETURN_IF_ERROR(run->Link(FolderOf(point) + "/" + name, to + name.substr(prefix.size())));
  }
  return Status::Ok();
}

}  // namespace

// Fills the new folder first and removes older points last, so that one valid point always exists.
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
    const std::string other = fmt::format("{}/{}", kFolder, StripTrailingSlash(name));
    if (other != folder) TROOP_RETURN_IF_ERROR(run->Remove(other));
  }
  return Status::Ok();
}

// Folders without point.json are incomplete and skipped; names sort by leg.
Result<RestorePoint> NewestRestorePoint(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(kFolder));
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const std::string folder = fmt::format("{}/{}", kFolder, StripTrailingSlash(*name));
    if (!run->Exists(folder + "/" + kPoint)) continue;
    TROOP_ASSIGN_OR_RETURN(RestorePoint point, ReadPoint(run, folder));
    TROOP_RETURN_IF_ERROR(CheckFiles(run, point));
    if (!point.checkpoint.empty()) {
      TROOP_RETURN_IF_ERROR(ReadCheckpoint(run, folder + "/" + kCheckpoint).status());
    }
    return point;
  }
  if (!names.empty()) return DataLoss("{}/{}{} is missing", kFolder, names.back(), kPoint);
  return NotFound("no restore point");
}

// Never changes files of the point, so an interrupted call can be repeated.
Status GoBackTo(Storage* run, const RestorePoint& point) {
  // The replay shards and the incarnation are replaced by those of the point.
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> later, ReplaysIn(run, ""));
  for (const std::string& name : later) TROOP_RETURN_IF_ERROR(run->Remove(name));
  TROOP_RETURN_IF_ERROR(LinkBack(run, point, kReplay, std::string(kReplay)));
  TROOP_RETURN_IF_ERROR(point.files.contains(kIncarnation)
                            ? LinkBack(run, point, kIncarnation, kIncarnation)
                            : run->Remove(kIncarnation));
  // Otherwise a learner would resume from a later checkpoint.
  TROOP_RETURN_IF_ERROR(RemoveCheckpointsAfter(run, point.checkpoint));
  if (point.checkpoint.empty()) return Status::Ok();
  // A checkpoint folder must be complete under its final name, so it is built aside and renamed.
  const std::string aside = point.checkpoint + ".tmp";
  TROOP_RETURN_IF_ERROR(run->Remove(aside));
  TROOP_RETURN_IF_ERROR(LinkBack(run, point, kCheckpoint, aside));
  TROOP_RETURN_IF_ERROR(run->Remove(point.checkpoint));
  return run->Rename(aside, point.checkpoint);
}

Status RemoveRestorePoints(Storage* run) { return run->Remove(kFolder); }

}  // namespace troop
