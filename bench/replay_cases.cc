// Deterministic replay contents for the suite `replay`, and the JSON lines of its results.

#include "bench/replay_cases.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/base/check.h"
#include "core/storage/json.h"

namespace troop::bench {
namespace {

constexpr std::array kGames = {"pong",      "breakout",         "space_invaders", "seaquest",
                               "qbert",     "ms_pacman",        "beam_rider",     "enduro",
                               "asteroids", "montezuma_revenge"};
constexpr std::size_t kSide = 84;
constexpr std::size_t kFrameBytes = kSide * kSide;
constexpr std::size_t kTrainedFrames = 1000;

std::filesystem::path GamePath(const char* game) {
  return std::filesystem::path(TROOP_SOURCE_FOLDER) / "build/peers/frames" /
         (std::string(game) + ".u8");
}

std::vector<std::byte> ReadGame(const char* game) {
  std::vector<std::byte> frames(kGameFrames * kFrameBytes);
  std::ifstream file(GamePath(game), std::ios::binary);
  file.read(reinterpret_cast<char*>(frames.data()), std::streamsize(frames.size()));
  TROOP_CHECK(file.good(), "{} holds no {} frames: bench/run --install-peers",
              GamePath(game).string(), kGameFrames);
  return frames;
}

template <class T>
Buffer FreezeColumn(const std::vector<T>& values) {
  return Buffer::Copy(std::as_bytes(std::span(values)));
}

}  // namespace

float RewardOf(std::uint64_t frame) {
  const auto mixed = std::uint32_t(frame * 2654435761u);
  return float(1 + 6 * (double(mixed) / 4294967296.0));
}

ViewSpec TransitionsOf(int n_step, int stack) { return {.length_max = n_step, .stack = stack}; }

Setting Vectors(int n_step) {
  return {.trajectory = {.observation = {DType::kF32, {4}}, .action = {DType::kI32, {}}},
          .view = TransitionsOf(n_step, 1)};
}

Setting Atari(int n_step, Codec codec) {
  return {.trajectory = {.observation = {DType::kU8, {kSide, kSide}}, .action = {DType::kI32, {}}},
          .view = TransitionsOf(n_step, 4),
          .codec = codec};
}

bool AtariFrames::Recorded() {
  return std::ranges::all_of(kGames,
                             [](auto* game) { return std::filesystem::exists(GamePath(game)); });
}

AtariFrames::AtariFrames(Codec codec, bool dictionaries) : offset_{0} {
  for (const char* game : kGames) {
    const std::vector<std::byte> raw = ReadGame(game);
    FrameCoder coder(codec, kFrameBytes);
    if (dictionaries) {
      auto trained =
          TrainFrameDictionary(std::span(raw).first(kTrainedFrames * kFrameBytes), kFrameBytes);
      TROOP_CHECK(trained.ok(), "{}: {}", game, trained.status().ToString());
      dictionaries_.push_back(MakeFrameDictionary(std::move(trained).value()));
      coder.AddDictionary(dictionaries_.back());
    }
    std::vector<std::byte> encoded(coder.encoded_bytes_max());
    for (std::size_t i = 0; i < kGameFrames; ++i) {
      const std::size_t size = coder.Encode(raw.data() + i * kFrameBytes, encoded.data());
      bytes_.insert(bytes_.end(), encoded.begin(), encoded.begin() + std::ptrdiff_t(size));
      offset_.push_back(bytes_.size());
    }
  }
  bytes_.shrink_to_fit();
}

std::span<const std::byte> AtariFrames::encoded(std::size_t frame) const {
  return std::span(bytes_).subspan(offset_[frame], offset_[frame + 1] - offset_[frame]);
}

Feeder::Feeder(const Setting& setting, const AtariFrames* frames, StreamId stream)
    : setting_(setting), frames_(frames), stream_(stream) {}

EncodedInsert Feeder::Next() {
  EncodedInsert call;
  std::vector<std::int32_t> action(kMessageFrames, 0);
  std::vector<float> reward, discount;
  std::vector<std::uint8_t> final;
  std::vector<std::uint32_t> frame_bytes;
  std::vector<std::byte> observation;
  const auto n_step = std::uint32_t(setting_.view.length_max);
  for (std::uint64_t frame = at_; frame < at_ + kMessageFrames; ++frame) {
    const auto step = std::uint32_t(frame % kEpisodeFrames);
    const bool ends = step + 1 == kEpisodeFrames;
    reward.push_back(ends ? 0 : RewardOf(frame));
    discount.push_back(ends ? 0 : 1);
    final.push_back(ends);
    if (frames_ != nullptr) {
      const auto encoded = frames_->encoded(frame % frames_->count());
      observation.insert(observation.end(), encoded.begin(), encoded.end());
      if (setting_.codec != Codec::kNone) frame_bytes.push_back(std::uint32_t(encoded.size()));
    } else {
      const std::array<float, 4> vector = {RewardOf(frame), RewardOf(frame), RewardOf(frame),
                                           RewardOf(frame)};
      const auto bytes = std::as_bytes(std::span(vector));
      observation.insert(observation.end(), bytes.begin(), bytes.end());
    }
    // The item of n steps that ends here; at an episode's end the shorter ones too.
    for (std::uint32_t length = ends ? 1 : n_step; length <= std::min(n_step, step); ++length) {
      const std::uint64_t first = frame - length;
      call.items.push_back(
          {.stream = stream_, .first_frame = first, .length = length, .priority = RewardOf(first)});
    }
  }
  call.chunks.push_back({.stream = stream_,
                         .first_frame = at_,
                         .frames = kMessageFrames,
                         .action = FreezeColumn(action),
                         .reward = FreezeColumn(reward),
                         .discount = FreezeColumn(discount),
                         .final = FreezeColumn(final),
                         .frame_bytes = FreezeColumn(frame_bytes),
                         .observation = FreezeColumn(observation)});
  at_ += kMessageFrames;
  return call;
}

Table MakeFullTable(const Setting& setting, const AtariFrames* frames, std::int64_t items) {
  auto table = Table::Make({.trajectory = setting.trajectory,
                            .view = setting.view,
                            .codec = setting.codec,
                            .capacity_items = items});
  TROOP_CHECK(table.ok(), "{}", table.status().ToString());
  if (frames != nullptr) {
    for (const auto& dictionary : frames->dictionaries()) table.value().AddDictionary(dictionary);
  }
  Feeder feeder(setting, frames, 1);
  while (table.value().usage().evicted == 0) {
    const auto counts = table.value().Insert(feeder.Next());
    TROOP_CHECK(counts.ok(), "{}", counts.status().ToString());
  }
  return std::move(table).value();
}

namespace {

double MeanOf(const Tensor& tensor) {
  double sum = 0;
  if (tensor.dtype() == DType::kU8) {
    std::uint64_t exact = 0;
    for (const auto value : tensor.as<std::uint8_t>()) exact += value;
    sum = double(exact);
  } else {
    for (const auto value : tensor.as<float>()) sum += double(value);
  }
  return sum / double(tensor.shape().elements());
}

}  // namespace

void Means::Add(const SampleBatch& batch) {
  const std::span<const float> reward = batch.reward.as<float>();
  const std::size_t steps = reward.size() / std::size_t(batch.size());
  double first = 0;
  for (std::size_t i = 0; i < reward.size(); i += steps) first += double(reward[i]);
  sum_[0] += first / double(batch.size());
  sum_[1] += MeanOf(batch.observation);
  sum_[2] += MeanOf(batch.next_observation);
  ++batches_;
}

std::vector<double> Means::values() const {
  std::vector<double> means;
  for (const double sum : sum_) means.push_back(sum / double(batches_));
  return means;
}

void Print(const Line& line) {
  JsonObject row;
  row.Add("case", line.name).Add("metric", line.metric).Add("unit", line.unit);
  row.Add("values", JsonArray::Rounded(line.values, 9));
  if (!line.better.empty()) row.Add("better", line.better);
  if (!line.play.empty()) {
    row.Add("play", JsonArray::Rounded(line.play, 9));
    row.Add("play_tolerance", JsonText::Rounded(line.play_tolerance, 6));
  }
  std::printf("%s\n", row.str().c_str());
  std::fflush(stdout);
}

double WallSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace troop::bench
