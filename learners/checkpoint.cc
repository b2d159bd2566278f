// Implements checkpoints: atomic writes, verification by manifest, and removal of old ones.

#include "learners/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/export/policy_description.h"

namespace troop {
namespace {

constexpr char kFolder[] = "checkpoints";
constexpr char kWeights[] = "weights.safetensors";
constexpr char kTensors[] = "state.safetensors";
constexpr char kState[] = "state.json";
constexpr char kManifest[] = "manifest.json";
// Suffixes: the replaced checkpoint during Install, and an incomplete one.
constexpr char kAside[] = ".old";
constexpr char kTemporary[] = ".tmp";
// Limits for reading: a damaged size must not exhaust memory.
constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;
constexpr std::size_t kTensorBytesMax = std::size_t{64} << 30;

// checkpoints/000000012345: fixed width, so that names sort by update count.
std::string FolderFor(std::uint64_t updates) { return fmt::format("{}/{:012}", kFolder, updates); }

// weights.safetensors: the value as named tensors, for other programs.
Buffer EncodeWeights(const Module& module, const CheckpointState& checkpoint) {
  TensorFile file;
  const auto it = checkpoint.state.tensors.find("value");
  TROOP_CHECK(it != checkpoint.state.tensors.end(), "the state has no tensor \"value\"");
  for (const ParamSpec& param : module.params()) {
    file.tensors[param.name] = it->second.Range(param.offset, param.shape);
  }
  file.metadata = {{"format", "troop"}, {"updates", std::to_string(checkpoint.updates)}};
  if (!checkpoint.policy.empty()) file.metadata[kPolicyKey] = checkpoint.policy;
  return EncodeSafetensors(file);
}

// Complete checkpoints have numeric names; leftovers have a suffix.
bool IsNumber(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

// Names of the checkpoints, oldest first. Excludes leftovers of interrupted writes, except for a
// checkpoint that an interrupted replacement has moved aside.
Result<std::vector<std::string>> ListCheckpoints(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run->List(kFolder));
  std::vector<std::string> whole;
  for (std::string& name : names) {
    if (!name.ends_with('/')) continue;
    name.pop_back();
    if (IsNumber(name)) whole.push_back(name);
  }
  for (const std::string& name : names) {
    if (!name.ends_with(kAside)) continue;
    const std::string number = name.substr(0, name.size() - (sizeof kAside - 1));
    if (IsNumber(number) && std::ranges::find(whole, number) == whole.end()) {
      whole.push_back(number + kAside);
    }
  }
  std::ranges::sort(whole);
  return whole;
}

// Keeps the newest `keep` up to `newest`. Removes higher numbers, which belong to a discarded
// continuation of an older checkpoint, and leftovers of interrupted writes.
Status RemoveOthers(Storage* run, const std::string& newest, std::int64_t keep) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> kept, ListCheckpoints(run));
  // `kept` is sorted: first drop what is newer, then the oldest.
  kept.erase(std::ranges::upper_bound(kept, newest), kept.end());
  const auto excess = std::ssize(kept) - std::max<std::int64_t>(keep, 1);
  if (excess > 0) kept.erase(kept.begin(), kept.begin() + excess);
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(kFolder));
  for (const std::string& folder : names) {
    const std::string name = folder.substr(0, folder.find('/'));
    const bool ours = IsNumber(name.substr(0, name.find('.')));
    if (!ours || std::ranges::find(kept, name) != kept.end()) continue;
    HitFailpoint(Failpoint::kCheckpointTrim);
    TROOP_RETURN_IF_ERROR(run->Remove(fmt::format("{}/{}", kFolder, name)));
  }
  return Status::Ok();
}

// Reads a file of the checkpoint. Any read error is reported as kDataLoss with the file's name.
Result<Buffer> ReadFile(Storage* run, const std::string& file, std::size_t bytes_max) {
  Result<Buffer> bytes = run->Read(file, bytes_max);
  if (bytes.ok()) return bytes;
  return DataLoss("{} cannot be read: {}", file, bytes.status().message());
}

// All files of the manifest, with sizes and checksums verified. Errors: kDataLoss.
Result<std::map<std::string, Buffer>> ReadFiles(Storage* run, const std::string& path,
                                                const JsonValue& manifest) {
  const JsonValue* files = manifest.Find("files");
  if (files == nullptr || files->object.empty()) {
    return DataLoss("{}/{} lists no files", path, kManifest);
  }
  std::map<std::string, Buffer> bytes;
  for (const auto& [name, entry] : files->object) {
    const Result<std::int64_t> size = entry.Integer("bytes"), crc = entry.Integer("crc32c");
    // A name with a slash could refer to a file outside the checkpoint.
    if (!size.ok() || !crc.ok() || name.find('/') != name.npos) {
      return DataLoss("{}/{}: {} is not a file name, or has no size and checksum", path, kManifest,
                      name);
    }
    const std::string file = path + "/" + name;
    TROOP_ASSIGN_OR_RETURN(Buffer content, ReadFile(run, file, kTensorBytesMax));
    if (std::int64_t(content.size()) != *size) {
      return DataLoss("{} has {} bytes, but {} in the manifest", file, content.size(), *size);
    }
    if (std::int64_t(Crc32c(content.bytes())) != *crc) {
      return DataLoss("{} is damaged: its checksum is {:08x}, but {:08x} in the manifest", file,
                      Crc32c(content.bytes()), *crc);
    }
    bytes[name] = std::move(content);
  }
  return bytes;
}

// Reads the manifest, then all files.
Result<std::map<std::string, Buffer>> ReadWhole(Storage* run, const std::string& path) {
  if (!run->Exists(path)) return NotFound("{}: no such checkpoint", path);
  const std::string file = path + "/" + kManifest;
  TROOP_ASSIGN_OR_RETURN(const Buffer text, ReadFile(run, file, kTextBytesMax));
  const Result<JsonValue> manifest = ParseJson(text.text());
  if (!manifest.ok()) return manifest.status().WithContext(file);
  const Result<std::int64_t> version = manifest->Integer("version");
  if (!version.ok()) return version.status().WithContext(file);
  if (*version > kCheckpointVersion) {
    return InvalidArgument(
        "{} has checkpoint format {}, must be at most {}; use a newer version of troop", path,
        *version, kCheckpointVersion);
  }
  return ReadFiles(run, path, *manifest);
}

// The evaluation in state.json. Errors: kDataLoss.
Result<CheckpointScore> DecodeScore(const JsonValue& state) {
  const JsonValue* const score = state.Find("score");
  if (score == nullptr || !std::isfinite(score->number) ||
      score->kind != JsonValue::Kind::kNumber) {
    return DataLoss("{} has no \"score\" that is a finite number", kState);
  }
  // The score is what decides; the others are for readers, but a file without them is damaged.
  CheckpointScore found{.score = score->number};
  TROOP_ASSIGN_OR_RETURN(found.episodes, state.Integer("episodes"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t version, state.Integer("version"));
  found.version = std::uint64_t(version);
  TROOP_ASSIGN_OR_RETURN(found.unix_time, state.Integer("unix_time"));
  return found;
}

// The statistics of discounted returns in state.json. Errors: kDataLoss.
Result<RewardStatistics> DecodeRewards(const JsonValue& rewards) {
  const auto number = [&](std::string_view key) {
    const JsonValue* const value = rewards.Find(key);
    const bool is = value != nullptr && value->kind == JsonValue::Kind::kNumber;
    return is ? value->number : std::nan("");
  };
  const RewardStatistics found{
      .count = number("count"), .mean = number("mean"), .squares = number("squares")};
  if (found.Valid() && found.count > 0) return found;
  return DataLoss("{} has \"rewards\" of count {}, mean {} and squares {}; must be finite and > 0",
                  kState, found.count, found.mean, found.squares);
}

// state.json has the counters and the config, state.safetensors the arrays.
Result<CheckpointState> DecodeState(const std::map<std::string, Buffer>& files) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue state, ParseJson(files.at(kState).text()));
  CheckpointState checkpoint;
  TROOP_ASSIGN_OR_RETURN(const std::int64_t updates, state.Integer("updates"));
  checkpoint.updates = std::uint64_t(updates);
  TROOP_ASSIGN_OR_RETURN(checkpoint.steps, state.Integer("steps"));
  if (updates < 0 || checkpoint.steps < 0) {
    return DataLoss("{} has {} updates and {} steps, must not be negative", kState, updates,
                    checkpoint.steps);
  }
  TROOP_ASSIGN_OR_RETURN(checkpoint.config_toml, state.String("config"));
  if (state.Find("score") != nullptr) {
    TROOP_ASSIGN_OR_RETURN(checkpoint.score, DecodeScore(state));
  }
  if (const JsonValue* const rewards = state.Find("rewards"); rewards != nullptr) {
    TROOP_ASSIGN_OR_RETURN(checkpoint.rewards, DecodeRewards(*rewards));
  }
  TROOP_ASSIGN_OR_RETURN(checkpoint.state, DecodeSafetensors(files.at(kTensors)));
  return checkpoint;
}

// Moves an existing checkpoint of that name aside first: at every moment one of them is complete.
Status Install(Storage* run, const std::string& temporary, const std::string& path) {
  const std::string aside = path + kAside;
  if (run->Exists(path)) {
    TROOP_RETURN_IF_ERROR(run->Remove(aside));
    TROOP_RETURN_IF_ERROR(run->Rename(path, aside));
    HitFailpoint(Failpoint::kCheckpointAside);
  }
  TROOP_RETURN_IF_ERROR(run->Rename(temporary, path));
  HitFailpoint(Failpoint::kCheckpointInstalled);
  return run->Remove(aside);
}

// state.json. "program" is for readers only.
Buffer EncodeState(const CheckpointState& checkpoint) {
  JsonObject state;
  state.Add("updates", checkpoint.updates)
      .Add("steps", checkpoint.steps)
      .Add("program", kTroopVersion)
      .Add("config", checkpoint.config_toml);
  // Only the best checkpoint has these, so that all others have the bytes that they always had.
  if (const auto& score = checkpoint.score; score) {
    state.Add("score", score->score)
        .Add("episodes", score->episodes)
        .Add("version", score->version)
        .Add("unix_time", score->unix_time);
  }
  if (const RewardStatistics& rewards = checkpoint.rewards; rewards.count > 0) {
    state.Add("rewards", JsonObject()
                             .Add("count", rewards.count)
                             .Add("mean", rewards.mean)
                             .Add("squares", rewards.squares));
  }
  return Buffer::Copy(state.str());
}

// The three files of a checkpoint besides its manifest.
std::map<std::string, Buffer> EncodeFiles(const Module& module, const CheckpointState& checkpoint) {
  return {{kWeights, EncodeWeights(module, checkpoint)},
          {kTensors, EncodeSafetensors(checkpoint.state)},
          {kState, EncodeState(checkpoint)}};
}

// Removes leftovers of interrupted writes, which may be what fills the disk.
Status RemoveLeftovers(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(kFolder));
  for (const std::string& folder : names) {
    const std::string name = folder.substr(0, folder.find('/'));
    const std::size_t dot = name.find('.');
    if (dot == name.npos || !IsNumber(name.substr(0, dot)) || name.substr(dot) != kTemporary) {
      continue;
    }
    TROOP_RETURN_IF_ERROR(run->Remove(fmt::format("{}/{}", kFolder, name)));
  }
  return Status::Ok();
}

// The manifest is written last: without it the folder is not a checkpoint.
Status WriteTemporary(Storage* run, const std::map<std::string, Buffer>& files,
                      const std::string& temporary) {
  JsonObject list;
  for (const auto& [name, bytes] : files) {
    TROOP_RETURN_IF_ERROR(run->WriteAtomic(temporary + "/" + name, bytes.bytes()));
    HitFailpoint(Failpoint::kCheckpointFile);
    list.Add(name, JsonObject()
                       .Add("bytes", std::uint64_t(bytes.size()))
                       .Add("crc32c", std::uint64_t(Crc32c(bytes.bytes()))));
  }
  return run->WriteAtomic(temporary + "/" + kManifest,
                          JsonObject().Add("version", kCheckpointVersion).Add("files", list).str());
}

// Writes files and manifest under a temporary name, then renames them. A failed write is removed,
// because on a full disk it would block the next one.
Status WriteFiles(Storage* run, const std::map<std::string, Buffer>& files,
                  const std::string& path) {
  const std::string temporary = path + kTemporary;
  HitFailpoint(Failpoint::kCheckpointBegin);
  // The best checkpoint is written by another process, which must not remove what the learner is
  // writing.
  TROOP_RETURN_IF_ERROR(path == kBestFolder ? run->Remove(temporary) : RemoveLeftovers(run));
  const Status written = WriteTemporary(run, files, temporary);
  if (!written.ok()) {
    const Status removed = run->Remove(temporary);
    if (!removed.ok()) LogWarning("{}", removed.message());
    return written;
  }
  HitFailpoint(Failpoint::kCheckpointManifest);
  return Install(run, temporary, path);
}

// Only f32 tensors can have non-finite values.
bool IsFinite(const TensorFile& state) {
  return std::ranges::all_of(state.tensors, [](const auto& named) {
    const ConstTensor& tensor = named.second;
    return tensor.dtype() != DType::kF32 || AllFinite(tensor.template as<float>());
  });
}

}  // namespace

// Removes old checkpoints only after the new one is installed.
Result<std::string> WriteCheckpoint(Storage* run, const Module& module,
                                    const CheckpointState& checkpoint, std::int64_t keep) {
  const std::string path = FolderFor(checkpoint.updates);
  TROOP_RETURN_IF_ERROR(WriteFiles(run, EncodeFiles(module, checkpoint), path));
  TROOP_RETURN_IF_ERROR(RemoveOthers(run, path.substr(sizeof kFolder), keep));
  return path;
}

// weights.safetensors is verified but not decoded, since it repeats the value.
Result<CheckpointState> ReadCheckpoint(Storage* run, const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const auto files, ReadWhole(run, path));
  for (const char* name : {kState, kTensors}) {
    if (!files.contains(name)) return DataLoss("{}/{} is missing from the manifest", path, name);
  }
  auto checkpoint = DecodeState(files);
  if (!checkpoint.ok()) return checkpoint.status().WithContext(path);
  return checkpoint;
}

// Rewrites all files through WriteFiles, so the replacement is as atomic as a new checkpoint.
Status CorrectCheckpointSteps(Storage* run, const std::string& path, std::int64_t steps) {
  TROOP_ASSIGN_OR_RETURN(CheckpointState checkpoint, ReadCheckpoint(run, path));
  if (checkpoint.steps == steps) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(auto files, ReadWhole(run, path));
  checkpoint.steps = steps;
  files[kState] = EncodeState(checkpoint);
  return WriteFiles(run, files, path);
}

// Paths have equal length, so string order is update order.
Status RemoveCheckpointsAfter(Storage* run, const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCheckpoints(run));
  for (const std::string& name : names) {
    const std::string other = fmt::format("{}/{}", kFolder, name);
    if (other > path) TROOP_RETURN_IF_ERROR(run->Remove(other));
  }
  return Status::Ok();
}

// If all are damaged, the error of the oldest is returned.
Result<std::string> NewestCheckpoint(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCheckpoints(run));
  Status last = NotFound(
      "the run has written no checkpoint yet; wait for the first one (checkpoint.every_s)");
  for (auto it = names.rbegin(); it != names.rend(); ++it) {
    const std::string path = fmt::format("{}/{}", kFolder, *it);
    const auto files = ReadWhole(run, path);
    if (files.ok()) return path;
    last = files.status();
    LogWarning("skipping a damaged checkpoint: {}", last.message());
  }
  return last;
}

// A score that is not finite would be compared wrongly by every later writer.
Status WriteBestCheckpoint(Storage* run, const Module& module, const CheckpointState& checkpoint) {
  TROOP_CHECK(checkpoint.score && std::isfinite(checkpoint.score->score), "no finite score");
  return WriteFiles(run, EncodeFiles(module, checkpoint), kBestFolder);
}

// The one that was moved aside is still the only one if its successor is not in place.
Status RepairBestCheckpoint(Storage* run) {
  const std::string path = kBestFolder;
  TROOP_RETURN_IF_ERROR(run->Remove(path + kTemporary));
  if (run->Exists(path)) return run->Remove(path + kAside);
  return run->Exists(path + kAside) ? run->Rename(path + kAside, path) : Status::Ok();
}

// An interrupted replacement has moved the checkpoint aside.
Result<std::string> BestCheckpoint(Storage* run) {
  for (const std::string& path :
       {std::string(kBestFolder), fmt::format("{}{}", kBestFolder, kAside)}) {
    if (run->Exists(path + "/" + kManifest)) return path;
  }
  return NotFound(
      "the run has no best checkpoint; it is kept from the first evaluation on if the run has "
      "evaluator.keep_best = true");
}

// state.json alone: the weights may be large, and a status must be fast.
Result<CheckpointScore> BestScore(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::string path, BestCheckpoint(run));
  const std::string file = path + "/" + kState;
  TROOP_ASSIGN_OR_RETURN(const Buffer text, ReadFile(run, file, kTextBytesMax));
  const Result<JsonValue> state = ParseJson(text.text());
  if (!state.ok()) return state.status().WithContext(file);
  auto score = DecodeScore(*state);
  if (!score.ok()) return score.status().WithContext(path);
  return score;
}

// A best checkpoint that is replaced while it is read looks damaged or missing once; the next
// reading finds the new one.
Result<FoundCheckpoint> ReadChosenCheckpoint(Storage* run, CheckpointChoice choice) {
  const bool best = choice == CheckpointChoice::kBest;
  for (bool again = best;; again = false) {
    FoundCheckpoint found;
    TROOP_ASSIGN_OR_RETURN(found.path, best ? BestCheckpoint(run) : NewestCheckpoint(run));
    Result<CheckpointState> read = ReadCheckpoint(run, found.path);
    if (!read.ok() && again) continue;
    if (!read.ok()) return read.status();
    found.checkpoint = std::move(*read);
    return found;
  }
}

// From the newest to the oldest, until one is usable.
Result<FoundCheckpoint> NewestFiniteCheckpoint(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCheckpoints(run));
  for (auto it = names.rbegin(); it != names.rend(); ++it) {
    const std::string path = fmt::format("{}/{}", kFolder, *it);
    Result<CheckpointState> read = ReadCheckpoint(run, path);
    if (!read.ok()) {
      LogWarning("skipping a damaged checkpoint: {}", read.status().message());
    } else if (!IsFinite(read->state)) {
      LogWarning("skipping {}: it has a non-finite value", path);
    } else {
      return FoundCheckpoint{path, std::move(*read)};
    }
  }
  return NotFound("no complete checkpoint");
}

// The previous process may have written its last checkpoint without reporting it.
Result<FoundCheckpoint> FindResumeCheckpoint(Storage* run, const std::string& reported) {
  FoundCheckpoint found{.path = reported};
  const Result<std::string> unreported = NewestCheckpoint(run);
  if (unreported.ok() && *unreported > found.path) found.path = *unreported;
  if (found.path.empty()) return found;
  Result<CheckpointState> read = ReadCheckpoint(run, found.path);
  if (!read.ok()) {  // damaged since it was written: fall back to an older one
    const Result<std::string> newest = NewestCheckpoint(run);
    if (!newest.ok()) return read.status();
    LogWarning("resuming from {} instead: {}", *newest, read.status().message());
    found.path = *newest;
    read = ReadCheckpoint(run, found.path);
  }
  if (!read.ok()) return read.status();
  found.checkpoint = std::move(*read);
  return found;
}

}  // namespace troop
