// In-process replay: the sum tree, tables with one or two decoding threads, memory.
//
// replay_bench [--part tree|process|threads|memory|churn] [--quick] [--case NAME --seconds N]
//
// --case: runs a single case of process or threads for --seconds, for a profiler.
//
// Prints one JSON object per case and metric. `play` is the mean of the sampled values: see
// replay_cases.h and bench/peers/replay_peers.py, which store the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/replay_cases.h"
#include "bench/replay_tree.h"
#include "core/base/check.h"
#include "core/base/philox.h"
#include "replay/codec/batch_decoder.h"
#include "replay/table/table.h"

namespace troop::bench {
namespace {

constexpr int kValues = 5;
constexpr int kPlayedBatches = 60;
// Whole rounds of the ten games' items: a full ring has each equally often, wherever it begins.
constexpr std::int64_t kAtariItems =
    std::int64_t{10} * kGameFrames / kEpisodeFrames * (kEpisodeFrames - 1);
// A million items, which storing each frame once makes possible; duplicated frames take 28 GB.
constexpr std::int64_t kMillionItems = 33 * kAtariItems;

struct Options {
  std::string_view part, only;
  bool quick = false;
  double seconds = 1.5;
};

// Samples, decodes, and updates priorities, like a learner.
class Learner {
 public:
  Learner(const Setting& setting, Table* table, const AtariFrames* frames, int threads)
      : table_(table),
        decoder_({.trajectory = setting.trajectory,
                  .view = setting.view,
                  .codec = setting.codec,
                  .threads = threads - 1}) {
    if (frames == nullptr) return;
    for (const auto& dictionary : frames->dictionaries()) decoder_.AddDictionary(dictionary);
  }
  void Step() {
    table_->Draw(kBatch, &drawn_);
    const Status decoded = decoder_.Decode(drawn_, kBeta, &batch_);
    TROOP_CHECK(decoded.ok(), "{}", decoded.ToString());
    const std::size_t steps = drawn_.reward.size() / std::size_t(kBatch);
    priority_.resize(kBatch);
    for (std::size_t i = 0; i < priority_.size(); ++i) priority_[i] = drawn_.reward[i * steps];
    const auto counts = table_->Update(drawn_.key, priority_);
    TROOP_CHECK(counts.applied == kBatch, "{} of {} updates applied", counts.applied, kBatch);
  }
  const SampleBatch& batch() const { return batch_; }

 private:
  Table* const table_;
  BatchDecoder decoder_;
  EncodedBatch drawn_;
  SampleBatch batch_;
  std::vector<float> priority_;
};

void RunCase(const Options& options, std::string_view name, const Setting& setting,
             const AtariFrames* frames, std::int64_t items, int threads) {
  if (!options.only.empty() && options.only != name) return;
  const double seconds = options.quick ? 0.3 : options.seconds;
  Table table = MakeFullTable(setting, frames, items);
  Learner learner(setting, &table, frames, threads);
  Means means;
  for (int i = 0; i < kPlayedBatches * (frames == nullptr ? 4 : 1); ++i) {
    learner.Step();
    means.Add(learner.batch());
  }
  std::vector<double> values;
  for (int i = 0; i < kValues; ++i) {
    std::int64_t steps = 0;
    const double begin = WallSeconds();
    double elapsed = 0;
    for (; elapsed < seconds / kValues; elapsed = WallSeconds() - begin, ++steps) learner.Step();
    values.push_back(double(steps) / elapsed);
  }
  Print({name, "batches_per_s", "1/s", values, means.values(), frames == nullptr ? 0.01 : 0.02});
}

// Work of a server per batch: sample, pack encoded frames into a reply, update priorities.
void RunPacked(const Options& options) {
  constexpr std::string_view kName = "process-atari-n3-lz4-packed";
  if (!AtariFrames::Recorded() || (!options.only.empty() && options.only != kName)) return;
  const Setting setting = Atari(3, Codec::kLz4);
  const AtariFrames frames(setting.codec, true);
  Table table = MakeFullTable(setting, &frames, options.quick ? kAtariItems : 8 * kAtariItems);
  const double seconds = options.quick ? 0.3 : options.seconds;
  EncodedBatch drawn, parsed;
  std::vector<float> priority(kBatch);
  std::vector<double> values;
  for (int i = 0; i < kValues; ++i) {
    std::int64_t batches = 0;
    const double begin = WallSeconds();
    double elapsed = 0;
    for (; elapsed < seconds / kValues; elapsed = WallSeconds() - begin, ++batches) {
      table.Draw(kBatch, &drawn);
      const Buffer block = PackEncodedBatch(drawn, setting.trajectory, setting.view, setting.codec);
      if (i == 0) {
        const Status status = ParseEncodedBatch(block.bytes(), setting.trajectory, setting.view,
                                                setting.codec, &parsed);
        TROOP_CHECK(status.ok() && parsed.key == drawn.key, "{}", status.ToString());
      }
      for (std::size_t k = 0; k < priority.size(); ++k) {
        priority[k] = drawn.reward[k * std::size_t(setting.view.steps())];
      }
      table.Update(drawn.key, priority);
    }
    values.push_back(double(batches) / elapsed);
  }
  Print({kName, "batches_per_s", "1/s", values});
}

void RunAtari(const Options& options, int threads) {
  if (!AtariFrames::Recorded()) {
    std::fprintf(stderr, "no recorded frames; run bench/run --install-peers\n");
    return;
  }
  for (const Codec codec : {Codec::kNone, Codec::kLz4}) {
    const AtariFrames frames(codec, codec != Codec::kNone);
    for (const int n_step : {1, 3}) {
      const std::int64_t full = n_step == 1 ? 4 * kAtariItems : kMillionItems;
      const std::int64_t items = options.quick ? kAtariItems : full;
      const std::string name = "process-atari-n" + std::to_string(n_step) +
                               (codec == Codec::kNone ? "-raw" : "-lz4") +
                               (threads == 1 ? "" : "-2-threads");
      RunCase(options, name, Atari(n_step, codec), &frames, items, threads);
    }
  }
}

void RunProcess(const Options& options) {
  RunCase(options, "process-4f", Vectors(1), nullptr, options.quick ? 100'000 : 1'000'000, 1);
  RunAtari(options, 1);
  RunPacked(options);
}

// Memory of a full table of a million transitions, n = 3: measured, not computed.
void MeasureMemory(const std::string& name, Codec codec, bool dictionaries, std::int64_t items) {
  const AtariFrames frames(codec, dictionaries);
  const std::size_t before = ResidentBytes();
  const Table table = MakeFullTable(Atari(3, codec), &frames, items);
  const double bytes = double(ResidentBytes() - before) / double(table.size());
  Print({.name = "memory-atari-" + name,
         .metric = "bytes_per_item",
         .unit = "bytes",
         .values = {bytes},
         .better = "lower"});
}

void RunMemory(bool quick) {
  if (!AtariFrames::Recorded()) return;
  const std::int64_t items = quick ? 200'000 : 1'000'000;
  MeasureMemory("lz4", Codec::kLz4, true, items);
  MeasureMemory("lz4-without-dictionary", Codec::kLz4, false, items);
  MeasureMemory("zstd", Codec::kZstd, true, items);
}

// Updates keys that were sampled up to kLate samples ago, while new items evict about half of
// them: counts the items whose final weight differs from their last update.
class Churn {
 public:
  static constexpr std::int64_t kItems = 1 << 13;
  static constexpr std::size_t kLate = 64;
  Churn() : setting_(Vectors(1)), table_(MakeFullTable(setting_, nullptr, kItems)) {}

  // One call of each of Insert, Draw and Update.
  void Turn() {
    Insert();
    EncodedBatch& drawn = drawn_[turn_++ % kLate];
    if (!drawn.key.empty()) Update(drawn);
    table_.Draw(kBatch, &drawn);
    for (std::size_t i = 0; i < drawn.key.size(); ++i) {
      const auto told = told_.find(drawn.key[i]);
      if (told == told_.end()) continue;
      const double weight = std::pow(double(told->second) + 1e-6, 0.6);
      const double seen = drawn.probability[i] * drawn.total;
      misapplied_ += std::abs(seen - weight) > 1e-4 * weight;
      ++compared_;
    }
  }
  std::int64_t updates() const { return updates_; }
  std::int64_t stale() const { return stale_; }
  std::int64_t misapplied() const { return misapplied_; }
  std::int64_t compared() const { return compared_; }

 private:
  void Insert() {
    const auto counts = table_.Insert(feeder_.Next());
    TROOP_CHECK(counts.ok(), "{}", counts.status().ToString());
  }
  void Update(const EncodedBatch& drawn) {
    priority_.resize(drawn.key.size());
    for (float& p : priority_) p = 0.5f + 8 * rng_.UniformF32();
    for (std::size_t i = 0; i < drawn.key.size(); ++i) {
      if (table_.Alive(drawn.key[i])) told_[drawn.key[i]] = priority_[i];
    }
    const auto counts = table_.Update(drawn.key, priority_);
    updates_ += counts.applied;
    stale_ += counts.stale;
    if (told_.size() > 8 * std::size_t(kItems)) {
      std::erase_if(told_, [this](const auto& pair) { return !table_.Alive(pair.first); });
    }
  }

  const Setting setting_;
  Table table_;
  Feeder feeder_{setting_, nullptr, 2};
  Rng rng_{{.run_seed = 1, .purpose = Purpose::kSynthetic}};
  std::array<EncodedBatch, kLate> drawn_;
  std::unordered_map<std::uint64_t, float> told_;  // by key
  std::vector<float> priority_;
  std::size_t turn_ = 0;
  std::int64_t updates_ = 0, stale_ = 0, misapplied_ = 0, compared_ = 0;
};

void RunChurn(bool quick) {
  const std::int64_t wanted = quick ? 1'000'000 : 100'000'000;
  Churn churn;
  while (churn.updates() + churn.stale() < wanted) churn.Turn();
  TROOP_CHECK(churn.stale() > 0 && churn.compared() > wanted / 2, "{} stale, {} compared",
              churn.stale(), churn.compared());
  Print({.name = quick ? "churn-1e6-updates" : "churn-1e8-updates",
         .metric = "misapplied",
         .unit = "items",
         .values = {double(churn.misapplied())},
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
    } else if (argument == "--case" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (argument == "--seconds" && i + 1 < argc) {
      options.seconds = std::atof(argv[++i]);
    } else {
      std::fprintf(stderr,
                   "usage: %s [--part tree|process|threads|memory|churn] [--quick] [--case NAME "
                   "--seconds N]\n",
                   argv[0]);
      return 2;
    }
  }
  const auto wanted = [&](std::string_view part) {
    return options.part.empty() || options.part == part;
  };
  if (wanted("tree")) RunTreeCases({}, options.quick);
  if (wanted("process")) RunProcess(options);
  if (wanted("threads")) RunAtari(options, 2);
  if (wanted("churn")) RunChurn(options.quick);
  if (wanted("memory")) RunMemory(options.quick);
  return 0;
}

}  // namespace
}  // namespace troop::bench

int main(int argc, char** argv) { return troop::bench::Main(argc, argv); }
