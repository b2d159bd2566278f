#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "core/storage/storage.h"
#include "replay/episodes/episode.h"

namespace troop {

// Appends episodes to the files of one writer (an actor, or an evaluation) in a folder, of which
// the newest `bytes_max` bytes are kept. Owner: one thread; blocks on the disk.
//
// The files are segments NAME-<incarnation>-<number>.episodes of about a sixteenth of bytes_max;
// when a new episode would exceed it, the oldest segments are deleted, those of earlier
// incarnations first. An episode is in the buffers of the operating system when Append returns, so
// the death of the process loses none; each segment is synced when it is complete.
class EpisodeWriter {
 public:
  struct Options {
    Storage* storage = nullptr;
    std::string folder = kEpisodeFolder;  // in the storage; empty: its root
    std::string name;                     // of the writer, "actor-0"
    std::uint64_t incarnation = 0;        // files of this incarnation are replaced
    std::size_t bytes_max = std::size_t{1} << 30;
  };
  // Finds the files of earlier incarnations. Errors: those of the disk.
  static Result<std::unique_ptr<EpisodeWriter>> Open(const Options& options);

  // Appends an episode. Errors: kResourceExhausted: it alone exceeds bytes_max or kEpisodeBytesMax,
  // or the disk is full; those of the disk. Later calls may succeed, and complete records stay
  // readable.
  Status Append(const Episode& episode);

  std::int64_t episodes() const { return episodes_; }       // appended by this object
  std::uint64_t bytes() const { return bytes_; }            // on disk, of all segments
  std::uint64_t bytes_removed() const { return removed_; }  // by this object, to keep the limit

 private:
  struct Segment {
    std::string path;
    std::size_t bytes = 0;
  };
  explicit EpisodeWriter(Options options) : options_(std::move(options)) {}
  std::string PathOf(const std::string& file) const;
  Status FindSegments();
  Status MakeRoom(std::size_t bytes);
  Status OpenSegment();

  const Options options_;
  std::deque<Segment> segments_;      // oldest first
  std::unique_ptr<AppendFile> file_;  // the last segment; nullptr: closed
  std::uint64_t next_segment_ = 0;
  std::int64_t episodes_ = 0;
  std::uint64_t bytes_ = 0, removed_ = 0;
};

}  // namespace troop
