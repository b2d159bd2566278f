#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/storage/json.h"
#include "nn/translation/gnmt.h"

// Cases of tools/fixtures/make_gnmt_fixtures.py: PyTorch's losses and gradients.
namespace troop::test {

inline const JsonValue& GnmtExpected() {
  static const JsonValue* const json = [] {
    std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/translation/gnmt.json");
    auto parsed = ParseJson(std::string{std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return new JsonValue(*std::move(parsed));
  }();
  return *json;
}

// Sentence pairs end to end, as Gnmt takes them; labels are the target's next ids.
struct PairBatch {
  std::vector<std::int32_t> source, source_starts = {0}, target, target_starts = {0}, labels;
  void Add(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) {
    source.insert(source.end(), from.begin(), from.end());
    target.insert(target.end(), to.begin(), to.end());
    labels.insert(labels.end(), to.begin() + 1, to.end());
    labels.push_back(2);
    source_starts.push_back(std::int32_t(source.size()));
    target_starts.push_back(std::int32_t(target.size()));
  }
  std::vector<ConstTensor> Inputs() const {
    std::vector<ConstTensor> in;
    for (const auto* const one : {&source, &source_starts, &target, &target_starts})
      in.push_back(ConstTensor::Borrow(std::as_bytes(std::span(*one)),
                                       {DType::kI32, {std::int64_t(one->size())}}));
    return in;
  }
};

inline std::vector<std::int32_t> Ids(const JsonValue& list) {
  std::vector<std::int32_t> ids;
  for (const JsonValue& one : list.array) ids.push_back(std::int32_t(*one.integer));
  return ids;
}
inline PairBatch FixturePairs() {
  PairBatch batch;
  for (const JsonValue& pair : GnmtExpected().Find("pairs")->array)
    batch.Add(Ids(*pair.Find("source")), Ids(*pair.Find("target")));
  return batch;
}

// The model of a case without dropout.
inline std::unique_ptr<Gnmt> FixtureModel(const JsonValue& one, float dropout = 0) {
  const JsonValue& all = GnmtExpected();
  auto model = Gnmt::Make({.vocabulary = *all.Integer("vocabulary"),
                           .embedding = *all.Integer("embedding"),
                           .hidden = *all.Integer("hidden"),
                           .attention = *all.Integer("units"),
                           .encoder_layers = *one.Integer("encoder_layers"),
                           .decoder_layers = *one.Integer("decoder_layers"),
                           .dropout = dropout,
                           .shared_embedding = one.Find("shared")->boolean});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return *std::move(model);
}

// The formula of the fixture's weights.
inline std::vector<float> FixtureWeights(const Gnmt& model) {
  std::map<std::string, const ParamSpec*> sorted;
  std::int64_t end = 0;
  for (const ParamSpec& spec : model.params()) {
    sorted[spec.name] = &spec;
    end = std::max(end, AlignParams(spec.offset + spec.shape.elements()));
  }
  std::vector<float> value(std::size_t(end), 0.0f);
  int p = 0;
  for (const auto& [name, spec] : sorted) {
    for (std::int64_t i = 0; i < spec->shape.elements(); ++i)
      value[std::size_t(spec->offset + i)] =
          1.1f * std::sin(float(1 + 0.7f * float(i) + 1.3f * float(p)));
    ++p;
  }
  return value;
}

// Forward and backward passes with their memory.
class GnmtRun {
 public:
  GnmtRun(const Gnmt& model, const PairBatch& batch)
      : model_(model), batch_(batch), in_(batch.Inputs()) {
    std::vector<TensorSpec> specs;
    for (const ConstTensor& one : in_) specs.push_back(one.spec());
    auto plan = model.MakePlan(specs);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    logits = Tensor::Uninitialized(plan->out[0].dtype, plan->out[0].shape);
    cache_ = MutableBuffer(plan->cache_bytes);
    workspace_ = MutableBuffer(plan->workspace_bytes);
  }
  void Forward(std::span<const float> value, bool keep = true) {
    model_.Forward(Context(value), in_, {&logits, 1}, keep ? cache_.bytes() : Cache{});
  }
  std::vector<float> Backward(std::span<const float> value, const Tensor& dlogits) {
    std::vector<float> gradient(value.size(), 0.0f);
    StepContext context = Context(value);
    context.gradient = gradient;
    const ConstTensor dout = dlogits;
    model_.Backward(context, in_, {&dout, 1}, cache_.bytes(), {});
    return gradient;
  }
  Tensor logits;
  std::vector<DropoutKey> dropout;

 private:
  StepContext Context(std::span<const float> value) {
    StepContext context{.value = value, .workspace = workspace_.bytes()};
    context.dropout = dropout;
    return context;
  }
  const Gnmt& model_;
  const PairBatch& batch_;
  const std::vector<ConstTensor> in_;
  MutableBuffer cache_, workspace_;
};

}  // namespace troop::test
