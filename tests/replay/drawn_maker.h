#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/philox.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/frame_codec.h"
#include "replay/storage/item_view.h"
#include "tests/replay/pictures.h"

namespace troop {

// Random items as a table might hand them out, with what they were made of.
struct MadeDrawn {
  EncodedBatch drawn;
  std::vector<std::vector<std::vector<std::byte>>> frame;  // [item][lead + length + 1] not encoded
  std::vector<Buffer> encoded;                             // what drawn.frame points into
};

inline void AppendRandomItem(const TrajectorySpec& spec, const ViewSpec& view, FrameCoder* coder,
                             Rng* rng, MadeDrawn* made) {
  EncodedBatch& drawn = made->drawn;
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  const int length = 1 + int(rng->Below(std::uint32_t(view.length_max)));
  const int lead = int(rng->Below(std::uint32_t(view.lead_max()) + 1));
  drawn.key.push_back(std::uint64_t{1} << 32 | rng->NextU32());
  drawn.probability.push_back(0.001 + rng->Uniform());
  drawn.policy_version.push_back(rng->NextU64());
  drawn.length.push_back(length);
  drawn.lead.push_back(lead);
  for (int s = 0; s < view.steps(); ++s) {
    drawn.reward.push_back(rng->UniformF32());
    drawn.discount.push_back(float(rng->Below(2)));
  }
  const auto append = [rng](std::size_t bytes, std::vector<std::byte>* to) {
    for (std::size_t i = 0; i < bytes; ++i) to->push_back(std::byte(rng->Below(256)));
  };
  append(spec.action.bytes() * (sequence ? std::size_t(view.steps()) : 1), &drawn.action);
  if (spec.state) append(spec.state->bytes(), &drawn.state);

  auto& frames = made->frame.emplace_back();
  const FrameRanges ranges = FramesOf(view, lead, length);
  for (int p = 0; p < ranges.end; ++p) {
    std::vector<std::byte>& frame = frames.emplace_back(spec.observation.bytes());
    const auto base = std::byte(rng->Below(256));  // flat with some noise: it shrinks, a little
    for (std::byte& byte : frame) byte = rng->Below(4) > 0 ? base : std::byte(rng->Below(256));
    if (p >= ranges.first && p < ranges.second) continue;  // not handed out
    std::vector<std::byte> encoded(coder->encoded_bytes_max());
    encoded.resize(coder->Encode(frame.data(), encoded.data()));
    made->encoded.push_back(Buffer::Copy(encoded));
    drawn.frame.push_back({made->encoded.back().data(), std::uint32_t(encoded.size())});
  }
}

inline MadeDrawn MakeDrawn(const TrajectorySpec& spec, const ViewSpec& view, FrameCoder* coder,
                           int items, std::uint64_t seed) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest, .index = 7});
  MadeDrawn made;
  for (int i = 0; i < items; ++i) AppendRandomItem(spec, view, coder, &rng, &made);
  made.drawn.total = 1 + rng.Uniform();
  made.drawn.items = items + 100;
  made.drawn.probability_min = 1e-4;
  return made;
}

// A few views that differ in all that matters.
struct NamedView {
  const char* name;
  ViewSpec view;
};
inline std::vector<NamedView> SomeViews() {
  using Kind = ViewSpec::Kind;
  return {{"one_step", {Kind::kTransition, 1, 1, 0}},
          {"three_steps", {Kind::kTransition, 3, 1, 0}},
          {"stack_one_step", {Kind::kTransition, 1, 4, 0}},
          {"stack_five_steps", {Kind::kTransition, 5, 4, 0}},
          {"stack_long", {Kind::kTransition, 12, 2, 0}},
          {"sequence", {Kind::kSequence, 6, 1, 0}},
          {"sequence_burn_in", {Kind::kSequence, 5, 1, 3}},
          {"sequence_stack_burn_in", {Kind::kSequence, 4, 3, 2}}};
}

}  // namespace troop
