#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/status.h"
#include "core/trajectory.h"
#include "replay/big_array.h"

namespace troop {

// Every frame once: a ring of frames in the order of arrival, whatever stream they belong to. Items
// are views: they hold the position of their first frame, and follow the links from frame to frame.
// Owner: one thread (a Table).
//
// Positions count from 0 for ever; position p lies at p modulo capacity. Live: [head, tail). Items
// pin the segment of their first frame; the head passes a segment only when nothing pins it. All
// frames of an item lie at or behind its first one, so none is lost under an item.
// A stream that was silent while many frames of others came would pin old segments with its next
// items; its last frames are then stored again beside the new ones (`carried`).
class FrameLog {
 public:
  using Position = std::uint64_t;
  struct Options {
    TrajectorySpec trajectory;
    std::int64_t frames = 0;  // at least; rounded up to whole segments
    int history = 1;          // steps of the longest item
  };
  struct Step {
    float reward = 0;
    float discount = 0;
    std::uint32_t next = 0;  // distance to the stream's next frame; 0: not here (yet)
    std::uint32_t final = 0;
  };

  static Result<FrameLog> Make(const Options& options);  // kResourceExhausted
  static std::size_t Bytes(const Options& options);      // arrays of a log of this size
  static std::int64_t Capacity(const Options& options);  // in frames

  // Makes room for `frames` more at the head, as far as pins allow. False: items must go first.
  // REQUIRES: frames <= capacity() / 2.
  bool MakeRoom(std::int64_t frames);
  // Whether all frames of the chunk came before.
  bool Has(const Chunk& chunk) const {
    return chunk.first_frame + chunk.frames <= NextFrame(chunk.stream);
  }
  // Errors: kInvalidArgument: the stream already has frames at or past chunk.first_frame.
  Status Check(const Chunk& chunk) const;
  // REQUIRES: Check(chunk) ok, parts of the right sizes, MakeRoom(chunk.frames + history).
  void Append(const Chunk& chunk);
  // Where a frame of a stream lies. nullopt: never came, or gone, or it came more than history + 2
  // chunks ago. O(chunks since).
  std::optional<Position> Locate(StreamId stream, std::uint64_t frame) const;
  // The frame after the last one that came; 0 for an unknown stream.
  std::uint64_t NextFrame(StreamId stream) const;

  void Pin(Position p) { ++pins_[SegmentOf(p)]; }
  void Unpin(Position p) { --pins_[SegmentOf(p)]; }
  bool live(Position p) const { return p >= head_ && p < tail_; }

  // REQUIRES: live(p).
  const Step& step(Position p) const { return step_[Ring(p)]; }
  const std::byte* observation(Position p) const {
    return observation_.data() + Ring(p) * observation_bytes_;
  }
  const std::byte* action(Position p) const { return action_.data() + Ring(p) * action_bytes_; }

  std::int64_t capacity() const { return capacity_; }
  std::int64_t frames() const { return std::int64_t(tail_ - head_); }
  std::int64_t carried() const { return carried_; }
  std::size_t streams() const { return streams_.size(); }
  std::size_t bytes() const;

 private:
  // A run of a stream's frames at consecutive positions.
  struct Run {
    std::uint64_t first_frame = 0;
    std::uint64_t frames = 0;
    Position start = 0;
  };
  struct Stream {
    std::vector<Run> run;  // the newest ones, at most runs_max_: a ring once it is full
    std::size_t newest = 0;
    std::uint64_t next_frame = 0;
  };

  FrameLog() = default;
  std::size_t Ring(Position p) const { return std::size_t(p % std::uint64_t(capacity_)); }
  std::size_t SegmentOf(Position p) const { return Ring(p) / std::size_t(segment_); }
  std::optional<Position> Locate(const Stream& stream, std::uint64_t frame) const;
  void CarryTail(Stream* stream);
  void CopyFrame(Position from, Position to);
  void Write(const Chunk& chunk, std::uint32_t first, std::size_t ring, std::uint32_t count);
  void AddRun(Stream* stream, const Run& run);
  void ForgetSilentStreams();

  std::int64_t capacity_ = 0;  // frames
  std::int64_t segment_ = 0;   // frames
  int history_ = 1;
  // Of a stream. An item ends in the newest run and has history + 1 frames, so it begins in one of
  // these also when each run is a single frame (others' chunks lie in between).
  std::size_t runs_max_ = 3;
  std::size_t observation_bytes_ = 0, action_bytes_ = 0;
  BigArray<std::byte> observation_, action_;
  BigArray<Step> step_;
  BigArray<std::uint32_t> pins_;  // items whose first frame lies in the segment
  Position head_ = 0, tail_ = 0;
  std::unordered_map<StreamId, Stream> streams_;
  std::size_t streams_before_sweep_ = 1024;
  std::int64_t carried_ = 0;
};

}  // namespace troop
