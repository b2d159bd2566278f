#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "replay/table/table.h"

namespace troop {

// Utilities of the table tests: small specs, and frames whose content identifies them.
inline TrajectorySpec TinySpec() {
  return {.observation = {DType::kF32, {2}}, .action = {DType::kI32, {}}};
}

inline Table::Options TinyOptions(std::int64_t capacity = 100) {
  return {.trajectory = TinySpec(),
          .view = {.length_max = 3},
          .capacity_items = capacity,
          .sampler = {.kind = Selector::Kind::kPrioritized, .alpha = 1},
          .priority_epsilon = 0};
}

inline Table MakeTable(const Table::Options& options) {
  auto table = Table::Make(options);
  TROOP_CHECK(table.ok(), "{}", table.status().ToString());
  return std::move(*table);
}

// One frame before it is cut into columns.
struct PlainFrame {
  std::uint64_t number = 0;
  float reward = 0, discount = 1;
  bool final = false;
  bool first = false;  // of an episode, or after a gap
};

// Observation of frame t of stream s: (s, t, t, t …) in whatever number of floats the spec has;
// action 10 s + t in each of its i32.
inline void FillFrame(const TrajectorySpec& spec, StreamId stream, std::uint64_t t,
                      std::byte* observation, std::byte* action) {
  const std::size_t floats = spec.observation.bytes() / 4;
  for (std::size_t i = 0; i < floats; ++i) {
    const auto value = i == 0 ? float(stream) : float(t);
    std::memcpy(observation + 4 * i, &value, 4);
  }
  const auto number = std::int32_t(10 * stream + t);
  for (std::size_t i = 0; i < spec.action.bytes() / 4; ++i) {
    std::memcpy(action + 4 * i, &number, 4);
  }
}

inline EncodedChunk EncodeFrames(const TrajectorySpec& spec, Codec codec, StreamId stream,
                                 const std::vector<PlainFrame>& frames) {
  const std::size_t n = frames.size(), bytes = spec.observation.bytes();
  MutableBuffer action(n * spec.action.bytes()), reward(n * 4), discount(n * 4), final(n);
  MutableBuffer sizes(codec == Codec::kNone ? 0 : n * 4);
  FrameCoder coder(codec, bytes);
  std::vector<std::byte> frame(bytes), observations;
  std::vector<std::byte> encoded(std::max(bytes, coder.encoded_bytes_max()));
  for (std::size_t i = 0; i < n; ++i) {
    FillFrame(spec, stream, frames[i].number, frame.data(),
              action.data() + i * spec.action.bytes());
    reward.as<float>()[i] = frames[i].reward;
    discount.as<float>()[i] = frames[i].discount;
    final.as<std::uint8_t>()[i] = frames[i].final;
    if (codec == Codec::kNone) {
      observations.insert(observations.end(), frame.begin(), frame.end());
      continue;
    }
    const std::size_t size = coder.Encode(frame.data(), encoded.data());
    sizes.as<std::uint32_t>()[i] = std::uint32_t(size);
    observations.insert(observations.end(), encoded.begin(),
                        encoded.begin() + std::ptrdiff_t(size));
  }
  return {.stream = stream,
          .first_frame = frames.empty() ? 0 : frames.front().number,
          .frames = std::uint32_t(n),
          .action = std::move(action).Freeze(),
          .reward = std::move(reward).Freeze(),
          .discount = std::move(discount).Freeze(),
          .final = std::move(final).Freeze(),
          .frame_bytes = std::move(sizes).Freeze(),
          .observation = Buffer::Copy(std::span<const std::byte>(observations))};
}

// Frames [first, first + count) of an endless episode: reward t + 1/2, discount 1.
inline std::vector<PlainFrame> PlainFrames(std::uint64_t first, std::uint32_t count) {
  std::vector<PlainFrame> frames;
  for (std::uint64_t t = first; t < first + count; ++t) frames.push_back({t, float(t) + 0.5f});
  return frames;
}
// Makes frames of which the last one closes the episode.
inline std::vector<PlainFrame> EpisodeEnd(std::uint64_t first, std::uint32_t count,
                                          float last_discount) {
  auto frames = PlainFrames(first, count);
  frames.back() = {frames.back().number, 0, 0, true};
  if (count >= 2) frames[count - 2].discount = last_discount;
  return frames;
}
inline EncodedChunk TinyChunk(StreamId stream, std::uint64_t first, std::uint32_t count) {
  return EncodeFrames(TinySpec(), Codec::kNone, stream, PlainFrames(first, count));
}

inline std::vector<Item> TinyItems(StreamId stream, std::uint64_t first, std::uint64_t count,
                                   float priority = 1, std::uint32_t length = 1) {
  std::vector<Item> items;
  for (std::uint64_t t = first; t < first + count; ++t) {
    items.push_back({.stream = stream,
                     .first_frame = t,
                     .length = length,
                     .priority = priority,
                     .policy_version = t});
  }
  return items;
}

inline Table::InsertCounts Put(Table* table, const EncodedInsert& call) {
  const auto counts = table->Insert(call);
  TROOP_CHECK(counts.ok(), "{}", counts.status().ToString());
  return *counts;
}
inline Table::InsertCounts Put(Table* table, EncodedChunk chunk, std::vector<Item> items) {
  return Put(table, EncodedInsert{{std::move(chunk)}, std::move(items)});
}

// A drawn batch, read.
struct Read {
  Read(Table* table, std::int64_t batch) {
    const TrajectorySpec& spec = table->options().trajectory;
    view = table->options().view;
    table->Draw(batch, &drawn);
    FrameCoder coder(table->options().codec, spec.observation.bytes());
    std::vector<std::byte> decoded(spec.observation.bytes());
    std::size_t at = 0;
    for (std::size_t i = 0; i < drawn.key.size(); ++i) {
      begin.push_back(at);
      at += std::size_t(FramesOf(view, drawn.lead[i], drawn.length[i]).count());
    }
    TROOP_CHECK(at == drawn.frame.size(), "{} frames, {} in all", drawn.frame.size(), at);
    for (const EncodedBatch::Frame& frame : drawn.frame) {
      const std::byte* bytes = frame.data;
      if (table->options().codec != Codec::kNone) {
        TROOP_CHECK(coder.Decode({frame.data, frame.bytes}, decoded.data()).ok(), "no frame");
        bytes = decoded.data();
      } else {
        TROOP_CHECK(frame.bytes == spec.observation.bytes(), "a frame of {}", frame.bytes);
      }
      float pair[2];
      std::memcpy(pair, bytes, 8);
      frames.emplace_back(StreamId(pair[0]), std::uint64_t(pair[1]));
    }
  }
  StreamId stream(std::size_t i) const { return frames[begin[i]].first; }
  std::uint64_t first_frame(std::size_t i) const { return frames[begin[i]].second; }
  // Returns the first frame of the item itself, after its lead.
  std::uint64_t own_frame(std::size_t i) const {
    return first_frame(i) + std::uint64_t(drawn.lead[i]);
  }
  std::uint64_t last_frame(std::size_t i) const {
    return frames[(i + 1 < begin.size() ? begin[i + 1] : frames.size()) - 1].second;
  }
  std::int32_t action(std::size_t i) const {  // of the first step of a transition
    std::int32_t value;
    std::memcpy(&value, drawn.action.data() + i * 4, 4);
    return value;
  }
  EncodedBatch drawn;
  ViewSpec view;
  std::vector<std::size_t> begin;                          // of each item, in `frames`
  std::vector<std::pair<StreamId, std::uint64_t>> frames;  // stream and number
};

}  // namespace troop
