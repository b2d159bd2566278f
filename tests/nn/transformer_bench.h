#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "nn/io/safetensors.h"
#include "nn/models/model.h"
#include "nn/transformer/transformer.h"

namespace troop::test {

inline std::string ReadFixture(const std::string& name,
                               const std::string& folder = "transformers/") {
  std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/" + folder + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}
inline TensorFile ReadTensors(const std::string& name,
                              const std::string& folder = "transformers/") {
  auto file = DecodeSafetensors(Buffer::Copy(ReadFixture(name, folder)));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return *std::move(file);
}

inline constexpr TransformerConfig::Family kFamilies[] = {
    TransformerConfig::Family::kBert, TransformerConfig::Family::kAlbert,
    TransformerConfig::Family::kRoberta, TransformerConfig::Family::kDistilBert,
    TransformerConfig::Family::kElectra};

// Two layers of 32 numbers; rates as given.
inline TransformerConfig TinyTransformer(TransformerConfig::Family family, float rate = 0) {
  using Family = TransformerConfig::Family;
  const bool albert = family == Family::kAlbert, roberta = family == Family::kRoberta;
  return {.family = family,
          .vocabulary = 40,
          .hidden = 32,
          .embedding = albert || family == Family::kElectra ? 16 : 32,
          .layers = 2,
          .heads = 4,
          .intermediate = 48,
          .positions = roberta ? 22 : 20,
          .token_types = roberta || family == Family::kDistilBert ? 1 : 2,
          .gelu = albert ? GeluForm::kTanh : GeluForm::kErf,
          .hidden_dropout = rate,
          .attention_dropout = rate,
          .classifier_dropout = rate,
          .deviation = 0.2f};
}

// Some sequences of tokens of 40 and two types, with a dropout key each.
struct TokensByChance {
  explicit TokensByChance(std::vector<std::int32_t> lengths, std::uint64_t first_sample = 0) {
    for (const std::int32_t length : lengths) {
      const std::uint64_t sample = first_sample + starts.size() - 1;
      for (std::int32_t i = 0; i < length; ++i) {
        Rng word({4, Purpose::kTest, sample, std::uint64_t(i)});
        ids.push_back(std::int32_t(word.Below(40)));
        types.push_back(std::int32_t(word.Below(2)));
      }
      starts.push_back(starts.back() + length);
      keys.push_back(MakeDropoutKey(5, sample, 6));
    }
  }
  TokenBatch view(bool drops) const {
    TokenBatch batch{.ids = ids, .starts = starts, .types = types, .places = places};
    if (drops) batch.dropout = keys;
    return batch;
  }
  std::vector<std::int32_t> ids, types, places = {0, 3, 4}, starts = {0};
  std::vector<DropoutKey> keys;
};

template <class T>
Tensor TensorOf(std::span<const T> values) {
  Tensor tensor(DTypeOf<T>::value, {std::int64_t(values.size())});
  std::ranges::copy(values, tensor.as<T>().begin());
  return tensor;
}

// A model of tokens with everything that a step needs.
class TokenBench {
 public:
  TokenBench(std::unique_ptr<Module> model, bool places, Precision precision = Precision::kF32)
      : places_(places), module(std::move(model)) {
    packed_ = module->MakePacked(precision);
    value.resize(std::size_t(ParameterCount(*module)));
    InitParameters(*module, 1, value);
    gradient.assign(value.size(), 0.0f);
  }
  void SetBatch(const TokenBatch& batch) {
    inputs = {TensorOf(batch.ids), TensorOf(batch.starts), ConstTensor(), ConstTensor()};
    if (!batch.types.empty()) inputs[2] = TensorOf(batch.types);
    if (!batch.dropout.empty()) {
      Tensor keys(DType::kU32, {batch.sequences(), 4});
      std::memcpy(keys.bytes().data(), batch.dropout.data(), keys.bytes().size());
      inputs[3] = keys;
    }
    if (places_) inputs.push_back(TensorOf(batch.places));
    std::vector<TensorSpec> specs;
    for (const ConstTensor& input : inputs) specs.push_back(input.spec());
    const auto made = module->MakePlan(specs);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    out = Tensor(made->out[0].dtype, made->out[0].shape);
    cache_ = Poison(made->cache_bytes);
    workspace_ = Poison(made->workspace_bytes);
  }
  std::size_t cache_bytes() const { return cache_.size(); }
  void Forward(bool keep = true) {
    module->Forward(Context(), inputs, {&out, 1}, keep ? cache_.bytes() : Cache{});
  }
  void Backward(const Tensor& dout, bool accumulate = false, GradientWatch* watch = nullptr) {
    const ConstTensor d = dout;
    StepContext context = Context();
    context.gradient = gradient;
    context.accumulate = accumulate;
    context.watch = watch;
    module->Backward(context, inputs, {&d, 1}, cache_.bytes(), {});
  }
  // Mean cross entropy of the rows; its gradient in `dlogits`.
  double Loss(std::span<const std::int32_t> labels, Tensor* dlogits = nullptr) const {
    const std::int64_t rows = out.dim(0), n = out.dim(1);
    std::vector<float> loss(std::size_t(rows), 0.0f);
    if (dlogits != nullptr) *dlogits = Tensor(DType::kF32, out.shape());
    if (tensor != nullptr && words > 0) {
      std::vector<float> logits(out.as<float>().begin(), out.as<float>().end());
      SlicedCrossEntropy(tensor, {.vocabulary = words,
                                  .labels = labels,
                                  .scale = 1 / float(rows),
                                  .logits = logits,
                                  .loss = loss});
      if (dlogits != nullptr) std::ranges::copy(logits, dlogits->as<float>().begin());
    } else {
      TransformerKernelsFor(BestCpuLevel())
          .cross_entropy(rows, n, out.data<float>(), labels.data(), 1 / float(rows), loss.data(),
                         dlogits != nullptr ? dlogits->data<float>() : nullptr);
    }
    double sum = 0;
    for (const float l : loss) sum += l;
    return sum / double(rows);
  }

 private:
  StepContext Context() {
    return {
        .value = value, .packed = packed_.get(), .workspace = workspace_.bytes(), .tensor = tensor};
  }
  // Nothing may be read that wasn't written.
  static MutableBuffer Poison(std::size_t bytes) {
    MutableBuffer buffer(bytes);
    std::ranges::fill(buffer.bytes(), std::byte{0xff});
    return buffer;
  }

  const bool places_;
  MutableBuffer cache_, workspace_;
  std::unique_ptr<Packed> packed_;

 public:
  std::unique_ptr<Module> module;
  TensorGroup* tensor = nullptr;  // of a rank
  std::int64_t words = 0;         // of the whole vocabulary, if it predicts words
  std::vector<float> value, gradient;
  std::vector<ConstTensor> inputs;
  Tensor out;
};

class TransformerBench : public TokenBench {
 public:
  explicit TransformerBench(const TransformerOptions& options,
                            Precision precision = Precision::kF32)
      : TokenBench(*MakeTransformer(options), options.head == TransformerHead::kMaskedLm,
                   precision),
        types_(options.config.token_types) {
    if (options.head == TransformerHead::kMaskedLm) words = options.config.vocabulary;
  }
  // All tokens are of type 0 in a model without others.
  void SetBatch(TokenBatch batch) {
    const std::vector<std::int32_t> zeros(batch.types.size());
    if (types_ == 1) batch.types = zeros;
    TokenBench::SetBatch(batch);
  }

 private:
  const std::int64_t types_;
};

}  // namespace troop::test
