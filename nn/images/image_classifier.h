#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"
#include "nn/module.h"

namespace troop {

// Image classifiers. kCnn: a small network of this project; kResNet18, kResNet50: He et al. 2016
// (arXiv:1512.03385), as in torchvision, where the stride of a bottleneck is in its 3 x 3
// convolution. kAlexNet: Krizhevsky et al. 2012, with two groups in convolutions 2, 4 and 5 and
// local response normalization; kAlexNetTorchvision: Krizhevsky 2014 (arXiv:1404.5997) without
// either; kVgg16: Simonyan & Zisserman 2015 (arXiv:1409.1556), configuration D.
enum class ImageArchitecture : std::uint8_t {
  kCnn,
  kResNet18,
  kResNet50,
  kAlexNet,
  kAlexNetTorchvision,
  kVgg16
};
constexpr auto EnumNames(ImageArchitecture) {
  return std::to_array<std::string_view>(
      {"cnn", "resnet18", "resnet50", "alexnet", "alexnet_torchvision", "vgg16"});
}
// True for the models that end with two hidden linear layers and dropout.
constexpr bool HasHiddenLinear(ImageArchitecture architecture) {
  return architecture >= ImageArchitecture::kAlexNet;
}

struct ImageModelOptions {
  ImageArchitecture architecture = ImageArchitecture::kCnn;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 3;
  std::int64_t classes = 1000;
  std::int64_t hidden = 4096;  // units of the two hidden linear layers (HasHiddenLinear)
};
// Errors: kInvalidArgument, naming the value that is out of bounds.
Status CheckImageModel(const ImageModelOptions& options);

// Creates the classifier: [B, height, width, channels] f32 → [B, classes] f32, the logits. Forward
// with a cache is training mode (MakeBatchNorm): it needs StepContext::statistics for the running
// statistics. UpdateStatistics takes those, [P] f32, and moves the running ones by PyTorch's
// momentum of 0.1. Convolutions begin with He's initialization (He et al. 2015), as in torchvision.
// Parameters have the names of torchvision's state dict; those of the cnn are of the same kind:
//   features.0, .3, .7, .10   convolutions 3 x 3 without bias: 32, 32, 64, 64 filters
//   features.1, .4, .8, .11   batch normalizations with relu; maximum pooling by 2 after .4 and .11
//   fc                        linear layer of the mean over all pixels
// AlexNet and VGG-16 drop half of the inputs of the last linear layers, as published, by
// StepContext::dropout. kAlexNet begins as the paper says: weights N(0, 0.01²); biases 1 in
// convolutions 2, 4 and 5 and in the hidden linear layers, else 0. Its names are torchvision's.
// Errors: those of CheckImageModel.
Result<std::unique_ptr<Module>> MakeImageClassifier(const ImageModelOptions& options);

// Names of the blocks of a classifier in the order of the forward pass, between which a pipeline
// may cut it: a layer or residual block with trained parameters, and the layers without that follow
// it. A block has the name of its first layer. Errors: those of CheckImageModel.
Result<std::vector<std::string>> ImageBlocks(const ImageModelOptions& options);
// Creates blocks [first, end) alone: the output of the block before → that of the last one.
// Parameters have the names and the order that they have in the whole classifier. Errors: those of
// CheckImageModel; kInvalidArgument: there are no such blocks.
Result<std::unique_ptr<Module>> MakeImageBlocks(const ImageModelOptions& options,
                                                std::int64_t first, std::int64_t end);

}  // namespace troop
