// Implements the file format of recorded episodes.
#include "replay/episodes/episode.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "core/base/utf8.h"
#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "core/storage/list_folder.h"

namespace troop {
namespace {

constexpr std::string_view kMagic = "TROOPEP1";

// Limits of the header (docs/reference/episodes.md).
constexpr std::size_t kHeaderBytesMax = std::size_t{1} << 20, kEnvBytesMax = 4096;
constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr double kNoiseMax = 1000;  // noise of continuous actions, in halves of their range
constexpr std::int64_t kPolicyUpdatesMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kAgentStepsMax = 1'000'000'000'000'000;  // the limit of run.total_steps

constexpr std::size_t kMessageBytesMax = 400;  // an error message may quote the file

// Integers are stored as the machine has them, which is little-endian (x86-64).
template <class T>
void Put(std::vector<std::byte>* out, std::size_t at, T value) {
  std::memcpy(out->data() + at, &value, sizeof value);
}

// The bytes may be misaligned, so they are copied.
template <class T>
T Get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The header is text, so that other programs can read a record without this source.
std::string HeaderOf(const Episode& e) {
  JsonObject out(JsonStyle::kCompact);
  out.Add("env", e.env).Add("observation", e.observation.ToString());
  // 0 actions stand for a continuous action, as in messages.
  out.Add("actions", e.action.discrete() ? e.action.count : 0);
  out.Add("low", JsonArray::Of(e.action.low)).Add("high", JsonArray::Of(e.action.high));
  out.Add("steps", e.steps).Add("terminated", e.terminated).Add("truncated", e.truncated);
  // A string, because a JSON number of 64 bits is not exact everywhere.
  out.Add("seed", e.seed ? JsonText(std::to_string(*e.seed)) : JsonText(nullptr));
  out.Add("exploration", e.exploration);
  out.Add("policy_updates", e.policy_updates).Add("agent_steps", e.agent_steps);
  out.Add("reward_scale", e.reward_scale).Add("observation_clip", e.observation_clip);
  return out.str();
}

// Required fields of the header, with their types.
Result<bool> Flag(const JsonValue& header, std::string_view key) {
  const JsonValue* const value = header.Find(key);
  if (value != nullptr && value->kind == JsonValue::Kind::kBool) return value->boolean;
  return DataLoss("the header has no boolean {}", key);
}

Result<double> Number(const JsonValue& header, std::string_view key, double low, double high) {
  const JsonValue* const value = header.Find(key);
  if (value == nullptr || value->kind != JsonValue::Kind::kNumber) {
    return DataLoss("the header has no number {}", key);
  }
  if (value->number >= low && value->number <= high) return value->number;
  return DataLoss("{} is {}, must be from {} to {}", key, value->number, low, high);
}

Result<std::int64_t> Count(const JsonValue& header, std::string_view key, std::int64_t high) {
  TROOP_ASSIGN_OR_RETURN(const std::int64_t count, header.Integer(key));
  if (count >= 0 && count <= high) return count;
  return DataLoss("{} is {}, must be from 0 to {}", key, count, high);
}

// One number for each value of a continuous action; CheckEnvSpec compares the two lengths.
Result<std::vector<float>> Bounds(const JsonValue& header, std::string_view key) {
  const JsonValue* const value = header.Find(key);
  if (value == nullptr || value->kind != JsonValue::Kind::kArray) {
    return DataLoss("the header has no array {}", key);
  }
  std::vector<float> bounds;
  for (const JsonValue& bound : value->array) {
    if (bound.kind != JsonValue::Kind::kNumber) return DataLoss("{} has a non-number", key);
    // A conversion of larger values to float is undefined.
    if (std::abs(bound.number) > kFloatMax) {
      return DataLoss("{} has the value {}, must be a finite float", key, bound.number);
    }
    bounds.push_back(float(bound.number));
  }
  return bounds;
}

// The specification of the environment, within the limits of any environment.
Status ReadSpec(const JsonValue& header, Episode* e) {
  TROOP_ASSIGN_OR_RETURN(e->env, header.String("env"));
  if (e->env.size() > kEnvBytesMax || PrintableLine(e->env, kEnvBytesMax) != e->env) {
    return DataLoss("env is not one line of at most {} bytes", kEnvBytesMax);
  }
  TROOP_ASSIGN_OR_RETURN(const std::string observation, header.String("observation"));
  TROOP_ASSIGN_OR_RETURN(e->observation, ParseTensorSpec(observation));
  TROOP_ASSIGN_OR_RETURN(e->action.count, header.Integer("actions"));
  TROOP_ASSIGN_OR_RETURN(e->action.low, Bounds(header, "low"));
  TROOP_ASSIGN_OR_RETURN(e->action.high, Bounds(header, "high"));
  if (e->action.count == 0) e->action.kind = ActionSpec::Kind::kContinuous;
  return CheckEnvSpec({.id = e->env, .observation = e->observation, .action = e->action});
}

// Episodes that other programs made may have no seed.
Status ReadSeed(const JsonValue& header, Episode* e) {
  const JsonValue* const value = header.Find("seed");
  if (value != nullptr && value->kind == JsonValue::Kind::kNull) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const std::string seed, header.String("seed"));
  const char* const end = seed.data() + seed.size();
  const auto parsed = std::from_chars(seed.data(), end, e->seed.emplace());
  if (parsed.ec == std::errc() && parsed.ptr == end) return Status::Ok();
  return DataLoss("seed is \"{}\", must be an integer from 0 to 2^64 - 1", seed);
}

// The numbers that describe the recording.
Status ReadNumbers(const JsonValue& header, Episode* e) {
  const double exploration_max = e->action.discrete() ? 1 : kNoiseMax;
  TROOP_ASSIGN_OR_RETURN(e->exploration, Number(header, "exploration", 0, exploration_max));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t updates,
                         Count(header, "policy_updates", kPolicyUpdatesMax));
  e->policy_updates = std::uint64_t(updates);
  TROOP_ASSIGN_OR_RETURN(e->agent_steps, Count(header, "agent_steps", kAgentStepsMax));
  TROOP_ASSIGN_OR_RETURN(e->reward_scale, Number(header, "reward_scale", -kFloatMax, kFloatMax));
  if (e->reward_scale == 0) return DataLoss("reward_scale is 0, must not be");
  TROOP_ASSIGN_OR_RETURN(e->observation_clip, Number(header, "observation_clip", 0, kFloatMax));
  return Status::Ok();
}

// Every field is required: a file of an unknown version must not be half understood.
Status ReadHeader(std::string_view text, Episode* e) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue header, ParseJson(text));
  TROOP_RETURN_IF_ERROR(ReadSpec(header, e));
  TROOP_ASSIGN_OR_RETURN(e->steps, header.Integer("steps"));
  if (e->steps < 1 || e->steps > std::int64_t(kEpisodeBytesMax)) {
    return DataLoss("an episode of {} steps", e->steps);
  }
  TROOP_ASSIGN_OR_RETURN(e->terminated, Flag(header, "terminated"));
  TROOP_ASSIGN_OR_RETURN(e->truncated, Flag(header, "truncated"));
  if (!e->terminated && !e->truncated) return DataLoss("the episode has no end");
  TROOP_RETURN_IF_ERROR(ReadSeed(header, e));
  return ReadNumbers(header, e);
}

// A slice, or a copy of it where elements would be misaligned.
Buffer Aligned(const Buffer& file, std::size_t offset, std::size_t size, std::size_t align) {
  Buffer slice = file.Slice(offset, size);
  const bool fits = reinterpret_cast<std::uintptr_t>(slice.data()) % align == 0;
  return fits ? slice : Buffer::Copy(slice.bytes());
}

// The arrays of a body, after its header; their sizes must sum to that of the body.
Status ReadArrays(const Buffer& body, std::size_t at, Episode* e) {
  const auto steps = std::size_t(e->steps);
  const TensorSpec action = e->action.tensor();
  // The sizes are at most 2^30 · 2^26 bytes: no overflow.
  const std::size_t observations = (steps + 1) * e->observation.bytes();
  const std::size_t actions = steps * action.bytes(), rewards = steps * sizeof(float);
  if (at + observations + actions + rewards != body.size()) {
    return DataLoss("{} steps take {} bytes, but the record has {}", e->steps,
                    observations + actions + rewards, body.size() - at);
  }
  e->observations = Aligned(body, at, observations, DTypeSize(e->observation.dtype));
  e->actions = Aligned(body, at + observations, actions, DTypeSize(action.dtype));
  e->rewards = Aligned(body, at + observations + actions, rewards, sizeof(float));
  return Status::Ok();
}

// The checksum has matched, but the writer may have been another program.
Status ReadBody(const Buffer& body, Episode* e) {
  if (body.size() < 4) return DataLoss("a body of {} bytes", body.size());
  const std::size_t header = Get<std::uint32_t>(body.bytes(), 0);
  // Its tree in memory is many times larger than the text.
  if (header > std::min(body.size() - 4, kHeaderBytesMax)) {
    return DataLoss("a header of {} bytes", header);
  }
  TROOP_RETURN_IF_ERROR(ReadHeader(body.text().substr(4, header), e));
  return ReadArrays(body, 4 + header, e);
}

}  // namespace

// The header is padded so that the arrays start at a multiple of 8 from the record's begin.
std::vector<std::byte> EncodeEpisode(const Episode& e) {
  std::string header = HeaderOf(e);
  header.append((8 - (4 + header.size()) % 8) % 8, ' ');
  std::vector<std::byte> out(kEpisodePreludeBytes + 4);
  const std::size_t body =
      4 + header.size() + e.observations.size() + e.actions.size() + e.rewards.size();
  out.reserve(kEpisodePreludeBytes + body);
  Put(&out, kEpisodePreludeBytes, std::uint32_t(header.size()));
  const auto append = [&out](std::span<const std::byte> part) {
    out.insert(out.end(), part.begin(), part.end());
  };
  append(std::as_bytes(std::span(header)));
  append(e.observations.bytes());
  append(e.actions.bytes());
  append(e.rewards.bytes());
  // The second checksum covers the size, which a reader uses first.
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  Put(&out, 8, std::uint64_t(body));
  Put(&out, 16, Crc32c(std::span(out).subspan(kEpisodePreludeBytes)));
  Put(&out, 20, Crc32c(std::span(out).first(20)));
  return out;
}

// Checks in this order: magic, size, checksum, header. Nothing is allocated from an unchecked size.
Result<std::optional<Episode>> EpisodeReader::Next() {
  const std::span<const std::byte> rest = file_.bytes().subspan(at_);
  if (rest.size() < kEpisodePreludeBytes) return std::optional<Episode>();
  const auto damaged = [this](const std::string& why) {
    return DataLoss("damaged episode {} at byte {}: {}", number_, at_,
                    PrintableLine(why, kMessageBytesMax));
  };
  if (file_.text().substr(at_, kMagic.size()) != kMagic) return damaged("no record begins here");
  if (Crc32c(rest.first(20)) != Get<std::uint32_t>(rest, 20)) {
    return damaged("the checksum of its size does not match");
  }
  const auto size = Get<std::uint64_t>(rest, 8);
  if (size > kEpisodeBytesMax) return damaged(fmt::format("a body of {} bytes", size));
  // A writer that was killed leaves a part of its last record.
  if (rest.size() - kEpisodePreludeBytes < size) return std::optional<Episode>();
  const Buffer body = file_.Slice(at_ + kEpisodePreludeBytes, size);
  if (Crc32c(body.bytes()) != Get<std::uint32_t>(rest, 16)) {
    return damaged("its checksum does not match");
  }
  Episode episode;
  if (const Status read = ReadBody(body, &episode); !read.ok()) return damaged(read.message());
  at_ += kEpisodePreludeBytes + size;
  ++number_;
  return std::optional(std::move(episode));
}

// Links are followed: a dataset may be one.
Result<std::vector<std::string>> FindEpisodeFiles(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_regular_file(path, error)) return std::vector<std::string>{path};
  // A run folder has a folder of episodes.
  fs::path folder = path;
  if (fs::is_directory(folder / kEpisodeFolder, error)) folder /= kEpisodeFolder;
  if (!fs::is_directory(folder, error)) return NotFound("{}: no such file or folder", path);
  std::vector<std::string> files;
  TROOP_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, ListFolder(folder.string()));
  for (const fs::path& entry : entries) {
    if (entry.extension() == kEpisodeSuffix) files.push_back(entry.string());
  }
  if (files.empty()) {
    return NotFound(
        "{} has no recorded episodes (*{}); record them with "
        "actor.record_episodes = true",
        folder.string(), kEpisodeSuffix);
  }
  return files;
}

}  // namespace troop
