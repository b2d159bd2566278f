// A persisted table: durable inserts, sampling during snapshots, restarts.
//
// replay_disk_bench [--quick]
//
// One process with a table, its journal and the disk threads. Writes to build/bench_disk, and
// removes it. `fdatasync_bytes_per_s`: throughput of the disk itself, 1 MiB at a time.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/replay_cases.h"
#include "core/base/check.h"
#include "core/base/executor.h"
#include "core/base/time.h"
#include "core/storage/storage.h"
#include "replay/persistence/restore.h"

namespace troop::bench {
namespace {

constexpr int kDiskThreads = 2;
constexpr std::size_t kWaitingMax = 32 << 20;  // bytes inserted but not durable yet
constexpr int kTurns = 5;
constexpr int kInsertsPerDraw = 2;  // messages: 100 items per 512 samples

std::filesystem::path Folder() {
  return std::filesystem::path(TROOP_SOURCE_FOLDER) / "build/bench_disk";
}

// A table with its journal. Its destructor acts like a kill: without an orderly shutdown.
class KeptTable {
 public:
  KeptTable(const Setting& setting, std::int64_t items, Duration snapshot_every)
      : executor_(kDiskThreads, [] {}) {
    auto storage = MakeDiskStorage(Folder().string());
    TROOP_CHECK(storage.ok(), "{}", storage.status().ToString());
    storage_ = std::move(storage).value();
    auto restored = RestoreTable(storage_.get(), &executor_,
                                 {.folder = "replay", .snapshot_every = snapshot_every},
                                 {.trajectory = setting.trajectory,
                                  .view = setting.view,
                                  .codec = setting.codec,
                                  .capacity_items = items});
    TROOP_CHECK(restored.ok(), "{}", restored.status().ToString());
    kept_.emplace(std::move(restored).value());
  }
  Table* table() { return &kept_->table; }
  Journal* journal() { return kept_->journal.get(); }
  void Poll() {
    JournalSource& journaled = table()->journal_source();
    journal()->Poll(clock_.Now(), &journaled);
    TROOP_CHECK(journal()->error().ok(), "{}", journal()->error().ToString());
  }
  void Insert(Feeder* feeder) {
    const auto counts = table()->Insert(feeder->Next());
    TROOP_CHECK(counts.ok(), "{}", counts.status().ToString());
  }
  // Position that an insert waits for if it is acknowledged when durable.
  bool room() {
    return table()->journal_source().appended() - std::uint64_t(journal()->stats().commit_bytes) <
           kWaitingMax;
  }
  bool AllDurable() { return !(journal()->durable() < table()->journal_source().position()); }

 private:
  const SystemClock clock_;
  std::unique_ptr<Storage> storage_;
  ThreadExecutor executor_;
  std::optional<RestoredTable> kept_;
};

double FdatasyncBytesPerSecond(double seconds) {
  std::filesystem::create_directories(Folder());
  const std::string path = (Folder() / "probe").string();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  TROOP_CHECK(file >= 0, "cannot write {}", path);
  const std::vector<char> block(1 << 20, 'x');
  const double begin = WallSeconds();
  double bytes = 0;
  while (WallSeconds() - begin < seconds) {
    TROOP_CHECK(::write(file, block.data(), block.size()) == ssize_t(block.size()) &&
                    ::fdatasync(file) == 0,
                "cannot write {}", path);
    bytes += double(block.size());
  }
  const double elapsed = WallSeconds() - begin;
  ::close(file);
  return bytes / elapsed;
}

// Durable items per second, for `parts` equal parts, from an empty table until all are durable.
std::vector<double> FillDurably(KeptTable* kept, Feeder* feeder, std::int64_t items, int parts) {
  std::vector<double> rates;
  std::int64_t inserted = 0;
  for (int part = 0; part < parts; ++part) {
    const std::int64_t before = inserted;
    const double begin = WallSeconds();
    while (inserted - before < items / parts || !kept->AllDurable()) {
      if (inserted - before < items / parts && kept->room()) {
        kept->Insert(feeder);
        inserted += kMessageFrames * (kEpisodeFrames - 1) / kEpisodeFrames;
      } else {
        usleep(50);
      }
      kept->Poll();
    }
    rates.push_back(double(inserted - before) / (WallSeconds() - begin));
  }
  return rates;
}

double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[std::size_t(q * double(values.size() - 1))];
}

// Inserts, samples and updates in turn; times in us of sampling, including the preceding calls.
std::vector<double> DrawTimes(KeptTable* kept, Feeder* feeder, double seconds, bool snapshots) {
  std::vector<double> us;
  EncodedBatch drawn;
  std::vector<float> priority;
  const double end = WallSeconds() + seconds;
  std::int64_t rounds = -1;
  while (WallSeconds() < end) {
    if (snapshots && kept->journal()->stats().rounds != rounds) {
      rounds = kept->journal()->stats().rounds;
      kept->journal()->SnapshotNow();
    }
    for (int i = 0; i < kInsertsPerDraw && kept->room(); ++i) kept->Insert(feeder);
    const double begin = WallSeconds();
    kept->Poll();
    kept->table()->Draw(kBatch, &drawn);
    us.push_back(1e6 * (WallSeconds() - begin));
    const std::size_t steps = drawn.reward.size() / drawn.key.size();
    priority.resize(drawn.key.size());
    for (std::size_t i = 0; i < priority.size(); ++i) priority[i] = drawn.reward[i * steps];
    kept->table()->Update(drawn.key, priority);
  }
  return us;
}

void Run(std::string_view name, const Setting& setting, const AtariFrames* frames,
         std::int64_t items, double seconds) {
  const std::string durable = "durable-" + std::string(name);
  Feeder feeder(setting, frames, 1);
  std::filesystem::remove_all(Folder() / "replay");
  {
    KeptTable kept(setting, items, Seconds(3600));
    Print({durable, "inserts_per_s", "1/s", FillDurably(&kept, &feeder, items, 3)});
    std::vector<double> without, with;  // in turn, so that a busy neighbor affects both
    for (int turn = 0; turn < kTurns; ++turn) {
      without.push_back(Quantile(DrawTimes(&kept, &feeder, seconds, false), 0.999));
      with.push_back(Quantile(DrawTimes(&kept, &feeder, seconds, true), 0.999));
    }
    Print({durable, "draw_p999", "us", without});
    Print({durable, "draw_p999_beside_snapshots", "us", with});
    TROOP_CHECK(kept.journal()->stats().rounds > 0, "no snapshot was taken");
    while (!kept.AllDurable()) kept.Poll();
  }
  const double begin = WallSeconds();
  KeptTable kept(setting, items, Seconds(3600));
  EncodedBatch drawn;
  kept.table()->Draw(kBatch, &drawn);
  const double restart = WallSeconds() - begin;
  TROOP_CHECK(kept.table()->size() >= items * 99 / 100, "{} of {} items are back",
              kept.table()->size(), items);
  Print({durable, "restart_to_first_sample", "s", {restart}});
}

int Main(int argc, char** argv) {
  const bool quick = argc == 2 && std::string_view(argv[1]) == "--quick";
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
    return 2;
  }
  std::vector<double> disk;
  for (int i = 0; i < 3; ++i) disk.push_back(FdatasyncBytesPerSecond(quick ? 0.3 : 1));
  Print({"disk", "fdatasync_bytes_per_s", "1/s", disk});
  const std::int64_t items = quick ? 100'000 : 1'000'000;
  const double seconds = quick ? 0.2 : 2;
  Run("4f", Vectors(3), nullptr, items, seconds);
  if (AtariFrames::Recorded()) {
    const AtariFrames frames(Codec::kLz4, false);
    Run("atari", Atari(3, Codec::kLz4), &frames, items, seconds);
  }
  std::filesystem::remove_all(Folder());
  return 0;
}

}  // namespace
}  // namespace troop::bench

int main(int argc, char** argv) { return troop::bench::Main(argc, argv); }
