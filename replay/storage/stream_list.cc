// StreamList: a doubly linked list of streams over an array, with an index by id.
#include "replay/storage/stream_list.h"

#include "core/base/check.h"

namespace troop {

StreamList::StreamList(FrameLog* log, int history) : log_(log), history_(history) {
  TROOP_CHECK(history >= 1, "streams with a history of {} frames", history);
}

StreamList::Index StreamList::Find(StreamId id) const {
  const auto it = index_.find(id);
  return it == index_.end() ? kNone : it->second;
}

// An unknown stream begins at frame 0.
std::uint64_t StreamList::NextFrame(StreamId stream) const {
  const Index index = Find(stream);
  return index == kNone ? 0 : stream_[index].next_frame;
}

// True for the first time in this insert call.
bool StreamList::Pin(Index index) {
  const bool first = stream_[index].call != call_;
  stream_[index].call = call_;
  return first;
}

// Indices of removed streams are reused.
StreamList::Index StreamList::Add(StreamId id) {
  Index index = 0;
  if (free_.empty()) {
    index = Index(stream_.size());
    stream_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  stream_[index].id = id;
  stream_[index].touched = frames_ever_;
  index_.emplace(id, index);
  LinkNewest(index);
  return index;
}

void StreamList::Remove(Index index) {
  Stream& stream = stream_[index];
  ReplaceTail(&stream, 0, {});
  index_.erase(stream.id);
  Unlink(index);
  stream = Stream{};
  free_.push_back(index);
}

void StreamList::Advance(Index index, std::uint64_t next_frame, std::span<const FrameId> tail) {
  ReplaceTail(&stream_[index], next_frame, tail);
  stream_[index].touched = frames_ever_;
  Unlink(index);
  LinkNewest(index);
}

// New references come before the old ones are released, since the two tails may overlap.
void StreamList::ReplaceTail(Stream* stream, std::uint64_t next_frame,
                             std::span<const FrameId> tail) {
  for (const FrameId id : tail) log_->Refer(id);
  for (const FrameId id : stream->tail) log_->Release(id);
  tail_frames_ += std::int64_t(tail.size()) - std::int64_t(stream->tail.size());
  stream->tail.assign(tail.begin(), tail.end());
  stream->next_frame = next_frame;
}

// Unlink and LinkNewest maintain the list, from the oldest to the newest activity.
void StreamList::Unlink(Index index) {
  Stream& stream = stream_[index];
  (stream.older == kNone ? oldest_ : stream_[stream.older].newer) = stream.newer;
  (stream.newer == kNone ? newest_ : stream_[stream.newer].older) = stream.older;
}

void StreamList::LinkNewest(Index index) {
  Stream& stream = stream_[index];
  stream.older = newest_;
  stream.newer = kNone;
  (newest_ == kNone ? oldest_ : stream_[newest_].newer) = index;
  newest_ = index;
}

// From the oldest activity on, streams of the present call excepted.
bool StreamList::EvictSilent() {
  Index index = oldest_;
  while (index != kNone && stream_[index].call == call_) index = stream_[index].newer;
  if (index == kNone) return false;
  Remove(index);
  return true;
}

void StreamList::EvictStale() {
  while (oldest_ != kNone && stream_[oldest_].call != call_ &&
         frames_ever_ - stream_[oldest_].touched > std::uint64_t(log_->capacity())) {
    Remove(oldest_);
  }
}

void StreamList::Adopt(StreamId id, std::uint64_t next_frame, std::span<const FrameId> tail) {
  if (Find(id) == kNone) ReplaceTail(&stream_[Add(id)], next_frame, tail);
}

}  // namespace troop
