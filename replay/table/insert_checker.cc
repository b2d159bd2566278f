// InsertChecker: checks of sizes, values and encoded frames of an insert call.
#include "replay/table/insert_checker.h"

#include <cfloat>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace troop {
namespace {

// Limit that keeps sums of frame numbers within 64 bits.
constexpr std::uint64_t kFrameNumberMax = std::uint64_t{1} << 62;
// Limit of updates in a policy version (see CheckItem).
constexpr std::uint64_t kUpdatesMax = std::uint64_t{1} << 31;

// NaN fails both comparisons.
bool PriorityOk(float priority) { return priority >= 0 && priority <= FLT_MAX; }

}  // namespace

InsertChecker::InsertChecker(const TableOptions& options)
    : spec_(options.view),
      layout_(options.trajectory, options.codec != Codec::kNone),
      coder_(options.codec, layout_.observation_bytes),
      decoded_(layout_.observation_bytes) {}

void InsertChecker::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  coder_.AddDictionary(std::move(dictionary));
}

// All sizes are compared with the bytes that arrived before any frame is decoded.
Result<std::span<const InsertWindow::ChunkView>> InsertChecker::View(
    std::span<const EncodedChunk> chunks) {
  view_.clear();
  for (const EncodedChunk& chunk : chunks) {
    const std::size_t n = chunk.frames;
    const auto refuse = [&chunk](std::string_view what, std::size_t bytes) {
      return InvalidArgument("stream {:#x}: {} frames with {} bytes of {}, which is a wrong size",
                             chunk.stream, chunk.frames, bytes, what);
    };
    if (n == 0 || chunk.first_frame > kFrameNumberMax) {
      return InvalidArgument(
          "stream {:#x}: {} frames from number {}, must be >= 1 frame below number 2^62",
          chunk.stream, chunk.frames, chunk.first_frame);
    }
    if (chunk.action.size() != n * layout_.action_bytes) {
      return refuse("actions", chunk.action.size());
    }
    if (chunk.reward.size() != n * 4) return refuse("rewards", chunk.reward.size());
    if (chunk.discount.size() != n * 4) return refuse("discounts", chunk.discount.size());
    if (chunk.final.size() != n) return refuse("ends", chunk.final.size());
    if (chunk.frame_bytes.size() != (layout_.has_codec ? n * 4 : 0)) {
      return refuse("frame sizes", chunk.frame_bytes.size());
    }
    // 64-bit sum: the sizes are 32-bit values from a peer.
    std::uint64_t encoded = n * layout_.observation_bytes;
    if (layout_.has_codec) {
      encoded = 0;
      for (std::size_t i = 0; i < n; ++i) {
        encoded += Load<std::uint32_t>(chunk.frame_bytes.data(), i);
      }
    }
    if (chunk.observation.size() != encoded || encoded > kRecordBytesMax) {
      return refuse("observations", chunk.observation.size());
    }
    view_.push_back({chunk.stream,
                     chunk.first_frame,
                     chunk.frames,
                     std::uint32_t(encoded),
                     {chunk.action.data(), chunk.reward.data(), chunk.discount.data(),
                      chunk.final.data(), chunk.frame_bytes.data(), chunk.observation.data()}});
  }
  return std::span<const InsertWindow::ChunkView>(view_);
}

Status InsertChecker::CheckFrames(const InsertWindow::ChunkView& chunk) {
  const auto refuse = [&chunk](std::uint32_t i, std::string_view why) {
    return InvalidArgument("stream {:#x}, frame {}: {}", chunk.stream, chunk.first_frame + i, why);
  };
  const std::byte* frame = chunk.columns.observation;
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    const auto reward = Load<float>(chunk.columns.reward, i);
    const auto discount = Load<float>(chunk.columns.discount, i);
    if (!std::isfinite(reward)) return refuse(i, fmt::format("reward {} is not finite", reward));
    if (!(discount >= 0 && discount <= 1)) {
      return refuse(i, fmt::format("discount {} is not in [0, 1]", discount));
    }
    if (std::uint8_t(chunk.columns.final[i]) > 1) return refuse(i, "final mark is not 0 or 1");
    if (!layout_.has_codec) continue;
    const auto bytes = Load<std::uint32_t>(chunk.columns.frame_bytes, i);
    const Status status = coder_.Decode({frame, bytes}, decoded_.data());
    if (!status.ok()) return refuse(i, status.message());
    frame += bytes;
  }
  return Status::Ok();
}

Status InsertChecker::CheckItem(const Item& i) const {
  const auto refuse = [&i](const std::string& why) {
    return InvalidArgument("item of stream {:#x} at frame {}, length {}: {}", i.stream,
                           i.first_frame, i.length, why);
  };
  if (i.length < 1 || i.length > std::uint32_t(spec_.length_max)) {
    return refuse(fmt::format("length must be in [1, {}]", spec_.length_max));
  }
  if (i.burn_in > std::uint32_t(spec_.burn_in)) {
    return refuse(fmt::format("burn_in is {}, must be at most {}", i.burn_in, spec_.burn_in));
  }
  // With stacks, lead frames of the stack would be taken for steps of a longer burn-in.
  if (spec_.stack > 1 && i.burn_in != std::uint32_t(spec_.burn_in)) {
    return refuse(fmt::format("burn_in is {}, must be {} with stacked observations", i.burn_in,
                              spec_.burn_in));
  }
  // No learner reaches this many updates; one such item would make all others too old.
  if (UpdatesOf(i.policy_version) >= kUpdatesMax) {
    return refuse(fmt::format("policy version {:#x} is invalid", i.policy_version));
  }
  if (!PriorityOk(i.priority)) {
    return refuse(fmt::format("priority {} must be finite and >= 0", i.priority));
  }
  if (i.state.size() != layout_.state_bytes) {
    return refuse(
        fmt::format("state has {} bytes, must have {}", i.state.size(), layout_.state_bytes));
  }
  return Status::Ok();
}

}  // namespace troop
