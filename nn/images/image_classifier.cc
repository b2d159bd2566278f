// Implements the image classifiers, layer by layer: each part has the input that the one before it
// leaves.
#include "nn/images/image_classifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/image_layers.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// Bounds of the memory of a wrong setting.
constexpr std::int64_t kSideMax = 1 << 13, kClassesMax = 1 << 20, kHiddenMax = 1 << 16;

// The smallest height and width for which every pooling has a whole window.
std::int64_t SideMin(ImageArchitecture architecture) {
  switch (architecture) {
    case ImageArchitecture::kAlexNet:
      return 67;
    case ImageArchitecture::kAlexNetTorchvision:
      return 63;
    case ImageArchitecture::kVgg16:
      return 32;
    case ImageArchitecture::kCnn:
    case ImageArchitecture::kResNet18:
    case ImageArchitecture::kResNet50:
      break;
  }
  return 4;
}

// A convolution without bias and the batch normalization after it.
struct ConvNorm {
  std::int64_t filters = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  bool relu = true;
};

// A convolution with bias and relu, as in the networks before batch normalization.
struct ConvRelu {
  std::int64_t filters = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;
  std::int64_t groups = 1;
  float deviation = 0;  // as in Conv2dOptions
};

// Deviation of the initial weights that keeps the variance of gradients through relu: He et al.
// 2015 (arXiv:1502.01852), eq. 14, with the fan-out, as torchvision has it.
float HeDeviation(std::int64_t kernel, std::int64_t filters) {
  return float(std::sqrt(2.0 / double(kernel * kernel * filters)));
}

// The whole network. Its untrained parameters are the running statistics, which UpdateStatistics
// moves to those of a batch.
class ImageClassifier final : public Module {
 public:
  ImageClassifier(std::unique_ptr<Module> net, ImageArchitecture architecture)
      : net_(std::move(net)), params_(net_->params().begin(), net_->params().end()) {
    for (ParamSpec& spec : params_) {
      // Vectors are biases and norms, which weight decay leaves out.
      spec.decays = spec.decays && spec.shape.rank() > 1;
      SetInit(architecture, &spec);
    }
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
  static constexpr float kNarrow = 0.01f;   // deviation of linear layers, and of all in the paper

  // The initial values that differ from those of the layers.
  static void SetInit(ImageArchitecture architecture, ParamSpec* spec) {
    const bool linear = spec->name.starts_with("classifier."), weight = spec->shape.rank() > 1;
    if (architecture == ImageArchitecture::kAlexNet) {
      // Krizhevsky et al. 2012, section 5.
      const bool ones = spec->name == "features.4.bias" || spec->name == "features.10.bias" ||
                        spec->name == "features.12.bias" || spec->name == "classifier.1.bias" ||
                        spec->name == "classifier.4.bias";
      spec->init = weight ? ParamSpec::Init::kNormal
                   : ones ? ParamSpec::Init::kOnes
                          : ParamSpec::Init::kZeros;
      spec->deviation = weight ? kNarrow : 0;
    } else if (architecture == ImageArchitecture::kVgg16) {
      // Convolutions have He's deviation already; the rest is torchvision's.
      if (linear && weight) spec->init = ParamSpec::Init::kNormal, spec->deviation = kNarrow;
      if (!weight) spec->init = ParamSpec::Init::kZeros;
    }
  }
  const std::unique_ptr<Module> net_;
  std::vector<ParamSpec> params_;
};

// Parts of a network under construction, with the shape of the last output. Copies of the shape
// build a branch and its shortcut from one input.
class Stack {
 public:
  Stack(std::int64_t height, std::int64_t width, std::int64_t channels)
      : height_(height), width_(width), channels_(channels) {}

  // The beginning of a network: converts the images to the type that the next layer computes in.
  static Stack Begin(const ImageModelOptions& o) {
    Stack stack(o.height, o.width, o.channels);
    stack.parts_.push_back({"input", MakeInput(1.0f)});
    return stack;
  }
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
                                .deviation = HeDeviation(o.kernel, o.filters)};
    parts_.push_back({conv, MakeConv2d(options)});
    const Activation activation = o.relu ? Activation::kRelu : Activation::kNone;
    parts_.push_back({norm, MakeBatchNorm({.channels = o.filters, .activation = activation})});
    // The size that the convolution leaves.
    height_ = (height_ + 2 * options.padding - o.kernel) / o.stride + 1;
    width_ = (width_ + 2 * options.padding - o.kernel) / o.stride + 1;
    channels_ = o.filters;
  }
  void AddConvRelu(const std::string& name, const ConvRelu& o) {
    parts_.push_back({name, MakeConv2d({.height = height_,
                                        .width = width_,
                                        .channels = channels_,
                                        .filters = o.filters,
                                        .kernel = o.kernel,
                                        .stride = o.stride,
                                        .activation = Activation::kRelu,
                                        .padding = o.padding,
                                        .groups = o.groups,
                                        .deviation = o.deviation})});
    height_ = (height_ + 2 * o.padding - o.kernel) / o.stride + 1;
    width_ = (width_ + 2 * o.padding - o.kernel) / o.stride + 1;
    channels_ = o.filters;
  }
  // With the constants of Krizhevsky et al. 2012, section 3.3.
  void AddResponseNorm(const std::string& name) {
    parts_.push_back({name, MakeLocalResponseNorm({.channels = channels_})});
  }
  void AddAdaptivePool(std::int64_t side) {
    parts_.push_back(
        {"avgpool", MakeAdaptiveAveragePool({height_, width_, channels_, side, side})});
    height_ = width_ = side;
  }
  // Two hidden linear layers and the output. `before`: dropout before the first linear layer, too,
  // as in AlexNet; else only behind the hidden ones, as in VGG.
  void AddClassifier(std::int64_t hidden, std::int64_t classes, bool before) {
    std::int64_t in = height_ * width_ * channels_, place = 0;
    parts_.push_back({"flatten", MakeFlatten(height_, width_, channels_)});
    const auto name = [&place] { return fmt::format("classifier.{}", place++); };
    const auto drop = [&] {
      const auto site = std::uint32_t(place);
      parts_.push_back({name(), MakeDropout({.elements = in, .site = site})});
    };
    // The indices are those of torchvision's nn.Sequential, where relu is a module.
    for (int layer = 0; layer < 2; ++layer) {
      if (before) drop();
      parts_.push_back({name(), MakeLinear(in, hidden, Activation::kRelu)});
      ++place, in = hidden;
      if (!before) drop();
    }
    parts_.push_back({name(), MakeLinear(in, classes)});
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
  // The network of all parts, or the parts themselves. The stack is empty then.
  std::unique_ptr<Module> Finish() && { return MakeSequential(std::move(parts_)); }
  std::vector<SequentialPart> Parts() && { return std::move(parts_); }

 private:
  std::int64_t height_, width_, channels_;
  std::vector<SequentialPart> parts_;
};

// Four 3 x 3 convolutions; two poolings, so that images of 4 x 4 are possible.
std::vector<SequentialPart> MakeCnn(const ImageModelOptions& o) {
  Stack net = Stack::Begin(o);
  net.AddConvNorm("features.0", "features.1", {.filters = 32});
  net.AddConvNorm("features.3", "features.4", {.filters = 32});
  net.AddMaxPool("features.6", 2, 0);
  net.AddConvNorm("features.7", "features.8", {.filters = 64});
  net.AddConvNorm("features.10", "features.11", {.filters = 64});
  net.AddMaxPool("features.13", 2, 0);
  net.AddHead(o.classes);
  return std::move(net).Parts();
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
std::vector<SequentialPart> MakeResNet(const ImageModelOptions& o, const std::array<int, 4>& blocks,
                                       bool bottleneck) {
  Stack net = Stack::Begin(o);
  net.AddConvNorm("conv1", "bn1", {.filters = 64, .kernel = 7, .stride = 2});
  net.AddMaxPool("maxpool", 3, 1);
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    for (int block = 0; block < blocks[stage]; ++block) {
      AddBlock(fmt::format("layer{}.{}", stage + 1, block), std::int64_t{64} << stage,
               stage > 0 && block == 0 ? 2 : 1, bottleneck, &net);
    }
  }
  net.AddHead(o.classes);
  return std::move(net).Parts();
}

// Krizhevsky et al. 2012, section 3.5; the two GPUs of the paper are the groups. The response
// normalizations follow the relu of convolutions 1 and 2.
std::vector<SequentialPart> MakeAlexNet(const ImageModelOptions& o) {
  Stack net = Stack::Begin(o);
  net.AddConvRelu("features.0", {.filters = 96, .kernel = 11, .stride = 4, .padding = 0});
  net.AddResponseNorm("features.2");
  net.AddMaxPool("features.3", 3, 0);
  net.AddConvRelu("features.4", {.filters = 256, .kernel = 5, .padding = 2, .groups = 2});
  net.AddResponseNorm("features.6");
  net.AddMaxPool("features.7", 3, 0);
  net.AddConvRelu("features.8", {.filters = 384});
  net.AddConvRelu("features.10", {.filters = 384, .groups = 2});
  net.AddConvRelu("features.12", {.filters = 256, .groups = 2});
  net.AddMaxPool("features.14", 3, 0);
  net.AddClassifier(o.hidden, o.classes, true);
  return std::move(net).Parts();
}

// torchvision's alexnet.py: one column, narrower, and a pooling to 6 x 6 for any size.
std::vector<SequentialPart> MakeAlexNetTorchvision(const ImageModelOptions& o) {
  Stack net = Stack::Begin(o);
  net.AddConvRelu("features.0", {.filters = 64, .kernel = 11, .stride = 4, .padding = 2});
  net.AddMaxPool("features.2", 3, 0);
  net.AddConvRelu("features.3", {.filters = 192, .kernel = 5, .padding = 2});
  net.AddMaxPool("features.5", 3, 0);
  net.AddConvRelu("features.6", {.filters = 384});
  net.AddConvRelu("features.8", {.filters = 256});
  net.AddConvRelu("features.10", {.filters = 256});
  net.AddMaxPool("features.12", 3, 0);
  net.AddAdaptivePool(6);
  net.AddClassifier(o.hidden, o.classes, true);
  return std::move(net).Parts();
}

// Five groups of 3 x 3 convolutions, each with a pooling behind it.
std::vector<SequentialPart> MakeVgg16(const ImageModelOptions& o) {
  Stack net = Stack::Begin(o);
  int place = 0;
  for (const auto& [layers, filters] :
       {std::pair<int, std::int64_t>{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}) {
    for (int layer = 0; layer < layers; ++layer, place += 2) {
      net.AddConvRelu(fmt::format("features.{}", place),
                      {.filters = filters, .deviation = HeDeviation(3, filters)});
    }
    net.AddMaxPool(fmt::format("features.{}", place++), 2, 0);
  }
  net.AddAdaptivePool(7);
  net.AddClassifier(o.hidden, o.classes, false);
  return std::move(net).Parts();
}

// The layers of an architecture, in order; the numbers of blocks are those of He et al. 2016,
// table 1.
std::vector<SequentialPart> MakeNet(const ImageModelOptions& options) {
  switch (options.architecture) {
    case ImageArchitecture::kCnn:
      return MakeCnn(options);
    case ImageArchitecture::kResNet18:
      return MakeResNet(options, {2, 2, 2, 2}, false);
    case ImageArchitecture::kAlexNet:
      return MakeAlexNet(options);
    case ImageArchitecture::kAlexNetTorchvision:
      return MakeAlexNetTorchvision(options);
    case ImageArchitecture::kVgg16:
      return MakeVgg16(options);
    case ImageArchitecture::kResNet50:
      break;
  }
  return MakeResNet(options, {3, 4, 6, 3}, true);
}

// True for the layers that a block begins with.
bool IsTrained(const SequentialPart& part) {
  return std::ranges::any_of(part.module->params(), &ParamSpec::trained);
}

// First part of each block, and the number of parts: parts without trained parameters belong to the
// block before them, or to the first one.
std::vector<std::size_t> BlockStarts(std::span<const SequentialPart> parts) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (IsTrained(parts[i])) starts.push_back(i);
  starts[0] = 0;
  starts.push_back(parts.size());
  return starts;
}

}  // namespace

Status CheckImageModel(const ImageModelOptions& o) {
  const std::int64_t side_min = SideMin(o.architecture);
  for (const std::int64_t side : {o.height, o.width}) {
    if (side >= side_min && side <= kSideMax) continue;
    return InvalidArgument("images of {} x {}: both sides must be in {} .. {} for {}", o.height,
                           o.width, side_min, kSideMax, EnumName(o.architecture));
  }
  if (o.channels != 1 && o.channels != 3) {
    return InvalidArgument("images with {} channels, must be 1 or 3", o.channels);
  }
  if (o.classes < 2 || o.classes > kClassesMax) {
    return InvalidArgument("{} classes, must be in 2 .. {}", o.classes, kClassesMax);
  }
  if (HasHiddenLinear(o.architecture) && (o.hidden < 1 || o.hidden > kHiddenMax))
    return InvalidArgument("{} hidden units, must be in 1 .. {}", o.hidden, kHiddenMax);
  return Status::Ok();
}

Result<std::unique_ptr<Module>> MakeImageClassifier(const ImageModelOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckImageModel(options));
  return std::unique_ptr<Module>(
      new ImageClassifier(MakeSequential(MakeNet(options)), options.architecture));
}

Result<std::vector<std::string>> ImageBlocks(const ImageModelOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckImageModel(options));
  std::vector<std::string> names;
  for (const SequentialPart& part : MakeNet(options))
    if (IsTrained(part)) names.push_back(part.name);
  return names;
}

// A sequence of fewer parts has the same alignment, so only the base of the offsets differs.
Result<std::unique_ptr<Module>> MakeImageBlocks(const ImageModelOptions& options,
                                                std::int64_t first, std::int64_t end) {
  TROOP_RETURN_IF_ERROR(CheckImageModel(options));
  std::vector<SequentialPart> parts = MakeNet(options);
  const std::vector<std::size_t> starts = BlockStarts(parts);
  const auto blocks = std::int64_t(starts.size()) - 1;
  if (first < 0 || first >= end || end > blocks) {
    return InvalidArgument("blocks {} to {} of {}: must be at least one of them", first, end,
                           blocks);
  }
  std::vector<SequentialPart> taken;
  for (std::size_t i = starts[std::size_t(first)]; i < starts[std::size_t(end)]; ++i)
    taken.push_back(std::move(parts[i]));
  return std::unique_ptr<Module>(
      new ImageClassifier(MakeSequential(std::move(taken)), options.architecture));
}

}  // namespace troop
