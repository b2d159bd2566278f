// FrameStore: frame entries, streams, and the planning and writing of insert calls.
#include "replay/storage/frame_store.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/check.h"

namespace troop {
namespace {

// Ids are reused when 1/16 of those allocated are free, which keeps the search for one short. A
// larger share would only use more memory.
constexpr std::uint64_t kUnusedShare = 16;

}  // namespace

FrameStore::FrameStore(const Options& options, HugeArray<Entry> entry,
                       HugeArray<std::uint64_t> unused)
    : options_(options),
      capacity_(options.frames),
      inline_action_(options.layout.action_bytes <= sizeof(Entry::action)),
      entry_(std::move(entry)),
      unused_(std::move(unused)),
      store_(options.segment_bytes, options.checksums) {}

std::size_t FrameStore::Bytes(const Options& options) {
  return HugeArray<Entry>::Bytes(std::size_t(options.frames) + 1) +
         HugeArray<std::uint64_t>::Bytes(std::size_t(options.frames) / 64 + 1);
}

// Entry 0 is unused, since id 0 means none.
Result<FrameStore> FrameStore::Make(const Options& options) {
  TROOP_CHECK(options.frames >= 1 && options.history >= 1, "a log of {} frames, history {}",
              options.frames, options.history);
  TROOP_ASSIGN_OR_RETURN(HugeArray<Entry> entry,
                         HugeArray<Entry>::Make(std::size_t(options.frames) + 1));
  TROOP_ASSIGN_OR_RETURN(HugeArray<std::uint64_t> unused,
                         HugeArray<std::uint64_t>::Make(std::size_t(options.frames) / 64 + 1));
  return FrameStore(options, std::move(entry), std::move(unused));
}

FrameStore::FrameId FrameStore::Allocate() {
  if (unused_count_ <= fresh_ / kUnusedShare && fresh_ < last_id()) return FrameId(++fresh_);
  TROOP_CHECK(unused_count_ > 0, "no room was made for a frame");
  // Cyclic search from cursor_ for the next set bit.
  const std::uint64_t words = fresh_ / 64 + 1;
  std::uint64_t word = cursor_ / 64;
  std::uint64_t left = unused_[word] >> (cursor_ % 64) << (cursor_ % 64);
  while (left == 0) {
    word = word + 1 < words ? word + 1 : 0;
    left = unused_[word];
  }
  const std::uint64_t id = word * 64 + std::uint64_t(std::countr_zero(left));
  unused_[word] &= ~(std::uint64_t{1} << (id % 64));
  --unused_count_;
  cursor_ = id < fresh_ ? id + 1 : 1;
  return FrameId(id);
}

// Live bytes of its segment decrease, which may free the segment.
void FrameStore::Free(FrameId id) {
  const Entry& entry = entry_[id];
  store_.DropLive(entry.segment, FrameBytes(entry));
  unused_[id / 64] |= std::uint64_t{1} << (id % 64);
  ++unused_count_;
}

// Links between an item's frames stay valid: the item references all of them.
void FrameStore::Refer(FrameId id, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    Entry& entry = entry_[id];
    ++entry.references;
    id = entry.next;
  }
}

// Reads the link before the entry may be freed.
void FrameStore::Release(FrameId id, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    Entry& entry = entry_[id];
    const FrameId next = entry.next;
    if (--entry.references == 0) Free(id);
    id = next;
  }
}

// The new copy is counted before the old one is dropped, which may free the old segment.
void FrameStore::Relocate(FrameId id, const SegmentStore::Place& record,
                          const std::byte* observation, const std::byte* action) {
  Entry& entry = entry_[id];
  const std::byte* const base = store_.base(record.segment);
  const SegmentStore::Index before = entry.segment;
  const std::size_t bytes = FrameBytes(entry);
  entry.segment = record.segment;
  entry.offset = std::uint32_t(observation - base);
  if (!inline_action_) entry.action = std::uint32_t(action - base);
  store_.AddLive(record.segment, bytes);
  store_.DropLive(before, bytes);
}

// ---- Streams ------------------------------------------------------------------------------------

std::uint64_t FrameStore::NextFrame(StreamId stream) const {
  const auto it = index_.find(stream);
  return it == index_.end() ? 0 : stream_[it->second].next_frame;
}

// Streams are contiguous from the writer's view, so the last frame of each chunk decides.
bool FrameStore::HasAll(std::span<const ChunkView> chunks) const {
  return !chunks.empty() && std::ranges::all_of(chunks, [this](const ChunkView& chunk) {
    return chunk.first_frame + chunk.frames <= NextFrame(chunk.stream);
  });
}

// Unlink and LinkNewest maintain the list of streams, from the oldest to the newest activity.
void FrameStore::Unlink(std::uint32_t index) {
  Stream& stream = stream_[index];
  (stream.older == kNoStream ? oldest_ : stream_[stream.older].newer) = stream.newer;
  (stream.newer == kNoStream ? newest_ : stream_[stream.newer].older) = stream.older;
}

void FrameStore::LinkNewest(std::uint32_t index) {
  Stream& stream = stream_[index];
  stream.older = newest_;
  stream.newer = kNoStream;
  (newest_ == kNoStream ? oldest_ : stream_[newest_].newer) = index;
  newest_ = index;
}

// Indices of dropped streams are reused.
std::uint32_t FrameStore::Create(StreamId id) {
  std::uint32_t index = 0;
  if (free_stream_.empty()) {
    index = std::uint32_t(stream_.size());
    stream_.emplace_back();
  } else {
    index = free_stream_.back();
    free_stream_.pop_back();
  }
  stream_[index].id = id;
  stream_[index].touched = frames_ever_;
  index_.emplace(id, index);
  LinkNewest(index);
  return index;
}

// Drops a stream: its tail loses one reference each. Later items over these frames expire.
void FrameStore::Forget(std::uint32_t index) {
  Stream& stream = stream_[index];
  for (const FrameId id : stream.tail) {
    if (--entry_[id].references == 0) Free(id);
  }
  tail_frames_ -= std::int64_t(stream.tail.size());
  index_.erase(stream.id);
  Unlink(index);
  stream = Stream{};
  free_stream_.push_back(index);
}

bool FrameStore::ForgetSilentStream() {
  // Streams of the current call are in use.
  std::uint32_t index = oldest_;
  while (index != kNoStream && stream_[index].call == call_) index = stream_[index].newer;
  if (index == kNoStream) return false;
  Forget(index);
  return true;
}

// ---- Insert call: plan --------------------------------------------------------------------------

// Returns the stream's index and notes that the call uses it.
std::uint32_t FrameStore::Touch(StreamId id) {
  const auto it = index_.find(id);
  if (it == index_.end()) return kNoStream;
  Stream& stream = stream_[it->second];
  // First touch in this call: reset the call's fields, and put the stream's tail into the window.
  if (stream.call != call_) {
    stream.call = call_;
    stream.run = kNoRun;
    stream.appended = stream.created = false;
    touched_.push_back(it->second);
    if (stream.next_frame > 0) OpenRun(it->second, true);
  }
  return it->second;
}

// Begins a run in the window, with the stream's tail if it continues the stored frames.
void FrameStore::OpenRun(std::uint32_t index, bool with_tail) {
  Stream& stream = stream_[index];
  Run run{.stream = index,
          .first_frame = stream.next_frame,
          .begin = std::uint32_t(window_.size()),
          .before = stream.run,
          .knows_start = true};
  if (with_tail) {
    run.count = std::uint32_t(stream.tail.size());
    run.first_frame -= run.count;
    run.knows_start = run.count > 0 && entry_[stream.tail.front()].first;
    std::uint32_t episode = run.begin;
    for (const FrameId id : stream.tail) {
      const Entry& entry = entry_[id];
      if (entry.first) episode = std::uint32_t(window_.size());
      window_.push_back({id, episode, entry.first != 0, entry.final != 0});
    }
  }
  stream.run = std::uint32_t(run_.size());
  run_.push_back(run);
}

// Builds the call's window: for each stream its tail, then the new frames. Frames get no ids yet.
Status FrameStore::Plan(std::span<const ChunkView> chunks) {
  ++call_;
  chunks_.assign(chunks.begin(), chunks.end());
  // Group chunks by stream, so that a stream's frames are one run of the window.
  const auto by_stream = [](const ChunkView& a, const ChunkView& b) { return a.stream < b.stream; };
  if (!std::ranges::is_sorted(chunks_, by_stream)) std::ranges::stable_sort(chunks_, by_stream);
  headers_.clear();
  chunk_window_.clear();
  touched_.clear();
  run_.clear();
  window_.clear();
  new_frames_ = new_bytes_ = 0;
  std::uint64_t needed = 0;
  for (const ChunkView& chunk : chunks_) needed += chunk.frames + std::uint64_t(options_.history);
  if (needed > std::uint64_t(capacity_) / 2) {
    return ResourceExhausted(
        "replay: insert of {} frames exceeds the limit of {}; send less or raise capacity_items",
        needed, capacity_ / 2);
  }
  for (const ChunkView& chunk : chunks_) {
    std::uint32_t index = Touch(chunk.stream);
    if (index == kNoStream) {
      Create(chunk.stream);
      index = Touch(chunk.stream);
      stream_[index].created = true;
    }
    Stream& stream = stream_[index];
    const std::uint64_t next =
        stream.run == kNoRun ? 0 : run_[stream.run].first_frame + run_[stream.run].count;
    if (chunk.first_frame < next) {
      return InvalidArgument("stream {:#x}: frames [{}, +{}) come again: {} is next", chunk.stream,
                             chunk.first_frame, chunk.frames, next);
    }
    const bool gap = stream.run == kNoRun || chunk.first_frame > next;
    if (gap) {
      // A gap in a known stream: its writer ended the episode there. For an unknown or dropped
      // stream, the start of the current episode is unknown.
      const bool known = stream.run != kNoRun;
      OpenRun(index, false);
      run_[stream.run].first_frame = chunk.first_frame;
      run_[stream.run].knows_start = known || chunk.first_frame == 0;
    }
    // A stream without a tail begins a new run even if its frames follow.
    stream.appended = true;
    AddToRun(chunk);
  }
  return Status::Ok();
}

void FrameStore::AddToRun(const ChunkView& chunk) {
  // Each frame inherits its episode's start from the previous one, unless that was final.
  Run& run = run_.back();
  chunk_window_.push_back(std::uint32_t(window_.size()));
  headers_.push_back({chunk.stream, chunk.first_frame, chunk.frames, chunk.encoded_bytes});
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    const auto at = std::uint32_t(window_.size());
    const bool first = run.count == 0 ? run.knows_start : window_.back().final;
    const std::uint32_t episode = first || run.count == 0 ? at : window_.back().episode;
    window_.push_back({0, episode, first, chunk.columns.final[i] != std::byte{0}});
    ++run.count;
  }
  new_frames_ += chunk.frames;
  new_bytes_ += chunk.encoded_bytes;
}

// Nothing was written yet, so only streams that the call created are removed.
void FrameStore::Abandon() {
  for (const std::uint32_t index : touched_) {
    if (stream_[index].created) Forget(index);
  }
  touched_.clear();
  chunks_.clear();
}

// Tails of the call's streams cannot be evicted for this call.
bool FrameStore::fits_alone() const {
  std::uint64_t needed = new_frames_;
  for (const std::uint32_t index : touched_) needed += stream_[index].tail.size();
  return needed <= std::uint64_t(capacity_);
}

// Finds the item in the window: within one run, within one episode, with its lead.
Result<std::optional<FrameStore::Located>> FrameStore::Locate(const Item& item, int lead_asked) {
  const auto refuse = [&item](std::string_view why) {
    return InvalidArgument("item of stream {:#x} at frame {}, length {}: {}", item.stream,
                           item.first_frame, item.length, why);
  };
  const std::uint32_t index = Touch(item.stream);
  const std::uint32_t newest = index == kNoStream ? kNoRun : stream_[index].run;
  const std::uint64_t next = newest == kNoRun ? 0 : run_[newest].first_frame + run_[newest].count;
  if (item.first_frame >= next || next - item.first_frame <= item.length) {
    // If its frames were sent in earlier calls, the writer cannot know that they were lost since.
    if (index == kNoStream || !stream_[index].appended) return std::optional<Located>();
    return refuse(fmt::format("the stream ends before frame {}", next));
  }
  // Find the run that contains the item's first frame.
  std::uint32_t r = newest;
  while (r != kNoRun && item.first_frame < run_[r].first_frame) r = run_[r].before;
  if (r == kNoRun) return std::optional<Located>();
  const Run& run = run_[r];
  const std::uint64_t from = item.first_frame - run.first_frame;
  if (from >= run.count) return std::optional<Located>();
  if (run.count - from <= item.length)
    return std::optional<Located>();  // spans a gap of lost frames
  const auto at = run.begin + std::uint32_t(from);
  if (window_[at + item.length].episode > at) return refuse("it crosses the end of an episode");
  const std::uint32_t episode = window_[at].episode;
  const std::uint32_t lead = std::min(std::uint32_t(lead_asked), at - episode);
  // The start of the episode was evicted: the lead is incomplete here.
  const bool cut = episode == run.begin && !run.knows_start;
  if (cut && lead < std::uint32_t(lead_asked)) return std::optional<Located>();
  return std::optional<Located>({at - lead, lead});
}

// ---- Insert call: write -------------------------------------------------------------------------

std::size_t FrameStore::RecordBytes(std::uint32_t items) const {
  return options_.layout.RecordBytes(chunks_.size(), items, new_frames_, new_bytes_);
}

// From here on the call cannot fail.
RecordWriter FrameStore::Write(std::uint32_t items, SegmentStore::Place* place) {
  const std::size_t bytes = RecordBytes(items);
  *place = store_.Append(bytes);
  RecordWriter writer(options_.layout, place->at, RecordHeader::kInsert, headers_, items, bytes);
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    FillEntries(chunks_[c], writer.AddChunk(headers_[c], chunks_[c].columns), *place,
                &chunk_window_[c]);
  }
  // All frames of the record start live; those without references leave in End.
  const std::size_t live = new_bytes_ + new_frames_ * options_.layout.column_bytes();
  if (live > 0) store_.AddLive(place->segment, live);
  frames_ever_ += new_frames_;
  return writer;
}

// Allocates and fills the entries of a chunk, marks first frames, and links consecutive ones.
void FrameStore::FillEntries(const ChunkView& chunk, const ChunkColumns& at,
                             const SegmentStore::Place& place, std::uint32_t* window) {
  const std::byte* const base = store_.base(place.segment);
  std::vector<std::uint32_t>& ids = store_.frames(place.segment);
  const RecordLayout& layout = options_.layout;
  std::uint32_t w = *window;
  // The previous frame in the window precedes this chunk, unless a run or an episode begins here.
  FrameId before = w > 0 && window_[w - 1].id != 0 && !window_[w].first && window_[w].episode < w
                       ? window_[w - 1].id
                       : 0;
  auto offset = std::uint32_t(at.observation - base);
  std::byte* const marks = place.at + (at.final - base) - place.offset;
  for (std::uint32_t i = 0; i < chunk.frames; ++i, ++w) {
    if (window_[w].first) marks[i] |= kFirstMark;
    const FrameId id = Allocate();
    Entry entry{.reward = Load<float>(at.reward, i), .discount = Load<float>(at.discount, i)};
    entry.references = 1;  // the call's own, until End
    entry.first = window_[w].first;
    entry.final = window_[w].final;
    entry.segment = place.segment;
    entry.offset = offset;
    entry.bytes = layout.has_codec ? Load<std::uint32_t>(at.frame_bytes, i)
                                   : std::uint32_t(layout.observation_bytes);
    offset += entry.bytes;
    const std::byte* const action = at.action + i * layout.action_bytes;
    if (inline_action_) {
      std::memcpy(&entry.action, action, layout.action_bytes);
    } else {
      entry.action = std::uint32_t(action - base);
    }
    entry_[id] = entry;
    if (before != 0) entry_[before].next = id;
    before = window_[w].final ? 0 : id;
    window_[w].id = id;
    ids.push_back(id);
  }
}

// Updates the tails, then drops the call's own references; frames that neither an item nor a tail
// uses are freed. Streams silent for a whole log of frames are dropped.
void FrameStore::End() {
  for (const std::uint32_t index : touched_) {
    if (stream_[index].appended) KeepTail(index);
  }
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const std::uint32_t begin = chunk_window_[c];
    for (std::uint32_t w = begin; w < begin + chunks_[c].frames; ++w) {
      if (--entry_[window_[w].id].references == 0) Free(window_[w].id);
    }
  }
  touched_.clear();
  chunks_.clear();
  while (oldest_ != kNoStream && stream_[oldest_].call != call_ &&
         frames_ever_ - stream_[oldest_].touched > std::uint64_t(capacity_)) {
    Forget(oldest_);
  }
}

// Replaces a stream's tail with its newest frames. New references come before the old ones are
// released, since the two may overlap.
void FrameStore::KeepTail(std::uint32_t index) {
  Stream& stream = stream_[index];
  const Run& run = run_[stream.run];
  const std::uint32_t count = std::min(run.count, std::uint32_t(options_.history));
  const std::uint32_t begin = run.begin + run.count - count;
  for (std::uint32_t i = 0; i < count; ++i) ++entry_[window_[begin + i].id].references;
  for (const FrameId id : stream.tail) {
    if (--entry_[id].references == 0) Free(id);
  }
  tail_frames_ += std::int64_t(count) - std::int64_t(stream.tail.size());
  stream.tail.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) stream.tail[i] = window_[begin + i].id;
  stream.next_frame = run.first_frame + run.count;
  stream.touched = frames_ever_;
  Unlink(index);
  LinkNewest(index);
}

// ---- Recovery -----------------------------------------------------------------------------------

// Larger arrays replace the empty ones.
Status FrameStore::Reserve(std::int64_t frames) {
  TROOP_CHECK(fresh_ == 0, "room for {} frames besides {}", frames, fresh_);
  if (frames <= capacity_) return Status::Ok();
  const auto n = std::size_t(frames);
  TROOP_ASSIGN_OR_RETURN(entry_, HugeArray<Entry>::Make(n + 1));
  TROOP_ASSIGN_OR_RETURN(unused_, HugeArray<std::uint64_t>::Make(n / 64 + 1));
  return Status::Ok();
}

// References follow with the items and tails.
FrameStore::FrameId FrameStore::Adopt(const Recovered& frame) {
  const FrameId id = Allocate();
  entry_[id] = frame.entry;
  store_.Revive(frame.segment, FrameBytes(frame.entry));
  store_.frames(frame.segment)[frame.place] = id;
  return id;
}

// The tail holds one reference per frame, as in KeepTail.
void FrameStore::AdoptStream(StreamId id, std::uint64_t next_frame, std::span<const FrameId> tail) {
  if (index_.contains(id)) return;
  Stream& stream = stream_[Create(id)];
  stream.next_frame = next_frame;
  stream.tail.assign(tail.begin(), tail.end());
  tail_frames_ += std::int64_t(tail.size());
  for (const FrameId frame : tail) ++entry_[frame].references;
}

}  // namespace troop
