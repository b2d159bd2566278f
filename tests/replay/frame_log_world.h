#pragma once

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "replay/storage/frame_log.h"
#include "tests/replay/table_world.h"

namespace troop {

// Utilities of the tests of replay/storage: a log of small frames, and frames appended to it
// without an insert call.
inline FrameLog MakeFrameLog(std::int64_t frames, std::size_t segment_bytes = 4096,
                             const TrajectorySpec& spec = TinySpec(), bool has_codec = false) {
  auto log = FrameLog::Make({.layout = RecordLayout(spec, has_codec),
                             .frames = frames,
                             .segment_bytes = segment_bytes,
                             .checksums = true});
  TROOP_CHECK(log.ok(), "{}", log.status().ToString());
  return std::move(*log);
}

inline ChunkColumns ColumnsOf(const EncodedChunk& chunk) {
  return {chunk.action.data(),
          chunk.reward.data(),
          chunk.discount.data(),
          chunk.final.data(),
          chunk.frame_bytes.size() > 0 ? chunk.frame_bytes.data() : nullptr,
          chunk.observation.data()};
}

// Appends linked frames with one reference each. Returns their ids.
inline std::vector<FrameLog::FrameId> AppendFrames(FrameLog* log, const EncodedChunk& chunk) {
  const ChunkRecord header{chunk.stream, chunk.first_frame, chunk.frames,
                           std::uint32_t(chunk.observation.size())};
  const std::size_t bytes = log->layout().RecordBytes(1, 0, header.frames, header.encoded_bytes);
  TROOP_CHECK(log->store().Prepare(bytes).ok(), "no memory");
  const SegmentStore::Place place = log->store().Append(bytes);
  RecordWriter writer(log->layout(), place.at, RecordHeader::kInsert, {&header, 1}, 0, bytes);
  const ChunkColumns at = writer.AddChunk(header, ColumnsOf(chunk));
  writer.Finish(false);
  auto offset = std::uint32_t(at.observation - log->store().base(place.segment));
  std::vector<FrameLog::FrameId> ids;
  for (std::uint32_t i = 0; i < header.frames; ++i) {
    FrameLog::Entry entry = log->Describe(at, i, place.segment, &offset);
    entry.references = 1;
    const FrameLog::FrameId id = log->Add(entry);
    if (!ids.empty()) log->Link(ids.back(), id);
    ids.push_back(id);
    log->store().frames(place.segment).push_back(id);
  }
  log->store().AddLive(place.segment,
                       header.encoded_bytes + header.frames * log->layout().column_bytes());
  return ids;
}

// Number of the frame in its stream, which the second float of its observation has.
inline std::uint64_t NumberOf(const FrameLog& log, FrameLog::FrameId id) {
  float pair[2];
  std::memcpy(pair, log.observation(log.entry(id)), sizeof(pair));
  return std::uint64_t(pair[1]);
}

}  // namespace troop
