// Image classifiers against the same modules in PyTorch
// (tools/fixtures/make_image_model_fixtures.py), with weights and images that both sides compute.
#include "nn/images/image_classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "nn/io/image_weights.h"
#include "nn/layers/image_layers.h"
#include "nn/models/model.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBatch = 4;

// Element i of tensor t: a uniform number in [-1, 1).
float Number(std::uint32_t t, std::uint32_t i) {
  std::uint32_t h = i * 2654435761u + t * 40503u + 12345u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h = (h ^ (h >> 13)) * 3266489917u;
  return (float(h >> 8) - float(1 << 23)) / float(1 << 23);
}

// The state dict that the fixture's script computes, in the order of the module's parameters, which
// is PyTorch's.
TensorFile Weights(const Module& module) {
  TensorFile file =
      SaveImageWeights(module, std::vector<float>(std::size_t(ParameterCount(module)), 0.0f));
  // Running statistics are counted, too, but not computed.
  std::uint32_t number = 0;
  for (const ParamSpec& spec : module.params()) {
    const Shape shape = file.tensors.at(spec.name).spec().shape;
    Tensor tensor(DType::kF32, shape);
    const double scale =
        shape.rank() > 1 ? std::sqrt(6.0 * double(shape[0]) / double(shape.elements())) : 0.1;
    const bool one = shape.rank() == 1 && spec.name.find("weight") != spec.name.npos;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const double x = double(Number(number, std::uint32_t(i)));
      tensor.data<float>()[i] = float(scale * x + (one ? 1 : 0));
    }
    // Running statistics begin as in PyTorch.
    if (!spec.trained) {
      const bool variance = spec.name.ends_with("var");
      for (float& x : tensor.as<float>()) x = variance ? 1.0f : 0.0f;
    }
    file.tensors[spec.name] = tensor;
    ++number;
  }
  return file;
}

// One line per model.
std::vector<JsonValue> Lines() {
  const auto text = ReadFile(TROOP_SOURCE_DIR "/tests/fixtures/images/models.jsonl", 1 << 20);
  EXPECT_TRUE(text.ok());
  std::vector<JsonValue> lines;
  for (std::size_t begin = 0; text.ok() && begin < text->size();) {
    const std::size_t end = text->find('\n', begin);
    auto line = ParseJson(std::string_view(*text).substr(begin, end - begin));
    EXPECT_TRUE(line.ok());
    if (line.ok()) lines.push_back(*std::move(line));
    begin = end + 1;
  }
  return lines;
}

// The sizes that a line was computed with.
ImageModelOptions OptionsOf(const JsonValue& line) {
  const auto number = [&](const char* key) { return line.Find(key)->integer.value(); };
  ImageModelOptions o{.height = number("height"),
                      .width = number("width"),
                      .channels = number("channels"),
                      .classes = number("classes"),
                      .hidden = number("hidden")};
  o.architecture = *ParseEnum<ImageArchitecture>(*line.String("model"));
  return o;
}

// The number that papers state: running statistics are not parameters.
std::int64_t TrainedCount(const Module& module) {
  std::int64_t count = 0;
  for (const ParamSpec& spec : module.params()) count += spec.trained ? spec.shape.elements() : 0;
  return count;
}

// Mean cross entropy with the label b for row b, and its gradient.
double CrossEntropy(std::span<const float> logits, std::int64_t classes, std::span<float> dlogits) {
  double loss = 0;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    double sum = 0;
    const auto row = [&](std::int64_t c) { return std::size_t(b * classes + c); };
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(double(logits[row(c)]));
    for (std::int64_t c = 0; c < classes; ++c) {
      const double p = std::exp(double(logits[row(c)])) / sum;
      dlogits[row(c)] = float((p - (b == c)) / kBatch);
    }
    loss += (std::log(sum) - double(logits[row(b)])) / kBatch;
  }
  return loss;
}

// The tolerance is that of f32 sums, relative to the largest number; the fixture is f64.
void ExpectLogits(const Tensor& logits, const JsonValue& line, const char* key) {
  const auto& expected = line.Find(key)->array;
  ASSERT_EQ(std::int64_t(expected.size()), logits.elements());
  double scale = 1;
  for (const JsonValue& logit : expected) scale = std::max(scale, std::abs(logit.number));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(double(logits.data<float>()[i]), expected[i].number, 1e-4 * scale)
        << key << " " << i;
  }
}

// Norm of each gradient, and its product with a random direction, in PyTorch's layout.
void ExpectGradients(const Module& module, std::span<const float> gradient, const JsonValue& line) {
  const TensorFile named = SaveImageWeights(module, gradient);
  std::map<std::string, std::uint32_t> numbers;
  for (const ParamSpec& spec : module.params()) {
    numbers.emplace(spec.name, std::uint32_t(numbers.size()));
  }
  // More than 1e-4 for ResNet-50, where PyTorch's own f32 gradients differ, too.
  const double tolerance = line.Find("tolerance")->number;
  for (const JsonValue& entry : line.Find("gradients")->array) {
    const std::string& name = entry.array[0].string;
    const std::span<const float> g = named.tensors.at(name).as<float>();
    double squares = 0, product = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      squares += double(g[i]) * double(g[i]);
      product += double(g[i]) * double(Number(1000 + numbers.at(name), std::uint32_t(i)));
    }
    const double norm = entry.array[1].number;
    EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm + 1e-7) << name;
    EXPECT_NEAR(product, entry.array[2].number, tolerance * norm + 1e-7) << name;
  }
}

// One step: loss, gradients, running statistics, and the answers after it.
void CheckStep(const JsonValue& line) {
  SCOPED_TRACE(*line.String("model"));
  const ImageModelOptions o = OptionsOf(line);
  const auto module = *MakeImageClassifier(o);
  EXPECT_EQ(TrainedCount(*module), line.Find("count")->integer.value());
  test::ModuleBench bench(*module, {DType::kF32, {kBatch, o.height, o.width, o.channels}},
                          Precision::kF32);
  ASSERT_TRUE(LoadImageWeights(Weights(*module), *module, bench.value).ok());
  for (std::int64_t i = 0; i < bench.input.elements(); ++i) {
    bench.input.data<float>()[i] = Number(999, std::uint32_t(i));
  }
  std::vector<float> statistics(bench.value.size());
  bench.statistics = statistics;
  (void)bench.Loss();
  ExpectLogits(bench.output, line, "logits");
  const double loss =
      CrossEntropy(bench.output.as<float>(), o.classes, bench.direction.as<float>());
  // The loss is 1e-4 absolute, as it is near ln(classes).
  EXPECT_NEAR(loss, line.Find("loss")->number, 1e-4);
  bench.Backward();
  ExpectGradients(*module, bench.gradient, line);
  UpdateRunningStatistics(*module, statistics, 0.1f, bench.value);
  (void)bench.Loss(false);
  ExpectLogits(bench.output, line, "inference");
}

// The models by their lines; the larger ones take a second or more.
TEST(ImageClassifierTest, CnnStepsAsPyTorch) { CheckStep(Lines().at(0)); }
TEST(ImageClassifierTest, SlowResNet18StepsAsPyTorch) { CheckStep(Lines().at(1)); }
TEST(ImageClassifierTest, SlowResNet50StepsAsPyTorch) { CheckStep(Lines().at(2)); }
TEST(ImageClassifierTest, AlexNetStepsAsPyTorch) { CheckStep(Lines().at(3)); }
TEST(ImageClassifierTest, AlexNetTorchvisionStepsAsPyTorch) { CheckStep(Lines().at(4)); }
TEST(ImageClassifierTest, SlowVgg16StepsAsPyTorch) { CheckStep(Lines().at(5)); }

// The published models for ImageNet have these numbers of parameters.
TEST(ImageClassifierTest, ParameterCountsEqualTorchvisions) {
  const auto count = [](ImageArchitecture architecture, std::int64_t side = 224) {
    return TrainedCount(
        **MakeImageClassifier({.architecture = architecture, .height = side, .width = side}));
  };
  EXPECT_EQ(count(ImageArchitecture::kResNet18), 11689512);
  EXPECT_EQ(count(ImageArchitecture::kResNet50), 25557032);
  EXPECT_EQ(count(ImageArchitecture::kAlexNet, 227), 60965224);
  EXPECT_EQ(count(ImageArchitecture::kAlexNetTorchvision), 61100840);
  EXPECT_EQ(count(ImageArchitecture::kVgg16), 138357544);
}

// Krizhevsky et al. 2012, section 5: "the neuron biases in the second, fourth, and fifth
// convolutional layers, as well as in the fully-connected hidden layers" begin with 1.
TEST(ImageClassifierTest, AlexNetBeginsAsPublished) {
  const auto module = *MakeImageClassifier({.architecture = ImageArchitecture::kAlexNet,
                                            .height = 67,
                                            .width = 67,
                                            .classes = 10,
                                            .hidden = 64});
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  InitParameters(*module, 1, value);
  const std::set<std::string> ones{"features.4.bias", "features.10.bias", "features.12.bias",
                                   "classifier.1.bias", "classifier.4.bias"};
  for (const ParamSpec& spec : module->params()) {
    const auto part =
        std::span(value).subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    double squares = 0;
    for (const float x : part) squares += double(x) * double(x);
    const double root = std::sqrt(squares / double(part.size()));
    const bool bias = spec.shape.rank() == 1;
    const double expected = !bias ? 0.01 : ones.contains(spec.name) ? 1 : 0;
    EXPECT_NEAR(root, expected, bias ? 0 : 1e-3) << spec.name;
    EXPECT_EQ(spec.decays, !bias) << spec.name;
  }
}

// With keys, half of the inputs of two linear layers are dropped; equal keys drop the same ones.
TEST(ImageClassifierTest, HiddenLayersDropByTheKeysOfRows) {
  for (const auto architecture : {ImageArchitecture::kAlexNet, ImageArchitecture::kVgg16}) {
    const auto module = *MakeImageClassifier(
        {.architecture = architecture, .height = 67, .width = 67, .classes = 3, .hidden = 64});
    test::ModuleBench bench(*module, {DType::kF32, {kBatch, 67, 67, 3}}, Precision::kF32);
    const std::vector<DropoutKey> keys{MakeDropoutKey(1, 0, 0), MakeDropoutKey(1, 1, 0),
                                       MakeDropoutKey(1, 0, 0), MakeDropoutKey(1, 0, 1)};
    // Rows of equal images differ by their masks alone.
    const auto image = bench.input.as<float>();
    for (std::size_t i = 67 * 67 * 3; i < image.size(); ++i) image[i] = image[i - 67 * 67 * 3];
    (void)bench.Loss();
    const std::vector<float> whole(bench.output.as<float>().begin(),
                                   bench.output.as<float>().end());
    bench.dropout = keys;
    (void)bench.Loss();
    const auto y = bench.output.as<float>();
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(y[c], y[6 + c]);
      EXPECT_NE(y[c], y[3 + c]);
      EXPECT_NE(y[c], y[9 + c]);
      EXPECT_NE(y[c], whole[c]);
    }
  }
}

// Names and shapes as in a file of torchvision.
TEST(ImageWeightsTest, NamesAndLayoutsAreTorchvisions) {
  const auto module = *MakeImageClassifier(
      {.architecture = ImageArchitecture::kResNet18, .height = 32, .width = 32});
  TensorFile file = Weights(*module);
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.tensors) names.insert(name);
  EXPECT_EQ(names.size(), 102u);  // PyTorch has 122: 20 are num_batches_tracked
  for (const char* name : {"conv1.weight", "bn1.running_var", "layer2.0.downsample.0.weight",
                           "layer2.0.downsample.1.bias", "layer4.1.bn2.running_mean", "fc.bias"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(file.tensors.at("conv1.weight").spec().shape, (Shape{64, 3, 7, 7}));
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  file.tensors["bn1.num_batches_tracked"] = Tensor(DType::kF32, {1});
  ASSERT_TRUE(LoadImageWeights(file, *module, value).ok());
  // Filter 1, row 2, column 3, channel 1 of [64, 7, 7, 3], which is [1, 1, 2, 3] of [64, 3, 7, 7].
  EXPECT_EQ(value[(1 * 49 + 2 * 7 + 3) * 3 + 1],
            file.tensors.at("conv1.weight").as<float>()[(1 * 3 + 1) * 49 + 2 * 7 + 3]);
}

// Errors name the tensor, and leave the weights as they were.
TEST(ImageWeightsTest, OtherModelsAreRejected) {
  const auto module = *MakeImageClassifier({.height = 8, .width = 8, .channels = 1, .classes = 3});
  const TensorFile file = Weights(*module);
  std::vector<float> value(std::size_t(ParameterCount(*module)), 5.0f);
  const auto message = [&](const TensorFile& changed) {
    return LoadImageWeights(changed, *module, value).message();
  };
  TensorFile changed = file;
  changed.tensors.erase("features.8.running_var");
  EXPECT_THAT(message(changed), HasSubstr("lack the tensor \"features.8.running_var\""));
  changed = file;
  changed.tensors["fc.bias"] = Tensor(DType::kF32, {4});
  EXPECT_THAT(message(changed), HasSubstr("the tensor \"fc.bias\" is"));
  changed = file;
  changed.tensors["head.bias"] = Tensor(DType::kF32, {4});
  EXPECT_THAT(message(changed), HasSubstr("\"head.bias\", which the model lacks"));
  EXPECT_THAT(value, testing::Each(5.0f));
}

// Limits are checked before a layer is created.
TEST(ImageClassifierTest, BadSizesAreNamed) {
  const auto message = [](const ImageModelOptions& o) {
    return MakeImageClassifier(o).status().message();
  };
  EXPECT_THAT(message({.height = 3, .width = 8}), HasSubstr("images of 3 x 8"));
  EXPECT_THAT(message({.height = 8, .width = 8, .channels = 2}), HasSubstr("2 channels"));
  EXPECT_THAT(message({.height = 8, .width = 8, .classes = 1}), HasSubstr("1 classes, must be"));
  // Each model at its smallest side, and one pixel less.
  for (const auto& [architecture, side] : {std::pair{ImageArchitecture::kAlexNet, 67},
                                           {ImageArchitecture::kAlexNetTorchvision, 63},
                                           {ImageArchitecture::kVgg16, 32}}) {
    ImageModelOptions o{.architecture = architecture, .height = side, .width = side, .hidden = 2};
    EXPECT_EQ(message(o), "") << side;
    o.width = side - 1;
    EXPECT_THAT(message(o), HasSubstr("both sides must be in " + std::to_string(side)));
    o.width = side, o.hidden = 0;
    EXPECT_THAT(message(o), HasSubstr("0 hidden units"));
  }
}

}  // namespace
}  // namespace troop
