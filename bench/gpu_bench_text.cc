// Cases of gpu_bench for text models.
#include <cmath>
#include <utility>
#include <vector>

#include "bench/gpu_bench.h"
#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "learners/gpu/cuda/text_step.h"

namespace troop::cuda {

// BERT-base on 32 reviews of 256 tokens, as in fine-tuning: all dropout, AdamW, and a report
// awaited per update. FLOP count all products of the model, forward and backward, as the peer
// executes and counts them, so that both speeds have the same unit; here the last layer computes
// only what the head reads (6 % less in total).
void BertStep(Bench& bench) {
  constexpr std::int32_t kReviews = 32, kLength = 256;
  TextStepOptions o;
  TransformerSpec& model = o.model;
  model.vocabulary = 30522;
  model.hidden = model.embedding = 768;
  model.layers = model.heads = 12;
  model.intermediate = 3072;
  model.positions = 512;
  model.hidden_dropout = model.attention_dropout = model.classifier_dropout = 0.1f;
  LayOut(&model);
  o.rule.max_grad_norm = 1;
  o.rule.weight_decay = 0.01;
  std::vector<std::int32_t> ids, starts = {0}, labels;
  std::vector<DropoutKey> keys;
  for (std::int32_t s = 0; s < kReviews; ++s) {
    for (std::int32_t t = 0; t < kLength; ++t)
      ids.push_back(std::int32_t(Synthetic(9, ids.size()) % 30522));
    starts.push_back(std::int32_t(ids.size()));
    labels.push_back(s % 2);
    keys.push_back({{std::uint32_t(s), 1}, {2, 3}});
  }
  std::vector<float> value(std::size_t(model.parameters), 0);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = 0.03f * Uniform(6, i);
  const auto ones = [&](const TransformerSpec::Norm& norm) {
    std::fill_n(value.begin() + norm.gamma, norm.n, 1.0f);
  };
  ones(model.embedding_norm);
  for (const auto& layer : model.layer) ones(layer.norm1), ones(layer.norm2);
  const double tokens = double(ids.size()), hidden = double(model.hidden);
  const double flop =
      3e-12 * (double(model.layers) *
                   (2 * tokens * (4 * hidden * hidden + 2 * hidden * double(model.intermediate)) +
                    4 * tokens * kLength * hidden) +
               2 * kReviews * hidden * hidden);
  const std::pair<const char*, Precision> cases[] = {{"bert_base_32x256_bf16", Precision::kBF16},
                                                     {"bert_base_32x256_tf32", Precision::kTF32}};
  for (const auto& [name, precision] : cases) {
    o.precision = precision;
    TextStep step(bench.device(), o);
    step.SetState(bench.stream(), {.value = value});
    double loss = NAN;
    bench.Rate(name, "speed", "TFLOP/s", flop, [&] {
      Stream& stream = bench.stream();
      step.Begin(stream);
      step.Add(stream, {.ids = ids, .starts = starts, .dropout = keys, .labels = labels},
               1.0f / kReviews);
      const TextStepReport report = step.Finish(stream);
      if (!std::isfinite(loss)) loss = report.loss / kReviews;
      step.RunStep(stream, 2e-5, false);
    });
    if (!std::isfinite(loss)) bench.device().Fail("BERT's loss is not finite");
  }
}

// 131,072 tokens of 768 values, and vocabulary logits for 4,096 of them.
void Transformers(Bench& bench) {
  constexpr std::int64_t kRows = 1 << 17, n = 768, kMasked = 1 << 12, kWords = 30522;
  const auto gamma = bench.RandomF32(n, 1), beta = bench.RandomF32(n, 2);
  DeviceArray<float> mean(bench.device(), kRows, "means"), rstd(bench.device(), kRows, "rstd"),
      dgamma(bench.device(), n, "dgamma"), dbeta(bench.device(), n, "dbeta"),
      loss(bench.device(), kMasked, "losses"),
      workspace(bench.device(), LayerNormWorkspace(n), "a workspace");
  bench.stream().Fill(dgamma.data(), 0, dgamma.bytes());
  bench.stream().Fill(dbeta.data(), 0, dbeta.bytes());
  const auto norms = [&](const char* name, DType dtype, void* x, void* dy, void* y) {
    const LayerNormShape shape{kRows, n, 1e-5f};
    const double bytes = 1e-12 * double(kRows * n) * (dtype == DType::kBF16 ? 2 : 4);
    const std::string base = name;
    bench.Rate(base + "_forward", "bandwidth", "TB/s", 2 * bytes, [&] {
      LayerNorm(bench.stream(), {.shape = shape,
                                 .dtype = dtype,
                                 .x = x,
                                 .gamma = gamma.data(),
                                 .beta = beta.data(),
                                 .y = y,
                                 .mean = mean.data(),
                                 .rstd = rstd.data()});
    });
    bench.Rate(base + "_backward", "bandwidth", "TB/s", 3 * bytes, [&] {
      LayerNormBackward(bench.stream(), {.shape = shape,
                                         .dtype = dtype,
                                         .x = x,
                                         .gamma = gamma.data(),
                                         .mean = mean.data(),
                                         .rstd = rstd.data(),
                                         .dy = dy,
                                         .dx = y,
                                         .dgamma = dgamma.data(),
                                         .dbeta = dbeta.data(),
                                         .workspace = workspace.data()});
    });
  };
  {
    auto x = bench.RandomF32(kRows * n, 3), dy = bench.RandomF32(kRows * n, 4),
         y = bench.RandomF32(kRows * n, 5);
    norms("layer_norm_131072x768_f32", DType::kF32, x.data(), dy.data(), y.data());
  }
  auto x = bench.RandomBF16(kRows * n, 3), dy = bench.RandomBF16(kRows * n, 4),
       y = bench.RandomBF16(kRows * n, 5);
  norms("layer_norm_131072x768_bf16", DType::kBF16, x.data(), dy.data(), y.data());
  auto logits = bench.RandomBF16(kMasked * kWords, 6);
  DeviceArray<BF16> dlogits(bench.device(), kMasked * kWords, "gradients of logits");
  std::vector<std::int32_t> words;
  for (std::int64_t i = 0; i < kMasked; ++i) words.push_back(std::int32_t(7 * i % kWords));
  const auto labels = bench.Upload(words);
  bench.Rate("cross_entropy_4096x30522_bf16", "bandwidth", "TB/s",
             1e-12 * 2 * 2 * double(kMasked * kWords), [&] {
               CrossEntropy(bench.stream(), {.rows = kMasked,
                                             .n = kWords,
                                             .dtype = DType::kBF16,
                                             .x = logits.data(),
                                             .label = labels.data(),
                                             .scale = 1.0f / kMasked,
                                             .loss = loss.data(),
                                             .dx = dlogits.data()});
             });
}

// 64 sequences of 512 tokens, 12 heads; backward counts as 2.5 forwards, the usual convention.
void Attention(Bench& bench) {
  constexpr std::int64_t kSequences = 64, kLength = 512, kHeads = 12,
                         kTokens = kSequences * kLength;
  constexpr std::int64_t kOut = kTokens * kHeads * 64;
  const auto qkv = bench.RandomBF16(3 * kOut, 1), dout = bench.RandomBF16(kOut, 2);
  DeviceArray<BF16> out(bench.device(), kOut, "attention"),
      dqkv(bench.device(), 3 * kOut, "attention's gradients");
  DeviceArray<float> lse(bench.device(), kTokens * kHeads, "sums"),
      delta(bench.device(), kTokens * kHeads, "sums");
  std::vector<std::int32_t> begins;
  for (std::int64_t s = 0; s <= kSequences; ++s) begins.push_back(std::int32_t(s * kLength));
  const auto starts = bench.Upload(begins);
  const PackedSequences batch{starts.data(), kSequences, kTokens, kLength};
  const double flop = 1e-12 * 4 * double(kOut) * kLength;
  std::vector<DropoutKey> drawn;
  for (std::uint32_t i = 0; i < kSequences; ++i) drawn.push_back({{1, i}, {2, 3}});
  const auto keys = bench.Upload(drawn);
  DeviceArray<std::uint32_t> kept(
      bench.device(), KeptScoresWords(kSequences, kTokens, kLength, kHeads), "kept scores");
  for (const bool drops : {false, true}) {
    const AttentionForm form{.heads = kHeads,
                             .dropout = {drops ? keys.data() : nullptr, 1, drops ? 0.1f : 0.0f},
                             .kept_scores = kept.data()};
    const std::string name = std::string("attention_64x512x12x64") + (drops ? "_dropout" : "");
    bench.Rate(name + "_forward", "speed", "TFLOP/s", flop, [&] {
      AttentionForward(
          bench.stream(),
          {.batch = batch, .form = form, .qkv = qkv.data(), .out = out.data(), .lse = lse.data()});
    });
    bench.Rate(name + "_backward", "speed", "TFLOP/s", 2.5 * flop, [&] {
      AttentionBackward(bench.stream(), {.batch = batch,
                                         .form = form,
                                         .qkv = qkv.data(),
                                         .out = out.data(),
                                         .lse = lse.data(),
                                         .dout = dout.data(),
                                         .dqkv = dqkv.data(),
                                         .delta = delta.data()});
    });
  }
}

}  // namespace troop::cuda
