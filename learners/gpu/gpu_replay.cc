// Implements the learner's replica of the replay table in GPU memory.

#include "learners/gpu/gpu_replay.h"

#ifdef TROOP_HAS_CUDA

#include <algorithm>
#include <cstring>

namespace troop {

// The table is made with the sizes of the first delta.
GpuReplay::GpuReplay(cuda::Device* device, const TrainingConfig& config, const EnvSpec& env,
                     std::optional<PictureStack> pictures, std::int64_t batch)
    : device_(device),
      batch_(batch),
      slots_max_(2 * std::uint64_t(config.replay.capacity_items) +
                 4096),  // with slack over the capacity
      copies_(*device) {
  options_.dtype = env.observation.dtype;
  // Frames are stored singly; the device stacks them when it samples.
  options_.pixels = pictures ? pictures->height * pictures->width : 1;
  options_.channels = env.observation.shape.elements() / options_.pixels;
  options_.stack = config.frame_stack;
  options_.steps = config.n_step;
  options_.alpha = config.replay.alpha;
  options_.beta = config.replay.beta;
  options_.priority_epsilon = config.replay.priority_epsilon;
  options_.seed = std::uint64_t(config.seed);
}

bool GpuReplay::Anew(const SampleBatch& batch) {
  return std::ranges::any_of(batch.experience, [](const auto& e) { return e->anew; });
}

// In order of arrival: later deltas refer to earlier frames.
Status GpuReplay::Take(const SampleBatch& batch, std::uint64_t updates, cuda::Stream& stream) {
  for (const auto& experience : batch.experience) {
    TROOP_RETURN_IF_ERROR(TakeOne(*experience, updates, stream));
  }
  return Status::Ok();
}

// Applies one delta, in a new table if the sizes have changed: evictions first, then additions.
Status GpuReplay::TakeOne(const DecodedDelta& experience, std::uint64_t updates,
                          cuda::Stream& stream) {
  const ReplicaSizes& sizes = experience.sizes;
  const bool fits = table_ != nullptr && std::uint64_t(options_.slots) == sizes.slots &&
                    std::uint64_t(options_.places) == sizes.frames;
  if (!fits && !experience.anew) {
    return DataLoss("a delta for {} slots and {} frames does not fit the replica's {} and {}",
                    sizes.slots, sizes.frames, options_.slots, options_.places);
  }
  left_.clear();
  if (!fits) {
    // The stream may still use the old table.
    stream.Synchronize();
    TROOP_RETURN_IF_ERROR(MakeTable(sizes, updates));
  }
  Forget(experience.anew ? ~std::uint64_t{0} : experience.oldest);
  return Append(experience, stream);
}

// The sizes come from the network, so they are validated before memory is allocated.
Status GpuReplay::MakeTable(const ReplicaSizes& sizes, std::uint64_t updates) {
  // Frame places are 32-bit numbers on the device.
  constexpr std::uint64_t kFramesMax = std::uint64_t{1} << 31;
  if (sizes.slots < 1 || sizes.frames < 1 || sizes.slots > slots_max_ ||
      sizes.frames >= kFramesMax) {
    return DataLoss("a delta for {} slots and {} frames is invalid; at most {} slots are possible",
                    sizes.slots, sizes.frames, slots_max_);
  }
  options_.slots = std::int64_t(sizes.slots);
  options_.places = std::int64_t(sizes.frames);
  options_.first_draw = std::int64_t(updates);
  table_.reset();  // frees its memory before the new one is allocated
  table_ = std::make_unique<cuda::DeviceTable>(*device_, options_, batch_);
  ++tables_;
  arrived_.clear();
  held_.assign(sizes.slots, {});
  if (device_->ok()) return Status::Ok();
  return Unavailable("{}: {}; lower replay.capacity_items, or set replay.placement = \"host\"",
                     device_->info().name, device_->error());
}

// Evicts the items numbered below `oldest`, collecting their slots in left_.
void GpuReplay::Forget(std::uint64_t oldest) {
  while (!arrived_.empty() && arrived_.front().number < oldest) {
    left_.push_back(arrived_.front().slot);
    arrived_.pop_front();
  }
}

// Converts the delta to device structures, then copies it in chunks of at most append_max elements.
Status GpuReplay::Append(const DecodedDelta& experience, cuda::Stream& stream) {
  const TableDelta& feed = experience.feed;
  frames_.clear();
  items_.clear();
  for (std::size_t i = 0; i < feed.place.size(); ++i) {
    cuda::DeviceFrame frame{.place = std::int32_t(feed.place[i]),
                            .reward = feed.reward[i],
                            .discount = feed.discount[i]};
    std::memcpy(&frame.action, feed.action.data() + i * sizeof frame.action, sizeof frame.action);
    frames_.push_back(frame);
  }
  for (std::size_t i = 0; i < feed.key.size(); ++i) {
    const auto slot = std::int32_t(feed.key[i] & 0xFFFFFFFFu);
    items_.push_back({slot, feed.lead[i], feed.length[i], feed.priority[i]});
    // Only the first replacement of an update counts: it is the item that could be sampled.
    replaced_.emplace(slot, held_[std::size_t(slot)]);
    held_[std::size_t(slot)] = {std::uint32_t(feed.key[i] >> 32), feed.policy_version[i]};
    arrived_.push_back({feed.number[i], slot});
  }
  // Order: evicted slots, then frames, then items, which refer to both.
  const auto at_once = std::size_t(options_.append_max);
  const std::span<const std::byte> pixels =
      experience.observation.empty() ? std::span<const std::byte>()
                                     : std::span<const std::byte>(experience.observation.bytes());
  const std::size_t frame_bytes = frames_.empty() ? 0 : pixels.size() / frames_.size();
  std::size_t left = 0, frame = 0, item = 0, place = 0;
  bool good = true;
  do {
    const auto take = [at_once](std::size_t* at, std::size_t size) {
      const std::size_t begin = *at;
      *at = std::min(size, begin + at_once);
      return std::pair(begin, *at - begin);
    };
    cuda::DeviceTableDelta news;
    const auto [left_at, left_count] = take(&left, left_.size());
    news.left = std::span(left_).subspan(left_at, left_count);
    if (left == left_.size()) {
      const auto [frame_at, frame_count] = take(&frame, frames_.size());
      news.frames = std::span(frames_).subspan(frame_at, frame_count);
      news.observation = pixels.subspan(frame_at * frame_bytes, frame_count * frame_bytes);
    }
    if (left == left_.size() && frame == frames_.size()) {
      const auto [item_at, item_count] = take(&item, items_.size());
      news.items = std::span(items_).subspan(item_at, item_count);
      std::size_t count = 0;
      for (const cuda::DeviceItem& i : news.items) count += std::size_t(i.lead + i.length + 1);
      static_assert(sizeof(std::uint32_t) == sizeof(std::int32_t));
      news.window = {reinterpret_cast<const std::int32_t*>(feed.window.data()) + place, count};
      place += count;
    }
    good = table_->Append(copies_, stream, news);
  } while (good && (left < left_.size() || frame < frames_.size() || item < items_.size()));
  if (!device_->ok()) return Unavailable("{}: {}", device_->info().name, device_->error());
  if (good) return Status::Ok();
  return DataLoss("a delta of {} frames and {} items does not fit the learner's replica",
                  frames_.size(), items_.size());
}

// A slot that was reassigned during this update is resolved to the item that was sampled.
void GpuReplay::DrawnItems(std::span<const std::int32_t> slots,
                           std::vector<GpuReplayConsumer::SampledItem>* out) const {
  out->clear();
  for (const std::int32_t slot : slots) {
    const auto before = replaced_.find(slot);
    const Held& held = before != replaced_.end() ? before->second : held_[std::size_t(slot)];
    out->push_back(
        {{.slot = std::uint32_t(slot), .generation = held.generation}, held.policy_version});
  }
}

}  // namespace troop

#endif
