#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/graphics/picture.h"

namespace troop {

// Pictures of the first episodes that one environment plays, for a video. Stops at its limits: a
// longer recording is cut. One owner thread; memory: at most kBytesMax.
class EpisodeFrames {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{128} << 20;
  EpisodeFrames(std::int64_t episodes, std::int64_t frames_max)
      : episodes_left_(episodes), frames_max_(std::size_t(frames_max)) {}

  // True if no more pictures are needed.
  bool done() const { return episodes_left_ <= 0 || full_; }
  // Adds the picture before the next step. An environment without pictures, or with pictures of
  // different sizes, ends the recording.
  void Add(Picture picture) {
    const bool fits = !picture.rgb.empty() &&
                      (frames_.empty() ||
                       (picture.width == frames_[0].width && picture.height == frames_[0].height));
    full_ = !fits || frames_.size() + 1 >= frames_max_ ||
            (frames_.size() + 2) * picture.rgb.size() > kBytesMax;
    if (fits) frames_.push_back(std::move(picture));
  }
  // Ends an episode, whether it was completed or abandoned.
  void EndEpisode() { --episodes_left_; }
  std::vector<Picture> Take() { return std::exchange(frames_, {}); }

 private:
  std::int64_t episodes_left_;
  const std::size_t frames_max_;
  bool full_ = false;
  std::vector<Picture> frames_;
};

}  // namespace troop
