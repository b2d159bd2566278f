// Implements the image classifiers, layer by layer: each part has the input that the one before it
// leaves.
#include "nn/images/image_classifier.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/image_layers.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// Two poolings need four pixels; the rest bounds the memory of a wrong setting.
constexpr std::int64_t kSideMin = 4, kSideMax = 1 << 13, kClassesMax = 1 << 20;

// A convolution without bias and the batch normalization after it.
struct ConvNorm {
  std::int64_t filters = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  bool relu = true;
};

// Deviation of the initial weights that keeps the variance of gradients through relu: He et al.
// 2015 (arXiv:1502.01852), eq. 14, with the fan-out, as torchvision has it.
float HeDeviation(const ConvNorm& o) {
  return float(std::sqrt(2.0 / double(o.kernel * o.kernel * o.filters)));
}

// The whole network. Its untrained parameters are the running statistics, which UpdateStatistics
// moves to those of a batch.
class ImageClassifier final : public Module {
 public:
  explicit ImageClassifier(std::unique_ptr<Module> net)
      : net_(std::move(net)), params_(net_->params().begin(), net_->params().end()) {
    // Vectors are biases and norms, which weight decay leaves out.
    for (ParamSpec& spec : params_) spec.decays = spec.decays && spec.shape.rank() > 1;
  }

  std::span<const ParamSpec> params() const override { return params_; }
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    return net_->MakePlan(in);
  }
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    return net_->MakePacked(precision);
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    net_->Pack(value, packed);
  }
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    net_->Forward(context, in, out, cache);
  }
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    net_->Backward(context, in, dout, cache, din);
  }
  // statistics: [P]; an empty tensor changes nothing.
  void UpdateStatistics(ConstTensor statistics, std::span<float> value) const override {
    if (statistics.elements() == std::int64_t(value.size()))
      UpdateRunningStatistics(*net_, statistics.as<float>(), kMomentum, value);
  }

 private:
  static constexpr float kMomentum = 0.1f;  // PyTorch's default
  const std::unique_ptr<Module> net_;
  std::vector<ParamSpec> params_;
};

// Parts of a network under construction, with the shape of the last output. Copies of the shape
// build a branch and its shortcut from one input.
class Stack {
 public:
  Stack(std::int64_t height, std::int64_t width, std::int64_t channels)
      : height_(height), width_(width), channels_(channels) {}

  std::int64_t channels() const { return channels_; }
  // An empty stack whose input is this one's output.
  Stack Continued() const { return {height_, width_, channels_}; }

  // Zeros keep the size of the image, apart from the stride.
  void AddConvNorm(const std::string& conv, const std::string& norm, const ConvNorm& o) {
    const Conv2dOptions options{.height = height_,
                                .width = width_,
                                .channels = channels_,
                                .filters = o.filters,
                                .kernel = o.kernel,
                                .stride = o.stride,
                                .padding = o.kernel / 2,
                                .bias = false,
                                .deviation = HeDeviation(o)};
    parts_.push_back({conv, MakeConv2d(options)});
    const Activation activation = o.relu ? Activation::kRelu : Activation::kNone;
    parts_.push_back({norm, MakeBatchNorm({.channels = o.filters, .activation = activation})});
    // The size that the convolution leaves.
    height_ = (height_ + 2 * options.padding - o.kernel) / o.stride + 1;
    width_ = (width_ + 2 * options.padding - o.kernel) / o.stride + 1;
    channels_ = o.filters;
  }
  // Maximum over windows, which halves the image.
  void AddMaxPool(const std::string& name, std::int64_t kernel, std::int64_t padding) {
    const MaxPoolOptions options{.height = height_,
                                 .width = width_,
                                 .channels = channels_,
                                 .kernel = kernel,
                                 .stride = 2,
                                 .padding = padding};
    parts_.push_back({name, MakeMaxPool(options)});
    height_ = options.out()[0], width_ = options.out()[1];
  }
  // The mean over all pixels, and a linear layer.
  void AddHead(std::int64_t classes) {
    parts_.push_back({"avgpool", MakeAdaptiveAveragePool({height_, width_, channels_, 1, 1})});
    parts_.push_back({"fc", MakeLinear(channels_, classes)});
  }
  // A residual block: both stacks began as Continued(). shortcut: nullptr is the identity.
  void AddShortcut(const std::string& name, Stack branch, Stack* shortcut) {
    height_ = branch.height_, width_ = branch.width_, channels_ = branch.channels_;
    std::unique_ptr<Module> projection;
    if (shortcut != nullptr) projection = std::move(*shortcut).Finish();
    parts_.push_back(
        {name, MakeShortcut(std::move(branch).Finish(), std::move(projection), Activation::kRelu)});
  }
  // The network of all parts. The stack is empty then.
  std::unique_ptr<Module> Finish() && { return MakeSequential(std::move(parts_)); }

 private:
  std::int64_t height_, width_, channels_;
  std::vector<SequentialPart> parts_;
};

// Four 3 x 3 convolutions; two poolings, so that images of 4 x 4 are possible.
std::unique_ptr<Module> MakeCnn(const ImageModelOptions& o) {
  Stack net(o.height, o.width, o.channels);
  net.AddConvNorm("features.0", "features.1", {.filters = 32});
  net.AddConvNorm("features.3", "features.4", {.filters = 32});
  net.AddMaxPool("features.6", 2, 0);
  net.AddConvNorm("features.7", "features.8", {.filters = 64});
  net.AddConvNorm("features.10", "features.11", {.filters = 64});
  net.AddMaxPool("features.13", 2, 0);
  net.AddHead(o.classes);
  return std::move(net).Finish();
}

// A block of two 3 x 3 convolutions, or a bottleneck of 1 x 1, 3 x 3 and 1 x 1 with four times the
// filters at its end (He et al. 2016, figure 5).
void AddBlock(const std::string& name, std::int64_t filters, std::int64_t stride, bool bottleneck,
              Stack* net) {
  const std::int64_t out = bottleneck ? 4 * filters : filters;
  Stack branch = net->Continued(), shortcut = net->Continued();
  if (bottleneck) {
    branch.AddConvNorm("conv1", "bn1", {.filters = filters, .kernel = 1});
    branch.AddConvNorm("conv2", "bn2", {.filters = filters, .stride = stride});
    branch.AddConvNorm("conv3", "bn3", {.filters = out, .kernel = 1, .relu = false});
  } else {
    branch.AddConvNorm("conv1", "bn1", {.filters = filters, .stride = stride});
    branch.AddConvNorm("conv2", "bn2", {.filters = filters, .relu = false});
  }
  // Option B of the paper: a projection where the shape changes.
  const bool projects = stride != 1 || net->channels() != out;
  if (projects) {
    shortcut.AddConvNorm("downsample.0", "downsample.1",
                         {.filters = out, .kernel = 1, .stride = stride, .relu = false});
  }
  net->AddShortcut(name, std::move(branch), projects ? &shortcut : nullptr);
}

// Four stages with 64 to 512 filters; all but the first halve the image.
std::unique_ptr<Module> MakeResNet(const ImageModelOptions& o, const std::array<int, 4>& blocks,
                                   bool bottleneck) {
  Stack net(o.height, o.width, o.channels);
  net.AddConvNorm("conv1", "bn1", {.filters = 64, .kernel = 7, .stride = 2});
  net.AddMaxPool("maxpool", 3, 1);
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    for (int block = 0; block < blocks[stage]; ++block) {
      AddBlock(fmt::format("layer{}.{}", stage + 1, block), std::int64_t{64} << stage,
               stage > 0 && block == 0 ? 2 : 1, bottleneck, &net);
    }
  }
  net.AddHead(o.classes);
  return std::move(net).Finish();
}

// The layers of an architecture; the numbers of blocks are those of He et al. 2016, table 1.
std::unique_ptr<Module> MakeNet(const ImageModelOptions& options) {
  switch (options.architecture) {
    case ImageArchitecture::kCnn:
      return MakeCnn(options);
    case ImageArchitecture::kResNet18:
      return MakeResNet(options, {2, 2, 2, 2}, false);
    case ImageArchitecture::kResNet50:
      break;
  }
  return MakeResNet(options, {3, 4, 6, 3}, true);
}

}  // namespace

Status CheckImageModel(const ImageModelOptions& o) {
  for (const std::int64_t side : {o.height, o.width}) {
    if (side >= kSideMin && side <= kSideMax) continue;
    return InvalidArgument("images of {} x {}: both sides must be in {} .. {}", o.height, o.width,
                           kSideMin, kSideMax);
  }
  if (o.channels != 1 && o.channels != 3) {
    return InvalidArgument("images with {} channels, must be 1 or 3", o.channels);
  }
  if (o.classes < 2 || o.classes > kClassesMax) {
    return InvalidArgument("{} classes, must be in 2 .. {}", o.classes, kClassesMax);
  }
  return Status::Ok();
}

Result<std::unique_ptr<Module>> MakeImageClassifier(const ImageModelOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckImageModel(options));
  return std::unique_ptr<Module>(new ImageClassifier(MakeNet(options)));
}

}  // namespace troop
