// Implements the files of image classifiers, as torchvision names their tensors.
#include "nn/io/image_model_files.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/storage/json.h"
#include "nn/io/image_weights.h"
#include "nn/io/weight_files.h"

namespace troop {
namespace {

// A missing file is the usual mistake: torchvision itself writes pickle files.
Result<TensorFile> ReadImageWeights(const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  Result<TensorFile> file = ReadWeightFiles(storage.get(), "");
  if (file.status().code() != Code::kNotFound) return file;
  return NotFound("{}; write it from torchvision with tools/convert/torchvision_weights.py",
                  file.status().message());
}

// Keys have the names of Hugging Face's configs.
std::string ImageConfigJson(const ImageModelForm& form) {
  const ModelConfig& m = *form.model;
  JsonObject labels;
  std::int64_t id = 0;
  for (const std::string& name : m.labels) labels.Add(std::to_string(id++), name);
  return JsonObject()
      .Add("model_type", EnumName(m.architecture))
      .Add("image_size", JsonArray::Of(std::vector{m.image_height, m.image_width}))
      .Add("num_channels", m.image_channels)
      .Add("image_mean", JsonArray::Of(form.mean))
      .Add("image_std", JsonArray::Of(form.deviation))
      .Add("id2label", labels)
      .str();
}

}  // namespace

Status LoadPretrainedImages(const ModelConfig& model, const Module& module, std::span<float> value,
                            bool tell) {
  const std::string& path = model.pretrained;
  const std::string context = "model.pretrained: " + path;
  Result<TensorFile> file = ReadImageWeights(path);
  if (!file.ok()) return file.status().WithContext(context);
  const std::vector<std::string> fresh = KeepOwnHead(module, value, &*file);
  const Status loaded = LoadImageWeights(*file, module, value);
  if (!loaded.ok()) {
    return loaded.WithContext(
        fmt::format("{}, model.architecture = \"{}\"", context, EnumName(model.architecture)));
  }
  // The file stays as it is; only its last layer is left out.
  if (tell && !fresh.empty()) {
    LogInfo(
        "model.pretrained: {} has another number of classes than this run ({}): {} start at random "
        "values",
        path, model.labels.size(), fmt::join(fresh, " and "));
  }
  return Status::Ok();
}

Status CheckPretrainedImages(const std::string& folder) {
  return ReadImageWeights(folder).status().WithContext("model.pretrained: " + folder);
}

// Weights first: a reader that finds config.json finds both.
Status WriteImageModel(const ImageModelForm& form, const Module& module,
                       std::span<const float> value, std::string_view folder, Storage* run) {
  TROOP_RETURN_IF_ERROR(run->WriteAtomic(
      PathIn(folder, kWeightsName), EncodeSafetensors(SaveImageWeights(module, value)).bytes()));
  return run->WriteAtomic(PathIn(folder, "config.json"), ImageConfigJson(form));
}

}  // namespace troop
