// Measures training steps of text classifiers, transformers and an LSTM: forward, loss, backward
// and AdamW, dropout on, one thread.
//
// supervised_bench [--quick] [--case NAME]
//
// Prints one JSON object per case, see bench/README.md; each value is one step. Before a case is
// timed, the loss and the gradient norm of a step without dropout are its `check`, from weights and
// tokens that supervised_peers.py generates too.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "kernels/onednn/layer_kernel.h"
#include "kernels/optim/optimizer_step.h"
#include "nn/models/lstm_classifier.h"
#include "nn/models/model.h"
#include "nn/optimizer.h"
#include "nn/transformer/transformer.h"

namespace troop {
namespace {

std::uint32_t Synthetic(std::uint32_t stream, std::uint64_t index) {
  std::uint32_t x = std::uint32_t(index) * 0x9E3779B1u ^ stream * 0x85EBCA77u;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}
enum Stream : std::uint32_t { kTokens = 1, kLabels = 2, kWeights = 100 };  // + index by name

// BERT-base with two layers: BertConfig(num_hidden_layers=2). LSTM: defaults of LstmConfig.
struct Case {
  std::string name;
  std::vector<std::int32_t> lengths;
  Precision precision;
  bool lstm = false;
};
std::unique_ptr<Module> ModelOf(const Case& c) {
  if (c.lstm) return *MakeLstmClassifier({});
  TransformerConfig config = BertBase();
  config.layers = 2;
  return *MakeTransformer({.config = config});
}
std::vector<Case> Cases() {
  std::vector<Case> cases;
  // Reviews truncated to 256 tokens: 204 in the mean, 208 in IMDB's training set.
  const std::vector<std::int32_t> reviews = {256, 131, 256, 174, 256, 97, 256, 203};
  for (const auto precision : {Precision::kF32, Precision::kBF16}) {
    const std::string kind = precision == Precision::kF32 ? "_fp32" : "_bf16";
    cases.push_back({"bert2_8x256" + kind, std::vector<std::int32_t>(8, 256), precision});
    cases.push_back({"bert2_8_reviews" + kind, reviews, precision});
  }
  std::vector<std::int32_t> lengths;  // a usual batch for a small model
  for (int i = 0; i < 64; ++i) lengths.push_back(reviews[std::size_t(i) % reviews.size()]);
  cases.push_back({"lstm_64_reviews_fp32", lengths, Precision::kF32, true});
  return cases;
}

class Trainer {
 public:
  explicit Trainer(const Case& c) : lengths_(c.lengths) {
    module_ = ModelOf(c);
    value_.resize(std::size_t(ParameterCount(*module_)));
    gradient_.resize(value_.size());
    Fill();
    packed_ = module_->MakePacked(c.precision);
    OptimizerConfig config;
    config.type = OptimizerType::kAdam;
    config.weight_decay = 0.01;
    optimizer_ = *MakeOptimizer(config, std::int64_t(value_.size()));
    MakeBatch();
  }

  // Loss and gradient norm, without dropout and without an update.
  std::vector<double> Check() {
    const double loss = ForwardBackward(ConstTensor());
    const double squares = OptimizerKernelsFor(BestCpuLevel())
                               .sum_squares(std::int64_t(gradient_.size()), gradient_.data());
    return {loss, std::sqrt(squares)};
  }
  void Step() {
    Tensor keys(DType::kU32, {std::int64_t(lengths_.size()), 4});
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const DropoutKey key = MakeDropoutKey(1, i, steps_);
      std::memcpy(keys.Rows(std::int64_t(i), 1).bytes().data(), &key, sizeof key);
    }
    ++steps_;
    ForwardBackward(keys);
    optimizer_->StepGroups(gradient_, 1, DecayGroups(*module_, 1e-5f), value_);
  }

 private:
  void Fill() {
    std::map<std::string, const ParamSpec*> by_name;
    for (const ParamSpec& spec : module_->params()) by_name[spec.name] = &spec;
    std::uint32_t stream = kWeights;
    for (const auto& [name, spec] : by_name) {
      const bool matrix = spec->shape.rank() == 2;
      const float around = name.ends_with("LayerNorm.weight") ? 1.0f : 0.0f;
      for (std::int64_t i = 0; i < spec->shape.elements(); ++i) {
        const float u = float(Synthetic(stream, std::uint64_t(i)) >> 8) * 0x1p-24f;
        value_[std::size_t(spec->offset + i)] = around + (matrix ? 0.08f : 0.1f) * (u - 0.5f);
      }
      ++stream;
    }
  }
  void MakeBatch() {
    std::vector<std::int32_t> starts = {0};
    for (const std::int32_t length : lengths_) starts.push_back(starts.back() + length);
    Tensor ids(DType::kI32, {starts.back()}), begins(DType::kI32, {std::int64_t(starts.size())});
    std::uint64_t i = 0;
    for (auto& id : ids.as<std::int32_t>())
      id = std::int32_t(1000 + Synthetic(kTokens, i++) % 29000);
    std::ranges::copy(starts, begins.data<std::int32_t>());
    for (std::size_t s = 0; s < lengths_.size(); ++s)
      labels_.push_back(std::int32_t(Synthetic(kLabels, s) % 2));
    inputs_ = {ids, begins, ConstTensor(), ConstTensor()};
    std::vector<TensorSpec> specs;
    for (const ConstTensor& input : inputs_) specs.push_back(input.spec());
    const auto plan = module_->MakePlan(specs);
    TROOP_CHECK(plan.ok(), "{}", plan.status().ToString());
    cache_ = MutableBuffer(plan->cache_bytes);
    workspace_ = MutableBuffer(plan->workspace_bytes);
    logits_ = Tensor(plan->out[0].dtype, plan->out[0].shape);
    dlogits_ = Tensor(plan->out[0].dtype, plan->out[0].shape);
  }
  double ForwardBackward(const ConstTensor& dropout) {
    inputs_[3] = dropout;
    StepContext context{.value = value_, .packed = packed_.get(), .workspace = workspace_.bytes()};
    module_->Pack(value_, packed_.get());
    module_->Forward(context, inputs_, {&logits_, 1}, cache_.bytes());
    const auto rows = std::int64_t(labels_.size());
    std::vector<float> loss(labels_.size());
    TransformerKernelsFor(BestCpuLevel())
        .cross_entropy(rows, 2, logits_.data<float>(), labels_.data(), 1 / float(rows), loss.data(),
                       dlogits_.data<float>());
    context.gradient = gradient_;
    context.accumulate = false;
    const ConstTensor dout = dlogits_;
    module_->Backward(context, inputs_, {&dout, 1}, cache_.bytes(), {});
    double sum = 0;
    for (const float l : loss) sum += l / double(rows);
    return sum;
  }

  const std::vector<std::int32_t> lengths_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<Packed> packed_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> value_, gradient_;
  std::vector<ConstTensor> inputs_;
  std::vector<std::int32_t> labels_;
  MutableBuffer cache_, workspace_;
  Tensor logits_, dlogits_;
  std::uint64_t steps_ = 0;
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
                  c.name, values, check[0], check[1], c.precision == Precision::kF32 ? 1e-4 : 3e-2)
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
      std::fprintf(stderr, "supervised_bench: unknown argument %s; use [--quick] [--case NAME]\n",
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
  if (!found) std::fprintf(stderr, "supervised_bench: no case \"%s\"\n", only.c_str());
  return found ? 0 : 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
