// Samples of a table, compared with a plain model that keeps whole streams in vectors.

#include <gtest/gtest.h>

#include <set>

#include "tests/replay/table_world.h"

namespace troop {
namespace {

// Streams with all they ever held, and the calls that bring them.
class PlainStreams {
 public:
  PlainStreams(const Table::Options& options, int streams, std::uint64_t seed)
      : options_(options),
        rng_({.run_seed = seed}),
        frames_(std::size_t(streams)),
        next_(std::size_t(streams)) {}

  // Makes a few chunks of a few streams, and an item for each step that can already begin one.
  EncodedInsert MakeCall() {
    EncodedInsert call;
    const std::uint32_t chunks = 1 + rng_.Below(3);
    for (std::uint32_t c = 0; c < chunks; ++c) {
      const StreamId stream = rng_.Below(std::uint32_t(frames_.size()));
      auto& all = frames_[stream];
      std::vector<PlainFrame> chunk;
      const bool gap = rng_.Below(20) == 0 && !all.empty();
      std::uint64_t number = all.empty() ? 0 : all.back().number + 1 + (gap ? 1 : 0);
      for (std::uint32_t i = 0, n = 1 + rng_.Below(12); i < n; ++i, ++number) {
        PlainFrame frame{.number = number,
                         .reward = rng_.UniformF32(),
                         .discount = rng_.Below(10) == 0 ? 0.0f : 1.0f};
        frame.first = all.empty() || all.back().final || all.back().number + 1 != number;
        frame.final = !frame.first && rng_.Below(9) == 0;
        all.push_back(frame);
        chunk.push_back(frame);
      }
      call.chunks.push_back(EncodeFrames(options_.trajectory, options_.codec, stream, chunk));
    }
    for (StreamId stream = 0; stream < frames_.size(); ++stream) AddItems(stream, &call.items);
    return call;
  }

  // The index in the stream's frames of the frame with this number; ~0: lost.
  std::size_t Find(StreamId stream, std::uint64_t number) const {
    const auto& all = frames_[stream];
    const auto it = std::ranges::lower_bound(all, number, {}, &PlainFrame::number);
    return it == all.end() || it->number != number ? ~std::size_t{0}
                                                   : std::size_t(it - all.begin());
  }
  const std::vector<PlainFrame>& frames(StreamId stream) const { return frames_[stream]; }
  int Lead(StreamId stream, std::size_t at, int asked) const {
    int lead = 0;
    while (lead < asked && !frames_[stream][at - std::size_t(lead)].first) ++lead;
    return lead;
  }

 private:
  // Items of full length, and shorter ones that end with their episode.
  void AddItems(StreamId stream, std::vector<Item>* items) {
    const auto& all = frames_[stream];
    std::size_t& at = next_[stream];
    for (; at < all.size(); ++at) {
      std::size_t length = 0;
      const auto n = std::size_t(options_.view.length_max);
      while (length < n && at + length + 1 < all.size() && !all[at + length].final &&
             !all[at + length + 1].first) {
        ++length;
      }
      const bool ends = at + length + 1 < all.size() || all[at + length].final;
      if (length < n && !ends) return;
      if (length == 0) continue;
      items->push_back({.stream = stream,
                        .first_frame = all[at].number,
                        .length = std::uint32_t(length),
                        .burn_in = std::uint32_t(options_.view.burn_in),
                        .priority = 0.1f + rng_.UniformF32(),
                        .policy_version = all[at].number});
    }
  }

  Table::Options options_;
  Rng rng_;
  std::vector<std::vector<PlainFrame>> frames_;
  std::vector<std::size_t> next_;
};

void ExpectItem(const PlainStreams& streams, const Read& read, std::size_t i) {
  const EncodedBatch& drawn = read.drawn;
  const ViewSpec& view = read.view;
  const StreamId stream = read.stream(i);
  const auto& all = streams.frames(stream);
  const std::size_t first = streams.Find(stream, read.first_frame(i));
  ASSERT_LT(first, all.size());
  const std::size_t lead = std::size_t(drawn.lead[i]), length = std::size_t(drawn.length[i]);
  const std::size_t own = first + lead;
  ASSERT_EQ(int(lead), streams.Lead(stream, own, view.lead_max()));
  ASSERT_EQ(drawn.policy_version[i], all[own].number);
  const FrameRanges ranges = FramesOf(view, int(lead), int(length));
  std::size_t f = read.begin[i];
  for (int j = 0; j < ranges.end; ++j) {
    const PlainFrame& frame = all[first + std::size_t(j)];
    ASSERT_TRUE(j == 0 || !frame.first) << "across an episode's border";
    if (j >= ranges.first && j < ranges.second) continue;
    ASSERT_EQ(read.frames[f].first, stream);
    ASSERT_EQ(read.frames[f].second, frame.number);
    ++f;
  }
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  const int burn_in = sequence ? view.burn_in : 0, steps = view.steps();
  const std::size_t action_floats = sequence ? std::size_t(steps) : 1;
  for (int c = 0; c < steps; ++c) {
    const int j = c - burn_in;  // step of the item
    const bool there = j < int(length) && j >= -int(lead);
    const std::size_t at = i * std::size_t(steps) + std::size_t(c);
    ASSERT_EQ(drawn.reward[at], there ? all[own + std::size_t(j)].reward : 0) << "column " << c;
    ASSERT_EQ(drawn.discount[at], there ? all[own + std::size_t(j)].discount : 1) << "column " << c;
    if (std::size_t(c) >= action_floats) continue;
    const std::int32_t expected =
        there ? std::int32_t(10 * stream + all[own + std::size_t(j)].number) : 0;
    const std::size_t action_bytes = drawn.action.size() / drawn.key.size() / action_floats;
    for (std::size_t b = 0; b < action_bytes; b += 4) {
      std::int32_t value;
      std::memcpy(&value,
                  drawn.action.data() + (i * action_floats + std::size_t(c)) * action_bytes + b, 4);
      ASSERT_EQ(value, expected);
    }
  }
}

struct ViewCase {
  const char* name;
  ViewSpec view;
  Codec codec = Codec::kNone;
  std::int64_t action_size = 0;  // 0: a scalar
};

class TableViewTest : public testing::TestWithParam<ViewCase> {};

// Episodes of 2 to some 20 frames, gaps, several streams whose chunks lie between each other's, a
// capacity that turns over some fifty times.
TEST_P(TableViewTest, MatchesModelOfWholeStreams) {
  const ViewCase& c = GetParam();
  Table::Options options = TinyOptions(150);
  options.view = c.view;
  options.codec = c.codec;
  options.segment_bytes = 4096;
  options.sampler.kind = Selector::Kind::kUniform;
  if (c.action_size > 0) options.trajectory.action = {DType::kI32, {c.action_size}};
  if (c.codec != Codec::kNone) options.trajectory.observation = {DType::kF32, {64}};
  for (const auto remover :
       {Selector::Kind::kFifo, Selector::Kind::kLowest, Selector::Kind::kUniform}) {
    options.remover.kind = remover;
    Table table = MakeTable(options);
    PlainStreams streams(options, 5, 7);
    std::int64_t inserted = 0, offered = 0;
    std::set<std::pair<StreamId, std::uint64_t>> seen;
    for (int round = 0; round < 600; ++round) {
      const EncodedInsert call = streams.MakeCall();
      const auto counts = Put(&table, call);
      EXPECT_EQ(counts.expired, 0);
      inserted += counts.inserted;
      offered += std::int64_t(call.items.size());
      if (!table.can_draw()) continue;
      const Read read(&table, 16);
      for (std::size_t i = 0; i < 16; ++i) {
        ExpectItem(streams, read, i);
        if (HasFatalFailure()) return;
        seen.emplace(read.stream(i), read.own_frame(i));
      }
    }
    EXPECT_EQ(inserted, offered);
    EXPECT_GT(inserted, 5000);
    EXPECT_EQ(table.size(), 150);
    EXPECT_GT(seen.size(), 1000u);
  }
}

constexpr ViewSpec::Kind kTransition = ViewSpec::Kind::kTransition;
constexpr ViewSpec::Kind kSequence = ViewSpec::Kind::kSequence;
INSTANTIATE_TEST_SUITE_P(
    Views, TableViewTest,
    testing::Values(ViewCase{"OneStep", {kTransition, 1, 1, 0}},
                    ViewCase{"ThreeSteps", {kTransition, 3, 1, 0}},
                    ViewCase{"StackOfFour", {kTransition, 1, 4, 0}},
                    ViewCase{"StackOfFourThreeSteps", {kTransition, 3, 4, 0}},
                    ViewCase{"StackOfThreeFiveSteps", {kTransition, 5, 3, 0}},
                    ViewCase{"Sequence", {kSequence, 5, 1, 0}},
                    ViewCase{"SequenceWithBurnIn", {kSequence, 5, 1, 4}},
                    ViewCase{"SequenceOfStacksWithBurnIn", {kSequence, 4, 3, 2}},
                    ViewCase{"WideActions", {kTransition, 3, 2, 0}, Codec::kNone, 5},
                    ViewCase{"SequenceOfWideActions", {kSequence, 3, 2, 2}, Codec::kNone, 3},
                    ViewCase{"Lz4", {kTransition, 3, 4, 0}, Codec::kLz4},
                    ViewCase{"ZstdSequence", {kSequence, 5, 2, 3}, Codec::kZstd}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace troop
