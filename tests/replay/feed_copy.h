#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "replay/codec/table_delta.h"
#include "tests/replay/table_world.h"

namespace troop {

// A replica made only of table deltas: frames by their places, items by their slots. A frame's
// observation identifies the frame (FillFrame).
class FeedCopy {
 public:
  struct Frame {
    StreamId stream = 0;
    std::uint64_t number = 0;
    std::int32_t action = 0;
    float reward = 0, discount = 0;
    auto operator<=>(const Frame&) const = default;
  };
  struct Item {
    std::uint64_t number = 0, key = 0, policy_version = 0;
    float priority = 0;
    std::int32_t lead = 0;
    std::vector<std::uint32_t> window;
  };

  void Clear() {
    frames_.clear();
    items_.clear();
  }
  // observation: of the feed's frames, decoded; each begins with two floats.
  void Take(const TableDelta& feed, std::uint64_t oldest,
            const std::vector<std::pair<float, float>>& observation) {
    std::erase_if(items_, [oldest](const auto& i) { return i.second.number < oldest; });
    for (std::size_t i = 0; i < feed.place.size(); ++i) {
      Frame frame{StreamId(observation[i].first), std::uint64_t(observation[i].second), 0,
                  feed.reward[i], feed.discount[i]};
      std::memcpy(&frame.action, feed.action.data() + 4 * i, 4);
      frames_[feed.place[i]] = frame;
    }
    frames_fed_ += feed.frames();
    std::size_t at = 0;
    for (std::size_t i = 0; i < feed.key.size(); ++i) {
      const std::size_t count = std::size_t(feed.lead[i] + feed.length[i] + 1);
      Item item{feed.number[i],   feed.key[i],  feed.policy_version[i],
                feed.priority[i], feed.lead[i], {}};
      item.window.assign(feed.window.begin() + std::ptrdiff_t(at),
                         feed.window.begin() + std::ptrdiff_t(at + count));
      at += count;
      const auto slot = std::uint32_t(feed.key[i]);
      EXPECT_FALSE(items_.contains(slot)) << "slot " << slot << " is taken";
      items_[slot] = std::move(item);
    }
  }
  // In the order of insertion.
  std::vector<Item> items() const {
    std::map<std::uint64_t, Item> by_number;
    for (const auto& [slot, item] : items_) by_number[item.number] = item;
    std::vector<Item> all;
    for (const auto& [number, item] : by_number) all.push_back(item);
    return all;
  }
  std::vector<Frame> FramesOf(const Item& item) const {
    std::vector<Frame> frames;
    for (const std::uint32_t place : item.window) {
      EXPECT_TRUE(frames_.contains(place)) << "place " << place;
      if (frames_.contains(place)) frames.push_back(frames_.at(place));
    }
    return frames;
  }
  std::int64_t frames_fed() const { return frames_fed_; }

 private:
  std::map<std::uint32_t, Frame> frames_;
  std::map<std::uint32_t, Item> items_;
  std::int64_t frames_fed_ = 0;
};

}  // namespace troop
