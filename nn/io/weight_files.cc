// Implements reading of the files of weights in a folder, whole or in shards.
#include "nn/io/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/storage/json.h"
#include "core/storage/lfs_pointer.h"

namespace troop {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
// Bounds of a damaged index: one of 10,000 tensors has about 1 MB.
constexpr std::size_t kIndexBytesMax = std::size_t{16} << 20, kShardsMax = 1000;

// Each name in the index becomes a path, so it must be a plain file name.
bool IsPlainName(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  return name.ends_with(".safetensors") && name.front() != '.' && name.size() <= 255 &&
         std::ranges::all_of(name, plain);
}

// Maps and decodes one file.
Result<TensorFile> ReadOne(Storage* storage, const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(path));
  TROOP_RETURN_IF_ERROR(CheckNoPointer(path, bytes));
  Result<TensorFile> file = DecodeSafetensors(bytes);
  if (!file.ok()) return file.status().WithContext(path);
  return file;
}

// The tensors of each file, by the file's name.
using Index = std::map<std::string, std::vector<std::string>>;

// Reads {"weight_map": {tensor: file}}; the key "metadata" has only a size.
Result<Index> ParseIndex(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  const JsonValue* const map = json.Find("weight_map");
  if (map == nullptr || map->kind != JsonValue::Kind::kObject)
    return DataLoss("\"weight_map\" is not an object, or missing");
  Index index;
  for (const auto& [tensor, file] : map->object) {
    if (file.kind != JsonValue::Kind::kString)
      return DataLoss("the file of tensor \"{}\" is not a string", tensor);
    if (!IsPlainName(file.string))
      return InvalidArgument(
          "tensor \"{}\" is in \"{}\": only .safetensors files in the same folder are read", tensor,
          file.string);
    index[file.string].push_back(tensor);
  }
  if (index.empty()) return DataLoss("\"weight_map\" is empty");
  if (index.size() > kShardsMax)
    return InvalidArgument("{} files of weights, more than {}", index.size(), kShardsMax);
  return index;
}

// Every tensor must be in its file, and no file may have others: the model would miss them.
Status AddShard(const std::string& path, const std::vector<std::string>& names,
                const TensorFile& shard, TensorFile* all) {
  for (const std::string& name : names) {
    const auto found = shard.tensors.find(name);
    if (found == shard.tensors.end())
      return DataLoss("{} has no tensor \"{}\", which {} lists there", path, name, kIndexName);
    all->tensors.insert(*found);
  }
  if (shard.tensors.size() == names.size()) return Status::Ok();
  for (const auto& [name, tensor] : shard.tensors) {
    if (std::ranges::find(names, name) == names.end())
      return DataLoss("{} has the tensor \"{}\", which {} doesn't list there", path, name,
                      kIndexName);
  }
  return Status::Ok();
}

// Reads all files that the index names, in the order of their names.
Result<TensorFile> ReadShards(Storage* storage, std::string_view folder) {
  const std::string path = PathIn(folder, kIndexName);
  TROOP_ASSIGN_OR_RETURN(const Buffer text, storage->Read(path, kIndexBytesMax));
  TROOP_RETURN_IF_ERROR(CheckNoPointer(path, text));
  const Result<Index> index = ParseIndex(text.text());
  if (!index.ok()) return index.status().WithContext(path);
  TensorFile all;
  for (const auto& [name, tensors] : *index) {
    const std::string shard_path = PathIn(folder, name);
    if (!storage->Exists(shard_path))
      return NotFound("{} is missing, but {} names it; copy it into the folder", shard_path,
                      kIndexName);
    TROOP_ASSIGN_OR_RETURN(const TensorFile shard, ReadOne(storage, shard_path));
    TROOP_RETURN_IF_ERROR(AddShard(shard_path, tensors, shard, &all));
  }
  return all;
}

}  // namespace

// An empty folder is the root of the storage.
std::string PathIn(std::string_view folder, std::string_view name) {
  return folder.empty() ? std::string(name) : fmt::format("{}/{}", folder, name);
}

// The pointer begins with a fixed line.
Status CheckNoPointer(const std::string& path, const Buffer& bytes) {
  if (!IsLfsPointer(bytes.text().substr(0, 64))) return Status::Ok();
  return InvalidArgument("{} is a git-lfs pointer, not the file itself; fetch it: git lfs pull",
                         path);
}

// In the order of transformers: the whole file, the index, then what cannot be read.
Result<TensorFile> ReadWeightFiles(Storage* storage, std::string_view folder) {
  const std::string path = PathIn(folder, kWeightsName);
  const auto has = [&](const char* name) { return storage->Exists(PathIn(folder, name)); };
  if (has(kWeightsName)) return ReadOne(storage, path);
  if (has(kIndexName)) return ReadShards(storage, folder);
  // Loading a pickle file can run any code, so Troop does not.
  if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json")) {
    return InvalidArgument(
        "{} is missing, and pytorch_model.bin is not read because it can contain code; convert it "
        "in its folder: python -c \"import json, transformers as t; "
        "getattr(t, json.load(open('config.json'))['architectures'][0])"
        ".from_pretrained('.').save_pretrained('.')\"",
        path);
  }
  return storage->Map(path).status();
}

}  // namespace troop
