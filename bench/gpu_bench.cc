// Measures GPU work, most important cases first.
//
// gpu_bench [--json FILE] [--seconds S] [PART OF A NAME]
//
// Prints a line per case; with --json, one JSON object each: {"case", "metric", "unit", "better",
// "value", "spread", "samples", "check"}. check: a value by which a peer's result for the same
// input can be compared, if there is one. Exit code 2: no GPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu_bench.h"
#include "kernels/cuda/conv/conv2d.h"
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/optimizer_step.h"
#include "learners/gpu/cuda/dqn_step.h"
#include "replay/replica/cuda/device_table.h"

namespace troop::cuda {
namespace {

// --- rooflines
// ------------------------------------------------------------------------------------

void Copy(Bench& bench) {
  constexpr std::int64_t kBytes = std::int64_t(4) << 30;
  DeviceArray<std::byte> from(bench.device(), kBytes, "a copy"),
      to(bench.device(), kBytes, "a copy");
  bench.stream().Fill(from.data(), 1, from.bytes());
  bench.Rate("copy_4GiB", "bandwidth", "TB/s", 2e-12 * double(kBytes),
             [&] { bench.stream().CopyOnDevice(to.data(), from.data(), to.bytes()); });
}

void Product(Bench& bench) {
  constexpr std::int64_t n = 8192;
  const auto a = bench.RandomBF16(n * n, 1), b = bench.RandomBF16(n * n, 2);
  DeviceArray<BF16> c(bench.device(), n * n, "a product");
  MatMulPlans plans(bench.device());
  MatMulArgs args{.shape = {.m = n, .n = n, .k = n, .transpose_b = true},
                  .precision = Precision::kBF16,
                  .a = a.data(),
                  .b = b.data(),
                  .c = c.data(),
                  .c_dtype = DType::kBF16};
  bench.Rate("cublas_8192_bf16", "speed", "TFLOP/s", 2e-12 * n * n * n,
             [&] { MatMul(bench.stream(), plans, args); });
}

// --- the learner's step
// ---------------------------------------------------------------------------

QLayer Conv(std::int64_t side, std::int64_t channels, std::int64_t filters, std::int64_t kernel,
            std::int64_t stride, std::int64_t* at) {
  QLayer layer;
  layer.convolution = true;
  layer.conv = {side, side, channels, filters, kernel, stride};
  layer.activation = Activation::kRelu;
  layer.weight = *at;
  layer.bias = layer.weight + (filters * kernel * kernel * channels + 15) / 16 * 16;
  *at = layer.bias + (filters + 15) / 16 * 16;
  return layer;
}
QLayer Linear(std::int64_t in, std::int64_t out, Activation activation, std::int64_t* at) {
  QLayer layer;
  layer.linear = {in, out};
  layer.activation = activation;
  layer.weight = *at;
  layer.bias = layer.weight + (out * in + 15) / 16 * 16;
  *at = layer.bias + (out + 15) / 16 * 16;
  return layer;
}

// The network of Mnih et al. 2015, dueling as in Ape-X.
QNetworkSpec Nature(bool dueling, std::int64_t actions) {
  std::int64_t at = 0;
  QNetworkSpec spec;
  spec.input = DType::kU8;
  spec.input_scale = 1.0f / 255;
  spec.input_elements = 84 * 84 * 4;
  spec.layers = {Conv(84, 4, 32, 8, 4, &at), Conv(20, 32, 64, 4, 2, &at),
                 Conv(9, 64, 64, 3, 1, &at)};
  spec.actions = actions;
  spec.dueling = dueling;
  if (dueling) {
    spec.value_hidden = Linear(3136, 512, Activation::kRelu, &at);
    spec.advantage_hidden = Linear(3136, 512, Activation::kRelu, &at);
    spec.value = Linear(512, 1, Activation::kNone, &at);
  } else {
    spec.layers.push_back(Linear(3136, 512, Activation::kRelu, &at));
  }
  spec.advantage = Linear(512, actions, Activation::kNone, &at);
  spec.parameters = at;
  return spec;
}

void FillBatch(Bench& bench, const DqnStepOptions& o, const DqnBatch& batch) {
  const auto b = std::size_t(o.batch), pixels = std::size_t(o.network.input_elements);
  std::vector<std::uint8_t> observation(2 * b * pixels);
  for (std::size_t i = 0; i < observation.size(); ++i)
    observation[i] = std::uint8_t(Synthetic(3, i) >> 24);
  std::vector<std::int32_t> action(b), length(b, std::int32_t(o.steps));
  std::vector<float> reward(b * std::size_t(o.steps)), discount(reward.size(), 1), weight(b, 1);
  for (std::size_t i = 0; i < b; ++i)
    action[i] = std::int32_t(Synthetic(4, i) % std::uint32_t(o.network.actions));
  for (std::size_t i = 0; i < reward.size(); ++i) reward[i] = Uniform(5, i);
  const auto put = [&](void* to, const auto& from) {
    const auto on_device = bench.Upload(from);
    bench.stream().CopyOnDevice(to, on_device.data(), on_device.bytes());
    bench.stream().Synchronize();
  };
  put(batch.observation, observation);
  put(batch.action, action);
  put(batch.length, length);
  put(batch.reward, reward);
  put(batch.discount, discount);
  put(batch.weight, weight);
}

// GPU replay with two hundred thousand frames of 64 streams.
std::unique_ptr<DeviceTable> MakeTable(Bench& bench, std::int64_t batch) {
  constexpr std::int32_t kStreams = 64, kLength = 3100;
  DeviceTableOptions o;
  o.slots = o.places = kStreams * kLength;
  o.pixels = 84 * 84;
  o.stack = 4;
  o.steps = 3;
  o.append_max = kStreams * 32;
  auto table = std::make_unique<DeviceTable>(bench.device(), o, batch);
  std::vector<std::byte> pixels(std::size_t(o.append_max * o.pixels));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::byte(Synthetic(7, i) >> 24);
  for (std::int32_t at = 0; at < kLength; at += 32) {
    std::vector<DeviceFrame> frames;
    std::vector<DeviceItem> items;
    std::vector<std::int32_t> window;
    for (std::int32_t stream = 0; stream < kStreams; ++stream) {
      for (std::int32_t i = at; i < std::min(at + 32, kLength); ++i) {
        const float number = Uniform(8, std::uint64_t(i));
        frames.push_back({i * kStreams + stream, i % 6, number, 1});
        if (i < 3) continue;
        const std::int32_t lead = std::min(i - 3, 3);
        items.push_back({(i - 3) * kStreams + stream, lead, 3, std::abs(number)});
        for (std::int32_t k = i - 3 - lead; k <= i; ++k) window.push_back(k * kStreams + stream);
      }
    }
    const std::span<const std::byte> some(pixels.data(), frames.size() * std::size_t(o.pixels));
    if (!table->Append(bench.stream(), bench.stream(),
                       {.observation = some, .frames = frames, .items = items, .window = window})) {
      bench.device().Fail("the table rejects valid input");
    }
  }
  return table;
}

void LearnerStep(Bench& bench, Precision precision, const char* name, bool graph, bool dueling,
                 std::int64_t batch, bool table = false) {
  DqnStepOptions options;
  options.network = Nature(dueling, 6);
  options.precision = precision;
  options.batch = batch;
  options.steps = 3;
  options.rule.max_grad_norm = 40;
  options.rule.kind = OptimizerRule::Kind::kRmsProp;
  options.rule.epsilon = 1.5e-7;
  options.target_update_every_updates = 2500;
  options.graph = graph;
  DqnStep step(bench.device(), options);
  std::vector<float> value(std::size_t(options.network.parameters), 0);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = 0.02f * Uniform(6, i);
  DqnStep::State state;
  state.value = value;
  state.target = value;
  step.SetState(bench.stream(), state);
  FillBatch(bench, options, step.batch());
  std::unique_ptr<DeviceTable> replay;
  if (table) {
    replay = MakeTable(bench, batch);
    const DqnBatch& to = step.batch();
    const DeviceSample sample{to.observation, to.action, to.reward,
                              to.discount,    to.length, to.weight};
    step.Surround(
        [&replay, sample](Stream& s) { replay->Draw(s, sample); },
        [&replay, &step](Stream& s) { replay->UpdatePriorities(s, step.batch().priority); });
  }
  std::int64_t waiting = 0;
  double first_loss = NAN;
  const auto work = [&] {
    step.Run(bench.stream(), 6.25e-5);
    if (++waiting < DqnStep::kUnderWay) return;
    const DqnStepReport report = step.NextReport();
    if (!std::isfinite(first_loss)) first_loss = report.loss;
    --waiting;
  };
  for (int i = 0; i < 5; ++i) work();
  const std::int64_t warm = bench.device().driver_allocations();
  bench.Rate(name, "updates", "1/s", 1, work, first_loss);
  while (waiting-- > 0) step.NextReport();
  if (bench.device().driver_allocations() != warm)
    bench.device().Fail("steps allocated device memory after the warm-up");
}

// Work of an inference server per batch: copies observations to the device and values back.
void Acting(Bench& bench) {
  const QNetworkSpec spec = Nature(true, 6);
  const auto value = bench.RandomF32(spec.parameters, 1);
  DeviceArray<BF16> rounded(bench.device(), spec.parameters, "weights");
  ConvertScaled(bench.stream(), {.n = spec.parameters,
                                 .from = value.data(),
                                 .scale = 0.02f,
                                 .to = rounded.data(),
                                 .to_dtype = DType::kBF16});
  MatMulPlans plans(bench.device());
  constexpr std::int64_t kRows = 256;
  QNetwork network(bench.device(), plans, spec, {.precision = Precision::kBF16, .rows = kRows});
  PinnedArray<std::uint8_t> seen(bench.device(), kRows * spec.input_elements, "observations");
  DeviceArray<std::uint8_t> observation(bench.device(), kRows * spec.input_elements,
                                        "observations");
  DeviceArray<float> q(bench.device(), kRows * spec.actions, "values");
  PinnedArray<float> told(bench.device(), kRows * spec.actions, "values");
  if (!bench.device().ok()) return;
  for (std::int64_t i = 0; i < seen.size(); ++i)
    seen[i] = std::uint8_t(Synthetic(2, std::uint64_t(i)) >> 24);
  for (const std::int64_t rows : {std::int64_t{8}, std::int64_t{64}, kRows}) {
    bench.Rate("policy_nature_dueling_" + std::to_string(rows) + "_bf16", "actions", "1/s",
               double(rows), [&] {
                 Stream& stream = bench.stream();
                 stream.CopyToDevice(observation.data(), seen.data(),
                                     std::size_t(rows * spec.input_elements));
                 network.Forward(stream,
                                 {.weights = {value.data(), rounded.data()},
                                  .rows = rows,
                                  .observation = observation.data()},
                                 false, q.data());
                 stream.CopyToHost(told.data(), q.data(),
                                   std::size_t(rows * spec.actions) * sizeof(float));
               });
  }
}

// Inserts into the table, 2,048 frames at a time: copied from pinned memory, and placed.
void Appending(Bench& bench) {
  const auto table = MakeTable(bench, 512);
  constexpr std::int32_t kFrames = 2048;
  const std::int64_t bytes = kFrames * table->options().pixels;
  std::vector<std::byte> pixels(static_cast<std::size_t>(bytes));
  std::vector<DeviceFrame> frames;
  std::vector<DeviceItem> items;
  std::vector<std::int32_t> window;
  for (std::int32_t i = 0; i < kFrames; ++i) {
    frames.push_back({i, 0, 0, 1});
    if (i + 3 >= kFrames) continue;
    items.push_back({i, 0, 3, 1});
    for (std::int32_t k = i; k <= i + 3; ++k) window.push_back(k);
  }
  Stream copies(bench.device());
  bench.Rate("table_append_2048_frames", "bandwidth", "GB/s", 1e-9 * double(bytes), [&] {
    table->Append(copies, bench.stream(),
                  {.observation = pixels, .frames = frames, .items = items, .window = window});
  });
}

// Stacked frames of many items: half a gigabyte read and written. Includes sampling their slots
// from a tree of 200,000.
void Drawing(Bench& bench) {
  constexpr std::int64_t kItems = 8192;
  const auto table = MakeTable(bench, kItems);
  const std::int64_t steps = table->options().steps;
  const std::int64_t pixels = 2 * kItems * table->options().stack * table->options().pixels;
  DeviceArray<std::uint8_t> observation(bench.device(), pixels, "observations");
  DeviceArray<std::int32_t> action(bench.device(), kItems, "actions"),
      length(bench.device(), kItems, "lengths");
  DeviceArray<float> reward(bench.device(), kItems * steps, "rewards"),
      discount(bench.device(), kItems * steps, "discounts"),
      weight(bench.device(), kItems, "weights");
  bench.Rate("table_draw_8192", "bandwidth", "TB/s", 1e-12 * 2 * double(pixels), [&] {
    table->Draw(bench.stream(), {observation.data(), action.data(), reward.data(), discount.data(),
                                 length.data(), weight.data()});
  });
}

// --- kernels
// --------------------------------------------------------------------------------------

void Optimizers(Bench& bench) {
  constexpr std::int64_t n = std::int64_t(1) << 26;
  auto gradient = bench.RandomF32(n, 1), m = bench.RandomF32(n, 2), v = bench.RandomF32(n, 3),
       value = bench.RandomF32(n, 4);
  const auto adam = bench.Upload(std::vector<AdamStep>{AdamStep{.step_size = 1e-4f}});
  const OptimizerArrays arrays{n,       gradient.data(), m.data(), v.data(), value.data(),
                               nullptr, nullptr};
  bench.Rate("adam_64M", "bandwidth", "TB/s", 1e-12 * 28 * n,
             [&] { Adam(bench.stream(), adam.data(), arrays); });
  const auto rms = bench.Upload(std::vector<RmsPropStep>{RmsPropStep{.learning_rate = 1e-4f}});
  bench.Rate("rmsprop_centered_64M", "bandwidth", "TB/s", 1e-12 * 28 * n,
             [&] { RmsProp(bench.stream(), rms.data(), arrays); });
  DeviceArray<double> partial(bench.device(), kSumSquaresParts, "sums"),
      sum(bench.device(), 1, "sum");
  bench.Rate("sum_squares_64M", "bandwidth", "TB/s", 1e-12 * 4 * n, [&] {
    SumSquares(bench.stream(),
               {.n = n, .x = gradient.data(), .partial = partial.data(), .sum = sum.data()});
  });
  bench.Rate("move_target_64M", "bandwidth", "TB/s", 1e-12 * 12 * n, [&] {
    MoveTarget(bench.stream(), {.n = n, .tau = 0.01f, .value = value.data(), .target = m.data()});
  });
}

void Convolutions(Bench& bench) {
  struct Case {
    const char* name;
    ConvShape shape;
    DType input;
  };
  constexpr std::int64_t kBatch = 512;
  for (const auto& [name, shape, input] : {Case{"conv1_u8", {84, 84, 4, 32, 8, 4}, DType::kU8},
                                           Case{"conv2", {20, 20, 32, 64, 4, 2}, DType::kBF16},
                                           Case{"conv3", {9, 9, 64, 64, 3, 1}, DType::kBF16}}) {
    const std::int64_t in = shape.height * shape.width * shape.channels * kBatch,
                       out = shape.out_height() * shape.out_width() * shape.filters * kBatch,
                       weights = shape.filters * shape.kernel * shape.kernel * shape.channels;
    const auto x = bench.RandomBF16(in, 1), w = bench.RandomBF16(weights, 2),
               dz = bench.RandomBF16(out, 3);
    const auto bias = bench.RandomF32(shape.filters, 4);
    DeviceArray<BF16> y(bench.device(), out, "y"), dx(bench.device(), in, "dx");
    DeviceArray<float> dw(bench.device(), weights, "dw"), db(bench.device(), shape.filters, "db");
    DeviceArray<std::byte> scratch(
        bench.device(), std::max<std::int64_t>(16, ConvBackwardWeightScratch(shape, kBatch)),
        "scratch");
    const ConvInput from{x.data(), input, 1.0f / 255};
    const double flop = 2e-12 * double(out) * double(shape.kernel * shape.kernel * shape.channels);
    const std::string base = name;
    bench.Rate(base + "_forward", "speed", "TFLOP/s", flop, [&] {
      ConvForward(bench.stream(), {.precision = Precision::kBF16,
                                   .shape = shape,
                                   .activation = Activation::kRelu,
                                   .batch = kBatch,
                                   .input = from,
                                   .weight = w.data(),
                                   .bias = bias.data(),
                                   .y = y.data()});
    });
    bench.Rate(base + "_backward_weight", "speed", "TFLOP/s", flop, [&] {
      ConvBackwardWeight(bench.stream(), {.precision = Precision::kBF16,
                                          .shape = shape,
                                          .batch = kBatch,
                                          .input = from,
                                          .dz = dz.data(),
                                          .dweight = dw.data(),
                                          .dbias = db.data(),
                                          .scratch = scratch.data()});
    });
    if (input == DType::kU8) continue;  // the first layer's input has no gradient
    bench.Rate(base + "_backward_data", "speed", "TFLOP/s", flop, [&] {
      ConvBackwardData(bench.stream(), {.precision = Precision::kBF16,
                                        .shape = shape,
                                        .batch = kBatch,
                                        .weight = w.data(),
                                        .dz = dz.data(),
                                        .dx = dx.data()});
    });
  }
}

struct Case {
  const char* name;
  std::function<void(Bench&)> run;
};
std::vector<Case> Cases() {
  const auto step = [](Precision precision, const char* name, bool graph, bool dueling,
                       std::int64_t batch) {
    return Case{name, [=](Bench& b) { LearnerStep(b, precision, name, graph, dueling, batch); }};
  };
  return {{"copy", Copy},
          {"cublas", Product},
          {"step_nature_512_bf16_replay",
           [](Bench& b) {
             LearnerStep(b, Precision::kBF16, "step_nature_512_bf16_replay", true, false, 512,
                         true);
           }},
          step(Precision::kBF16, "step_nature_512_bf16", true, false, 512),
          step(Precision::kTF32, "step_nature_512_tf32", true, false, 512),
          step(Precision::kBF16, "step_nature_512_bf16_stream", false, false, 512),
          step(Precision::kBF16, "step_nature_dueling_512_bf16", true, true, 512),
          step(Precision::kBF16, "step_nature_32_bf16", true, false, 32),
          {"bert", BertStep},
          {"conv", Convolutions},
          {"policy", Acting},
          {"table_append", Appending},
          {"table_draw", Drawing},
          {"optimizer", Optimizers},
          {"attention", Attention},
          {"transformer", Transformers}};
}

int Main(int argc, char** argv) {
  std::string json, part;
  double seconds = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else {
      part = argv[i];
    }
  }
  std::string error;
  const auto device = Device::Open(0, &error);
  if (device == nullptr) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.c_str());
    return 2;
  }
  std::printf("%s, %.1f GB\n", device->info().name.c_str(),
              1e-9 * double(device->info().memory_bytes));
  std::FILE* file = json.empty() ? nullptr : std::fopen(json.c_str(), "w");
  {
    Bench bench(*device, seconds, file);
    for (const Case& c : Cases()) {
      if (std::string(c.name).find(part) == std::string::npos) continue;
      c.run(bench);
      if (device->ok()) continue;
      std::fprintf(stderr, "gpu_bench: %s: %s\n", c.name, device->error().c_str());
      break;
    }
  }
  if (file != nullptr) std::fclose(file);
  return device->ok() ? 0 : 1;
}

}  // namespace
}  // namespace troop::cuda

int main(int argc, char** argv) { return troop::cuda::Main(argc, argv); }
