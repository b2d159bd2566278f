// Cuts environment steps into frames and items.

#include "python/src/trajectory_cutter.h"

#include <algorithm>
#include <cmath>

namespace troop {
namespace {

// Row of one environment in an array of E rows.
std::span<const std::byte> Row(std::span<const std::byte> rows, int row, std::size_t bytes) {
  return rows.subspan(std::size_t(row) * bytes, bytes);
}

// Copies a column and empties it; the vector keeps its memory for the next chunk.
template <class T>
Buffer TakeBytes(std::vector<T>* column) {
  const Buffer bytes = Buffer::Copy(std::as_bytes(std::span<const T>(*column)));
  column->clear();
  return bytes;
}

// Flags may be omitted; all are then false.
bool Set(std::span<const std::uint8_t> flags, int environment) {
  return !flags.empty() && flags[std::size_t(environment)] != 0;
}

}  // namespace

TrajectoryCutter::TrajectoryCutter(const Options& options)
    : options_(options), streams_(std::size_t(options.environments)) {
  TROOP_CHECK(options.environments >= 1 && options.period >= 1,
              "environments ({}) and period ({}) must be at least 1", options.environments,
              options.period);
}

// Validates a whole step before anything changes.
Status TrajectoryCutter::Check(const Steps& steps) const {
  const auto rows = std::size_t(options_.environments);
  const auto check = [rows](std::string_view what, std::size_t have, std::size_t row) {
    if (have == rows * row) return Status::Ok();
    return InvalidArgument("{}: {} bytes or values, expected {} for {} environments", what, have,
                           rows * row, rows);
  };
  // Without a state in the spec, the argument must be empty.
  const std::size_t state = options_.spec.state ? options_.spec.state->bytes() : 0;
  TROOP_RETURN_IF_ERROR(
      check("observation", steps.observation.size(), options_.spec.observation.bytes()));
  TROOP_RETURN_IF_ERROR(check("action", steps.action.size(), options_.spec.action.bytes()));
  TROOP_RETURN_IF_ERROR(check("state", steps.state.size(), state));
  TROOP_RETURN_IF_ERROR(check("reward", steps.reward.size(), 1));
  TROOP_RETURN_IF_ERROR(check("priority", steps.priority.size(), 1));
  TROOP_RETURN_IF_ERROR(check("terminated", steps.terminated.size(), 1));
  TROOP_RETURN_IF_ERROR(check("truncated", steps.truncated.size(), 1));
  if (!steps.skip.empty()) TROOP_RETURN_IF_ERROR(check("skip", steps.skip.size(), 1));
  // next_observation is required only if an episode ends.
  bool ends = false;
  for (int e = 0; e < options_.environments; ++e) {
    // Values of skipped environments are not read, so they need not be valid.
    if (Set(steps.skip, e)) continue;
    ends = ends || Set(steps.terminated, e) || Set(steps.truncated, e);
    const float reward = steps.reward[std::size_t(e)], priority = steps.priority[std::size_t(e)];
    // One NaN would spread, through the sampler's sums or the learner's targets.
    if (!std::isfinite(reward)) {
      return InvalidArgument("environment {}: reward is {}, must be finite", e, reward);
    }
    if (!std::isfinite(priority) || priority < 0) {
      return InvalidArgument("environment {}: priority is {}, must be finite and >= 0", e,
                             priority);
    }
  }
  if (ends && steps.next_observation.empty()) {
    return InvalidArgument("an episode ends; give its last observation as next_observation");
  }
  if (steps.next_observation.empty()) return Status::Ok();
  return check("next_observation", steps.next_observation.size(),
               options_.spec.observation.bytes());
}

Status TrajectoryCutter::Append(const Steps& steps) {
  TROOP_RETURN_IF_ERROR(Check(steps));
  for (int e = 0; e < options_.environments; ++e) {
    if (!Set(steps.skip, e)) AppendStep(steps, e);
  }
  return Status::Ok();
}

// Order: frame, start of an item, finished items; then the last frame of an episode that ends.
void TrajectoryCutter::AppendStep(const Steps& steps, int environment) {
  Stream& stream = streams_[std::size_t(environment)];
  const std::size_t observation_bytes = options_.spec.observation.bytes();
  AppendFrame(&stream, Row(steps.observation, environment, observation_bytes));
  const auto action = Row(steps.action, environment, options_.spec.action.bytes());
  stream.action.insert(stream.action.end(), action.begin(), action.end());
  stream.reward.push_back(steps.reward[std::size_t(environment)]);
  // Discount 0 stops the bootstrap at a termination. After a truncation the value still counts.
  const bool terminated = Set(steps.terminated, environment);
  stream.discount.push_back(terminated ? 0.0f : 1.0f);
  stream.final.push_back(0);
  StartItem(steps, environment);
  FinishItems(environment, false);
  if (!terminated && !Set(steps.truncated, environment)) return;
  // The last observation is a frame without an action: `final` marks it.
  AppendFrame(&stream, Row(steps.next_observation, environment, observation_bytes));
  stream.action.insert(stream.action.end(), options_.spec.action.bytes(), std::byte{0});
  stream.reward.push_back(0);
  stream.discount.push_back(0);
  stream.final.push_back(1);
  FinishItems(environment, true);
}

void TrajectoryCutter::AppendFrame(Stream* stream, std::span<const std::byte> observation) {
  stream->observation.insert(stream->observation.end(), observation.begin(), observation.end());
  ++stream->next_frame;
  ++stream->frames;
  ++frames_;
}

// Starts an item at the newest frame if the period asks for it.
void TrajectoryCutter::StartItem(const Steps& steps, int environment) {
  Stream& stream = streams_[std::size_t(environment)];
  if (options_.spec.state) {
    const auto burn_in = std::size_t(options_.view.burn_in);
    // The state before the first burn-in step is stored with the item.
    if (stream.states.size() > burn_in) stream.states.pop_front();
    stream.states.push_back(
        Buffer::Copy(Row(steps.state, environment, options_.spec.state->bytes())));
  }
  // Counted from the first frame of the episode, so that an item starts there.
  const std::uint64_t frame = stream.next_frame - 1;
  if ((frame - stream.episode_first) % std::uint64_t(options_.period) != 0) return;
  stream.pending.push_back({frame, steps.priority[std::size_t(environment)], steps.policy_version,
                            options_.spec.state ? stream.states.front() : Buffer()});
}

// Emits the complete items. At the end of an episode, shorter items are complete too.
void TrajectoryCutter::FinishItems(int environment, bool ended) {
  Stream& stream = streams_[std::size_t(environment)];
  const std::uint64_t newest = stream.next_frame - 1;  // items may bootstrap from it
  const auto length_max = std::uint64_t(options_.view.length_max);
  while (!stream.pending.empty()) {
    Pending& first = stream.pending.front();
    // Complete items are emitted in order; an incomplete first one blocks the others.
    const std::uint64_t length = std::min(newest - first.frame, length_max);
    if (length < length_max && !ended) return;
    // Omits a sequence whose steps the previous one has all.
    const bool told = options_.view.kind == ViewSpec::Kind::kSequence && stream.covered == newest &&
                      first.frame != stream.episode_first;
    if (!told) {
      items_.push_back({options_.first_stream + std::uint64_t(environment), first.frame,
                        std::uint32_t(length), std::uint32_t(options_.view.burn_in), first.priority,
                        first.policy_version, std::move(first.state)});
      stream.covered = first.frame + length;
    }
    stream.pending.pop_front();
  }
  if (ended) {
    stream.states.clear();
    stream.episode_first = stream.next_frame;
  }
}

void TrajectoryCutter::Break(int environment) {
  Stream& stream = streams_[std::size_t(environment)];
  // Nothing to break between two episodes.
  if (stream.next_frame == stream.episode_first) return;
  // Emits the frames so far and skips one frame number, which no item may cross.
  stream.pending.clear();
  stream.states.clear();
  if (stream.frames > 0) broken_.push_back(TakeChunk(environment));
  stream.episode_first = ++stream.next_frame;
}

// Frames since the last chunk of this stream. Pending items refer to frames by number, so they may
// begin in an earlier chunk.
Chunk TrajectoryCutter::TakeChunk(int environment) {
  Stream& stream = streams_[std::size_t(environment)];
  Chunk chunk{.stream = options_.first_stream + std::uint64_t(environment),
              .first_frame = stream.next_frame - stream.frames,
              .frames = stream.frames};
  chunk.observation = TakeBytes(&stream.observation);
  chunk.action = TakeBytes(&stream.action);
  chunk.reward = TakeBytes(&stream.reward);
  chunk.discount = TakeBytes(&stream.discount);
  chunk.final = TakeBytes(&stream.final);
  stream.frames = 0;
  return chunk;
}

void TrajectoryCutter::Take(std::vector<Chunk>* chunks, std::vector<Item>* items) {
  // Chunks of broken episodes come first: their frames precede the current ones of the same stream.
  *chunks = std::move(broken_);
  broken_.clear();
  for (int e = 0; e < options_.environments; ++e) {
    if (streams_[std::size_t(e)].frames > 0) chunks->push_back(TakeChunk(e));
  }
  *items = std::move(items_);
  items_.clear();
  frames_ = 0;
}

}  // namespace troop
