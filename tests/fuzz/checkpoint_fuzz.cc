// A checkpoint with one hostile file. The first byte of an input chooses the file, whose bytes are
// the rest:
//   0: manifest.json   1: state.json   2: state.safetensors   3: weights.safetensors
//   4: no checkpoint: a tensor file    5: JSON
// In 1 … 3 the manifest is made right, so that what is behind its checksums is reached. What is
// accepted can be corrected and read again, says the same, and gives the learner a state or a
// reason why not.
#include <algorithm>
#include <map>
#include <string>

#include "core/base/check.h"
#include "core/base/version.h"
#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "learners/algorithm.h"
#include "learners/checkpoint.h"
#include "nn/io/safetensors.h"
#include "nn/models/model.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

constexpr char kPath[] = "checkpoints/000000000012";
constexpr const char* kFiles[] = {"manifest.json", "state.json", "state.safetensors",
                                  "weights.safetensors"};

struct World {
  EnvSpec env;
  TrainingConfig config;
  std::unique_ptr<Module> module;
  std::unique_ptr<Algorithm> algorithm;
  std::map<std::string, std::string> files;  // of a whole checkpoint

  World() {
    env.id = "test";
    env.observation = {DType::kF32, {3}};
    env.action.count = 2;
    config.network.layers = {{.type = LayerType::kLinear, .units = 4}};
    module = std::move(*MakeNetwork(ModelSetupOf(config), env));
    algorithm = std::move(*MakeAlgorithm(config, env));
    const auto run = MakeMemoryStorage();
    const auto path = WriteCheckpoint(
        run.get(), *module,
        {.updates = 12, .steps = 345, .config_toml = "seed = 3\n", .state = algorithm->State()}, 3);
    TROOP_CHECK(path.ok() && *path == kPath, "{}", path.status().ToString());
    for (const char* name : kFiles) {
      files[name] = std::string((*run->Read(fmt::format("{}/{}", kPath, name), 1 << 20)).text());
    }
  }
};
World& TheWorld() {
  static World world;
  return world;
}

std::string ManifestOf(const std::map<std::string, std::string>& files) {
  JsonObject list;
  for (const auto& [name, bytes] : files) {
    if (name == kFiles[0]) continue;
    list.Add(name, JsonObject()
                       .Add("bytes", std::uint64_t(bytes.size()))
                       .Add("crc32c", std::uint64_t(Crc32c(std::as_bytes(std::span(bytes))))));
  }
  return JsonObject().Add("version", kCheckpointVersion).Add("files", list).str();
}

bool Same(const TensorFile& a, const TensorFile& b) {
  return a.metadata == b.metadata &&
         std::ranges::equal(a.tensors, b.tensors, [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.spec() == y.second.spec() &&
                  std::ranges::equal(x.second.bytes(), y.second.bytes());
         });
}

void CheckTensors(const TensorFile& file) {
  const Result<TensorFile> again = DecodeSafetensors(EncodeSafetensors(file));
  TROOP_CHECK(again.ok(), "{}", again.status().ToString());
  TROOP_CHECK(Same(file, *again), "another tensor file came back");
}

void CheckCheckpoint(int place, const std::string& bytes) {
  World& world = TheWorld();
  std::map<std::string, std::string> files = world.files;
  files[kFiles[place]] = bytes;
  if (place > 0) files[kFiles[0]] = ManifestOf(files);
  const auto run = MakeMemoryStorage();
  for (const auto& [name, text] : files) {
    TROOP_CHECK(run->WriteAtomic(fmt::format("{}/{}", kPath, name), text).ok(), "no disk");
  }
  const Result<std::string> newest = NewestCheckpoint(run.get());
  const Result<CheckpointState> read = ReadCheckpoint(run.get(), kPath);
  if (!read.ok()) {
    const Code code = read.status().code();
    TROOP_CHECK(code == Code::kDataLoss || code == Code::kInvalidArgument, "{}",
                read.status().ToString());
    return;
  }
  TROOP_CHECK(newest.ok() && *newest == kPath, "a checkpoint that can be read is not found");
  TROOP_CHECK(read->steps >= 0 && read->updates <= std::uint64_t{1} << 63, "steps {}, updates {}",
              read->steps, read->updates);
  CheckTensors(read->state);
  const Status corrected = CorrectCheckpointSteps(run.get(), kPath, 77);
  TROOP_CHECK(corrected.ok(), "{}", corrected.ToString());
  const Result<CheckpointState> again = ReadCheckpoint(run.get(), kPath);
  TROOP_CHECK(again.ok() && again->steps == 77 && again->updates == read->updates &&
                  again->config_toml == read->config_toml && Same(again->state, read->state),
              "another checkpoint came back");
  if (world.algorithm->SetState(read->state).ok()) CheckTensors(world.algorithm->State());
}

// A value written by JsonObject and JsonArray.
JsonText JsonOf(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  if (value.kind == Kind::kNull) return nullptr;
  if (value.kind == Kind::kBool) return value.boolean;
  if (value.kind == Kind::kNumber && value.integer) return *value.integer;
  if (value.kind == Kind::kNumber) return value.number;
  if (value.kind == Kind::kString) return value.string;
  if (value.kind == Kind::kArray) {
    JsonArray elements;
    for (const JsonValue& element : value.array) elements.Add(JsonOf(element));
    return elements;
  }
  JsonObject object;
  for (const auto& [key, entry] : value.object) object.Add(key, JsonOf(entry));
  return object;
}

void CheckJson(std::string_view text) {
  const Result<JsonValue> value = ParseJson(text);
  if (!value.ok()) return;
  const std::string written = JsonOf(*value).str();
  const Result<JsonValue> again = ParseJson(written);
  TROOP_CHECK(again.ok() && JsonOf(*again).str() == written, "another document came back: {}",
              written);
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  const World& world = TheWorld();
  const auto seed = [&](std::string_view name, int place, const std::string& bytes) {
    write(name, std::string(1, char(place)) + bytes);
  };
  for (const int place : {0, 1, 2, 3}) seed(kFiles[place], place, world.files.at(kFiles[place]));
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const auto bytes = Buffer::Copy(std::as_bytes(std::span(numbers)));
  TensorFile file;
  file.tensors["value"] = ConstTensor(bytes, {DType::kF32, {2, 3}});
  file.tensors["pixels"] = ConstTensor(bytes.Slice(0, 5), {DType::kU8, {5}});
  file.metadata = {{"format", "troop"}};
  seed("tensors", 4, std::string(EncodeSafetensors(file).text()));
  seed("json", 5, R"({"a": [1, -2.5e-3, "x\n\u00e9\ud83d\ude00", null, true], "b": {"c": {}}})");
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const int place = input.Take<std::uint8_t>();
  const std::span<std::byte> bytes = input.TakeRest();
  if (place <= 3) CheckCheckpoint(place, StringOf(bytes));
  if (place == 4) {
    const Result<TensorFile> file = DecodeSafetensors(Buffer::Copy(bytes));
    if (file.ok()) CheckTensors(*file);
  }
  if (place == 5) CheckJson(TextOf(bytes));
  return 0;
}
