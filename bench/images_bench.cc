// Measures training steps of image classifiers: forward, loss, backward and SGD with momentum, one
// thread.
//
// images_bench [--quick] [--case NAME]
//
// Prints one JSON object per case, see bench/README.md; each value is one step. Before a case is
// timed, the loss and the gradient norm of a step without dropout are its `check`, from weights and
// pixels that images_peers.py generates too.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "kernels/onednn/layer_kernel.h"
#include "kernels/optim/optimizer_step.h"
#include "kernels/transformer/layer_norm_gelu.h"
#include "nn/images/image_classifier.h"
#include "nn/io/image_weights.h"
#include "nn/models/model.h"
#include "nn/optimizer.h"

namespace troop {
namespace {

// Element i of a tensor: a uniform number in [-1, 1), exact in f32.
float Number(std::uint32_t tensor, std::uint32_t i) {
  std::uint32_t h = i * 2654435761u + tensor * 40503u + 12345u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h = (h ^ (h >> 13)) * 3266489917u;
  return (float(h >> 8) - float(1 << 23)) / float(1 << 23);
}

struct Case {
  std::string name;
  ImageArchitecture architecture;
  std::int64_t images, side;
  Precision precision;
};
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto precision : {Precision::kF32, Precision::kBF16}) {
    const std::string kind = precision == Precision::kF32 ? "_fp32" : "_bf16";
    cases.push_back({"resnet18_32x64" + kind, ImageArchitecture::kResNet18, 32, 64, precision});
    cases.push_back(
        {"alexnet_16x224" + kind, ImageArchitecture::kAlexNetTorchvision, 16, 224, precision});
  }
  return cases;
}

class Trainer {
 public:
  explicit Trainer(const Case& c)
      : module_(*MakeImageClassifier(
            {.architecture = c.architecture, .height = c.side, .width = c.side})),
        value_(std::size_t(ParameterCount(*module_))),
        gradient_(value_.size()),
        statistics_(value_.size()),
        input_(DType::kF32, {c.images, c.side, c.side, 3}),
        packed_(module_->MakePacked(c.precision)) {
    Fill();
    OptimizerConfig config;
    config.type = OptimizerType::kSgd;
    config.momentum = 0.9;
    config.weight_decay = 1e-4;
    optimizer_ = *MakeOptimizer(config, std::int64_t(value_.size()));
    const TensorSpec in = input_.spec();
    const auto plan = module_->MakePlan({&in, 1});
    TROOP_CHECK(plan.ok(), "{}", plan.status().ToString());
    cache_ = MutableBuffer(plan->cache_bytes);
    workspace_ = MutableBuffer(plan->workspace_bytes);
    logits_ = Tensor(plan->out[0].dtype, plan->out[0].shape);
    for (std::int64_t i = 0; i < c.images; ++i) {
      labels_.push_back(std::int32_t(i));
      keys_.push_back(MakeDropoutKey(1, std::uint64_t(i), 0));
    }
  }

  // Loss and gradient norm, without dropout and without an update.
  std::vector<double> Check() {
    const double loss = ForwardBackward({});
    const double squares = OptimizerKernelsFor(BestCpuLevel())
                               .sum_squares(std::int64_t(gradient_.size()), gradient_.data());
    return {loss, std::sqrt(squares)};
  }
  void Step() {
    ForwardBackward(keys_);
    optimizer_->StepGroups(gradient_, 1, DecayGroups(*module_, 1e-4f), value_);
    module_->UpdateStatistics(
        ConstTensor::Borrow(std::as_bytes(std::span(statistics_)),
                            {DType::kF32, {std::int64_t(statistics_.size())}}),
        value_);
  }

 private:
  // He's deviations for matrices, scales near 1, and the running statistics of the beginning, in
  // torchvision's layout.
  void Fill() {
    InitParameters(*module_, 1, value_);
    TensorFile file = SaveImageWeights(*module_, value_);
    std::uint32_t number = 0;
    for (const ParamSpec& spec : module_->params()) {
      const Shape shape = file.tensors.at(spec.name).spec().shape;
      Tensor tensor(DType::kF32, shape);
      const double scale =
          shape.rank() > 1 ? std::sqrt(6.0 * double(shape[0]) / double(shape.elements())) : 0.1;
      const bool one = shape.rank() == 1 && spec.name.find("weight") != spec.name.npos;
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        tensor.data<float>()[i] =
            float(scale * double(Number(number, std::uint32_t(i))) + (one ? 1 : 0));
      }
      if (spec.trained) file.tensors[spec.name] = tensor;
      ++number;
    }
    const Status loaded = LoadImageWeights(file, *module_, value_);
    TROOP_CHECK(loaded.ok(), "{}", loaded.ToString());
    for (std::int64_t i = 0; i < input_.elements(); ++i)
      input_.data<float>()[i] = Number(999, std::uint32_t(i));
  }
  double ForwardBackward(std::span<const DropoutKey> dropout) {
    StepContext context{.value = value_, .packed = packed_.get(), .workspace = workspace_.bytes()};
    context.statistics = statistics_;
    context.dropout = dropout;
    module_->Pack(value_, packed_.get());
    const ConstTensor in = input_;
    module_->Forward(context, {&in, 1}, {&logits_, 1}, cache_.bytes());
    const auto rows = std::int64_t(labels_.size());
    std::vector<float> loss(labels_.size());
    TransformerKernelsFor(BestCpuLevel())
        .cross_entropy(rows, logits_.dim(1), logits_.data<float>(), labels_.data(), 1 / float(rows),
                       loss.data(), logits_.data<float>());
    context.gradient = gradient_;
    context.accumulate = false;
    const ConstTensor dout = logits_;
    module_->Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {});
    double sum = 0;
    for (const float l : loss) sum += double(l) / double(rows);
    return sum;
  }

  const std::unique_ptr<Module> module_;
  std::vector<float> value_, gradient_, statistics_;
  Tensor input_, logits_;
  const std::unique_ptr<Packed> packed_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::int32_t> labels_;
  std::vector<DropoutKey> keys_;
  MutableBuffer cache_, workspace_;
};

void RunCase(const Case& c, bool quick) {
  Trainer trainer(c);
  const std::vector<double> check = trainer.Check();
  trainer.Step();  // warm-up: touches all memory
  std::string values;
  for (int i = 0; i < (quick ? 3 : 7); ++i) {
    const auto start = std::chrono::steady_clock::now();
    trainer.Step();
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    values += fmt::format("{}{:.4g}", i > 0 ? "," : "", ms.count());
  }
  std::printf(
      "%s\n",
      fmt::format("{{\"case\":\"{}\",\"metric\":\"step\",\"unit\":\"ms\",\"values\":"
                  "[{}],\"check\":[{:.9g},{:.9g}],\"check_tolerance\":{}}}",
                  c.name, values, check[0], check[1], c.precision == Precision::kF32 ? 1e-3 : 5e-2)
          .c_str());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  bool quick = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--case" && i + 1 < argc) {
      only = argv[++i];
    } else {
      std::fprintf(stderr, "images_bench: unknown argument %s; use [--quick] [--case NAME]\n",
                   argument.c_str());
      return 2;
    }
  }
  SetKernelThreads(1);
  bool found = false;
  for (const Case& c : Cases()) {
    if (!only.empty() && c.name != only) continue;
    found = true;
    RunCase(c, quick);
  }
  if (!found) std::fprintf(stderr, "images_bench: no case \"%s\"\n", only.c_str());
  return found ? 0 : 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
