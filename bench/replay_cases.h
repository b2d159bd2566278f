#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/trajectory.h"
#include "replay/codec/frame_codec.h"
#include "replay/codec/sample_batch.h"
#include "replay/storage/item_view.h"
#include "replay/table/table.h"

// Shared by the programs of the suite `replay`: stored data and output format. The peers' scripts
// store the same data.
namespace troop::bench {

inline constexpr std::int64_t kBatch = 512;
inline constexpr double kBeta = 0.4;
inline constexpr std::uint32_t kEpisodeFrames = 500;  // the last one is final
inline constexpr std::uint32_t kGameFrames = 3000;    // a multiple of the above
inline constexpr std::uint32_t kMessageFrames = 50;   // per insert: Horgan et al. 2018, sec. 4.1

// Reward of a frame, by its number in its stream; evenly spread over [1, 7). An item's priority is
// the reward of its first frame.
float RewardOf(std::uint64_t frame);

struct Setting {
  TrajectorySpec trajectory;
  ViewSpec view;
  Codec codec = Codec::kNone;
};
Setting Vectors(int n_step);             // observations of 4 floats, all the frame's reward
Setting Atari(int n_step, Codec codec);  // 84x84 gray, stacks of 4
ViewSpec TransitionsOf(int n_step, int stack);

// The recorded games in order, each encoded separately: [games * kGameFrames]. `dictionaries`: one
// per game, from its first thousand frames, as a server trains them.
class AtariFrames {
 public:
  // Aborts with a hint if the frames are missing.
  AtariFrames(Codec codec, bool dictionaries);
  std::size_t count() const { return offset_.size() - 1; }
  std::span<const std::byte> encoded(std::size_t frame) const;
  const std::vector<std::shared_ptr<const FrameDictionary>>& dictionaries() const {
    return dictionaries_;
  }
  static bool Recorded();  // true if the frames of all games exist

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> offset_;
  std::vector<std::shared_ptr<const FrameDictionary>> dictionaries_;
};

// One stream of episodes of kEpisodeFrames, in calls of kMessageFrames with the items that end in
// them. Owner: one thread.
class Feeder {
 public:
  // frames: for a setting with images, else nullptr; must outlive this object.
  Feeder(const Setting& setting, const AtariFrames* frames, StreamId stream);
  EncodedInsert Next();
  std::uint64_t frames() const { return at_; }

 private:
  Setting setting_;
  const AtariFrames* const frames_;
  const StreamId stream_;
  std::uint64_t at_ = 0;
};

// Creates a table that is full and has begun to evict. Aborts on errors.
Table MakeFullTable(const Setting& setting, const AtariFrames* frames, std::int64_t items);

// Means over all samples: first rewards, observations, next observations. Peers are compared by
// them, since their random numbers differ.
class Means {
 public:
  void Add(const SampleBatch& batch);
  std::vector<double> values() const;

 private:
  double sum_[3] = {};
  std::int64_t batches_ = 0;
};

// One result, printed as a line of JSON (bench/README.md).
struct Line {
  std::string_view name, metric, unit;
  std::vector<double> values;
  std::vector<double> play = {};
  double play_tolerance = 0.02;
  std::string_view better = {};
};
void Print(const Line& line);

double WallSeconds();  // time of a steady clock
std::size_t ResidentBytes();

}  // namespace troop::bench
