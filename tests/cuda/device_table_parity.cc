#include "replay/replica/cuda/device_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "replay/replica/cuda/sum_tree.h"
#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

// --- The tree, against sequential sums.

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
    // Often the same few keys, some of them skipped, some with priority 0.
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
      // The middle of the mass of some slots, where rounding of sums does not matter; and the ends.
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
      mass.push_back(std::nextafter(total, 2 * total));  // rounded up past the end
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

// --- The table, against a log that discards nothing.

struct Frame {
  std::vector<std::uint8_t> pixels;
  std::int32_t age, place, action;
  float reward, discount;
};
struct PlainItem {
  std::int64_t stream = 0, first = 0;
  std::int32_t length = 0;
  double priority = 0;  // p^α
};

// Log of the streams, and the items that can be sampled. Items are evicted in the order of
// insertion; later items reuse their slots.
struct PlainTable {
  DeviceTableOptions o;
  std::vector<std::vector<Frame>> log;
  std::map<std::int32_t, PlainItem> items;  // by slot

  std::vector<std::uint8_t> Observation(std::int64_t stream, std::int64_t number) const {
    const auto& frames = log[std::size_t(stream)];
    std::vector<std::uint8_t> out(std::size_t(o.pixels * o.channels * o.stack), 0);
    for (std::int64_t k = 0; k < o.stack; ++k) {
      const std::int64_t back = o.stack - 1 - k;
      if (back > frames[std::size_t(number)].age) continue;  // before the start of the episode
      const auto& pixels = frames[std::size_t(number - back)].pixels;
      for (std::int64_t p = 0; p < o.pixels; ++p)
        for (std::int64_t c = 0; c < o.channels; ++c)
          out[std::size_t((p * o.stack + k) * o.channels + c)] =
              pixels[std::size_t(p * o.channels + c)];
    }
    return out;
  }
};

// Vectors of several Append calls, as DeviceTableDelta takes them.
struct News {
  std::vector<std::byte> pixels;
  std::vector<DeviceFrame> frames;
  std::vector<std::int32_t> left, window;
  std::vector<DeviceItem> items;
  operator DeviceTableDelta() const { return {pixels, frames, left, items, window}; }
};

struct Harness {
  Harness(Parity& p, const DeviceTableOptions& o, std::int64_t n)
      : parity(p), batch(n), copies(p.device()), table(p.device(), o, n) {
    plain.o = o;
    plain.log.resize(kStreams);
    age.assign(kStreams, 0);
    const std::int64_t wide = o.pixels * o.channels * o.stack;
    observation = p.Output<std::uint8_t>(2 * n * wide);
    action = p.Output<std::int32_t>(n);
    length = p.Output<std::int32_t>(n);
    reward = p.Output<float>(n * o.steps);
    discount = p.Output<float>(n * o.steps);
    weight = p.Output<float>(n);
  }

  Frame MakeFrame(std::int32_t frame_age, bool final) {
    Frame frame{{},
                frame_age,
                std::int32_t(frames_ever++ % plain.o.places),
                std::int32_t(parity.Below(6)),
                final ? 0.0f : float(parity.Uniform(-1, 1)),
                final ? 0.0f : 1.0f};
    for (std::int64_t p = 0; p < plain.o.pixels * plain.o.channels; ++p)
      frame.pixels.push_back(std::uint8_t(parity.Below(256)));
    return frame;
  }

  void AddItem(std::int64_t stream, std::int64_t first, std::int32_t steps, News* news) {
    const auto slot = std::int32_t(items_ever++ % plain.o.slots);
    if (plain.items.contains(slot)) news->left.push_back(slot);
    const auto& log = plain.log[std::size_t(stream)];
    const auto lead =
        std::int32_t(std::min<std::int64_t>(log[std::size_t(first)].age, plain.o.stack - 1));
    const auto priority = float(parity.Uniform(0.01, 2));
    news->items.push_back({slot, lead, steps, priority});
    for (std::int64_t k = first - lead; k <= first + steps; ++k)
      news->window.push_back(log[std::size_t(k)].place);
    plain.items[slot] = {stream, first, steps, std::pow(double(priority), plain.o.alpha)};
  }

  // Adds some frames to every stream, with the items that they complete.
  void Play(std::int64_t frames) {
    News news;
    for (std::int64_t i = 0; i < frames; ++i) {
      for (std::int64_t s = 0; s < kStreams; ++s) {
        auto& log = plain.log[std::size_t(s)];
        const bool final = age[std::size_t(s)] > 0 && parity.Below(6) == 0;
        const Frame frame = MakeFrame(age[std::size_t(s)], final);
        for (const std::uint8_t x : frame.pixels) news.pixels.push_back(std::byte(x));
        news.frames.push_back({frame.place, frame.action, frame.reward, frame.discount});
        log.push_back(frame);
        // The item that started `steps` before is complete; at the end of an episode all open items
        // are.
        const auto now = std::int64_t(log.size()) - 1;
        for (std::int64_t back = plain.o.steps; back >= 1; --back) {
          if (frame.age < back || (back < plain.o.steps && !final)) continue;
          AddItem(s, now - back, std::int32_t(back), &news);
        }
        age[std::size_t(s)] = final ? 0 : age[std::size_t(s)] + 1;
      }
    }
    parity.True("it is taken", table.Append(copies, parity.stream(), news));
    parity.True("items are counted", table.items() == std::int64_t(plain.items.size()));
  }

  // Evicts the oldest items without inserting any.
  void Leave(std::int64_t count) {
    News news;
    for (std::int64_t i = 0; i < count; ++i) {
      // The latest items precede the next slot: the oldest is the next live one.
      for (std::int64_t k = 0; k < plain.o.slots; ++k) {
        const auto slot = std::int32_t((items_ever + k) % plain.o.slots);
        if (!plain.items.contains(slot)) continue;
        plain.items.erase(slot);
        news.left.push_back(slot);
        break;
      }
    }
    parity.True("they leave", table.Append(copies, parity.stream(), news));
    parity.True("items are counted", table.items() == std::int64_t(plain.items.size()));
  }

  // Samples, and compares each item with the log.
  void DrawAndCompare() {
    const DeviceTableOptions& o = plain.o;
    beta = beta < 1 ? std::min(1.0, beta + 0.25) : o.beta;
    table.SetBeta(parity.stream(), beta);
    table.Draw(parity.stream(), {observation.data(), action.data(), reward.data(), discount.data(),
                                 length.data(), weight.data()});
    const auto slots = DownloadSlots();
    const auto got = parity.Download(observation);
    const auto actions = parity.Download(action), lengths = parity.Download(length);
    const auto rewards = parity.Download(reward), discounts = parity.Download(discount),
               weights = parity.Download(weight);
    double least = INFINITY;
    std::vector<double> want_weights;
    drawn.clear();
    const auto wide = std::size_t(o.pixels * o.channels * o.stack);
    for (std::int64_t i = 0; i < batch; ++i) {
      const auto found = plain.items.find(slots[std::size_t(i)]);
      parity.True("what is drawn is there", found != plain.items.end());
      if (found == plain.items.end()) return;
      const auto& [stream, number, steps, priority] = found->second;
      const auto& log = plain.log[std::size_t(stream)];
      drawn.push_back({found->first, found->second});
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
    for (const auto& [slot, item] : drawn)
      want_weights.push_back(std::pow(least / item.priority, beta));
    parity.Close("weights", weights, want_weights, 1e-5);
    CheckStrata(slots);
  }

  // One item per stratum: with the sums in order, item i lies between i/B and (i+1)/B of the total.
  void CheckStrata(const std::vector<std::int32_t>& slots) {
    double total = 0;
    std::map<std::int32_t, std::pair<double, double>> part;
    for (const auto& [slot, item] : plain.items) {
      const double p = double(float(item.priority));
      part[slot] = {total, total + p};
      total += p;
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto [low, high] = part[slots[i]];
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
      const auto& [slot, item] = drawn[i];
      const auto found = plain.items.find(slot);
      if (found != plain.items.end() && found->second.stream == item.stream &&
          found->second.first == item.first)
        found->second.priority =
            std::pow(double(std::abs(td[i])) + plain.o.priority_epsilon, plain.o.alpha);
    }
  }

  std::vector<std::int32_t> DownloadSlots() {
    const auto copy = parity.Output<std::int32_t>(batch);
    parity.stream().CopyOnDevice(copy.data(), table.drawn_slots(), std::size_t(batch) * 4);
    return parity.Download(copy);
  }

  static constexpr std::int64_t kStreams = 3;
  Parity& parity;
  const std::int64_t batch;
  Stream copies;
  DeviceTable table;
  PlainTable plain;
  double beta = 0;  // of the last sample
  std::int64_t frames_ever = 0, items_ever = 0;
  std::vector<std::int32_t> age;
  std::vector<std::pair<std::int32_t, PlainItem>> drawn;
  DeviceArray<std::uint8_t> observation;
  DeviceArray<std::int32_t> action, length;
  DeviceArray<float> reward, discount, weight;
};

// An item of one step has at most two frames.
DeviceTableOptions SmallTable(std::int64_t pixels, std::int64_t channels, std::int64_t stack) {
  DeviceTableOptions o;
  o.slots = 110;
  o.places = 3 * o.slots + 40;
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
    for (int round = 0; round < 8; ++round) {  // all slots and places are reused
      h.DrawAndCompare();
      h.Prioritize();
      if (round % 3 == 1) h.Leave(1 + parity.Below(20));
      h.Play(1 + parity.Below(24));
    }
  }
}

void LatePrioritiesAreRefused(Parity& parity) {
  Harness h(parity, SmallTable(5, 1, 1), 24);
  h.Play(30);
  h.DrawAndCompare();
  h.Leave(30);  // evicts some sampled items without replacement
  h.Prioritize();
  h.DrawAndCompare();
  for (int i = 0; i < 4; ++i) h.Play(20);  // all sampled items are evicted, their slots reused
  h.Prioritize();                          // of evicted items: nothing may change
  h.DrawAndCompare();
}

// Requirements of a table of five frames and a sample of n items.
struct Small {
  Small(Parity& p, const DeviceTableOptions& o, std::int64_t n)
      : parity(p), table(p.device(), o, n) {
    observation = p.Output<std::uint8_t>(2 * n * 5);
    action = p.Output<std::int32_t>(n);
    length = p.Output<std::int32_t>(n);
    reward = p.Output<float>(n * 3);
    discount = p.Output<float>(n * 3);
    weight = p.Output<float>(n);
    total = p.Output<double>(1);
    for (std::int32_t i = 0; i < 5; ++i) news.frames.push_back({i, 0, 0, 1});
    news.pixels.resize(5 * 5);
  }
  bool Append() { return table.Append(parity.stream(), parity.stream(), news); }
  void Draw() {
    table.Draw(parity.stream(), {observation.data(), action.data(), reward.data(), discount.data(),
                                 length.data(), weight.data()});
  }
  double Total() {
    parity.stream().CopyOnDevice(total.data(), table.tree().total(), sizeof(double));
    return parity.Download(total)[0];
  }
  Parity& parity;
  DeviceTable table;
  News news;
  DeviceArray<std::uint8_t> observation;
  DeviceArray<std::int32_t> action, length;
  DeviceArray<float> reward, discount, weight;
  DeviceArray<double> total;
};

// If a slot is assigned twice in one call, the last item counts. An eviction in the same call
// refers to the previous item.
void OfEqualSlotsTheLastCounts(Parity& parity) {
  DeviceTableOptions o = SmallTable(5, 1, 1);
  o.alpha = 1;
  Small small(parity, o, 4);
  small.news.items = {{0, 0, 3, 7}, {1, 0, 2, 1}, {0, 0, 1, 3}};
  small.news.window = {0, 1, 2, 3, 1, 2, 3, 0, 1};
  small.news.left = {0};
  parity.True("it is taken", small.Append());
  parity.True("and counted once", small.table.items() == 2);
  parity.True("the last priority", small.Total() == 4);
  small.Draw();
  // The first item has three quarters of the mass.
  parity.True("the last length",
              parity.Download(small.length) == std::vector<std::int32_t>{1, 1, 1, 2});
}

// Errors of 0 and huge errors: sampled items stay sampleable and updatable.
void PrioritiesStayWithinTheirBounds(Parity& parity) {
  DeviceTableOptions o = SmallTable(5, 1, 1);
  o.priority_epsilon = 0;
  o.alpha = 2;
  Small small(parity, o, 2);
  small.news.items = {{0, 0, 1, 1}};
  small.news.window = {0, 1};
  parity.True("it is taken", small.Append());
  for (const auto& [error, low, high] : {std::tuple<float, double, double>{0, 1e-38, 1.2e-38},
                                         {1e30f, 0.99e28, 1.01e28},
                                         {3, 8.99, 9.01}}) {
    small.Draw();
    const auto td = parity.Upload(std::vector<float>{error, error});
    small.table.UpdatePriorities(parity.stream(), td.data());
    const double sum = small.Total();
    parity.True("the total is that of the bound", sum > low && sum < high);
  }
}

void WhatDoesNotFitIsRefused(Parity& parity) {
  const DeviceTableOptions o = SmallTable(5, 1, 1);
  Small small(parity, o, 4);
  const auto refused = [&](const char* what, auto change) {
    const News before = small.news;
    change(small.news);
    parity.True(what, !small.Append() && small.table.items() == 0);
    small.news = before;
  };
  const auto with = [](DeviceItem item, std::vector<std::int32_t> window) {
    return [=](News& news) {
      news.items = {item};
      news.window = window;
    };
  };
  refused("bytes", [](News& n) { n.pixels.pop_back(); });
  refused("a place", [&](News& n) { n.frames[2].place = std::int32_t(o.places); });
  refused("a place below all", [](News& n) { n.frames[2].place = -1; });
  refused("a place twice", [](News& n) { n.frames[2].place = 4; });
  refused("a slot", with({std::int32_t(o.slots), 0, 1, 1}, {0, 1}));
  refused("a slot that leaves", [&](News& n) { n.left = {std::int32_t(o.slots)}; });
  refused("an item without steps", with({0, 0, 0, 1}, {0}));
  refused("an item that is too long", with({0, 0, 4, 1}, {0, 1, 2, 3, 4}));
  refused("frames before it", with({0, 1, 1, 1}, {0, 1, 2}));
  refused("an item whose frames are not there", with({0, 0, 1, 1}, {4, 5}));
  refused("an item whose frames are nowhere", with({0, 0, 1, 1}, {4, -1}));
  refused("a window too short", with({0, 0, 2, 1}, {0, 1}));
  refused("a window too long", with({0, 0, 1, 1}, {0, 1, 2}));
  for (const float bad : {NAN, INFINITY, -1.0f})
    refused("a priority", with({0, 0, 1, bad}, {0, 1}));
  refused("too many", [](News& n) {
    n.frames.clear();
    for (std::int32_t i = 0; i < 257; ++i) n.frames.push_back({i, 0, 0, 1});
    n.pixels.resize(257 * 5);
  });
  with({0, 0, 1, 1}, {3, 4})(small.news);
  parity.True("what fits is taken", small.Append());
  parity.True("and counted", small.table.items() == 1);
}

}  // namespace

std::vector<ParityCase> DeviceTableCases() {
  return {{"SumTree.FindsWhatLiesAtEachMass", FindsWhatLiesAtEachMass},
          {"SumTree.ABorderBelongsToTheNextOne", ABorderBelongsToTheNextOne},
          {"DeviceTable.DrawsWhatTheLogHas", DrawsWhatTheLogHas},
          {"DeviceTable.LatePrioritiesAreRefused", LatePrioritiesAreRefused},
          {"DeviceTable.OfEqualSlotsTheLastCounts", OfEqualSlotsTheLastCounts},
          {"DeviceTable.PrioritiesStayWithinTheirBounds", PrioritiesStayWithinTheirBounds},
          {"DeviceTable.WhatDoesNotFitIsRefused", WhatDoesNotFitIsRefused}};
}

}  // namespace troop::cuda
