// Implements the writing of recorded episodes in bounded segments.
#include "replay/episodes/episode_writer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/log.h"

namespace troop {
namespace {

// More segments lose less at a time when the oldest is deleted, but make more files.
constexpr std::size_t kSegments = 16;

}  // namespace

Result<std::unique_ptr<EpisodeWriter>> EpisodeWriter::Open(const Options& options) {
  std::unique_ptr<EpisodeWriter> writer(new EpisodeWriter(options));
  TROOP_RETURN_IF_ERROR(writer->FindSegments());
  return writer;
}

// An empty folder is the root of the storage.
std::string EpisodeWriter::PathOf(const std::string& file) const {
  return options_.folder.empty() ? file : options_.folder + "/" + file;
}

// Numbers have leading zeros, so the order of names is that of time. A serial run that resumes
// repeats the incarnations of the leg that it had begun: their files are replaced.
Status EpisodeWriter::FindSegments() {
  TROOP_ASSIGN_OR_RETURN(const auto names, options_.storage->List(options_.folder));
  const std::string own = fmt::format("{}-{:010}-", options_.name, options_.incarnation);
  for (const std::string& name : names) {
    if (!name.starts_with(options_.name + "-") || !name.ends_with(kEpisodeSuffix)) continue;
    if (name.starts_with(own)) {
      TROOP_RETURN_IF_ERROR(options_.storage->Remove(PathOf(name)));
      continue;
    }
    // Mapping a file gives its size without reading it.
    TROOP_ASSIGN_OR_RETURN(const Buffer bytes, options_.storage->Map(PathOf(name)));
    segments_.push_back({PathOf(name), bytes.size()});
    bytes_ += bytes.size();
  }
  return Status::Ok();
}

// Deletes the oldest segments until `bytes` more fit.
Status EpisodeWriter::MakeRoom(std::size_t bytes) {
  // Readers refuse larger ones, whatever the config allows.
  if (bytes > kEpisodeBytesMax) {
    return ResourceExhausted("an episode of {} bytes exceeds the limit of {}", bytes,
                             kEpisodeBytesMax);
  }
  if (bytes > options_.bytes_max) {
    return ResourceExhausted(
        "an episode of {} bytes exceeds the limit of {}; raise "
        "actor.record_bytes_max",
        bytes, options_.bytes_max);
  }
  while (bytes_ + bytes > options_.bytes_max && !segments_.empty()) {
    if (removed_ == 0) {
      LogInfo(
          "{} bytes of recorded episodes: from now on the oldest are deleted "
          "(actor.record_bytes_max)",
          bytes_);
    }
    // The last segment may be the one that is open.
    if (segments_.size() == 1) file_ = nullptr;
    TROOP_RETURN_IF_ERROR(options_.storage->Remove(segments_.front().path));
    bytes_ -= segments_.front().bytes;
    removed_ += segments_.front().bytes;
    segments_.pop_front();
  }
  return Status::Ok();
}

// Opens the next file. Its number is used up even if no record can be written.
Status EpisodeWriter::OpenSegment() {
  const std::string path = PathOf(fmt::format("{}-{:010}-{:06}{}", options_.name,
                                              options_.incarnation, next_segment_, kEpisodeSuffix));
  TROOP_ASSIGN_OR_RETURN(file_, options_.storage->OpenAppend(path));
  ++next_segment_;
  segments_.push_back({path});
  return Status::Ok();
}

// A failed append leaves a torn record at the end of its segment, which is cut off; if that fails,
// too, readers stop at the torn record. A later episode begins another segment.
Status EpisodeWriter::Append(const Episode& episode) {
  // Step 1: room within the limit. Step 2: the segment. Step 3: one append of the whole record.
  const std::vector<std::byte> record = EncodeEpisode(episode);
  TROOP_RETURN_IF_ERROR(MakeRoom(record.size()));
  if (file_ && segments_.back().bytes >= options_.bytes_max / kSegments) {
    const Status synced = file_->Sync();
    file_ = nullptr;
    TROOP_RETURN_IF_ERROR(synced);
  }
  if (!file_) TROOP_RETURN_IF_ERROR(OpenSegment());
  Segment& segment = segments_.back();
  if (const Status appended = file_->Append(std::span(record)); !appended.ok()) {
    file_ = nullptr;
    if (segment.bytes > 0) {
      (void)options_.storage->Truncate(segment.path, segment.bytes);
    } else {
      (void)options_.storage->Remove(segment.path);
      segments_.pop_back();
    }
    return appended;
  }
  // Counted only now, so that a failed append leaves the totals as they were.
  segment.bytes += record.size();
  bytes_ += record.size();
  ++episodes_;
  return Status::Ok();
}

}  // namespace troop
