// TableOptions: refusal of invalid options, and the sizes that follow from valid ones.
#include "replay/table/table_options.h"

#include <algorithm>
#include <cmath>

#include "replay/items/item_slots.h"
#include "replay/storage/huge_array.h"

namespace troop {
namespace {

constexpr std::size_t kSegmentBytesMax = ~std::uint32_t{0};  // offsets are 32 bits
// Ids are 32 bits, id 0 means none, and FrameLog allocates one entry more.
constexpr std::int64_t kFramesMax = (std::int64_t{1} << 31) - 2;

// Compression ratios of Atari frames with a dictionary, rounded down (frame_codec.h).
double UsualRatio(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return 1;
    case Codec::kLz4:
      return 8;
    case Codec::kZstd:
      return 20;
  }
  return 1;
}

// Bytes of one frame in the log, at the codec's usual ratio.
std::size_t UsualFrameBytes(const RecordLayout& layout, Codec codec) {
  return std::size_t(double(layout.observation_bytes) / UsualRatio(codec)) + layout.column_bytes();
}

// Segment size: small relative to the log, so that little dead memory waits to be freed, and whole
// huge pages if the log is large enough.
std::size_t SegmentBytes(const TableOptions& options, std::size_t log_bytes) {
  if (options.segment_bytes > 0) return options.segment_bytes;
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  std::size_t bytes = std::clamp<std::size_t>(log_bytes / 64, 64 << 10, 16 << 20);
  if (log_bytes >= 12 * kHuge) bytes = (bytes + kHuge - 1) / kHuge * kHuge;
  if (options.bytes_max > 0) bytes = std::min(bytes, options.bytes_max / 32);
  return RoundToPages(bytes);
}

}  // namespace

// Later code relies on these limits.
Status TableOptions::Check() const {
  TROOP_RETURN_IF_ERROR(CheckView(view));
  if (capacity_items < 1 || capacity_items > kItemsMax) {
    return InvalidArgument("replay: capacity_items is {}, must be in [1, {}]", capacity_items,
                           kItemsMax);
  }
  if (min_items < 1 || min_items > capacity_items) {
    return InvalidArgument("replay: min_items is {}, must be in [1, capacity_items ({})]",
                           min_items, capacity_items);
  }
  if (!(priority_epsilon >= 0 && std::isfinite(priority_epsilon))) {
    return InvalidArgument("replay: priority_epsilon is {}, must be finite and >= 0",
                           priority_epsilon);
  }
  if (first_generation == 0) {
    return InvalidArgument("replay: first_generation is 0, must be >= 1: key 0 marks no item");
  }
  if (trim_every_samples < 0 || max_times_sampled < 0 ||
      max_times_sampled > std::int64_t{0xFFFFFFFF}) {
    return InvalidArgument(
        "replay: trim_every_samples is {}, must be >= 0; max_times_sampled is {}, must be in [0, "
        "2^32)",
        trim_every_samples, max_times_sampled);
  }
  if (reservoir && trim_every_samples > 0) {
    return InvalidArgument(
        "replay: remover reservoir excludes a soft capacity; set trim_every_samples to 0");
  }
  // A replica learns of evictions only through the number of the oldest item.
  if (feed && (remover.kind != Selector::Kind::kFifo || reservoir || max_times_sampled > 0 ||
               max_policy_age > 0)) {
    return InvalidArgument(
        "replay: GPU replay supports eviction by age only; set remover to fifo, max_times_sampled "
        "and max_policy_age to 0");
  }
  if (frames < 0 || frames > kFramesMax) {
    return InvalidArgument("replay: the log has {} frames, must be in [0, {}]", frames, kFramesMax);
  }
  if (segment_bytes > kSegmentBytesMax) {
    return InvalidArgument("replay: segment_bytes is {}, must be at most {}", segment_bytes,
                           kSegmentBytesMax);
  }
  if (frames > 0 && frames / view.frames_max() < min_items) {
    return InvalidArgument(
        "replay: the log has {} frames, too few for min_items ({}) of up to {} frames each; raise "
        "it",
        frames, min_items, view.frames_max());
  }
  if (trajectory.observation.bytes() == 0) {
    return InvalidArgument("replay: the observation has 0 bytes");
  }
  return Status::Ok();
}

std::int64_t TableOptions::slots() const {
  if (trim_every_samples == 0) return capacity_items;
  return capacity_items + std::max<std::int64_t>(1, capacity_items / 8);
}

FrameLog::Options TableOptions::LogOptions() const {
  const RecordLayout layout(trajectory, codec != Codec::kNone);
  // Transitions: one new frame per item, plus one per 8 items (ends of episodes). Sequences: as if
  // only the burn-in were shared. 1/32 more for the frames that streams keep.
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  const std::int64_t hard = slots();
  const std::int64_t full = sequence ? hard * (view.length_max + 1) : hard * 9 / 8;
  // min_items must fit even if they share no frame.
  const std::int64_t least = min_items * view.frames_max();
  std::int64_t log_frames = std::max(full, least) * 33 / 32;
  // Inserts in flight must fit too, however small the capacity: 64 MiB of frames.
  const std::size_t frame_bytes = layout.observation_bytes + layout.column_bytes();
  const auto frames_min =
      std::clamp<std::int64_t>(std::int64_t((std::size_t{64} << 20) / frame_bytes), 4096, 65536);
  log_frames = std::min(frames > 0 ? frames : std::max(log_frames, frames_min), kFramesMax);
  return {.layout = layout,
          .frames = log_frames,
          .segment_bytes = SegmentBytes(*this, LogBytes(log_frames)),
          .checksums = checksums};
}

SelectorPair::Options TableOptions::SelectorOptions() const {
  return {.sampler = sampler,
          .remover = remover,
          .slots = slots(),
          .remover_numbers = {.run_seed = seed,
                              .purpose = Purpose::kReplaySampling,
                              .index = incarnation,
                              .episode = ~std::uint64_t{0}}};
}

std::size_t TableOptions::LogBytes(std::int64_t log_frames) const {
  const RecordLayout layout(trajectory, codec != Codec::kNone);
  return std::size_t(log_frames) * UsualFrameBytes(layout, codec) +
         (has_item_records() ? std::size_t(slots()) * layout.item_bytes() : 0);
}

}  // namespace troop
