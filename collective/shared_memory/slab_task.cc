// Implements operations in shared memory, block by block.
#include "collective/shared_memory/slab_task.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace troop {
namespace {

void Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

// Start of slice `place` of `count` in a block of `bytes`, aligned to cache lines.
std::size_t SliceBegin(std::size_t bytes, int place, int count) {
  if (place == count) return bytes;
  return bytes * std::size_t(place) / std::size_t(count) / kAlignment * kAlignment;
}

}  // namespace

SlabTask::SlabTask(const OpHeader& header, const Op& op, std::span<const std::byte> in,
                   std::span<std::byte> out)
    : header_(header), op_(op), in_(in), out_(out) {}

// Sets the size of a block: in operations with one piece per rank, the pieces share a half.
void SlabTask::Plan(int count) {
  const bool pieces = op_.kind == OpKind::kReduceScatter || op_.kind == OpKind::kAllToAll;
  switch (op_.kind) {
    case OpKind::kAllReduce:
    case OpKind::kAllGather:
      piece_ = in_.size();
      break;
    case OpKind::kReduceScatter:
    case OpKind::kBroadcast:
      piece_ = out_.size();
      break;
    case OpKind::kAllToAll:
      piece_ = in_.size() / std::size_t(count);
      break;
    default:
      piece_ = 0;
  }
  block_ = Slab::kHalfBytes;
  if (pieces) block_ = block_ / std::size_t(count) / kAlignment * kAlignment;
  sliced_ = op_.kind == OpKind::kAllReduce && count > 1 && piece_ > kOneStepBytes;
}

// Per block: stage and post, wait for the others, then consume; with slices, sum and post in
// between.
bool SlabTask::Step(Slab& slab, Phases* phases) {
  if (ended_ || mismatch_) return false;
  if (awaited_ == 0) {
    if (block_ == 0) Plan(slab.count());
    Begin(slab, phases);
    return true;
  }
  // Some rank has not posted this phase.
  if (slab.FirstUnposted(awaited_) >= 0) return false;
  if (!checked_ && !CheckHeaders(slab)) return true;
  // First phase of a sliced all-reduce: sum our slice, post again.
  if (sliced_ && !adding_) {
    AddSlice(slab);
    adding_ = true;
    awaited_ = ++phases->last;
    slab.Post(awaited_);
    return true;
  }
  if (sliced_) {
    CopySlices(slab);
    adding_ = false;
  } else {
    Consume(slab);
  }
  offset_ += length_;
  if (offset_ >= piece_) {
    ended_ = true;
  } else {
    Begin(slab, phases);
  }
  return true;
}

// Stages the next block. The first one carries the operation's header.
void SlabTask::Begin(Slab& slab, Phases* phases) {
  length_ = std::min(block_, piece_ - offset_);
  phase_ = ++phases->last;
  Stage(slab);
  if (!checked_) slab.Header(slab.self(), phase_) = EncodeOpHeader(header_);
  awaited_ = phase_;
  slab.Post(phase_);
}

// Copies this rank's part of the block to its half, except for what only this rank reads.
void SlabTask::Stage(Slab& slab) {
  std::byte* to = slab.Staging(slab.self(), phase_).data();
  switch (op_.kind) {
    case OpKind::kAllReduce:
      for (int place = 0; sliced_ && place < slab.count(); ++place) {
        if (place == slab.self()) continue;  // other ranks do not read our own slice
        const std::size_t begin = SliceBegin(length_, place, slab.count());
        Copy(to + begin, in_.data() + offset_ + begin,
             SliceBegin(length_, place + 1, slab.count()) - begin);
      }
      if (!sliced_) Copy(to, in_.data() + offset_, length_);
      break;
    case OpKind::kAllGather:
      Copy(to, in_.data() + offset_, length_);
      break;
    case OpKind::kBroadcast:
      if (slab.self() == op_.peer) Copy(to, in_.data() + offset_, length_);
      break;
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
      for (int place = 0; place < slab.count(); ++place) {
        if (place == slab.self()) continue;
        Copy(to + std::size_t(place) * block_, in_.data() + std::size_t(place) * piece_ + offset_,
             length_);
      }
      break;
    default:
      break;
  }
}

// Copies or reduces the staged blocks of all ranks into `out`.
void SlabTask::Consume(Slab& slab) {
  std::vector<std::span<const std::byte>> sources;
  for (int place = 0; place < slab.count(); ++place) {
    const std::byte* staged = slab.Staging(place, phase_).data();
    const bool own = place == slab.self();
    switch (op_.kind) {
      case OpKind::kAllReduce:
        sources.push_back({staged, length_});
        break;
      case OpKind::kReduceScatter:
        sources.push_back({own ? in_.data() + std::size_t(place) * piece_ + offset_
                               : staged + std::size_t(slab.self()) * block_,
                           length_});
        break;
      case OpKind::kAllGather:
        Copy(out_.data() + std::size_t(place) * piece_ + offset_,
             own ? in_.data() + offset_ : staged, length_);
        break;
      case OpKind::kAllToAll:
        Copy(out_.data() + std::size_t(place) * piece_ + offset_,
             own ? in_.data() + std::size_t(place) * piece_ + offset_
                 : staged + std::size_t(slab.self()) * block_,
             length_);
        break;
      case OpKind::kBroadcast:
        if (place == op_.peer) {
          Copy(out_.data() + offset_, own ? in_.data() + offset_ : staged, length_);
        }
        break;
      default:
        break;
    }
  }
  if (!sources.empty()) AddAll(sources, nullptr, out_.data() + offset_);
}

// Sums our slice over all ranks, into our own result and into the shared half for the others. A
// slab has at least two ranks.
void SlabTask::AddSlice(Slab& slab) {
  const std::size_t begin = SliceBegin(length_, slab.self(), slab.count());
  const std::size_t bytes = SliceBegin(length_, slab.self() + 1, slab.count()) - begin;
  std::vector<std::span<const std::byte>> sources;
  for (int place = 0; place < slab.count(); ++place) {
    const std::byte* from =
        place == slab.self() ? in_.data() + offset_ : slab.Staging(place, phase_).data();
    sources.push_back({from + begin, bytes});
  }
  AddAll(sources, slab.Shared().data() + begin, out_.data() + offset_ + begin);
}

// Copies the other ranks' sums from the shared half.
void SlabTask::CopySlices(Slab& slab) {
  for (int place = 0; place < slab.count(); ++place) {
    if (place == slab.self()) continue;
    const std::size_t begin = SliceBegin(length_, place, slab.count());
    Copy(out_.data() + offset_ + begin, slab.Shared().data() + begin,
         SliceBegin(length_, place + 1, slab.count()) - begin);
  }
}

// Sums in rank order, in pieces that fit into the first-level cache; through a scratch buffer,
// because `out` may be one of the sources.
void SlabTask::AddAll(std::span<const std::span<const std::byte>> sources, std::byte* shared,
                      std::byte* out) {
  const std::size_t bytes = sources[0].size();
  const std::size_t element = DTypeSize(header_.dtype);
  // Allocated once per task.
  if (shared == nullptr && sum_.size() == 0) sum_ = MutableBuffer(kSliceBytes);
  for (std::size_t at = 0; at < bytes; at += kSliceBytes) {
    const std::size_t part = std::min(kSliceBytes, bytes - at);
    std::byte* sum = shared == nullptr ? sum_.data() : shared + at;
    const std::byte* left = sources[0].data() + at;
    for (std::size_t i = 1; i < sources.size(); ++i) {
      Reduce({.reduction = op_.reduction,
              .dtype = header_.dtype,
              .n = std::int64_t(part / element),
              .a = left,
              .b = sources[i].data() + at,
              .out = sum});
      left = sum;
    }
    Copy(out + at, left, part);
  }
}

// Compares the operations of all ranks, once per task.
bool SlabTask::CheckHeaders(Slab& slab) {
  checked_ = true;
  for (int place = 0; place < slab.count(); ++place) {
    Result<OpHeader> theirs = DecodeOpHeader(slab.Header(place, phase_));
    if (theirs.ok() && *theirs == header_) continue;
    mismatch_.emplace(Mismatch{place, std::move(theirs)});
    return false;
  }
  return true;
}

}  // namespace troop
