// Hostile bytes against the files of recorded episodes. The first byte of an input chooses:
//   0: a file as it is       1: the same, with sizes that fit and all checksums made right
// Arrays have the sizes that the header announces, numbers are within the limits of the format, and
// an episode that is written again is read the same.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/storage/crc32c.h"
#include "replay/episodes/episode.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

void FixEpisodes(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at + kEpisodePreludeBytes <= bytes.size();) {
    const std::size_t rest = bytes.size() - at - kEpisodePreludeBytes;
    const auto size = std::min<std::uint64_t>(ReadAt<std::uint64_t>(bytes, at + 8), rest);
    Overwrite(bytes, at + 8, size);
    Overwrite(bytes, at + 16, Crc32c(bytes.subspan(at + kEpisodePreludeBytes, size)));
    Overwrite(bytes, at + 20, Crc32c(bytes.subspan(at, 20)));
    at += kEpisodePreludeBytes + size;
  }
}

void CheckEpisode(const Episode& e) {
  TROOP_CHECK(e.steps > 0 && (e.terminated || e.truncated), "an episode of {} steps", e.steps);
  const auto steps = std::size_t(e.steps);
  TROOP_CHECK(e.observations.size() == (steps + 1) * e.observation.bytes() &&
                  e.actions.size() == steps * e.action.tensor().bytes() &&
                  e.rewards.size() == steps * sizeof(float),
              "{} steps with arrays of other sizes", e.steps);
  const EnvSpec spec{.id = e.env, .observation = e.observation, .action = e.action};
  TROOP_CHECK(CheckEnvSpec(spec).ok(), "a specification that no environment may have");
  TROOP_CHECK(e.exploration >= 0 && e.exploration <= 1000 && e.agent_steps >= 0 &&
                  e.policy_updates < (std::uint64_t{1} << 32) && e.observation_clip >= 0 &&
                  std::isfinite(e.observation_clip) && std::isfinite(e.reward_scale) &&
                  e.reward_scale != 0,
              "a number outside its limits");
  const std::vector<std::byte> record = EncodeEpisode(e);
  EpisodeReader reader(Buffer::Copy(std::span<const std::byte>(record)));
  const auto again = reader.Next();
  TROOP_CHECK(again.ok() && *again && EncodeEpisode(**again) == record,
              "another episode came back");
}

std::string SeedEpisodes() {
  const auto zeros = [](std::size_t bytes) { return MutableBuffer::Zeros(bytes).Freeze(); };
  const Episode discrete{.env = "CartPole-v1",
                         .observation = {DType::kF32, {4}},
                         .action = {.count = 2},
                         .steps = 2,
                         .terminated = true,
                         .seed = 7,
                         .exploration = 0.1,
                         .policy_updates = 100,
                         .agent_steps = 1000,
                         .observations = zeros(48),
                         .actions = zeros(8),
                         .rewards = zeros(8)};
  // An odd number of bytes, so that the next arrays and record are misaligned.
  const Episode continuous{
      .env = "é/v0",
      .observation = {DType::kU8, {3, 1}},
      .action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1, 0}, .high = {1, 0.5F}},
      .steps = 2,
      .truncated = true,
      .reward_scale = 0.5,
      .observation_clip = 10,
      .observations = zeros(9),
      .actions = zeros(16),
      .rewards = zeros(8)};
  return StringOf(EncodeEpisode(continuous)) + StringOf(EncodeEpisode(discrete));
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  const std::string file = SeedEpisodes();
  write("file", '\0' + file);
  write("fixed", '\1' + file);
  write("torn", '\0' + file.substr(0, file.size() - 1));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  FuzzInput input(data, size);
  const int way = input.Take<std::uint8_t>();
  const std::span<std::byte> bytes = input.TakeRest();
  if (way == 1) FixEpisodes(bytes);
  EpisodeReader reader(Buffer::Copy(std::span<const std::byte>(bytes)));
  while (true) {
    const Result<std::optional<Episode>> next = reader.Next();
    if (!next.ok()) {
      TROOP_CHECK(next.status().code() == Code::kDataLoss, "{}", next.status().ToString());
      break;
    }
    if (!*next) break;
    CheckEpisode(**next);
  }
  TROOP_CHECK(reader.torn_bytes() <= bytes.size(), "{} torn bytes", reader.torn_bytes());
  return 0;
}
