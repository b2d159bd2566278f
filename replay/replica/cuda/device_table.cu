// DeviceTable: CUDA kernels of GPU replay, and their launches.
#include "replay/replica/cuda/device_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/precision.h"

namespace troop::cuda {

// Gives the kernels access to DeviceTable's private types.
struct DeviceTableKernels {
  using Fields = DeviceTable::Fields;
  using Change = DeviceTable::Change;
};

namespace {

using Fields = DeviceTableKernels::Fields;
using Change = DeviceTableKernels::Change;
// Threads per block of all kernels here; AboutItemsKernel needs a power of two.
constexpr int kThreads = 256;

LaunchShape Over(std::int64_t n) {
  return {dim3(unsigned(CeilDivide(n, kThreads))), dim3(kThreads)};
}

// Sizes that kernels take by value.
struct TableSizes {
  std::int64_t pixels, channels, stack, steps, frame_bytes, window;
};

// priority^alpha, clamped as in replay/selectors/priority_kernels.h: never 0, and sums of it stay
// finite.
TROOP_HOST_DEVICE float PowerPriority(double size, double epsilon, double alpha) {
  const double power = pow(size + epsilon, alpha);
  const double least = 1.17549435e-38, most = 1e28;  // the smallest normal f32
  return float(power < least ? least : power > most ? most : power);
}

// ---- append -------------------------------------------------------------------------------------

// One block per frame; 16 bytes per access if the frame size allows.
TROOP_KERNEL void PlaceFramesKernel(TableSizes t, Fields f, const DeviceFrame* about,
                                    const std::byte* frame) {
  const std::int64_t which = blockIdx.x, place = about[which].place;
  const std::byte* from = frame + which * t.frame_bytes;
  std::byte* to = f.frame + place * t.frame_bytes;
  if (t.frame_bytes % 16 == 0) {
    for (std::int64_t i = threadIdx.x; i < t.frame_bytes / 16; i += kThreads)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
    for (std::int64_t i = threadIdx.x; i < t.frame_bytes; i += kThreads) to[i] = from[i];
  }
  if (threadIdx.x != 0) return;
  f.action[place] = about[which].action;
  f.reward[place] = about[which].reward;
  f.discount[place] = about[which].discount;
}

// One thread per changed slot.
TROOP_KERNEL void PlaceItemsKernel(TableSizes t, Fields f, std::int64_t n, const Change* change,
                                   const std::int32_t* window) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const Change item = change[i];
  f.number[item.slot] = item.number;
  if (item.length == 0) return;  // evicted: its weight is 0 from now on
  f.lead[item.slot] = item.lead;
  f.length[item.slot] = item.length;
  for (std::int64_t k = 0; k <= item.lead + item.length; ++k)
    f.window[item.slot * t.window + k] = window[i * t.window + k];
}

// ---- draw ---------------------------------------------------------------------------------------

// Philox 4x32-10 (Salmon et al. 2011): 64 random bits for (key, counter).
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

// One mass per stratum, keyed by (seed, item, draw number).
TROOP_KERNEL void MassesKernel(std::int64_t batch, std::uint64_t seed, const double* total,
                               const std::int64_t* draws, double* mass) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= batch) return;
  const double u = double(Philox(seed, std::uint64_t(i), std::uint64_t(*draws)) >> 11) * 0x1p-53;
  mass[i] = (double(i) + u) / double(batch) * *total;
}

// Gathers the items' columns, one thread per item. A single block, since weights need the minimum
// probability of the whole batch.
TROOP_KERNEL void AboutItemsKernel(TableSizes t, Fields f, std::int64_t batch, const double* beta,
                                   const std::int32_t* slot, const float* priority,
                                   std::int64_t* number, std::int64_t* draws, DeviceSample out) {
  TROOP_SHARED(float, least, kThreads);
  float mine = INFINITY;
  for (std::int64_t i = threadIdx.x; i < batch; i += kThreads)
    mine = priority[i] < mine ? priority[i] : mine;
  // Block-wide minimum by a tree reduction in shared memory.
  least[threadIdx.x] = mine;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (int(threadIdx.x) < step)
      least[threadIdx.x] = min(least[threadIdx.x], least[threadIdx.x + step]);
    __syncthreads();
  }
  for (std::int64_t i = threadIdx.x; i < batch; i += kThreads) {
    const std::int64_t s = slot[i];
    const std::int32_t* const places = f.window + s * t.window + f.lead[s];
    number[i] = f.number[s];
    out.action[i] = f.action[places[0]];
    out.length[i] = f.length[s];
    out.weight[i] = float(pow(double(least[0]) / double(priority[i]), *beta));
    for (std::int64_t k = 0; k < t.steps; ++k) {
      const bool inside = k < f.length[s];
      out.reward[i * t.steps + k] = inside ? f.reward[places[k]] : 0;
      out.discount[i * t.steps + k] = inside ? f.discount[places[k]] : 1;
    }
  }
  if (threadIdx.x == 0) ++*draws;
}

// One block per observation. Element order is (pixel, frame, channel); frame k of the stack is
// stack - 1 - k frames before the newest.
template <class T>
TROOP_KERNEL void ObservationsKernel(TableSizes t, Fields f, std::int64_t batch,
                                     const std::int32_t* slot, T* out) {
  const std::int64_t row = blockIdx.x, s = slot[row % batch], wide = t.stack * t.channels;
  // Position of the newest frame in the window, which begins with its episode or `stack` frames
  // before.
  const std::int64_t age = f.lead[s] + (row < batch ? 0 : f.length[s]);
  const std::int32_t* const newest = f.window + s * t.window + age;
  T* const to = out + row * t.pixels * wide;
  const auto frame_at = [&](std::int64_t back) {
    return reinterpret_cast<const T*>(f.frame + newest[-back] * t.frame_bytes);
  };
  // Atari: four pixels of four frames per thread, as whole words.
  if (sizeof(T) == 1 && t.stack == 4 && t.channels == 1 && t.pixels % 4 == 0) {
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

// ---- priorities ---------------------------------------------------------------------------------

// New priorities of the sampled items; -1 for those to skip.
TROOP_KERNEL void ChangesKernel(Fields f, std::int64_t batch, double alpha, double epsilon,
                                const std::int32_t* slot, const std::int64_t* number,
                                const float* leaves, const float* td_error,
                                std::int32_t* changed_slot, float* changed_priority) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= batch) return;
  const std::int64_t s = slot[i];
  const float size = fabsf(td_error[i]);
  // Skipped if the slot has another item now or none, or the error is not finite.
  const bool same = f.number[s] == number[i] && leaves[s] > 0 && isfinite(size);
  changed_slot[i] = same ? std::int32_t(s) : -1;
  changed_priority[i] = PowerPriority(double(size), epsilon, alpha);
}

}  // namespace

DeviceTable::DeviceTable(Device& device, const DeviceTableOptions& o, std::int64_t batch)
    : device_(device),
      options_(o),
      batch_(batch),
      tree_(device, o.slots),
      live_(std::size_t(o.slots), 0),
      known_(std::size_t(o.places), 0),
      changes_(std::size_t(o.slots), -1),
      copied_(device),
      placed_(device),
      beta_copied_(device) {
  frame_ = DeviceArray<std::byte>(device, o.places * frame_bytes(), "replay frames");
  action_ = DeviceArray<std::int32_t>(device, o.places, "replay frames");
  reward_ = DeviceArray<float>(device, o.places, "replay frames");
  discount_ = DeviceArray<float>(device, o.places, "replay frames");
  window_ = DeviceArray<std::int32_t>(device, o.slots * window_max(), "replay items");
  lead_ = DeviceArray<std::int32_t>(device, o.slots, "replay items");
  length_ = DeviceArray<std::int32_t>(device, o.slots, "replay items");
  number_ = DeviceArray<std::int64_t>(device, o.slots, "replay items");
  fields_ = {frame_.data(),  action_.data(), reward_.data(), discount_.data(),
             window_.data(), lead_.data(),   length_.data(), number_.data()};
  const std::int64_t n = o.append_max, changes = 2 * n;
  host_frames_ = PinnedArray<std::byte>(device, n * frame_bytes(), "new frames");
  new_frames_ = DeviceArray<std::byte>(device, n * frame_bytes(), "new frames");
  host_frame_info_ = PinnedArray<DeviceFrame>(device, n, "new frames");
  new_frame_info_ = DeviceArray<DeviceFrame>(device, n, "new frames");
  host_changes_ = PinnedArray<Change>(device, changes, "new items");
  new_changes_ = DeviceArray<Change>(device, changes, "new items");
  host_windows_ = PinnedArray<std::int32_t>(device, changes * window_max(), "new items");
  new_windows_ = DeviceArray<std::int32_t>(device, changes * window_max(), "new items");
  host_slots_ = PinnedArray<std::int32_t>(device, changes, "new items");
  new_slots_ = DeviceArray<std::int32_t>(device, changes, "new items");
  host_priorities_ = PinnedArray<float>(device, changes, "new items");
  new_priorities_ = DeviceArray<float>(device, changes, "new items");
  mass_ = DeviceArray<double>(device, batch, "a draw");
  slot_ = DeviceArray<std::int32_t>(device, batch, "a draw");
  changed_slot_ = DeviceArray<std::int32_t>(device, batch, "a draw");
  priority_ = DeviceArray<float>(device, batch, "a draw");
  changed_priority_ = DeviceArray<float>(device, batch, "a draw");
  drawn_number_ = DeviceArray<std::int64_t>(device, batch, "a draw");
  draws_ = DeviceArray<std::int64_t>(device, 1, "a draw");
  host_beta_ = PinnedArray<double>(device, 1, "a draw");
  beta_ = DeviceArray<double>(device, 1, "a draw");
  Stream stream(device);
  PinnedArray<std::int64_t> first_draw(device, 1, "a draw");
  if (!device.ok()) return;
  first_draw[0] = o.first_draw;
  host_beta_[0] = o.beta;
  stream.CopyToDevice(beta_.data(), host_beta_.data(), sizeof(double));
  stream.CopyToDevice(draws_.data(), first_draw.data(), sizeof(std::int64_t));
  stream.Fill(number_.data(), 0xff, number_.bytes());  // -1: no item
  stream.Synchronize();
}

// Without staging buffers, which are small.
std::int64_t DeviceTable::bytes() const {
  return std::int64_t(frame_.bytes() + action_.bytes() + reward_.bytes() + discount_.bytes() +
                      window_.bytes() + lead_.bytes() + length_.bytes() + number_.bytes()) +
         tree_.slots() * 4;
}

// Validates a delta completely before anything changes: kernels do not check.
bool DeviceTable::Fits(const DeviceTableDelta& news) {
  const DeviceTableOptions& o = options_;
  const auto n = std::int64_t(news.frames.size());
  if (n > o.append_max || std::int64_t(news.items.size()) > o.append_max ||
      std::int64_t(news.left.size()) > o.append_max ||
      std::int64_t(news.observation.size()) != n * frame_bytes()) {
    return false;
  }
  const auto is_slot = [&](std::int32_t slot) { return slot >= 0 && slot < o.slots; };
  const auto is_place = [&](std::int32_t place) { return place >= 0 && place < o.places; };
  if (!std::ranges::all_of(news.left, is_slot) ||
      !std::ranges::all_of(news.frames, is_place, &DeviceFrame::place)) {
    return false;
  }
  std::size_t window = 0;
  for (const DeviceItem& item : news.items) {
    if (!is_slot(item.slot) || item.lead < 0 || item.lead >= o.stack || item.length < 1 ||
        item.length > o.steps || !std::isfinite(item.priority) || item.priority < 0) {
      return false;
    }
    window += std::size_t(item.lead + item.length + 1);
  }
  if (window != news.window.size() || !std::ranges::all_of(news.window, is_place)) return false;
  // Marks places with a frame, including the new ones; a place that occurs twice is refused. The
  // marks are undone if the delta is refused.
  std::size_t fresh = 0;
  constexpr std::uint8_t kOld = 1, kComes = 2;
  bool good = true;
  for (; fresh < news.frames.size() && good; ++fresh) {
    std::uint8_t& known = known_[std::size_t(news.frames[fresh].place)];
    good = (known & kComes) == 0;
    known |= kComes;
  }
  for (const std::int32_t place : news.window) good = good && known_[std::size_t(place)] != 0;
  for (std::size_t i = 0; i < fresh; ++i) {
    std::uint8_t& known = known_[std::size_t(news.frames[i].place)];
    known = good ? kOld : known & kOld;
  }
  return good;
}

// Stages the slot changes on the host and returns their number. Each slot occurs once, with its
// last change, because threads of a kernel are unordered.
std::int64_t DeviceTable::Stage(const DeviceTableDelta& news) {
  std::int64_t changes = 0;
  // Index of a slot's change; a slot that is evicted and reused in one delta has a single change.
  const auto change = [&](std::int32_t slot) {
    std::int32_t& at = changes_[std::size_t(slot)];
    if (at < 0) at = std::int32_t(changes++);
    host_slots_[at] = slot;
    return at;
  };
  for (const std::int32_t slot : news.left) {
    const std::int32_t at = change(slot);
    items_ -= std::exchange(live_[std::size_t(slot)], std::uint8_t{0});
    host_changes_[at] = {.slot = slot, .number = -1};
    host_priorities_[at] = 0;
  }
  const std::int32_t* window = news.window.data();
  for (const DeviceItem& item : news.items) {
    const std::int32_t at = change(item.slot);
    items_ += 1 - std::exchange(live_[std::size_t(item.slot)], std::uint8_t{1});
    host_changes_[at] = {
        .slot = item.slot, .lead = item.lead, .length = item.length, .number = came_++};
    // ε is part of the item's priority already.
    host_priorities_[at] = PowerPriority(item.priority, 0, options_.alpha);
    const std::int32_t frames = item.lead + item.length + 1;
    std::copy_n(window, frames, host_windows_.data() + at * window_max());
    window += frames;
  }
  for (std::int64_t i = 0; i < changes; ++i) changes_[std::size_t(host_slots_[i])] = -1;
  return changes;
}

bool DeviceTable::Append(Stream& copies, Stream& stream, const DeviceTableDelta& news) {
  if (!device_.ok() || !Fits(news)) return false;
  // Staging buffers are reused: wait until the previous delta has left them.
  if (appended_) {
    copied_.Synchronize();  // host staging buffers are free again
    copies.Wait(placed_);   // device staging buffers are free again
  }
  appended_ = true;
  const auto n = std::int64_t(news.frames.size());
  if (n > 0) std::memcpy(host_frames_.data(), news.observation.data(), news.observation.size());
  std::ranges::copy(news.frames, host_frame_info_.data());
  const std::int64_t changes = Stage(news);
  const auto send = [&copies](auto& to, const auto& from, std::int64_t count) {
    if (count > 0)
      copies.CopyToDevice(to.data(), from.data(), std::size_t(count) * sizeof(from[0]));
  };
  // Uploads overlap with the work on `stream`, which waits for them only before the kernels.
  send(new_frames_, host_frames_, n * frame_bytes());
  send(new_frame_info_, host_frame_info_, n);
  send(new_changes_, host_changes_, changes);
  send(new_windows_, host_windows_, changes * window_max());
  send(new_slots_, host_slots_, changes);
  send(new_priorities_, host_priorities_, changes);
  copied_.Record(copies);
  stream.Wait(copied_);
  const TableSizes sizes{options_.pixels, options_.channels, options_.stack,
                         options_.steps,  frame_bytes(),     window_max()};
  if (n > 0) {
    Launch(stream, "PlaceFrames", {dim3(unsigned(n)), dim3(kThreads)}, PlaceFramesKernel, sizes,
           fields_, new_frame_info_.data(), new_frames_.data());
  }
  if (changes > 0) {
    Launch(stream, "PlaceItems", Over(changes), PlaceItemsKernel, sizes, fields_, changes,
           new_changes_.data(), new_windows_.data());
    tree_.Set(stream, changes, new_slots_.data(), new_priorities_.data());
  }
  placed_.Record(stream);
  return true;
}

void DeviceTable::SetBeta(Stream& stream, double beta) {
  if (!device_.ok() || host_beta_[0] == beta) return;
  // The pinned value must not change while an earlier copy reads it.
  beta_copied_.Synchronize();
  host_beta_[0] = beta;
  stream.CopyToDevice(beta_.data(), host_beta_.data(), sizeof(double));
  beta_copied_.Record(stream);
}

void DeviceTable::Draw(Stream& stream, const DeviceSample& sample) {
  const DeviceTableOptions& o = options_;
  const TableSizes sizes{o.pixels, o.channels, o.stack, o.steps, frame_bytes(), window_max()};
  // Masses, then slots, then columns and weights, then observations.
  Launch(stream, "Masses", Over(batch_), MassesKernel, batch_, o.seed, tree_.total(), draws_.data(),
         mass_.data());
  tree_.Find(stream, batch_, mass_.data(), slot_.data(), priority_.data());
  Launch(stream, "AboutItems", {dim3(1), dim3(kThreads)}, AboutItemsKernel, sizes, fields_, batch_,
         beta_.data(), slot_.data(), priority_.data(), drawn_number_.data(), draws_.data(), sample);
  const LaunchShape shape{dim3(unsigned(2 * batch_)), dim3(kThreads)};
  if (o.dtype == DType::kU8) {
    Launch(stream, "Observations", shape, ObservationsKernel<std::uint8_t>, sizes, fields_, batch_,
           slot_.data(), static_cast<std::uint8_t*>(sample.observation));
  } else {
    Launch(stream, "Observations", shape, ObservationsKernel<float>, sizes, fields_, batch_,
           slot_.data(), static_cast<float*>(sample.observation));
  }
}

// Runs entirely on the device, without synchronizing with the host.
void DeviceTable::UpdatePriorities(Stream& stream, const float* td_error) {
  Launch(stream, "Changes", Over(batch_), ChangesKernel, fields_, batch_, options_.alpha,
         options_.priority_epsilon, slot_.data(), drawn_number_.data(), tree_.priorities(),
         td_error, changed_slot_.data(), changed_priority_.data());
  tree_.Set(stream, batch_, changed_slot_.data(), changed_priority_.data());
}

}  // namespace troop::cuda
