// A model from outside: config.json and model.safetensors as the package transformers writes them.
// The first byte says what the rest is: 0 a config, 1 a file of weights, 2 (after the size of its
// data, u16) the header of one, 3 the index of several.
#include <cmath>

#include "core/base/check.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "nn/io/hugging_face.h"
#include "nn/io/weight_files.h"
#include "nn/models/model.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

TransformerOptions Tiny(TransformerConfig::Family family) {
  return {.config = {.family = family,
                     .vocabulary = 2,
                     .hidden = 16,
                     .embedding = 16,
                     .layers = 1,
                     .heads = 2,
                     .intermediate = 2,
                     .positions = family == TransformerConfig::Family::kRoberta ? 3 : 1,
                     .token_types = 1}};
}

const Module& TinyModule() {
  static const auto module = *MakeTransformer(Tiny(TransformerConfig::Family::kBert));
  return *module;
}

void CheckConfig(std::string_view text) {
  const auto read = ParseTransformerConfig(text);
  if (!read.ok()) {
    const Code code = read.status().code();
    TROOP_CHECK(code == Code::kDataLoss || code == Code::kInvalidArgument, "{}",
                read.status().ToString());
    return;
  }
  TROOP_CHECK(CheckTransformer(read->config).ok(), "a config out of bounds was read");
  const auto again = ParseTransformerConfig(TransformerConfigJson(*read));
  TROOP_CHECK(again.ok(), "{}", again.status().ToString());
  TROOP_CHECK(
      again->config == read->config && again->head == read->head && again->classes == read->classes,
      "another config came back");
}

void CheckWeights(const Buffer& bytes) {
  const auto file = DecodeSafetensors(bytes);
  if (!file.ok()) {
    TROOP_CHECK(file.status().code() == Code::kDataLoss, "{}", file.status().ToString());
    return;
  }
  std::vector<float> value(std::size_t(ParameterCount(TinyModule())), 0.5f);
  const auto loaded = LoadWeights(TinyModule(), *file, value);
  if (!loaded.ok()) return;
  for (const float v : value) TROOP_CHECK(std::isfinite(v), "a weight is {}", v);
  const auto again = DecodeSafetensors(EncodeSafetensors(SaveWeights(TinyModule(), value)));
  TROOP_CHECK(again.ok(), "{}", again.status().ToString());
  std::vector<float> copy(value.size(), 0.5f);
  TROOP_CHECK(LoadWeights(TinyModule(), *again, copy).ok() && copy == value,
              "other weights came back");
}

void CheckHeader(std::size_t data_bytes, std::string_view header) {
  MutableBuffer file = MutableBuffer::Zeros(8 + header.size() + data_bytes);
  Overwrite(file.bytes(), 0, std::uint64_t(header.size()));
  std::ranges::copy(std::as_bytes(std::span(header)), file.bytes().begin() + 8);
  CheckWeights(std::move(file).Freeze());
}

// The weights of TinyModule, in the file that the seed of an index names.
constexpr char kShard[] = "a.safetensors";

void CheckIndex(std::string_view text) {
  static const Buffer shard = [] {
    const std::vector<float> value(std::size_t(ParameterCount(TinyModule())), 0.5f);
    return EncodeSafetensors(SaveWeights(TinyModule(), value));
  }();
  const auto storage = MakeMemoryStorage();
  TROOP_CHECK(storage->WriteAtomic(kShard, shard.bytes()).ok() &&
                  storage->WriteAtomic("model.safetensors.index.json", text).ok(),
              "memory is full");
  const auto read = ReadWeightFiles(storage.get(), "");
  if (read.ok()) {
    TROOP_CHECK(read->tensors.size() == TinyModule().params().size(), "{} tensors",
                read->tensors.size());
    return;
  }
  const Code code = read.status().code();
  TROOP_CHECK(code == Code::kDataLoss || code == Code::kInvalidArgument || code == Code::kNotFound,
              "{}", read.status().ToString());
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  using Family = TransformerConfig::Family;
  for (const Family family :
       {Family::kBert, Family::kAlbert, Family::kRoberta, Family::kDistilBert, Family::kElectra}) {
    write(std::string(NameOf(family)) + ".json",
          std::string(1, '\0') + TransformerConfigJson(Tiny(family)));
  }
  JsonObject index;
  for (const ParamSpec& spec : TinyModule().params()) index.Add(spec.name, kShard);
  write("index", std::string(1, '\3') + JsonObject().Add("weight_map", index).str());
  std::vector<float> value(std::size_t(ParameterCount(TinyModule())));
  InitParameters(TinyModule(), 1, value);
  const Buffer file = EncodeSafetensors(SaveWeights(TinyModule(), value));
  write("weights", std::string(1, '\1') + std::string(file.text()));
  const auto header = std::size_t(ReadAt<std::uint64_t>(file.bytes(), 0));
  const auto data = std::uint16_t(file.size() - 8 - header);
  std::string seed(1, '\2');
  seed.append(reinterpret_cast<const char*>(&data), sizeof data);
  write("header", seed + std::string(file.Slice(8, header).text()));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const int kind = input.Take<std::uint8_t>();
  const std::size_t data_bytes = kind == 2 ? input.Take<std::uint16_t>() : 0;
  const std::span<std::byte> bytes = input.TakeRest();
  if (kind == 0) CheckConfig(TextOf(bytes));
  if (kind == 1) CheckWeights(Buffer::Copy(bytes));
  if (kind == 2) CheckHeader(data_bytes, TextOf(bytes));
  if (kind == 3) CheckIndex(TextOf(bytes));
  return 0;
}
