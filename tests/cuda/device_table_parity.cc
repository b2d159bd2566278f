#include "replay/cuda/device_table.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>

#include "replay/cuda/sum_tree.h"
#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

// --- the tree, against sums one after the other
// ----------------------------------------------------

struct Changes {
  std::vector<std::int32_t> slot;
  std::vector<float> priority;
};

void Put(Parity& parity, DeviceSumTree& tree, const Changes& changes, std::vector<float>* plain) {
  const auto slot = parity.Upload(changes.slot);
  const auto priority = parity.Upload(changes.priority);
  tree.Set(parity.stream(), std::int64_t(changes.slot.size()), slot.data(), priority.data());
  parity.stream().Synchronize();
  for (std::size_t i = 0; i < changes.slot.size(); ++i)
    if (changes.slot[i] >= 0) (*plain)[std::size_t(changes.slot[i])] = changes.priority[i];
}

Changes RandomChanges(Parity& parity, std::int64_t slots, std::int64_t n) {
  Changes changes;
  for (std::int64_t i = 0; i < n; ++i) {
    // Often the same few, some of them left out, some zero.
    const std::int64_t slot =
        parity.Below(2) == 0 ? parity.Below(std::min<std::int64_t>(slots, 5)) : parity.Below(slots);
    changes.slot.push_back(parity.Below(8) == 0 ? -1 : std::int32_t(slot));
    changes.priority.push_back(parity.Below(4) == 0 ? 0 : float(parity.Uniform(0.01, 3)));
  }
  return changes;
}

void FindsWhatLiesAtEachMass(Parity& parity) {
  for (const std::int64_t slots : {1, 63, 64, 65, 5000}) {
    DeviceSumTree tree(parity.device(), slots);
    std::vector<float> plain(std::size_t(slots), 0);
    for (int round = 0; round < 2; ++round) {
      Put(parity, tree, RandomChanges(parity, slots, 150), &plain);
      Put(parity, tree, {{0}, {1.5f}}, &plain);  // never all zero
      const double total = std::accumulate(plain.begin(), plain.end(), 0.0);
      // The middle of each of some slots' parts: rounding of sums does not matter there. And the
      // ends.
      std::vector<double> mass;
      std::vector<std::int32_t> want;
      double before = 0;
      for (std::size_t i = 0; i < plain.size(); ++i) {
        if (plain[i] > 0 && (slots < 100 || parity.Below(20) == 0)) {
          mass.push_back(before + 0.5 * plain[i]);
          want.push_back(std::int32_t(i));
        }
        before += plain[i];
      }
      mass.push_back(0);
      want.push_back(
          std::int32_t(std::ranges::find_if(plain, [](float p) { return p > 0; }) - plain.begin()));
      mass.push_back(std::nextafter(total, 2 * total));  // rounded up beyond the end
      want.push_back(
          std::int32_t(plain.rend() - std::ranges::find_if(plain.rbegin(), plain.rend(),
                                                           [](float p) { return p > 0; })) -
          1);
      const auto n = std::int64_t(mass.size());
      const auto on_device = parity.Upload(mass);
      const auto slot = parity.Output<std::int32_t>(n);
      const auto priority = parity.Output<float>(n);
      tree.Find(parity.stream(), n, on_device.data(), slot.data(), priority.data());
      parity.True("slots are those of the masses", parity.Download(slot) == want);
      std::vector<float> priorities;
      for (const std::int32_t at : want) priorities.push_back(plain[std::size_t(at)]);
      parity.Equal("priorities", parity.Download(priority), priorities);
    }
  }
}

void ABorderBelongsToTheNextOne(Parity& parity) {
  DeviceSumTree tree(parity.device(), 300);
  std::vector<float> plain(300, 0);
  Put(parity, tree, {{3, 70, 71, 299}, {1, 2, 0, 4}}, &plain);
  const std::vector<double> mass = {0, 0.5, 1, 2.5, 3, 6.5};
  const auto on_device = parity.Upload(mass);
  const auto slot = parity.Output<std::int32_t>(6);
  const auto priority = parity.Output<float>(6);
  tree.Find(parity.stream(), 6, on_device.data(), slot.data(), priority.data());
  parity.True("slots", parity.Download(slot) == std::vector<std::int32_t>{3, 3, 70, 70, 299, 299});
}

// --- the table, against a log that forgets nothing
// ------------------------------------------------

struct Frame {
  std::vector<std::uint8_t> pixels;
  std::int32_t age, action;
  float reward, discount;
};

// What a stream did, and which of its items can be drawn.
struct PlainTable {
  DeviceTableOptions o;
  std::vector<std::vector<Frame>> log;
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<std::int32_t, double>>
      items;  // (stream, first): length, p^α

  void Evict() {
    std::erase_if(items, [&](const auto& item) {
      const auto end = std::int64_t(log[std::size_t(item.first.first)].size());
      return item.first.second - (o.stack - 1) < end - o.frames;
    });
  }
  std::vector<std::uint8_t> Observation(std::int64_t stream, std::int64_t number) const {
    const auto& frames = log[std::size_t(stream)];
    std::vector<std::uint8_t> out(std::size_t(o.pixels * o.channels * o.stack), 0);
    for (std::int64_t k = 0; k < o.stack; ++k) {
      const std::int64_t back = o.stack - 1 - k;
      if (back > frames[std::size_t(number)].age) continue;  // before the episode's start
      const auto& pixels = frames[std::size_t(number - back)].pixels;
      for (std::int64_t p = 0; p < o.pixels; ++p)
        for (std::int64_t c = 0; c < o.channels; ++c)
          out[std::size_t((p * o.stack + k) * o.channels + c)] =
              pixels[std::size_t(p * o.channels + c)];
    }
    return out;
  }
};

struct Harness {
  Harness(Parity& p, const DeviceTableOptions& o, std::int64_t n)
      : parity(p), batch(n), table(p.device(), o, n) {
    plain.o = o;
    plain.log.resize(std::size_t(o.streams));
    age.assign(std::size_t(o.streams), 0);
    const std::int64_t wide = o.pixels * o.channels * o.stack;
    observation = p.Output<std::uint8_t>(2 * n * wide);
    action = p.Output<std::int32_t>(n);
    length = p.Output<std::int32_t>(n);
    reward = p.Output<float>(n * o.steps);
    discount = p.Output<float>(n * o.steps);
    weight = p.Output<float>(n);
  }

  // Some frames of every stream with the items that they complete.
  void Play(std::int64_t frames) {
    std::vector<std::byte> pixels;
    std::vector<DeviceFrame> about;
    std::vector<DeviceItem> items;
    for (std::int64_t i = 0; i < frames; ++i) {
      for (std::int64_t s = 0; s < plain.o.streams; ++s) {
        auto& log = plain.log[std::size_t(s)];
        const bool final = age[std::size_t(s)] > 0 && parity.Below(6) == 0;
        Frame frame{{},
                    age[std::size_t(s)],
                    std::int32_t(parity.Below(6)),
                    final ? 0.0f : float(parity.Uniform(-1, 1)),
                    final ? 0.0f : 1.0f};
        for (std::int64_t p = 0; p < plain.o.pixels * plain.o.channels; ++p)
          frame.pixels.push_back(std::uint8_t(parity.Below(256)));
        for (const std::uint8_t x : frame.pixels) pixels.push_back(std::byte(x));
        about.push_back({std::int32_t(s), frame.age, frame.action, frame.reward, frame.discount});
        log.push_back(frame);
        // The item that begins `steps` before is complete; at an episode's end all that are open
        // are.
        const auto now = std::int64_t(log.size()) - 1;
        for (std::int64_t back = plain.o.steps; back >= 1; --back) {
          if (frame.age < back || (back < plain.o.steps && !final)) continue;
          const float priority = float(parity.Uniform(0, 2));
          items.push_back({std::int32_t(s), std::int32_t(back), now - back, priority});
          plain.items[{s, now - back}] = {
              std::int32_t(back),
              std::pow(double(priority) + plain.o.priority_epsilon, plain.o.alpha)};
        }
        age[std::size_t(s)] = final ? 0 : age[std::size_t(s)] + 1;
      }
    }
    plain.Evict();
    parity.True("it is taken", table.Append(parity.stream(), pixels, about, items));
    parity.stream().Synchronize();
    parity.True("items are counted", table.items() == std::int64_t(plain.items.size()));
  }

  // Draws, and compares each item with the log.
  void DrawAndCompare() {
    const DeviceTableOptions& o = plain.o;
    table.Draw(parity.stream(), {observation.data(), action.data(), reward.data(), discount.data(),
                                 length.data(), weight.data()});
    const auto slots = DownloadSlots();
    const auto got = parity.Download(observation);
    const auto actions = parity.Download(action), lengths = parity.Download(length);
    const auto rewards = parity.Download(reward), discounts = parity.Download(discount),
               weights = parity.Download(weight);
    double least = INFINITY;
    std::vector<double> priorities, want_weights;
    drawn.clear();
    const auto wide = std::size_t(o.pixels * o.channels * o.stack);
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t stream = slots[std::size_t(i)] / o.frames;
      const auto& log = plain.log[std::size_t(stream)];
      std::int64_t number =
          std::int64_t(log.size()) / o.frames * o.frames + slots[std::size_t(i)] % o.frames;
      while (number >= std::int64_t(log.size())) number -= o.frames;
      const auto found = plain.items.find({stream, number});
      parity.True("what is drawn is there", found != plain.items.end());
      if (found == plain.items.end()) return;
      drawn.push_back(found->first);
      const auto [steps, priority] = found->second;
      priorities.push_back(priority);
      least = std::min(least, priority);
      const auto first = plain.Observation(stream, number),
                 last = plain.Observation(stream, number + steps);
      parity.True("the first observation",
                  std::equal(first.begin(), first.end(),
                             got.begin() + std::ptrdiff_t(std::size_t(i) * wide)));
      parity.True("the last observation",
                  std::equal(last.begin(), last.end(),
                             got.begin() + std::ptrdiff_t(std::size_t(batch + i) * wide)));
      parity.True("action and length", actions[std::size_t(i)] == log[std::size_t(number)].action &&
                                           lengths[std::size_t(i)] == steps);
      for (std::int64_t k = 0; k < o.steps; ++k) {
        const auto at = std::size_t(i * o.steps + k);
        const bool inside = k < steps;
        parity.True("reward and discount",
                    rewards[at] == (inside ? log[std::size_t(number + k)].reward : 0) &&
                        discounts[at] == (inside ? log[std::size_t(number + k)].discount : 1));
      }
    }
    for (const double p : priorities) want_weights.push_back(std::pow(least / p, o.beta));
    parity.Close("weights", weights, want_weights, 1e-5);
    CheckStrata(slots);
  }

  // One of the i-th stratum each: with the sums in order, item i lies between i/B and (i+1)/B of
  // the total.
  void CheckStrata(const std::vector<std::int32_t>& slots) {
    std::map<std::int32_t, double> by_slot;
    for (const auto& [key, item] : plain.items)
      by_slot[std::int32_t(key.first * plain.o.frames + key.second % plain.o.frames)] =
          double(float(item.second));
    double total = 0;
    std::map<std::int32_t, double> before;
    for (const auto& [slot, p] : by_slot) before[slot] = total, total += p;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const double low = before[slots[i]], high = low + by_slot[slots[i]];
      const double stratum = total / double(batch), slack = 1e-6 * total;
      parity.True("each stratum is drawn from",
                  high + slack >= double(i) * stratum && low - slack <= double(i + 1) * stratum);
    }
  }

  void Prioritize() {
    std::vector<float> td;
    for (std::int64_t i = 0; i < batch; ++i) td.push_back(float(parity.Uniform(-2, 2)));
    const auto on_device = parity.Upload(td);
    table.UpdatePriorities(parity.stream(), on_device.data());
    parity.stream().Synchronize();
    for (std::size_t i = 0; i < td.size(); ++i) {
      const auto found = plain.items.find(drawn[i]);
      if (found != plain.items.end())
        found->second.second =
            std::pow(double(std::abs(td[i])) + plain.o.priority_epsilon, plain.o.alpha);
    }
  }

  std::vector<std::int32_t> DownloadSlots() {
    const auto copy = parity.Output<std::int32_t>(batch);
    parity.stream().CopyOnDevice(copy.data(), table.drawn_slots(), std::size_t(batch) * 4);
    return parity.Download(copy);
  }

  Parity& parity;
  const std::int64_t batch;
  DeviceTable table;
  PlainTable plain;
  std::vector<std::int32_t> age;
  std::vector<std::pair<std::int64_t, std::int64_t>> drawn;
  DeviceArray<std::uint8_t> observation;
  DeviceArray<std::int32_t> action, length;
  DeviceArray<float> reward, discount, weight;
};

DeviceTableOptions SmallTable(std::int64_t pixels, std::int64_t channels, std::int64_t stack) {
  DeviceTableOptions o;
  o.streams = 3;
  o.frames = 40;
  o.pixels = pixels;
  o.channels = channels;
  o.stack = stack;
  o.steps = 3;
  o.append_max = 256;
  o.seed = 9;
  return o;
}

void DrawsWhatTheLogHas(Parity& parity) {
  for (const auto& o : {SmallTable(16, 1, 4), SmallTable(9, 2, 3), SmallTable(5, 1, 1)}) {
    Harness h(parity, o, 24);
    h.Play(12);
    for (int round = 0; round < 6; ++round) {  // the rings go round more than once
      h.DrawAndCompare();
      h.Prioritize();
      h.Play(1 + parity.Below(24));
    }
  }
}

void LatePrioritiesAreRefused(Parity& parity) {
  Harness h(parity, SmallTable(5, 1, 1), 24);
  h.Play(30);
  h.DrawAndCompare();
  for (int i = 0; i < 4; ++i)
    h.Play(20);    // all that was drawn is gone, and its slots have new items
  h.Prioritize();  // of what is gone: nothing may change
  h.DrawAndCompare();
}

// Of an item that comes twice in one call the last one counts, its length and its priority.
void OfEqualItemsTheLastCounts(Parity& parity) {
  DeviceTableOptions o = SmallTable(5, 1, 1);
  o.priority_epsilon = 0;
  o.alpha = 1;
  DeviceTable table(parity.device(), o, 4);
  const std::vector<std::byte> pixels(5 * 5);
  const std::vector<DeviceItem> items = {{0, 3, 0, 7}, {0, 2, 1, 1}, {0, 1, 0, 3}};
  parity.True("it is taken",
              table.Append(parity.stream(), pixels, std::vector<DeviceFrame>(5), items));
  parity.stream().Synchronize();
  parity.True("and counted once", table.items() == 2);
  const auto total = parity.Output<double>(1);
  parity.stream().CopyOnDevice(total.data(), table.tree().total(), sizeof(double));
  parity.True("the last priority", parity.Download(total)[0] == 4);
  const auto observation = parity.Output<std::uint8_t>(2 * 4 * 5);
  const auto action = parity.Output<std::int32_t>(4), length = parity.Output<std::int32_t>(4);
  const auto reward = parity.Output<float>(12), discount = parity.Output<float>(12),
             weight = parity.Output<float>(4);
  table.Draw(parity.stream(), {observation.data(), action.data(), reward.data(), discount.data(),
                               length.data(), weight.data()});
  // Three quarters of the mass are the first item's.
  parity.True("the last length", parity.Download(length) == std::vector<std::int32_t>{1, 1, 1, 2});
}

// Errors of 0 and beyond all bounds: what was drawn can still be drawn, and changed.
void PrioritiesStayWithinTheirBounds(Parity& parity) {
  DeviceTableOptions o = SmallTable(5, 1, 1);
  o.priority_epsilon = 0;
  o.alpha = 2;
  DeviceTable table(parity.device(), o, 2);
  const std::vector<std::byte> pixels(5 * 5);
  parity.True("it is taken", table.Append(parity.stream(), pixels, std::vector<DeviceFrame>(5),
                                          std::vector<DeviceItem>{{0, 1, 0, 1}}));
  const auto observation = parity.Output<std::uint8_t>(2 * 2 * 5);
  const auto action = parity.Output<std::int32_t>(2), length = parity.Output<std::int32_t>(2);
  const auto reward = parity.Output<float>(6), discount = parity.Output<float>(6),
             weight = parity.Output<float>(2);
  const auto total = parity.Output<double>(1);
  for (const auto& [error, low, high] : {std::tuple<float, double, double>{0, 1e-38, 1.2e-38},
                                         {1e30f, 0.99e28, 1.01e28},
                                         {3, 8.99, 9.01}}) {
    table.Draw(parity.stream(), {observation.data(), action.data(), reward.data(), discount.data(),
                                 length.data(), weight.data()});
    const auto td = parity.Upload(std::vector<float>{error, error});
    table.UpdatePriorities(parity.stream(), td.data());
    parity.stream().CopyOnDevice(total.data(), table.tree().total(), sizeof(double));
    const double sum = parity.Download(total)[0];
    parity.True("the total is that of the bound", sum > low && sum < high);
  }
}

void WhatDoesNotFitIsRefused(Parity& parity) {
  DeviceTableOptions o = SmallTable(5, 1, 1);
  DeviceTable table(parity.device(), o, 4);
  const std::vector<std::byte> pixels(10);
  const std::vector<DeviceFrame> two(2);
  const auto refused = [&](std::vector<DeviceFrame> frames, std::vector<DeviceItem> items,
                           std::span<const std::byte> bytes) {
    return !table.Append(parity.stream(), bytes, frames, items) && table.items() == 0;
  };
  parity.True("bytes", refused(two, {}, std::span(pixels).first(9)));
  parity.True("a stream", refused({{3, 0, 0, 0, 1}, {}}, {}, pixels));
  parity.True("an item's stream", refused(two, {{-1, 1, 0, 1}}, pixels));
  parity.True("an item without steps", refused(two, {{0, 0, 0, 1}}, pixels));
  parity.True("an item that is too long", refused(two, {{0, 4, 0, 1}}, pixels));
  parity.True("an item whose frames are not there", refused(two, {{0, 2, 0, 1}}, pixels));
  for (const float bad : {NAN, INFINITY, -1.0f})
    parity.True("a priority", refused(two, {{0, 1, 0, bad}}, pixels));
  parity.True("more than a ring holds",
              refused(std::vector<DeviceFrame>(41), {}, std::vector<std::byte>(41 * 5)));
  parity.True("too many",
              refused(std::vector<DeviceFrame>(257), {}, std::vector<std::byte>(257 * 5)));
  parity.True("what fits is taken",
              table.Append(parity.stream(), pixels, two, std::vector<DeviceItem>{{0, 1, 0, 1}}));
  parity.stream().Synchronize();
  parity.True("and counted", table.items() == 1);
}

}  // namespace

std::vector<ParityCase> DeviceTableCases() {
  return {{"SumTree.FindsWhatLiesAtEachMass", FindsWhatLiesAtEachMass},
          {"SumTree.ABorderBelongsToTheNextOne", ABorderBelongsToTheNextOne},
          {"DeviceTable.DrawsWhatTheLogHas", DrawsWhatTheLogHas},
          {"DeviceTable.LatePrioritiesAreRefused", LatePrioritiesAreRefused},
          {"DeviceTable.OfEqualItemsTheLastCounts", OfEqualItemsTheLastCounts},
          {"DeviceTable.PrioritiesStayWithinTheirBounds", PrioritiesStayWithinTheirBounds},
          {"DeviceTable.WhatDoesNotFitIsRefused", WhatDoesNotFitIsRefused}};
}

}  // namespace troop::cuda
