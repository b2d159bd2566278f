// Implements the choice of a checkpoint by a path of the command line.
#include "apps/deploy/loaded_checkpoint.h"

#include <filesystem>
#include <utility>

#include "fleet/config/config_migration.h"

namespace troop {

namespace fs = std::filesystem;

Result<LoadedCheckpoint> LoadCheckpoint(const std::string& given, CheckpointChoice choice) {
  const fs::path path = fs::absolute(given).lexically_normal();
  // Resolve the folder of the run and the name of the checkpoint in it.
  const bool is_checkpoint = fs::exists(path / "manifest.json");
  if (!is_checkpoint && !fs::exists(path / "checkpoints") && !fs::exists(path / "config.toml")) {
    return NotFound("{}: neither a checkpoint (no manifest.json) nor a run (no checkpoints/)",
                    path.string());
  }
  if (is_checkpoint && choice == CheckpointChoice::kBest) {
    return InvalidArgument(
        "{} is a checkpoint, and --best chooses one of a run; give the run folder, or omit --best",
        path.string());
  }
  // A trailing slash leaves an empty last part, which is not the checkpoint's name.
  const fs::path folder = is_checkpoint && !path.has_filename() ? path.parent_path() : path;
  const fs::path root = is_checkpoint ? folder.parent_path() : folder;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(root.string()));
  LoadedCheckpoint loaded;
  if (is_checkpoint) {
    const std::string name = folder.filename().string();
    loaded.path = (root / name).string();
    TROOP_ASSIGN_OR_RETURN(loaded.state, ReadCheckpoint(storage.get(), name));
  } else {
    auto chosen = ReadChosenCheckpoint(storage.get(), choice);
    if (!chosen.ok()) return chosen.status().WithContext(root.string());
    loaded.path = (root / chosen->path).string();
    loaded.state = std::move(chosen->checkpoint);
  }
  // A damaged or foreign checkpoint must not reach weights(), which assumes this tensor.
  const auto value = loaded.state.state.tensors.find("value");
  if (value == loaded.state.state.tensors.end() || value->second.dtype() != DType::kF32) {
    return DataLoss("{} holds no weights", loaded.path);
  }
  TROOP_ASSIGN_OR_RETURN(
      loaded.config, ParseSavedConfig(loaded.state.config_toml, loaded.path + "/state.json", {}));
  return loaded;
}

}  // namespace troop
