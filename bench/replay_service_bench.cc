// Replay service: server, actors and learner in separate processes, over ipc and tcp.
//
// replay_service_bench [--part rates|durable|actors|limiter|soak] [--quick] [--seconds N]
//
// Prints one JSON object per case and metric. `soak` runs only if named: --seconds (600) of full
// load, and the growth of the server's memory from the second quarter to the last.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/replay_cases.h"
#include "bench/replay_service.h"
#include "core/base/check.h"
#include "core/base/time.h"
#include "net/network.h"
#include "replay/service/client.h"

namespace troop::bench {
namespace {

constexpr int kValues = 3;
constexpr int kRequests = 4;  // in flight, of one batch each
constexpr int kActors = 256;
constexpr int kPlayedBatches = 40;
constexpr std::int64_t kRound = std::int64_t{10} * kGameFrames / kEpisodeFrames *
                                (kEpisodeFrames - 1);  // items of all games, once

struct Options {
  std::string_view part;
  bool quick = false;
  double seconds = 600;
};

std::unique_ptr<Network> MakeNetwork() {
  auto network = MakeZmqNetwork();
  TROOP_CHECK(network.ok(), "{}", network.status().ToString());
  return std::move(network).value();
}

// Pumps and steps for `seconds`; step returns true if it did something.
template <class Step>
void Turn(Network* network, double seconds, const Step& step) {
  const SystemClock clock;
  const double end = WallSeconds() + seconds;
  while (WallSeconds() < end) {
    const Time now = clock.Now();
    const bool pumped = network->Pump(now);
    if (!step(now) && !pumped) network->Wait(now, now + Milliseconds(2));
  }
}

// ---- rates --------------------------------------------------------------------------------------

std::vector<double> CompressedRates(Network* network, const std::string& endpoint,
                                    const Setting& setting, double seconds) {
  RawSampler sampler(Connect(network, endpoint, Role::kLearner, 0), setting, kRequests);
  const auto step = [&](Time now) { return !sampler.Poll(now).empty(); };
  Turn(network, seconds / 5, step);
  std::vector<double> rates;
  for (int i = 0; i < kValues; ++i) {
    const std::int64_t before = sampler.items();
    const double begin = WallSeconds();
    Turn(network, seconds / kValues, step);
    rates.push_back(double(sampler.items() - before) / (WallSeconds() - begin));
  }
  return rates;
}

// Samples batches like a learner, and sends the same priorities back.
class Learner {
 public:
  Learner(Network* network, const std::string& endpoint, const Setting& setting, int threads)
      : sampler_(MakeReplaySampler(Connect(network, endpoint, Role::kLearner, 1),
                                   setting.trajectory,
                                   {.batch_size = kBatch,
                                    .prefetch = kRequests,
                                    .beta = kBeta,
                                    .view = setting.view,
                                    .codec = setting.codec,
                                    .decode_threads = threads})) {}
  bool Step(Time now, Means* means) {
    sampler_->Poll(now);
    auto next = sampler_->Next();
    TROOP_CHECK(next.ok(), "{}", next.status().ToString());
    if (!next->has_value()) return false;
    const SampleBatch& batch = **next;
    if (means != nullptr) means->Add(batch);
    const std::span<const float> reward = batch.reward.as<float>();
    const std::size_t steps = reward.size() / batch.key.size();
    priority_.resize(batch.key.size());
    for (std::size_t i = 0; i < priority_.size(); ++i) priority_[i] = reward[i * steps];
    sampler_->UpdatePriorities(batch.key, priority_);
    ++batches_;
    return true;
  }
  std::int64_t batches() const { return batches_; }

 private:
  std::unique_ptr<ReplaySampler> sampler_;
  std::vector<float> priority_;
  std::int64_t batches_ = 0;
};

void PrintDecoded(Network* network, const std::string& endpoint, const Setting& setting,
                  const std::string& name, double seconds) {
  Learner learner(network, endpoint, setting, 1);
  Means means;
  while (learner.batches() < kPlayedBatches) {
    Turn(network, 0.01, [&](Time now) { return learner.Step(now, &means); });
  }
  std::vector<double> rates;
  for (int i = 0; i < kValues; ++i) {
    const std::int64_t before = learner.batches();
    const double begin = WallSeconds();
    Turn(network, seconds / kValues, [&](Time now) { return learner.Step(now, nullptr); });
    rates.push_back(double((learner.batches() - before) * kBatch) / (WallSeconds() - begin));
  }
  Print({name, "decoded_items_per_s", "1/s", rates, means.values()});
}

void RunThroughput(std::string_view name, const Setting& setting, const AtariFrames* frames,
                   std::int64_t items, double seconds) {
  for (const std::string transport : {"ipc", "tcp"}) {
    ServerProcess server(ServerOptions(setting, frames, items), transport);
    const auto network = MakeNetwork();
    const std::string of = std::string(name) + "-" + transport;
    Print({of, "inserts_per_s", "1/s",
           Fill(network.get(), server.endpoint(), setting, frames, items + items / 10, 5)});
    Print({of, "compressed_items_per_s", "1/s",
           CompressedRates(network.get(), server.endpoint(), setting, seconds)});
    PrintDecoded(network.get(), server.endpoint(), setting, of, seconds);
  }
}

// ---- durable ------------------------------------------------------------------------------------

// Durable inserts; then the server is killed, and the time from its restart to the first batch is
// measured.
void RunDurable(const std::string& name, const Setting& setting, const AtariFrames* frames,
                std::int64_t items) {
  const std::filesystem::path folder =
      std::filesystem::path(TROOP_SOURCE_FOLDER) / "build/bench_service";
  std::filesystem::remove_all(folder);
  {
    ServerProcess server(ServerOptions(setting, frames, items), "ipc", folder.string());
    const auto network = MakeNetwork();
    Print({name, "inserts_per_s", "1/s",
           Fill(network.get(), server.endpoint(), setting, frames, items + items / 10, kValues)});
  }
  const double begin = WallSeconds();
  ServerProcess server(ServerOptions(setting, frames, items), "ipc", folder.string());
  const auto network = MakeNetwork();
  RawSampler sampler(Connect(network.get(), server.endpoint(), Role::kLearner, 0), setting, 1);
  while (sampler.items() == 0) {
    Turn(network.get(), 0.002, [&](Time now) { return !sampler.Poll(now).empty(); });
  }
  Print({name, "restart_to_first_sample", "s", {WallSeconds() - begin}});
  std::filesystem::remove_all(folder);
}

// ---- actors -------------------------------------------------------------------------------------

void Act(const std::string& endpoint, const Setting& setting, const AtariFrames* frames,
         ActorOrders* orders) {
  const auto network = MakeNetwork();
  std::vector<std::unique_ptr<RawWriter>> actors;
  for (int i = 0; i < kActors; ++i) {
    actors.push_back(std::make_unique<RawWriter>(Connect(network.get(), endpoint, Role::kActor, i),
                                                 setting, frames, StreamId(i), 2));
  }
  double allowed = 0, last = WallSeconds();
  std::size_t turn = 0;
  const SystemClock clock;
  while (true) {
    const Time now = clock.Now();
    bool busy = network->Pump(now);
    const double rate = orders->items_per_s, seconds = WallSeconds();
    // A burst of at most one message per actor.
    allowed = std::min(allowed + (seconds - last) * rate, double(kActors) * kMessageFrames);
    last = seconds;
    std::int64_t items = 0;
    for (int i = 0; i < kActors; ++i) {
      RawWriter& actor = *actors[turn++ % actors.size()];
      actor.Poll();
      items += actor.items();
      if (rate > 0 && allowed < kMessageFrames) continue;
      if (!actor.TryPush(now)) continue;
      busy = true;
      allowed -= kMessageFrames;
    }
    orders->items = items;
    if (!busy) network->Wait(now, now + Milliseconds(1));
  }
}

double Quantile(std::vector<double>* values, double q) {
  TROOP_CHECK(!values->empty(), "nothing was measured");
  std::ranges::sort(*values);
  return (*values)[std::size_t(q * double(values->size() - 1))];
}

void Sleep(Network* network, double seconds) {
  Turn(network, seconds, [](Time) { return false; });
}

// All actors at full speed, then at half speed while a learner samples continuously.
void RunActors(std::string_view name, const Setting& setting, const AtariFrames* frames,
               std::int64_t items, double seconds) {
  ServerProcess server(ServerOptions(setting, frames, items), "ipc");
  Shared<ActorOrders> orders;
  Child actors([&] { Act(server.endpoint(), setting, frames, orders.get()); });
  const auto network = MakeNetwork();
  while (orders->items < items) Sleep(network.get(), 0.05);
  const std::int64_t before = orders->items;
  const double begin = WallSeconds();
  Sleep(network.get(), seconds / 2);
  const double peak = double(orders->items - before) / (WallSeconds() - begin);
  orders->items_per_s = peak / 2;
  Sleep(network.get(), seconds / 4);
  RawSampler sampler(Connect(network.get(), server.endpoint(), Role::kLearner, 0), setting, 1);
  DrawTimes* const draws = server.draws();
  const std::uint64_t first = draws->count;
  std::vector<double> wall;
  Turn(network.get(), seconds, [&](Time now) {
    const auto took = sampler.Poll(now);
    for (const double s : took) wall.push_back(1e6 * s);
    return !took.empty();
  });
  std::vector<double> own;
  for (std::uint64_t i = first; i < draws->count && own.size() < DrawTimes::kMax; ++i) {
    own.push_back(double(draws->us[i % DrawTimes::kMax]));
  }
  Print({name, "peak_inserts_per_s", "1/s", {peak}});
  Print({name, "draw_own_time_p99", "us", {Quantile(&own, 0.99)}});
  Print({name, "draw_own_time_median", "us", {Quantile(&own, 0.5)}});
  Print({name, "draw_wall_p99", "us", {Quantile(&wall, 0.99)}});
}

// ---- limiter ------------------------------------------------------------------------------------

// Both sides at full speed: deviation of samples per insert from the target.
void RunLimiter(double seconds) {
  constexpr double kRatio = 8;
  constexpr std::int64_t kMinItems = 10'000;
  const Setting setting = Vectors(3);
  ReplayServer::Options options = ServerOptions(setting, nullptr, 200'000);
  options.tables[0].samples_per_insert = kRatio;
  options.tables[0].table.min_items = kMinItems;
  ServerProcess server(options, "ipc");
  const auto network = MakeNetwork();
  RawWriter writer(Connect(network.get(), server.endpoint(), Role::kActor, 0), setting, nullptr, 1,
                   4);
  RawSampler sampler(Connect(network.get(), server.endpoint(), Role::kLearner, 0), setting,
                     kRequests);
  Turn(network.get(), seconds, [&](Time now) {
    writer.Poll();
    const bool pushed = writer.TryPush(now);
    return !sampler.Poll(now).empty() || pushed;
  });
  const double ratio = double(sampler.items()) / double(writer.items() - kMinItems);
  Print({.name = "limiter",
         .metric = "deviation_from_target",
         .unit = "share",
         .values = {std::abs(ratio / kRatio - 1)},
         .better = "lower"});
}

// ---- soak ---------------------------------------------------------------------------------------

void RunSoak(double seconds) {
  const Codec codec = Codec::kLz4;
  const AtariFrames frames(codec, true);
  const Setting setting = Atari(3, codec);
  ServerProcess server(ServerOptions(setting, &frames, 4 * kRound), "ipc");
  Shared<ActorOrders> orders;
  Child actors([&] { Act(server.endpoint(), setting, &frames, orders.get()); });
  const auto network = MakeNetwork();
  while (orders->items < 4 * kRound) Sleep(network.get(), 0.05);
  Learner learner(network.get(), server.endpoint(), setting, 0);
  std::vector<double> resident;
  const double begin = WallSeconds();
  while (WallSeconds() - begin < seconds) {
    Turn(network.get(), seconds / 60, [&](Time now) { return learner.Step(now, nullptr); });
    resident.push_back(double(server.process().resident_bytes()));
    std::fprintf(stderr, "%4.0f s: %.1f MB, %lld inserts, %lld batches\n", WallSeconds() - begin,
                 resident.back() / 1e6, static_cast<long long>(orders->items.load()),
                 static_cast<long long>(learner.batches()));
  }
  // Compares the medians of the last and the second quarter.
  const std::size_t quarter = resident.size() / 4;
  const auto median = [&](std::size_t first) {
    std::vector<double> part(resident.begin() + std::ptrdiff_t(first),
                             resident.begin() + std::ptrdiff_t(first + quarter));
    return Quantile(&part, 0.5);
  };
  Print({.name = "soak",
         .metric = "memory_growth",
         .unit = "share",
         .values = {median(3 * quarter) / median(quarter) - 1},
         .better = "lower"});
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--part" && i + 1 < argc) {
      options.part = argv[++i];
    } else if (argument == "--seconds" && i + 1 < argc) {
      options.seconds = std::atof(argv[++i]);
    } else {
      std::fprintf(stderr,
                   "usage: %s [--part rates|durable|actors|limiter|soak] [--quick] [--seconds N]\n",
                   argv[0]);
      return 2;
    }
  }
  const auto wanted = [&](std::string_view part) {
    return options.part.empty() || options.part == part;
  };
  const double seconds = options.quick ? 1 : 4;
  if (options.part == "soak") {
    RunSoak(options.seconds);
    return 0;
  }
  if (wanted("rates")) {
    RunThroughput("service-4f", Vectors(3), nullptr, options.quick ? 100'000 : 1'000'000, seconds);
  }
  const std::int64_t durable_items = options.quick ? 100'000 : 1'000'000;
  if (wanted("durable")) {
    RunDurable("service-4f-durable-ipc", Vectors(3), nullptr, durable_items);
  }
  if (wanted("limiter")) RunLimiter(seconds);
  if (!AtariFrames::Recorded()) {
    std::fprintf(stderr, "no recorded frames; run bench/run --install-peers\n");
    return 0;
  }
  const Setting setting = Atari(3, Codec::kLz4);
  const AtariFrames frames(setting.codec, true);
  const std::int64_t items = (options.quick ? 1 : 4) * kRound;
  if (wanted("rates")) RunThroughput("service-atari", setting, &frames, items, seconds);
  if (wanted("durable")) {
    RunDurable("service-atari-durable-ipc", setting, &frames, durable_items);
  }
  if (wanted("actors")) RunActors("actors-256-atari", setting, &frames, items, seconds);
  return 0;
}

}  // namespace
}  // namespace troop::bench

int main(int argc, char** argv) { return troop::bench::Main(argc, argv); }
