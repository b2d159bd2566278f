// InsertWindow: the planning and writing of insert calls.
#include "replay/storage/insert_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace troop {

// ---- Plan ---------------------------------------------------------------------------------------

// Streams are contiguous from the writer's view, so the last frame of each chunk decides.
bool InsertWindow::HasAll(std::span<const ChunkView> chunks) const {
  return !chunks.empty() && std::ranges::all_of(chunks, [this](const ChunkView& chunk) {
    return chunk.first_frame + chunk.frames <= streams_->NextFrame(chunk.stream);
  });
}

// Returns the stream's index and notes that the call uses it. Consecutive chunks and items are
// mostly of one stream, which is found once.
StreamList::Index InsertWindow::Touch(StreamId id) {
  if (!touched_.empty() && id == last_id_) return last_index_;
  const StreamList::Index index = streams_->Find(id);
  if (index == StreamList::kNone) return index;
  last_id_ = id;
  last_index_ = index;
  if (!streams_->Pin(index)) return index;
  // First touch in this call: put the stream's tail into the window.
  if (index >= use_.size()) use_.resize(std::size_t{index} + 1);
  use_[index] = {};
  touched_.push_back(index);
  if ((*streams_)[index].next_frame > 0) OpenTail(index);
  return index;
}

void InsertWindow::OpenRun(StreamList::Index stream, std::uint64_t first_frame, bool knows_start) {
  run_.push_back({.first_frame = first_frame,
                  .begin = std::uint32_t(window_.size()),
                  .before = use_[stream].run,
                  .knows_start = knows_start});
  use_[stream].run = std::uint32_t(run_.size() - 1);
}

// Begins a run with the stream's tail, which new frames may continue.
void InsertWindow::OpenTail(StreamList::Index index) {
  const StreamList::Stream& stream = (*streams_)[index];
  OpenRun(index, stream.next_frame - stream.tail.size(),
          !stream.tail.empty() && log_->entry(stream.tail.front()).first);
  Run& run = run_.back();
  run.count = std::uint32_t(stream.tail.size());
  std::uint32_t episode = run.begin;
  for (const FrameId id : stream.tail) {
    const FrameLog::Entry& entry = log_->entry(id);
    if (entry.first) episode = std::uint32_t(window_.size());
    window_.push_back({id, episode, entry.first != 0, entry.final != 0});
  }
}

// Builds the window: for each stream its tail, then the new frames. Frames get no ids yet.
Status InsertWindow::Plan(std::span<const ChunkView> chunks) {
  streams_->BeginCall();
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
  for (const ChunkView& chunk : chunks_) {
    needed += chunk.frames + std::uint64_t(streams_->history());
  }
  if (needed > std::uint64_t(log_->capacity()) / 2) {
    return ResourceExhausted(
        "replay: insert of {} frames exceeds the limit of {}; send less or raise capacity_items",
        needed, log_->capacity() / 2);
  }
  for (const ChunkView& chunk : chunks_) TROOP_RETURN_IF_ERROR(PlanChunk(chunk));
  return Status::Ok();
}

Status InsertWindow::PlanChunk(const ChunkView& chunk) {
  StreamList::Index index = Touch(chunk.stream);
  if (index == StreamList::kNone) {
    streams_->Add(chunk.stream);
    index = Touch(chunk.stream);
    use_[index].created = true;
  }
  const std::uint32_t newest = use_[index].run;
  const std::uint64_t next = newest == kNoRun ? 0 : run_[newest].next_frame();
  if (chunk.first_frame < next) {
    return InvalidArgument("stream {:#x}: frames [{}, +{}) come again: {} is next", chunk.stream,
                           chunk.first_frame, chunk.frames, next);
  }
  if (newest == kNoRun || chunk.first_frame > next) {
    // A gap in a known stream: its writer ended the episode there. For an unknown or dropped
    // stream, the start of the current episode is unknown.
    const bool knows_start = newest != kNoRun || chunk.first_frame == 0;
    OpenRun(index, chunk.first_frame, knows_start);
  }
  // A stream without a tail begins a new run even if its frames follow.
  use_[index].appended = true;
  AddToRun(chunk);
  return Status::Ok();
}

// The newest run is of the chunk's stream, since chunks are grouped by stream.
void InsertWindow::AddToRun(const ChunkView& chunk) {
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
void InsertWindow::Abandon() {
  for (const StreamList::Index index : touched_) {
    if (use_[index].created) streams_->Remove(index);
  }
  touched_.clear();
  chunks_.clear();
}

// ---- Items --------------------------------------------------------------------------------------

// The stream's run that contains `frame`, searched from its newest run; kNoRun: none does.
std::uint32_t InsertWindow::FindRun(std::uint32_t newest, std::uint64_t frame) const {
  std::uint32_t r = newest;
  while (r != kNoRun && frame < run_[r].first_frame) r = run_[r].before;
  return r == kNoRun || frame >= run_[r].next_frame() ? kNoRun : r;
}

// Finds the item in the window: within one run, within one episode, with its lead.
Result<std::optional<InsertWindow::Located>> InsertWindow::Locate(const Item& item,
                                                                  int lead_asked) {
  const auto refuse = [&item](std::string_view why) {
    return InvalidArgument("item of stream {:#x} at frame {}, length {}: {}", item.stream,
                           item.first_frame, item.length, why);
  };
  const StreamList::Index index = Touch(item.stream);
  const std::uint32_t newest = index == StreamList::kNone ? kNoRun : use_[index].run;
  const std::uint64_t next = newest == kNoRun ? 0 : run_[newest].next_frame();
  if (item.first_frame >= next || next - item.first_frame <= item.length) {
    // If its frames were sent in earlier calls, the writer has no report of their loss since.
    if (index == StreamList::kNone || !use_[index].appended) return std::optional<Located>();
    return refuse(fmt::format("the stream ends before frame {}", next));
  }
  const std::uint32_t r = FindRun(newest, item.first_frame);
  if (r == kNoRun) return std::optional<Located>();
  const Run& run = run_[r];
  const std::uint64_t from = item.first_frame - run.first_frame;
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

// ---- Write --------------------------------------------------------------------------------------

// Tails of the call's streams cannot be evicted for this call.
bool InsertWindow::fits_alone() const {
  std::uint64_t needed = new_frames_;
  for (const StreamList::Index index : touched_) needed += (*streams_)[index].tail.size();
  return needed <= std::uint64_t(log_->capacity());
}

std::size_t InsertWindow::RecordBytes(std::uint32_t items) const {
  return log_->layout().RecordBytes(chunks_.size(), items, new_frames_, new_bytes_);
}

// From here on the call cannot fail.
RecordWriter InsertWindow::Write(std::uint32_t items, SegmentStore::Place* place) {
  const std::size_t bytes = RecordBytes(items);
  *place = log_->store().Append(bytes);
  RecordWriter writer(log_->layout(), place->at, RecordHeader::kInsert, headers_, items, bytes);
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    AddFrames(c, writer.AddChunk(headers_[c], chunks_[c].columns), *place);
  }
  // All frames of the record start live; those without references leave in End.
  const std::size_t live = new_bytes_ + new_frames_ * log_->layout().column_bytes();
  if (live > 0) log_->store().AddLive(place->segment, live);
  streams_->CountReceived(new_frames_);
  return writer;
}

// Adds the frames of a chunk to the log, marks first frames, and links consecutive ones.
void InsertWindow::AddFrames(std::size_t chunk, const ChunkColumns& at,
                             const SegmentStore::Place& place) {
  const std::byte* const base = log_->store().base(place.segment);
  std::vector<FrameId>& ids = log_->store().frames(place.segment);
  std::uint32_t w = chunk_window_[chunk];
  // The previous frame in the window precedes this chunk, unless a run or an episode begins here.
  FrameId before = w > 0 && window_[w - 1].id != 0 && !window_[w].first && window_[w].episode < w
                       ? window_[w - 1].id
                       : 0;
  auto offset = std::uint32_t(at.observation - base);
  std::byte* const marks = place.at + (at.final - base) - place.offset;
  for (std::uint32_t i = 0; i < chunks_[chunk].frames; ++i, ++w) {
    if (window_[w].first) marks[i] |= kFirstMark;
    FrameLog::Entry entry = log_->Describe(at, i, place.segment, &offset);
    entry.references = 1;  // the call's own, until End
    const FrameId id = log_->Add(entry);
    if (before != 0) log_->Link(before, id);
    before = window_[w].final ? 0 : id;
    window_[w].id = id;
    ids.push_back(id);
  }
}

// Updates the tails, then drops the call's own references.
void InsertWindow::End() {
  for (const StreamList::Index index : touched_) {
    if (use_[index].appended) KeepTail(index);
  }
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const std::uint32_t begin = chunk_window_[c];
    for (std::uint32_t w = begin; w < begin + chunks_[c].frames; ++w) log_->Release(window_[w].id);
  }
  touched_.clear();
  chunks_.clear();
  streams_->EvictStale();
}

// The stream keeps the newest frames of its newest run.
void InsertWindow::KeepTail(StreamList::Index stream) {
  const Run& run = run_[use_[stream].run];
  const std::uint32_t end = run.begin + run.count;
  tail_.clear();
  for (std::uint32_t w = end - std::min(run.count, std::uint32_t(streams_->history())); w < end;
       ++w) {
    tail_.push_back(window_[w].id);
  }
  streams_->Advance(stream, run.next_frame(), tail_);
}

}  // namespace troop
