#include "replay/cuda/device_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/precision.h"

namespace troop::cuda {

struct DeviceTableKernels {
  using Fields = DeviceTable::Fields;
};

namespace {

using Fields = DeviceTableKernels::Fields;
constexpr int kThreads = 256;

LaunchShape Over(std::int64_t n) {
  return {dim3(unsigned(CeilDivide(n, kThreads))), dim3(kThreads)};
}

// Sizes that kernels need, by value.
struct TableSizes {
  std::int64_t frames, pixels, channels, stack, steps, frame_bytes;
};

TROOP_DEVICE std::int64_t SlotOf(std::int64_t frames, std::int64_t stream, std::int64_t number) {
  return stream * frames + number % frames;
}

// priority^alpha within the bounds that replay/priority_math.h keeps: never 0, and no sum of them
// is infinite.
TROOP_HOST_DEVICE float PowerPriority(double size, double epsilon, double alpha) {
  const double power = pow(size + epsilon, alpha);
  const double least = 1.17549435e-38, most = 1e28;  // the smallest normal f32
  return float(power < least ? least : power > most ? most : power);
}

// --- append
// ---------------------------------------------------------------------------------------

TROOP_KERNEL void PlaceFramesKernel(TableSizes t, Fields f, std::int64_t n,
                                    const DeviceFrame* about, const std::int64_t* number,
                                    const std::byte* frame) {
  const std::int64_t which = blockIdx.x;
  const std::int64_t slot = SlotOf(t.frames, about[which].stream, number[which]);
  const std::byte* from = frame + which * t.frame_bytes;
  std::byte* to = f.frame + slot * t.frame_bytes;
  if (t.frame_bytes % 16 == 0) {
    for (std::int64_t i = threadIdx.x; i < t.frame_bytes / 16; i += kThreads)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
    for (std::int64_t i = threadIdx.x; i < t.frame_bytes; i += kThreads) to[i] = from[i];
  }
  if (threadIdx.x != 0 || which >= n) return;
  f.number[slot] = number[which];
  f.age[slot] = about[which].age;
  f.action[slot] = about[which].action;
  f.reward[slot] = about[which].reward;
  f.discount[slot] = about[which].discount;
}

TROOP_KERNEL void PlaceLengthsKernel(std::int64_t n, const std::int32_t* slot,
                                     const std::int32_t* length, std::int32_t* to) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n && length[i] > 0) to[slot[i]] = length[i];
}

// --- draw
// -----------------------------------------------------------------------------------------

// Philox 4x32-10 (Salmon et al. 2011): 64 bits for (key, counter).
TROOP_DEVICE std::uint64_t Philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  unsigned c[4] = {unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32)};
  unsigned k0 = unsigned(key), k1 = unsigned(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
    const unsigned h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
    c[0] = h1 ^ c[1] ^ k0;
    c[1] = l1;
    c[2] = h0 ^ c[3] ^ k1;
    c[3] = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return std::uint64_t(c[1]) << 32 | c[0];
}

TROOP_KERNEL void MassesKernel(std::int64_t batch, std::uint64_t seed, const double* total,
                               const std::int64_t* draws, double* mass) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= batch) return;
  const double u = double(Philox(seed, std::uint64_t(i), std::uint64_t(*draws)) >> 11) * 0x1p-53;
  mass[i] = (double(i) + u) / double(batch) * *total;
}

// One block: weights need the least probability of all. A thread to an item.
TROOP_KERNEL void AboutItemsKernel(TableSizes t, Fields f, std::int64_t batch, double beta,
                                   const std::int32_t* slot, const float* priority,
                                   std::int64_t* number, std::int64_t* draws, DeviceSample out) {
  TROOP_SHARED(float, least, kThreads);
  float mine = INFINITY;
  for (std::int64_t i = threadIdx.x; i < batch; i += kThreads)
    mine = priority[i] < mine ? priority[i] : mine;
  least[threadIdx.x] = mine;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (int(threadIdx.x) < step)
      least[threadIdx.x] = min(least[threadIdx.x], least[threadIdx.x + step]);
    __syncthreads();
  }
  for (std::int64_t i = threadIdx.x; i < batch; i += kThreads) {
    const std::int64_t s = slot[i], ring = s / t.frames * t.frames;
    number[i] = f.number[s];
    out.action[i] = f.action[s];
    out.length[i] = f.length[s];
    out.weight[i] = float(pow(double(least[0]) / double(priority[i]), beta));
    for (std::int64_t k = 0; k < t.steps; ++k) {
      const std::int64_t at = ring + (s - ring + k) % t.frames;
      const bool inside = k < f.length[s];
      out.reward[i * t.steps + k] = inside ? f.reward[at] : 0;
      out.discount[i * t.steps + k] = inside ? f.discount[at] : 1;
    }
  }
  if (threadIdx.x == 0) ++*draws;
}

// A block to an observation. Element (pixel, frame, channel) of it; frame k of the stack is stack -
// 1 - k frames before.
template <class T>
TROOP_KERNEL void ObservationsKernel(TableSizes t, Fields f, std::int64_t batch,
                                     const std::int32_t* slot, T* out) {
  const std::int64_t row = blockIdx.x, item = row % batch;
  const std::int64_t s = slot[item], ring = s / t.frames * t.frames;
  const std::int64_t newest = ring + (s - ring + (row < batch ? 0 : f.length[s])) % t.frames;
  const std::int64_t age = f.age[newest], wide = t.stack * t.channels;
  T* const to = out + row * t.pixels * wide;
  const auto frame_at = [&](std::int64_t back) {
    const std::int64_t at = ring + (newest - ring + t.frames - back) % t.frames;
    return reinterpret_cast<const T*>(f.frame + at * t.frame_bytes);
  };
  if (sizeof(T) == 1 && t.stack == 4 && t.channels == 1 &&
      t.pixels % 4 == 0) {  // Atari: whole words
    for (std::int64_t word = threadIdx.x; word < t.pixels / 4; word += kThreads) {
      unsigned in[4], bytes[4] = {};
      for (int k = 0; k < 4; ++k) {
        const std::int64_t back = 3 - k;
        in[k] = back > age ? 0u : reinterpret_cast<const unsigned*>(frame_at(back))[word];
      }
      for (int p = 0; p < 4; ++p)
        for (int k = 0; k < 4; ++k) bytes[p] |= (in[k] >> (8 * p) & 0xff) << (8 * k);
      reinterpret_cast<uint4*>(to)[word] = make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]);
    }
    return;
  }
  for (std::int64_t i = threadIdx.x; i < t.pixels * wide; i += kThreads) {
    const std::int64_t channel = i % t.channels, k = i / t.channels % t.stack, pixel = i / wide;
    const std::int64_t back = t.stack - 1 - k;
    to[i] = back > age ? T(0) : frame_at(back)[pixel * t.channels + channel];
  }
}

// --- priorities
// -----------------------------------------------------------------------------------

TROOP_KERNEL void ChangesKernel(Fields f, std::int64_t batch, double alpha, double epsilon,
                                const std::int32_t* slot, const std::int64_t* number,
                                const float* leaves, const float* td_error,
                                std::int32_t* changed_slot, float* changed_priority) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= batch) return;
  const std::int64_t s = slot[i];
  const float size = fabsf(td_error[i]);
  // Another frame is there by now, or no item begins there any more, or the error is no number:
  // left alone.
  const bool same = f.number[s] == number[i] && leaves[s] > 0 && isfinite(size);
  changed_slot[i] = same ? std::int32_t(s) : -1;
  changed_priority[i] = PowerPriority(double(size), epsilon, alpha);
}

}  // namespace

DeviceTable::DeviceTable(Device& device, const DeviceTableOptions& o, std::int64_t batch)
    : device_(device),
      options_(o),
      batch_(batch),
      tree_(device, o.streams * o.frames),
      ends_(std::size_t(o.streams), 0),
      live_(std::size_t(o.streams * o.frames), 0),
      copied_(device) {
  const std::int64_t slots = o.streams * o.frames;
  const std::int64_t frame_bytes = o.pixels * o.channels * ElementBytes(o.dtype);
  frame_ = DeviceArray<std::byte>(device, slots * frame_bytes, "replay frames");
  number_ = DeviceArray<std::int64_t>(device, slots, "replay items");
  age_ = DeviceArray<std::int32_t>(device, slots, "replay items");
  action_ = DeviceArray<std::int32_t>(device, slots, "replay items");
  length_ = DeviceArray<std::int32_t>(device, slots, "replay items");
  reward_ = DeviceArray<float>(device, slots, "replay items");
  discount_ = DeviceArray<float>(device, slots, "replay items");
  fields_ = {frame_.data(),  number_.data(), age_.data(),     action_.data(),
             length_.data(), reward_.data(), discount_.data()};
  const std::int64_t n = o.append_max;
  host_frames_ = PinnedArray<std::byte>(device, n * frame_bytes, "new frames");
  new_frames_ = DeviceArray<std::byte>(device, n * frame_bytes, "new frames");
  host_about_ = PinnedArray<DeviceFrame>(device, n, "new frames");
  new_about_ = DeviceArray<DeviceFrame>(device, n, "new frames");
  host_numbers_ = PinnedArray<std::int64_t>(device, n, "new frames");
  new_numbers_ = DeviceArray<std::int64_t>(device, n, "new frames");
  // Each frame pushes out at most the items of a ring's `steps + stack` first slots; each item adds
  // one.
  const std::int64_t changes = n * (2 + o.steps + o.stack);
  host_slots_ = PinnedArray<std::int32_t>(device, changes, "new items");
  new_slots_ = DeviceArray<std::int32_t>(device, changes, "new items");
  host_lengths_ = PinnedArray<std::int32_t>(device, changes, "new items");
  new_lengths_ = DeviceArray<std::int32_t>(device, changes, "new items");
  host_priorities_ = PinnedArray<float>(device, changes, "new items");
  new_priorities_ = DeviceArray<float>(device, changes, "new items");
  mass_ = DeviceArray<double>(device, batch, "a draw");
  slot_ = DeviceArray<std::int32_t>(device, batch, "a draw");
  changed_slot_ = DeviceArray<std::int32_t>(device, batch, "a draw");
  priority_ = DeviceArray<float>(device, batch, "a draw");
  changed_priority_ = DeviceArray<float>(device, batch, "a draw");
  drawn_number_ = DeviceArray<std::int64_t>(device, batch, "a draw");
  draws_ = DeviceArray<std::int64_t>(device, 1, "a draw");
  Stream stream(device);
  if (!device.ok()) return;
  stream.Fill(draws_.data(), 0, draws_.bytes());
  stream.Fill(number_.data(), 0xff, number_.bytes());
  stream.Synchronize();
}

std::int64_t DeviceTable::bytes() const {
  return std::int64_t(frame_.bytes() + number_.bytes() + age_.bytes() + action_.bytes() +
                      length_.bytes() + reward_.bytes() + discount_.bytes()) +
         tree_.slots() * 4;
}

bool DeviceTable::Append(Stream& stream, std::span<const std::byte> observation,
                         std::span<const DeviceFrame> frames, std::span<const DeviceItem> items) {
  const DeviceTableOptions& o = options_;
  const auto frame_bytes = std::size_t(o.pixels * o.channels * ElementBytes(o.dtype));
  const auto n = std::int64_t(frames.size());
  if (n > o.append_max || std::int64_t(items.size()) > o.append_max ||
      observation.size() != frames.size() * frame_bytes || !device_.ok()) {
    return false;
  }
  const auto known = [&](std::int32_t s) { return s >= 0 && s < o.streams; };
  std::vector<std::int64_t> ends = ends_;
  for (const DeviceFrame& frame : frames) {
    if (!known(frame.stream) || frame.age < 0) return false;
    const auto stream_at = std::size_t(frame.stream);
    if (++ends[stream_at] - ends_[stream_at] > o.frames) return false;  // two in one place
  }
  for (const DeviceItem& item : items) {
    if (!known(item.stream) || item.length < 1 || item.length > o.steps || item.first < 0 ||
        item.first + item.length >= ends[std::size_t(item.stream)] ||
        !std::isfinite(item.priority) || item.priority < 0) {
      return false;
    }
  }
  if (appended_) copied_.Synchronize();
  appended_ = true;
  // Each slot once, as it was said last: kernels have no order within a launch.
  std::int64_t changes = 0;
  std::unordered_map<std::int64_t, std::int64_t> change_of;
  const auto change = [&](std::int64_t slot, std::int32_t length, float priority) {
    const auto [found, added] = change_of.emplace(slot, changes);
    if (added) ++changes;
    host_slots_[found->second] = std::int32_t(slot);
    host_lengths_[found->second] = length;
    host_priorities_[found->second] = priority;
  };
  // An item needs the frames of its first observation's stack: all that begin before `frames -
  // stack` of the end are gone.
  const auto oldest = [&](std::size_t s) {
    return std::max<std::int64_t>(0, ends[s] - o.frames + o.stack - 1);
  };
  for (std::size_t s = 0; s < ends.size(); ++s) {
    if (ends[s] == ends_[s]) continue;
    const std::int64_t before = std::max<std::int64_t>(0, ends_[s] - o.frames + o.stack - 1);
    const std::int64_t until = std::min(oldest(s), ends_[s]);
    for (std::int64_t number = std::max(before, until - o.frames); number < until; ++number) {
      std::uint8_t& live = live_[std::size_t(Slot(std::int64_t(s), number))];
      if (live == 0) continue;
      live = 0;
      --items_;
      change(Slot(std::int64_t(s), number), 0, 0);
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const DeviceFrame& frame = frames[std::size_t(i)];
    host_about_[i] = frame;
    host_numbers_[i] = ends_[std::size_t(frame.stream)]++;
  }
  std::memcpy(host_frames_.data(), observation.data(), observation.size());
  for (const DeviceItem& item : items) {
    if (item.first < oldest(std::size_t(item.stream))) continue;
    const std::int64_t slot = Slot(item.stream, item.first);
    if (live_[std::size_t(slot)] == 0) ++items_;
    live_[std::size_t(slot)] = 1;
    change(slot, item.length, PowerPriority(item.priority, o.priority_epsilon, o.alpha));
  }
  stream.CopyToDevice(new_frames_.data(), host_frames_.data(), observation.size());
  stream.CopyToDevice(new_about_.data(), host_about_.data(), std::size_t(n) * sizeof(DeviceFrame));
  stream.CopyToDevice(new_numbers_.data(), host_numbers_.data(), std::size_t(n) * 8);
  stream.CopyToDevice(new_slots_.data(), host_slots_.data(), std::size_t(changes) * 4);
  stream.CopyToDevice(new_lengths_.data(), host_lengths_.data(), std::size_t(changes) * 4);
  stream.CopyToDevice(new_priorities_.data(), host_priorities_.data(), std::size_t(changes) * 4);
  copied_.Record(stream);
  const TableSizes sizes{o.frames, o.pixels, o.channels,
                         o.stack,  o.steps,  std::int64_t(frame_bytes)};
  Launch(stream, "PlaceFrames", {dim3(unsigned(n)), dim3(kThreads)}, PlaceFramesKernel, sizes,
         fields_, n, new_about_.data(), new_numbers_.data(), new_frames_.data());
  Launch(stream, "PlaceLengths", Over(changes), PlaceLengthsKernel, changes, new_slots_.data(),
         new_lengths_.data(), length_.data());
  tree_.Set(stream, changes, new_slots_.data(), new_priorities_.data());
  return true;
}

void DeviceTable::Draw(Stream& stream, const DeviceSample& sample) {
  const DeviceTableOptions& o = options_;
  const TableSizes sizes{o.frames, o.pixels, o.channels,
                         o.stack,  o.steps,  o.pixels * o.channels * ElementBytes(o.dtype)};
  Launch(stream, "Masses", Over(batch_), MassesKernel, batch_, o.seed, tree_.total(), draws_.data(),
         mass_.data());
  tree_.Find(stream, batch_, mass_.data(), slot_.data(), priority_.data());
  Launch(stream, "AboutItems", {dim3(1), dim3(kThreads)}, AboutItemsKernel, sizes, fields_, batch_,
         o.beta, slot_.data(), priority_.data(), drawn_number_.data(), draws_.data(), sample);
  const LaunchShape shape{dim3(unsigned(2 * batch_)), dim3(kThreads)};
  if (o.dtype == DType::kU8) {
    Launch(stream, "Observations", shape, ObservationsKernel<std::uint8_t>, sizes, fields_, batch_,
           slot_.data(), static_cast<std::uint8_t*>(sample.observation));
  } else {
    Launch(stream, "Observations", shape, ObservationsKernel<float>, sizes, fields_, batch_,
           slot_.data(), static_cast<float*>(sample.observation));
  }
}

void DeviceTable::UpdatePriorities(Stream& stream, const float* td_error) {
  Launch(stream, "Changes", Over(batch_), ChangesKernel, fields_, batch_, options_.alpha,
         options_.priority_epsilon, slot_.data(), drawn_number_.data(), tree_.priorities(),
         td_error, changed_slot_.data(), changed_priority_.data());
  tree_.Set(stream, batch_, changed_slot_.data(), changed_priority_.data());
}

}  // namespace troop::cuda
