#pragma once

// A small real training task: the digit images that scikit-learn ships, and a perceptron on them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/tensor/tensor.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "nn/module.h"

namespace troop {

inline constexpr std::int64_t kDigitPixels = 64;
inline constexpr std::int64_t kDigitClasses = 10;

// The first 1,500 images are trained on, the last 297 are the test.
class Digits {
 public:
  static constexpr std::int64_t kTrained = 1500;
  static constexpr std::int64_t kImages = 1797;

  // tests/fixtures/digits/digits.bin; tools/make_digits_fixture.py says what is in it.
  explicit Digits(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    TROOP_CHECK(bytes.size() == std::size_t(kImages * (1 + kDigitPixels)), "{}: {} bytes",
                path.string(), bytes.size());
    for (std::int64_t i = 0; i < kImages; ++i) {
      const char* const record = &bytes[std::size_t(i * (1 + kDigitPixels))];
      digit_.push_back(std::int32_t(record[0]));
      pixels_.insert(pixels_.end(), record + 1, record + 1 + kDigitPixels);
    }
  }

  std::int32_t digit(std::int64_t image) const { return digit_[std::size_t(image)]; }
  std::span<const std::uint8_t> pixels(std::int64_t image) const {
    return std::span(pixels_).subspan(std::size_t(image * kDigitPixels), std::size_t(kDigitPixels));
  }

 private:
  std::vector<std::int32_t> digit_;
  std::vector<std::uint8_t> pixels_;
};

// 64 → 24 relu → 64 relu → 10, on one batch size. Its largest layer is the middle one, so that by
// layer one of two shards owns what lies before and behind it. One owner thread.
class DigitsModel {
 public:
  DigitsModel(const Digits* digits, std::int64_t batch) : digits_(digits), batch_(batch) {
    std::vector<SequentialPart> parts;
    parts.push_back({"input", MakeInput(1.0f / 16)});
    parts.push_back({"narrow", MakeLinear(kDigitPixels, 24, Activation::kRelu)});
    parts.push_back({"wide", MakeLinear(24, 64, Activation::kRelu)});
    parts.push_back({"out", MakeLinear(64, kDigitClasses)});
    module_ = MakeSequential(std::move(parts));
    in_ = Tensor(DType::kU8, {batch, kDigitPixels});
    out_ = Tensor(DType::kF32, {batch, kDigitClasses});
    dout_ = Tensor(DType::kF32, {batch, kDigitClasses});
    const TensorSpec in = in_.spec();
    const auto plan = module_->MakePlan({&in, 1});
    TROOP_CHECK(plan.ok(), "{}", plan.status().ToString());
    cache_ = MutableBuffer::Zeros(plan->cache_bytes);
    workspace_ = MutableBuffer::Zeros(plan->workspace_bytes);
  }

  std::span<const ParamSpec> params() const { return module_->params(); }
  std::int64_t parameters() const { return ParameterCount(*module_); }
  std::vector<float> FirstValue() const {
    std::vector<float> value(std::size_t(parameters()), 0.0f);
    InitParameters(*module_, 1, value);
    return value;
  }

  // Computes the gradient of the mean cross-entropy over the worker's batch of that step; returns
  // the loss. The workers' batches of a step follow each other and wrap around.
  float Gradient(std::int32_t worker, int workers, std::uint64_t step, std::span<const float> value,
                 std::span<float> gradient) {
    const std::int64_t first = std::int64_t(step * std::uint64_t(workers) + std::uint64_t(worker));
    Forward(value, first * batch_, Digits::kTrained);
    const float loss = Loss(first * batch_);
    std::ranges::fill(gradient, 0.0f);
    const ConstTensor in(in_), dout(dout_);
    const Tensor none;
    const StepContext context{
        .value = value, .gradient = gradient, .workspace = workspace_.bytes()};
    module_->Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {&none, 1});
    return loss;
  }

  // Share of the test's images whose digit is found; whole batches of them.
  double Accuracy(std::span<const float> value) {
    std::int64_t seen = 0, right = 0;
    for (std::int64_t i = Digits::kTrained; i + batch_ <= Digits::kImages; i += batch_) {
      Forward(value, i, Digits::kImages);
      for (std::int64_t row = 0; row < batch_; ++row) {
        const auto scores = Scores(row);
        const auto best = std::ranges::max_element(scores) - scores.begin();
        right += best == digits_->digit(i + row) ? 1 : 0;
        ++seen;
      }
    }
    return double(right) / double(seen);
  }

 private:
  std::span<const float> Scores(std::int64_t row) const {
    return std::span<const float>(out_.as<float>())
        .subspan(std::size_t(row * kDigitClasses), std::size_t(kDigitClasses));
  }

  // Images first, first + 1, ..., around at `images`.
  void Forward(std::span<const float> value, std::int64_t first, std::int64_t images) {
    for (std::int64_t row = 0; row < batch_; ++row) {
      const auto pixels = digits_->pixels((first + row) % images);
      std::ranges::copy(pixels, in_.data<std::uint8_t>() + row * kDigitPixels);
    }
    const ConstTensor in(in_);
    const StepContext context{.value = value, .workspace = workspace_.bytes()};
    module_->Forward(context, {&in, 1}, {&out_, 1}, cache_.bytes());
  }

  // Softmax and its gradient into dout_.
  float Loss(std::int64_t first) {
    double loss = 0;
    for (std::int64_t row = 0; row < batch_; ++row) {
      const auto scores = Scores(row);
      const std::int32_t digit = digits_->digit((first + row) % Digits::kTrained);
      const float most = *std::ranges::max_element(scores);
      double sum = 0;
      for (const float s : scores) sum += std::exp(double(s - most));
      float* const dout = dout_.data<float>() + row * kDigitClasses;
      for (std::int64_t c = 0; c < kDigitClasses; ++c) {
        const double p = std::exp(double(scores[std::size_t(c)] - most)) / sum;
        dout[c] = float((p - (c == digit ? 1 : 0)) / double(batch_));
        if (c == digit) loss -= std::log(p) / double(batch_);
      }
    }
    return float(loss);
  }

  const Digits* digits_;
  std::int64_t batch_;
  std::unique_ptr<Module> module_;
  Tensor in_, out_, dout_;
  MutableBuffer cache_, workspace_;
};

}  // namespace troop
