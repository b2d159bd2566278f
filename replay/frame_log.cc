#include "replay/frame_log.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"

namespace troop {
namespace {

// A log frees whole segments: small against the capacity, so that little waits to be freed.
std::int64_t SegmentFrames(std::int64_t frames) {
  return std::clamp<std::int64_t>(std::int64_t(std::bit_floor(std::uint64_t(frames))) / 256, 1,
                                  1024);
}

// A stream's tail is stored again when this share of the log came since: what it pins beyond its
// own age is then at most that share.
constexpr std::int64_t kStaleShare = 32;

template <class T>
T Load(const Buffer& buffer, std::size_t index) {
  T value;
  std::memcpy(&value, buffer.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::int64_t FrameLog::Capacity(const Options& options) {
  const std::int64_t segment = SegmentFrames(options.frames);
  return (options.frames + segment - 1) / segment * segment + segment;
}

std::size_t FrameLog::Bytes(const Options& options) {
  const auto frames = std::size_t(Capacity(options));
  const auto segments = frames / std::size_t(SegmentFrames(options.frames));
  return BigArray<std::byte>::Bytes(frames * options.trajectory.observation.bytes()) +
         BigArray<std::byte>::Bytes(frames * options.trajectory.action.bytes()) +
         BigArray<Step>::Bytes(frames) + BigArray<std::uint32_t>::Bytes(segments);
}

Result<FrameLog> FrameLog::Make(const Options& options) {
  TROOP_CHECK(options.frames >= 1 && options.history >= 1, "a log of {} frames, history {}",
              options.frames, options.history);
  FrameLog log;
  log.capacity_ = Capacity(options);
  log.segment_ = SegmentFrames(options.frames);
  log.history_ = options.history;
  log.runs_max_ = std::size_t(options.history) + 2;
  log.observation_bytes_ = options.trajectory.observation.bytes();
  log.action_bytes_ = options.trajectory.action.bytes();
  const auto frames = std::size_t(log.capacity_);
  TROOP_ASSIGN_OR_RETURN(log.observation_,
                         BigArray<std::byte>::Make(frames * log.observation_bytes_));
  TROOP_ASSIGN_OR_RETURN(log.action_, BigArray<std::byte>::Make(frames * log.action_bytes_));
  TROOP_ASSIGN_OR_RETURN(log.step_, BigArray<Step>::Make(frames));
  TROOP_ASSIGN_OR_RETURN(log.pins_,
                         BigArray<std::uint32_t>::Make(frames / std::size_t(log.segment_)));
  return log;
}

std::size_t FrameLog::bytes() const {
  return observation_.bytes() + action_.bytes() + step_.bytes() + pins_.bytes();
}

bool FrameLog::MakeRoom(std::int64_t frames) {
  TROOP_CHECK(frames <= capacity_ / 2, "room for {} of {} frames", frames, capacity_);
  while (std::int64_t(tail_ - head_) + frames > capacity_) {
    if (pins_[SegmentOf(head_)] != 0) return false;
    head_ += std::uint64_t(segment_);
  }
  return true;
}

Status FrameLog::Check(const Chunk& chunk) const {
  const std::uint64_t next = NextFrame(chunk.stream);
  if (chunk.first_frame >= next) return Status::Ok();
  return InvalidArgument("stream {:#x}: frames [{}, +{}) come again: {} is next", chunk.stream,
                         chunk.first_frame, chunk.frames, next);
}

std::uint64_t FrameLog::NextFrame(StreamId stream) const {
  const auto it = streams_.find(stream);
  return it == streams_.end() ? 0 : it->second.next_frame;
}

std::optional<FrameLog::Position> FrameLog::Locate(StreamId stream, std::uint64_t frame) const {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return std::nullopt;
  return Locate(it->second, frame);
}

std::optional<FrameLog::Position> FrameLog::Locate(const Stream& stream,
                                                   std::uint64_t frame) const {
  std::size_t at = stream.newest;
  for (std::size_t i = 0; i < stream.run.size(); ++i) {  // newest first: a carried copy hides the
    const Run& run = stream.run[at];                     // original
    at = at == 0 ? stream.run.size() - 1 : at - 1;
    if (frame < run.first_frame || frame - run.first_frame >= run.frames) continue;
    const Position p = run.start + (frame - run.first_frame);
    if (live(p)) return p;
  }
  return std::nullopt;
}

void FrameLog::AddRun(Stream* stream, const Run& run) {
  if (stream->run.size() < runs_max_) {
    stream->newest = stream->run.size();
    stream->run.push_back(run);
  } else {
    stream->newest = (stream->newest + 1) % runs_max_;
    stream->run[stream->newest] = run;
  }
}

void FrameLog::Append(const Chunk& chunk) {
  if (streams_.size() >= streams_before_sweep_) ForgetSilentStreams();
  Stream& stream = streams_[chunk.stream];
  if (stream.next_frame == chunk.first_frame && chunk.first_frame > 0) {
    CarryTail(&stream);
    if (const auto last = Locate(stream, chunk.first_frame - 1)) {
      step_[Ring(*last)].next = std::uint32_t(tail_ - *last);
    }
  }
  TROOP_CHECK(frames() + chunk.frames <= capacity_, "no room was made");
  const std::size_t ring = Ring(tail_);
  const auto before_wrap =
      std::uint32_t(std::min<std::uint64_t>(chunk.frames, std::uint64_t(capacity_) - ring));
  Write(chunk, 0, ring, before_wrap);
  Write(chunk, before_wrap, 0, chunk.frames - before_wrap);
  AddRun(&stream, {chunk.first_frame, chunk.frames, tail_});
  stream.next_frame = chunk.first_frame + chunk.frames;
  tail_ += chunk.frames;
}

void FrameLog::Write(const Chunk& chunk, std::uint32_t first, std::size_t ring,
                     std::uint32_t count) {
  if (count == 0) return;
  std::memcpy(observation_.data() + ring * observation_bytes_,
              chunk.observation.data() + first * observation_bytes_, count * observation_bytes_);
  std::memcpy(action_.data() + ring * action_bytes_, chunk.action.data() + first * action_bytes_,
              count * action_bytes_);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool last = first + i + 1 == chunk.frames;
    step_[ring + i] = {.reward = Load<float>(chunk.reward, first + i),
                       .discount = Load<float>(chunk.discount, first + i),
                       .next = last ? 0u : 1u,
                       .final = Load<std::uint8_t>(chunk.final, first + i)};
  }
}

// REQUIRES: the stream's next chunk follows without a gap.
void FrameLog::CarryTail(Stream* stream) {
  const auto last = Locate(*stream, stream->next_frame - 1);
  if (!last || std::int64_t(tail_ - *last) <= capacity_ / kStaleShare) return;
  std::uint64_t count = 0;  // not across an episode's end: no item does
  while (count < std::uint64_t(history_) && count < stream->next_frame) {
    const auto p = Locate(*stream, stream->next_frame - 1 - count);
    if (!p || step(*p).final) break;
    ++count;
  }
  if (count == 0) return;
  const Run run{stream->next_frame - count, count, tail_};
  for (std::uint64_t i = 0; i < count; ++i) {
    CopyFrame(*Locate(*stream, run.first_frame + i), tail_);
    step_[Ring(tail_)].next = i + 1 < count ? 1u : 0u;
    ++tail_;
  }
  carried_ += std::int64_t(count);
  AddRun(stream, run);
}

void FrameLog::CopyFrame(Position from, Position to) {
  std::memcpy(observation_.data() + Ring(to) * observation_bytes_, observation(from),
              observation_bytes_);
  std::memcpy(action_.data() + Ring(to) * action_bytes_, action(from), action_bytes_);
  step_[Ring(to)] = step(from);
}

// A stream whose frames are all gone can't be continued by an item: its place is given back, so
// that restarted actors (new streams) don't grow the map. Amortised O(1) per new stream.
void FrameLog::ForgetSilentStreams() {
  std::erase_if(streams_, [this](const auto& entry) {
    const Stream& stream = entry.second;
    return !Locate(stream, stream.next_frame - 1);
  });
  streams_before_sweep_ = std::max<std::size_t>(1024, 2 * streams_.size());
}

}  // namespace troop
