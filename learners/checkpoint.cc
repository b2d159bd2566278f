#include "learners/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "core/crc32c.h"
#include "core/json.h"
#include "core/log.h"
#include "core/version.h"

namespace troop {
namespace {

constexpr char kFolder[] = "checkpoints";
constexpr char kWeights[] = "weights.safetensors";
constexpr char kTensors[] = "state.safetensors";
constexpr char kState[] = "state.json";
constexpr char kManifest[] = "manifest.json";
constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;
constexpr std::size_t kTensorBytesMax = std::size_t{64} << 30;

// checkpoints/000000012345: names sort as their updates do.
std::string FolderFor(std::uint64_t updates) { return fmt::format("{}/{:012}", kFolder, updates); }

Buffer EncodeWeights(const Module& module, const CheckpointState& checkpoint) {
  TensorFile file;
  const auto it = checkpoint.state.tensors.find("value");
  TROOP_CHECK(it != checkpoint.state.tensors.end(), "an algorithm's state holds its value");
  for (const ParamSpec& param : module.params()) {
    file.tensors[param.name] = it->second.Range(param.offset, param.shape);
  }
  file.metadata = {{"format", "troop"}, {"updates", std::to_string(checkpoint.updates)}};
  return EncodeSafetensors(file);
}

// Names of the checkpoints, oldest first; leftovers of interrupted writes are not among them.
Result<std::vector<std::string>> ListCheckpoints(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run->List(kFolder));
  std::vector<std::string> whole;
  for (std::string& name : names) {
    if (!name.ends_with('/')) continue;
    name.pop_back();
    if (std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) {
      whole.push_back(std::move(name));
    }
  }
  std::ranges::sort(whole);
  return whole;
}

Status RemoveOld(Storage* run, std::int64_t keep) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCheckpoints(run));
  const auto excess = std::int64_t(names.size()) - std::max<std::int64_t>(keep, 1);
  for (std::int64_t i = 0; i < excess; ++i) {
    TROOP_RETURN_IF_ERROR(run->Remove(fmt::format("{}/{}", kFolder, names[std::size_t(i)])));
  }
  return Status::Ok();
}

// Every file of the manifest with its bytes checked. Errors: kDataLoss.
Result<std::map<std::string, Buffer>> ReadWhole(Storage* run, const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const Buffer text, run->Read(path + "/" + kManifest, kTextBytesMax));
  TROOP_ASSIGN_OR_RETURN(const JsonValue manifest, ParseJson(text.text()));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t version, manifest.Integer("version"));
  if (version > kCheckpointVersion) {
    return InvalidArgument("{} has checkpoint format {}; this program reads up to {}: use a newer one",
                           path, version, kCheckpointVersion);
  }
  const JsonValue* files = manifest.Find("files");
  if (files == nullptr) return DataLoss("{}/{} names no files", path, kManifest);
  std::map<std::string, Buffer> bytes;
  for (const auto& [name, entry] : files->object) {
    TROOP_ASSIGN_OR_RETURN(const std::int64_t size, entry.Integer("bytes"));
    TROOP_ASSIGN_OR_RETURN(const std::int64_t crc, entry.Integer("crc32c"));
    TROOP_ASSIGN_OR_RETURN(Buffer file, run->Read(path + "/" + name, kTensorBytesMax));
    if (std::int64_t(file.size()) != size) {
      return DataLoss("{}/{} has {} bytes, its manifest says {}", path, name, file.size(), size);
    }
    if (std::int64_t(Crc32c(file.bytes())) != crc) {
      return DataLoss("{}/{} is damaged: its checksum is {:08x}, its manifest says {:08x}", path, name,
                      Crc32c(file.bytes()), crc);
    }
    bytes[name] = std::move(file);
  }
  return bytes;
}

}  // namespace

Result<std::string> WriteCheckpoint(Storage* run, const Module& module,
                                    const CheckpointState& checkpoint, std::int64_t keep) {
  const std::string path = FolderFor(checkpoint.updates);
  if (run->Exists(path + "/" + kManifest)) return path;  // the same updates, the same bytes
  const std::string temporary = path + ".tmp";
  TROOP_RETURN_IF_ERROR(run->Remove(temporary));
  const std::map<std::string, Buffer> files{
      {kWeights, EncodeWeights(module, checkpoint)},
      {kTensors, EncodeSafetensors(checkpoint.state)},
      {kState, Buffer::Copy(JsonObject()
                                .Add("updates", checkpoint.updates)
                                .Add("steps", checkpoint.steps)
                                .Add("program", kTroopVersion)
                                .Add("config", checkpoint.config_toml)
                                .str())}};
  JsonObject list;
  for (const auto& [name, bytes] : files) {
    TROOP_RETURN_IF_ERROR(run->WriteAtomic(temporary + "/" + name, bytes.bytes()));
    list.AddRaw(name, JsonObject()
                          .Add("bytes", std::uint64_t(bytes.size()))
                          .Add("crc32c", std::uint64_t(Crc32c(bytes.bytes())))
                          .str());
  }
  TROOP_RETURN_IF_ERROR(run->WriteAtomic(
      temporary + "/" + kManifest,
      JsonObject().Add("version", kCheckpointVersion).AddRaw("files", list.str()).str()));
  if (run->Exists(path)) TROOP_RETURN_IF_ERROR(run->Remove(path));
  TROOP_RETURN_IF_ERROR(run->Rename(temporary, path));
  TROOP_RETURN_IF_ERROR(RemoveOld(run, keep));
  return path;
}

Result<CheckpointState> ReadCheckpoint(Storage* run, const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const auto files, ReadWhole(run, path));
  for (const char* name : {kState, kTensors}) {
    if (!files.contains(name)) return DataLoss("{}/{} is missing in the manifest", path, name);
  }
  TROOP_ASSIGN_OR_RETURN(const JsonValue state, ParseJson(files.at(kState).text()));
  CheckpointState checkpoint;
  TROOP_ASSIGN_OR_RETURN(const std::int64_t updates, state.Integer("updates"));
  checkpoint.updates = std::uint64_t(updates);
  TROOP_ASSIGN_OR_RETURN(checkpoint.steps, state.Integer("steps"));
  TROOP_ASSIGN_OR_RETURN(checkpoint.config_toml, state.String("config"));
  TROOP_ASSIGN_OR_RETURN(checkpoint.state, DecodeSafetensors(files.at(kTensors)));
  return checkpoint;
}

Result<std::string> NewestCheckpoint(Storage* run) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListCheckpoints(run));
  Status last = NotFound("no checkpoint here yet");
  for (auto it = names.rbegin(); it != names.rend(); ++it) {
    const std::string path = fmt::format("{}/{}", kFolder, *it);
    const auto files = ReadWhole(run, path);
    if (files.ok()) return path;
    last = files.status();
    LogWarning("passing over a damaged checkpoint: {}", last.message());
  }
  return last;
}

}  // namespace troop
