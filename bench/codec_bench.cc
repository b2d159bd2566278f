// Cost of gradient compression: four workers train on the digit images, and each sends its
// gradients through its own encoder with error feedback; one step applies their sum.
//
// codec_bench DIGITS STEPS PLOT
// codec_bench [--quick]
//
// Prints JSON lines like the other programs: bits per element on the wire, the final loss (the mean
// over the last tenth of the steps), and the accuracy on held-out images; each next to the dense
// run's. Draws some losses into the picture PLOT. Without DIGITS it prints the time of an encoder,
// and of adding its output, for 100 MB of gradients; codec_peers.py does the same. `check`: the
// sums over all elements of what was sent in three steps and of the residual.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/time.h"
#include "core/config/enum_names.h"
#include "core/graphics/plot/line_plot.h"
#include "paramserver/codec/gradient_codec.h"
#include "tests/paramserver/digits.h"

namespace troop {
namespace {

constexpr int kWorkers = 4;
constexpr std::int64_t kBatch = 16;
constexpr float kLearningRate = 0.1f;
constexpr std::uint64_t kWindow = 100;  // steps averaged for each point of a curve

struct Setting {
  std::string name;
  CodecOptions codec;
  bool drawn = false;
};

std::vector<Setting> Settings() {
  std::vector<Setting> all{{"dense", {}, true},
                           {"fp16", {.codec = GradientCodec::kFp16}},
                           {"bf16", {.codec = GradientCodec::kBf16}},
                           {"top-k, a tenth", {.codec = GradientCodec::kTopK, .keep = 0.1}},
                           {"top-k, a hundredth", {.codec = GradientCodec::kTopK, .keep = 0.01}}};
  for (const float threshold : {0.003f, 0.01f, 0.03f, 0.1f, 0.3f, 1.0f}) {
    all.push_back({fmt::format("Strom, {}", threshold),
                   {.codec = GradientCodec::kStrom, .threshold = threshold},
                   threshold >= 0.01f});
  }
  return all;
}

struct Course {
  std::vector<double> loss;  // per step
  double bits = 0;           // per element and push
  double accuracy = 0;
};

Course Train(const Digits& digits, const CodecOptions& codec, std::uint64_t steps) {
  DigitsModel model(&digits, kBatch);
  std::vector<float> value = model.FirstValue();
  std::vector<GradientEncoder> encoders(kWorkers, GradientEncoder(codec, model.parameters()));
  std::vector<float> gradient(value.size()), sum(value.size());
  Course course;
  std::size_t bytes = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::ranges::fill(sum, 0.0f);
    double loss = 0;
    for (int w = 0; w < kWorkers; ++w) {
      loss += double(model.Gradient(w, kWorkers, step, value, gradient)) / kWorkers;
      auto coded = encoders[std::size_t(w)].Encode(gradient);
      TROOP_CHECK(coded.ok(), "{}", coded.status().ToString());
      bytes += coded->payload.size();
      const auto payload = GradientPayload::Parse(std::move(*coded), model.parameters());
      TROOP_CHECK(payload.ok(), "{}", payload.status().ToString());
      payload->AddTo(1, sum);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) value[i] -= kLearningRate / kWorkers * sum[i];
    course.loss.push_back(loss);
  }
  course.bits = 8 * double(bytes) / double(steps * kWorkers) / double(model.parameters());
  course.accuracy = model.Accuracy(value);
  return course;
}

double MeanOf(const std::vector<double>& loss, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += loss[i];
  return sum / double(end - begin);
}

void Print(const Setting& setting, const char* metric, const char* unit, const char* better,
           double value, double dense) {
  const auto line = [&](double shown, const char* more) {
    fmt::print(
        "{{\"case\": \"{}\", \"metric\": \"{}\", \"unit\": \"{}\", \"better\": \"{}\", "
        "\"values\": [{}]{}}}\n",
        setting.name, metric, unit, better, shown, more);
  };
  line(value, "");
  if (setting.codec.codec == GradientCodec::kNone) return;
  line(dense, ", \"peer\": \"dense\", \"peer_version\": \"32 bits an element\"");
}

constexpr std::int64_t kElements = 25'000'000;
constexpr int kCheckedSteps = 3;

// Values of any sign below 1e-3, all exact in f32.
std::vector<float> SpeedGradient() {
  std::vector<float> gradient(kElements);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto bits = std::int32_t(std::uint32_t(i) * 2654435761u);
    gradient[i] = float(bits >> 8) * 0x1p-33f;
  }
  return gradient;
}

double SumOf(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double(v);
  return sum;
}

void TimeCodec(GradientCodec codec, bool quick) {
  const SystemClock clock;
  const std::vector<float> gradient = SpeedGradient();
  std::vector<float> sum(gradient.size());
  GradientEncoder encoder({.codec = codec}, kElements);
  std::vector<double> encode, add, check;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    const Time begin = clock.Now();
    auto coded = encoder.Encode(gradient);
    const Time encoded = clock.Now();
    TROOP_CHECK(coded.ok(), "{}", coded.status().ToString());
    const Time sent = clock.Now();
    const auto payload = GradientPayload::Parse(std::move(*coded), kElements);
    TROOP_CHECK(payload.ok(), "{}", payload.status().ToString());
    payload->AddTo(1, sum);
    const Time added = clock.Now();
    if (i + 1 == kCheckedSteps) check = {SumOf(sum), SumOf(encoder.residual())};
    if (i < kCheckedSteps) continue;  // the first steps touch new memory
    encode.push_back(1e3 * ToSeconds(encoded - begin));
    add.push_back(1e3 * ToSeconds(added - sent));
  }
  const auto name = EnumName(codec);
  for (const auto& [what, values] : {std::pair{"encode", &encode}, {"add up", &add}}) {
    fmt::print(
        "{{\"case\": \"{}, 100 MB of f32, one thread\", \"metric\": \"{}\", \"unit\": \"ms\", "
        "\"values\": [{}], \"check\": [{}], \"check_tolerance\": 1e-6}}\n",
        name, what, fmt::join(*values, ", "), fmt::join(check, ", "));
  }
}

int Main(const std::vector<std::string>& words) {
  const bool quick = words.size() == 1 && words[0] == "--quick";
  if (words.empty() || quick) {
    for (const GradientCodec codec : {GradientCodec::kBf16, GradientCodec::kFp16})
      TimeCodec(codec, quick);
    return 0;
  }
  std::uint64_t steps = 0;
  if (words.size() == 3) {
    std::from_chars(words[1].data(), words[1].data() + words[1].size(), steps);
  }
  if (steps < 10 * kWindow) {
    std::fputs("codec_bench DIGITS STEPS PLOT, at least 1000 steps: see its first lines\n", stderr);
    return 2;
  }
  if (const Status plots = CheckPlots(); !plots.ok()) {  // before minutes of training
    std::fprintf(stderr, "%s\n", plots.message().c_str());
    return 1;
  }
  const Digits digits(words[0]);
  LinePlot plot{
      .title = "Loss on digit images", .x_label = "steps", .y_label = "mean of 100 steps"};
  Course dense;
  for (const Setting& setting : Settings()) {
    const Course course = Train(digits, setting.codec, steps);
    if (dense.loss.empty()) dense = course;
    const auto end_of = [&](const Course& c) { return MeanOf(c.loss, steps - steps / 10, steps); };
    Print(setting, "bits per element", "bits", "lower", course.bits, dense.bits);
    Print(setting, "loss at the end", "nats", "lower", end_of(course), end_of(dense));
    Print(setting, "accuracy", "accuracy", "higher", course.accuracy, dense.accuracy);
    if (!setting.drawn) continue;
    LinePlot::Series series{.name = setting.name};
    for (std::size_t at = 0; at + kWindow <= steps; at += kWindow) {
      series.xs.push_back(double(at + kWindow));
      series.ys.push_back(MeanOf(course.loss, at, at + kWindow));
    }
    plot.series.push_back(std::move(series));
  }
  const Result<Buffer> png = DrawLinePlot(plot);
  if (!png.ok()) {
    std::fprintf(stderr, "%s\n", png.status().message().c_str());
    return 1;
  }
  std::ofstream file(words[2], std::ios::binary);
  file.write(reinterpret_cast<const char*>(png->data()), std::streamsize(png->size()));
  file.close();
  TROOP_CHECK(file.good(), "cannot write {}", words[2]);
  return 0;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main({argv + 1, argv + argc}); }
