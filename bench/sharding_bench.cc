// Processes of the sharding experiment, which bench/sharding.py starts and connects by links:
//
// sharding_bench map MODEL SHARDING SHARDS
// sharding_bench shard MODEL SHARDING SHARDS WORKERS INDEX ENDPOINT
// sharding_bench worker MODEL SHARDING SHARDS WORKERS INDEX STEPS COMPUTE_S ENDPOINT...
// sharding_bench plot FILE TITLE X_LABEL Y_LABEL (NAME X:Y,X:Y,...)...
//
// MODEL: vgg16, vgg16/10 (a tenth of each tensor), with gradients of zeros, or the file of the
// digit images, on which it trains. SHARDING: layer or memory. A shard serves until SIGTERM. Each
// prints JSON lines.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/time.h"
#include "core/config/enum_names.h"
#include "core/graphics/plot/line_plot.h"
#include "core/storage/crc32c.h"
#include "tests/paramserver/bsp_run.h"
#include "tests/paramserver/digits.h"
#include "tests/paramserver/vgg16.h"

namespace troop {
namespace {

constexpr std::int64_t kDigitsBatch = 16;

std::atomic<bool> stop_wanted = false;

double Number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TROOP_CHECK(error == std::errc{} && end == text.data() + text.size(), "{}: not a number", text);
  return value;
}

double CpuSeconds() {
  rusage usage{};
  TROOP_CHECK(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Model {
  std::vector<ParamSpec> params;
  std::int64_t parameters = 0;
  std::vector<float> first_value;
  std::optional<Digits> digits;
  float learning_rate = 0;
  OptimizerType optimizer = OptimizerType::kSgd;
};

Model MakeModel(const std::string& name) {
  Model model;
  if (!name.starts_with("vgg16")) {
    model.digits.emplace(name);
    const DigitsModel digits(&*model.digits, kDigitsBatch);
    model.params.assign(digits.params().begin(), digits.params().end());
    model.parameters = digits.parameters();
    model.first_value = digits.FirstValue();
    model.learning_rate = 0.003f;
    model.optimizer = OptimizerType::kAdam;
    return model;
  }
  const double scale = name == "vgg16" ? 1 : Number(std::string_view(name).substr(6));
  for (ParamSpec& param : Vgg16Params(&model.parameters)) {
    param.shape = {std::int64_t(double(param.shape.elements()) / scale)};
    model.params.push_back(std::move(param));
  }
  model.parameters = 0;
  for (ParamSpec& param : model.params) {
    param.offset = model.parameters;
    model.parameters += AlignParams(param.shape.elements());
  }
  model.first_value.resize(std::size_t(model.parameters));
  return model;
}

ShardMap MakeMap(const Model& model, std::string_view sharding, int shards) {
  const auto parsed = ParseEnum<Sharding>(sharding);
  TROOP_CHECK(parsed.has_value(), "{}", sharding);
  auto map = ShardMap::Make(*parsed, model.params, model.parameters, shards);
  TROOP_CHECK(map.ok(), "{}", map.status().ToString());
  return *map;
}

BspRun MakeRun(const Model& model, ShardMap map, int workers) {
  BspRun run{.map = std::move(map), .workers = workers};
  run.optimizer.type = model.optimizer;
  // A link is full for seconds, and heartbeats queue behind the payload.
  run.network.dead_after = Seconds(60);
  run.network.heartbeat_every = Seconds(1);
  run.network.reply_memory_bytes = std::size_t{2} << 30;
  run.patience = Seconds(120);
  return run;
}

int PrintMap(const ShardMap& map) {
  std::int64_t largest = 0;
  for (const std::int32_t shard : map.shards()) largest = std::max(largest, map.LoadOf(shard));
  std::printf("{\"parameters\": %lld, \"largest_bytes\": %lld, \"imbalance\": %.4f}\n",
              static_cast<long long>(map.parameters()), static_cast<long long>(largest * 4),
              map.imbalance());
  return 0;
}

int Serve(const Model& model, const BspRun& run, std::int32_t shard, std::string_view endpoint) {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_wanted = true; };
  sigaction(SIGTERM, &action, nullptr);
  const Status status =
      ServeShard(run, shard, model.first_value, endpoint, stop_wanted, [](const std::string& at) {
        std::printf("{\"endpoint\": \"%s\"}\n", at.c_str());
        std::fflush(stdout);
      });
  TROOP_CHECK(status.ok(), "{}", status.ToString());
  std::printf("{\"cpu_s\": %.3f}\n", CpuSeconds());
  return 0;
}

int Work(Model* model, const BspRun& run, BspWorker worker,
         const std::vector<std::string>& endpoints) {
  std::optional<DigitsModel> digits;
  if (model->digits) digits.emplace(&*model->digits, kDigitsBatch);
  worker.learning_rate = model->learning_rate;
  worker.gradient = [&](std::uint64_t step, std::span<const float> value,
                        std::span<float> gradient) {
    return digits ? digits->Gradient(worker.index, run.workers, step, value, gradient) : 0.0f;
  };
  const auto outcome = RunBspWorker(run, worker, endpoints);
  TROOP_CHECK(outcome.ok(), "{}", outcome.status().ToString());
  std::string steps;
  for (const double s : outcome->step_s) {
    steps += (steps.empty() ? "" : ", ") + std::to_string(s);
  }
  const double accuracy = digits ? digits->Accuracy(outcome->value) : 0;
  std::printf("{\"step_s\": [%s], \"crc\": %u, \"accuracy\": %.4f, \"cpu_s\": %.3f}\n",
              steps.c_str(), Crc32c(std::as_bytes(std::span(outcome->value))), accuracy,
              CpuSeconds());
  return 0;
}

int Plot(const std::vector<std::string>& words) {
  LinePlot plot{.title = words[2], .x_label = words[3], .y_label = words[4]};
  for (std::size_t i = 5; i + 1 < words.size(); i += 2) {
    LinePlot::Series series{.name = words[i]};
    for (std::string_view rest = words[i + 1]; !rest.empty();) {
      const std::string_view point = rest.substr(0, rest.find(','));
      const std::size_t colon = std::min(point.find(':'), point.size() - 1);
      series.xs.push_back(Number(point.substr(0, colon)));
      series.ys.push_back(Number(point.substr(colon + 1)));
      rest.remove_prefix(std::min(point.size() + 1, rest.size()));
    }
    plot.series.push_back(std::move(series));
  }
  const Result<Buffer> png = DrawLinePlot(plot);
  if (!png.ok()) {
    std::fprintf(stderr, "%s\n", png.status().message().c_str());
    return 1;
  }
  std::ofstream file(words[1], std::ios::binary);
  file.write(reinterpret_cast<const char*>(png->data()), std::streamsize(png->size()));
  file.close();
  TROOP_CHECK(file.good(), "cannot write {}", words[1]);
  return 0;
}

int Main(const std::vector<std::string>& words) {
  const std::string what = words.empty() ? "" : words[0];
  if (what == "plot" && words.size() >= 7) return Plot(words);
  if (words.size() < 4) {
    std::fputs("usage: sharding_bench map|shard|worker|plot ...; see the top of its source\n",
               stderr);
    return 2;
  }
  Model model = MakeModel(words[1]);
  ShardMap map = MakeMap(model, words[2], int(Number(words[3])));
  const std::size_t shards = map.shards().size();
  if (what == "map") return PrintMap(map);
  const bool serves = what == "shard" && words.size() == 7;
  TROOP_CHECK(serves || (what == "worker" && words.size() == 8 + shards),
              "{}: {} words; see the first lines of sharding_bench.cc", what, words.size());
  const BspRun run = MakeRun(model, std::move(map), int(Number(words[4])));
  const auto index = std::int32_t(Number(words[5]));
  if (serves) return Serve(model, run, index, words[6]);
  return Work(&model, run,
              {.index = index,
               .steps = std::uint64_t(Number(words[6])),
               .compute = Seconds(Number(words[7]))},
              {words.begin() + 8, words.end()});
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main({argv + 1, argv + argc}); }
