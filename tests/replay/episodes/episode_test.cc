#include "replay/episodes/episode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/storage/crc32c.h"
#include "core/storage/memory_storage.h"
#include "replay/episodes/episode_writer.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

template <class T>
Buffer BytesOf(const std::vector<T>& values) {
  return Buffer::Copy(std::as_bytes(std::span<const T>(values)));
}

// An episode of 2 floats per frame and one of 3 actions, whose values follow from `first`.
Episode Discrete(int steps, float first = 0) {
  std::vector<float> observations, rewards;
  std::vector<std::int32_t> actions;
  for (int t = 0; t <= steps; ++t) {
    observations.push_back(first + float(t));
    observations.push_back(-first - float(t));
    if (t == steps) break;
    actions.push_back(t % 3);
    rewards.push_back(0.25F * float(t) - first);
  }
  return {.env = "Test-v0",
          .observation = {DType::kF32, {2}},
          .action = {.count = 3},
          .steps = steps,
          .terminated = true,
          .seed = 0xFEDCBA9876543210u,
          .exploration = 0.1,
          .policy_updates = 77,
          .agent_steps = 1234,
          .reward_scale = 0.5,
          .observation_clip = 10,
          .observations = BytesOf(observations),
          .actions = BytesOf(actions),
          .rewards = BytesOf(rewards)};
}

// Pictures of 3 bytes, so that later arrays of the record are misaligned; actions of two values.
Episode Continuous() {
  return {
      .env = "Path \"ö\"/env",
      .observation = {DType::kU8, {3, 1}},
      .action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0.1F}, .high = {2, 1.0F / 3}},
      .steps = 2,
      .truncated = true,
      .observations = BytesOf<std::uint8_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}),
      .actions = BytesOf<float>({0.5F, 0.2F, -1.5F, 0.3F}),
      .rewards = BytesOf<float>({1, -1})};
}

void ExpectEqual(const Episode& a, const Episode& b) {
  EXPECT_EQ(a.env, b.env);
  EXPECT_EQ(a.observation, b.observation);
  EXPECT_EQ(a.action, b.action);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.terminated, b.terminated);
  EXPECT_EQ(a.truncated, b.truncated);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.exploration, b.exploration);
  EXPECT_EQ(a.policy_updates, b.policy_updates);
  EXPECT_EQ(a.agent_steps, b.agent_steps);
  EXPECT_EQ(a.reward_scale, b.reward_scale);
  EXPECT_EQ(a.observation_clip, b.observation_clip);
  EXPECT_EQ(a.observations.text(), b.observations.text());
  EXPECT_EQ(a.actions.text(), b.actions.text());
  EXPECT_EQ(a.rewards.text(), b.rewards.text());
}

std::string Concatenated(const std::vector<Episode>& episodes) {
  std::string file;
  for (const Episode& e : episodes) {
    const std::vector<std::byte> record = EncodeEpisode(e);
    file.append(reinterpret_cast<const char*>(record.data()), record.size());
  }
  return file;
}

// All episodes of a file; *error: that of the reader.
std::vector<Episode> Read(const std::string& file, Status* error, std::size_t* torn = nullptr) {
  EpisodeReader reader(Buffer::Copy(file));
  std::vector<Episode> found;
  while (true) {
    Result<std::optional<Episode>> next = reader.Next();
    *error = next.status();
    if (!next.ok() || !next->has_value()) break;
    found.push_back(std::move(**next));
  }
  if (torn != nullptr) *torn = reader.torn_bytes();
  return found;
}

TEST(EpisodeTest, ReadsWhatWasWritten) {
  const std::vector<Episode> written = {Discrete(5), Continuous(), Discrete(1, 3)};
  Status error;
  std::size_t torn = 1;
  const std::vector<Episode> found = Read(Concatenated(written), &error, &torn);
  EXPECT_TRUE(error.ok()) << error.ToString();
  EXPECT_EQ(torn, 0u);
  ASSERT_EQ(found.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) ExpectEqual(written[i], found[i]);
  // Arrays can be used as their types.
  EXPECT_EQ(found[1].actions.as<float>()[1], 0.2F);
  EXPECT_EQ(found[2].rewards.as<float>()[0], -3);
}

// A change of the format must not go unnoticed.
TEST(EpisodeTest, ReadsFileOfFixture) {
  std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/episodes/two.episodes", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes, Concatenated({Discrete(5), Continuous()}));
}

TEST(EpisodeTest, EveryTruncationLeavesCompleteEpisodes) {
  const std::string first = Concatenated({Discrete(2)}),
                    file = first + Concatenated({Continuous()});
  for (std::size_t size = 0; size < file.size(); ++size) {
    Status error;
    std::size_t torn = 0;
    const auto found = Read(file.substr(0, size), &error, &torn);
    EXPECT_TRUE(error.ok()) << size << ": " << error.ToString();
    const std::size_t complete = size >= first.size() ? 1 : 0;
    EXPECT_EQ(found.size(), complete) << size;
    EXPECT_EQ(torn, size - (complete ? first.size() : 0)) << size;
  }
}

TEST(EpisodeTest, RefusesEveryFlippedBit) {
  const std::string file = Concatenated({Discrete(2), Discrete(3)});
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << bit % 8));
    Status error;
    Read(damaged, &error);
    ASSERT_EQ(error.code(), Code::kDataLoss) << "bit " << bit;
    EXPECT_NE(error.message().find("damaged episode "), std::string::npos);
  }
}

// A record with `from` in its header replaced by `to`, and with sizes and checksums that match.
std::string WithHeader(const Episode& e, const std::string& from, const std::string& to) {
  std::string record = Concatenated({e});
  const std::size_t at = record.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  record.replace(at, from.size(), to);
  const auto put = [&record](std::size_t offset, auto value) {
    std::memcpy(record.data() + offset, &value, sizeof value);
  };
  std::uint32_t header = 0;
  std::memcpy(&header, record.data() + kEpisodePreludeBytes, sizeof header);
  put(kEpisodePreludeBytes, std::uint32_t(header + to.size() - from.size()));
  const auto bytes = std::as_bytes(std::span(record));
  put(8, std::uint64_t(record.size() - kEpisodePreludeBytes));
  put(16, Crc32c(bytes.subspan(kEpisodePreludeBytes)));
  put(20, Crc32c(bytes.first(20)));
  return record;
}

struct HeaderChange {
  std::string from, to, part;  // part: of the error; empty: none
  bool continuous = false;
};

// Checksums that match do not make the numbers of another program valid.
TEST(EpisodeTest, RefusesNumbersOutOfRange) {
  const std::string updates = "\"policy_updates\":", steps = "\"agent_steps\":",
                    scale = "\"reward_scale\":", clip = "\"observation_clip\":",
                    exploration = "\"exploration\":";
  const HeaderChange changes[] = {
      {exploration + "0.1", exploration + "1", ""},
      {exploration + "0.1", exploration + "1.01", "exploration is 1.01, must be from 0 to 1"},
      {exploration + "0.1", exploration + "-0.1", "exploration is -0.1, must be from 0 to 1"},
      {exploration + "0.1", exploration + "1e999", "too large"},
      {exploration + "0.1", exploration + "NaN", "JSON"},
      {exploration + "0.1", exploration + "\"1\"", "no number exploration"},
      {exploration + "0", exploration + "1000", "", true},
      {exploration + "0", exploration + "1001", "must be from 0 to 1000", true},
      {"\"low\":[-2,", "\"low\":[-1e39,", "low has the value -1e+39", true},
      {updates + "77", updates + "4294967295", ""},
      {updates + "77", updates + "4294967296", "4294967296, must be from 0 to 4294967295"},
      {updates + "77", updates + "-1", "policy_updates is -1"},
      {updates + "77", updates + "1e30", "\"policy_updates\" is missing or not an integer"},
      {steps + "1234", steps + "-1", "agent_steps is -1, must be from 0 to 1000000000000000"},
      {steps + "1234", steps + "1000000000000001", "agent_steps is 1000000000000001"},
      {steps + "1234", steps + "18446744073709551616", "\"agent_steps\" is missing or not"},
      {scale + "0.5", scale + "-2", ""},
      {scale + "0.5", scale + "0", "reward_scale is 0"},
      {scale + "0.5", scale + "1e300", "reward_scale is 1e+300"},
      {clip + "10", clip + "-1", "observation_clip is -1"},
      {clip + "10", clip + "null", "no number observation_clip"},
      {"\"18364758544493064720\"", "\"18446744073709551615\"", ""},
      {"\"18364758544493064720\"", "\"18446744073709551616\"", "from 0 to 2^64 - 1"},
      {"\"18364758544493064720\"", "\"-1\"", "seed is \"-1\""},
      {"\"18364758544493064720\"", "7", "\"seed\" is missing or not a string"},
      {"\"steps\":5", "\"steps\":0", "an episode of 0 steps"},
      {"\"Test-v0\"", "\"a\\nb\"", "env is not one line"},
      {"\"Test-v0\"", "\"" + std::string(5000, 'a') + "\"", "env is not one line"},
      {"\"f32[2]\"", "\"\\u001b[31m" + std::string(5000, 'a') + "\"", ": "},
      {"\"env\"", "\"x\":\"" + std::string(1 << 20, 'a') + "\",\"env\"", "a header of 10"},
  };
  for (const HeaderChange& change : changes) {
    const Episode e = change.continuous ? Continuous() : Discrete(5);
    Status error;
    const auto found =
        Read(Concatenated({Discrete(1)}) + WithHeader(e, change.from, change.to), &error);
    EXPECT_EQ(found.size(), change.part.empty() ? 2u : 1u) << change.to.substr(0, 100);
    if (change.part.empty()) continue;
    const std::string message(error.message());
    EXPECT_EQ(error.code(), Code::kDataLoss) << change.to.substr(0, 100);
    EXPECT_EQ(message.find("damaged episode 1 at byte "), 0u) << message;
    EXPECT_NE(message.find(change.part), std::string::npos) << message;
    EXPECT_LT(message.size(), 500u);
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos) << message;
  }
}

TEST(EpisodeTest, FindsFilesOfRunsFoldersAndFiles) {
  const TempFolder folder;
  const std::string run = folder.path();
  EXPECT_EQ(FindEpisodeFiles(run + "/none").status().code(), Code::kNotFound);
  EXPECT_EQ(FindEpisodeFiles(run).status().code(), Code::kNotFound);
  std::filesystem::create_directory(run + "/episodes");
  const std::string b = run + "/episodes/b.episodes", a = run + "/episodes/a.episodes";
  for (const std::string& path : {b, a}) std::ofstream(path) << "";
  std::ofstream(run + "/episodes/other.txt") << "";
  EXPECT_EQ(*FindEpisodeFiles(run), (std::vector<std::string>{a, b}));
  EXPECT_EQ(*FindEpisodeFiles(run + "/episodes"), (std::vector<std::string>{a, b}));
  EXPECT_EQ(*FindEpisodeFiles(b), std::vector<std::string>{b});
}

// ---- The writer ----

std::unique_ptr<EpisodeWriter> Open(Storage* storage, std::uint64_t incarnation,
                                    std::size_t bytes_max) {
  auto writer = EpisodeWriter::Open(
      {.storage = storage, .name = "actor-0", .incarnation = incarnation, .bytes_max = bytes_max});
  EXPECT_TRUE(writer.ok()) << writer.status().ToString();
  return std::move(*writer);
}

// The first rewards of all episodes in the folder, in the order of the files; they are negative
// episode numbers.
std::vector<int> NumbersIn(Storage* storage, std::size_t* bytes = nullptr) {
  std::vector<int> numbers;
  const auto names = storage->List(kEpisodeFolder);
  for (const std::string& name : *names) {
    const Buffer file = *storage->Read(std::string(kEpisodeFolder) + "/" + name, 1 << 30);
    if (bytes != nullptr) *bytes += file.size();
    Status error;
    for (const Episode& e : Read(std::string(file.text()), &error)) {
      numbers.push_back(-int(e.rewards.as<float>()[0]));
    }
    EXPECT_TRUE(error.ok()) << error.ToString();
  }
  return numbers;
}

TEST(EpisodeWriterTest, KeepsNewestEpisodesWithinLimit) {
  MemoryStorage storage;
  const std::size_t one = EncodeEpisode(Discrete(4)).size(), limit = 50 * one;
  auto writer = Open(&storage, 1, limit);
  int next = 0;
  for (; next < 70; ++next) ASSERT_TRUE(writer->Append(Discrete(4, float(next))).ok());
  // A restarted actor continues with the limit of all its files.
  writer = Open(&storage, 2, limit);
  for (; next < 120; ++next) {
    ASSERT_TRUE(writer->Append(Discrete(4, float(next))).ok());
    std::size_t bytes = 0;
    const std::vector<int> numbers = NumbersIn(&storage, &bytes);
    EXPECT_LE(bytes, limit);
    EXPECT_EQ(bytes, writer->bytes());
    // Consecutive numbers up to the newest, and at most a segment less than the limit.
    ASSERT_FALSE(numbers.empty());
    EXPECT_EQ(numbers.back(), next);
    EXPECT_EQ(numbers.back() - numbers.front() + 1, int(numbers.size()));
    EXPECT_GE(numbers.size(), 50u - 5u);
  }
  EXPECT_EQ(writer->episodes(), 50);
  EXPECT_GT(writer->bytes_removed(), 0u);
}

TEST(EpisodeWriterTest, ReplacesFilesOfItsIncarnation) {
  MemoryStorage storage;
  ASSERT_TRUE(Open(&storage, 1, 1 << 20)->Append(Discrete(4, 1)).ok());
  ASSERT_TRUE(Open(&storage, 2, 1 << 20)->Append(Discrete(4, 2)).ok());
  auto writer = Open(&storage, 2, 1 << 20);
  EXPECT_EQ(NumbersIn(&storage), std::vector<int>{1});
  ASSERT_TRUE(writer->Append(Discrete(4, 3)).ok());
  EXPECT_EQ(NumbersIn(&storage), (std::vector<int>{1, 3}));
}

TEST(EpisodeWriterTest, RefusesEpisodeAboveLimit) {
  MemoryStorage storage;
  const std::size_t one = EncodeEpisode(Discrete(4)).size();
  auto writer = Open(&storage, 1, 2 * one);
  ASSERT_TRUE(writer->Append(Discrete(4, 1)).ok());
  const Status refused = writer->Append(Discrete(100, 2));
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.message().find("actor.record_bytes_max"), std::string::npos);
  EXPECT_EQ(NumbersIn(&storage), std::vector<int>{1});  // nothing was deleted for it
}

// Each modifying call fails once, from its position on; what is on disk stays readable, and later
// episodes are recorded.
TEST(EpisodeWriterTest, SurvivesDiskFailures) {
  for (std::int64_t fail = 0; fail < 8; ++fail) {
    MemoryStorage storage;
    auto writer = Open(&storage, 1, 1 << 20);
    std::vector<int> expected;
    storage.FailFrom(storage.changes() + fail, ResourceExhausted("the disk is full"));
    for (int i = 0; i < 8; ++i) {
      if (writer->Append(Discrete(4, float(i))).ok()) expected.push_back(i);
    }
    EXPECT_LT(expected.size(), 8u) << fail;
    storage.Repair();
    for (int i = 8; i < 11; ++i) {
      ASSERT_TRUE(writer->Append(Discrete(4, float(i))).ok()) << fail;
      expected.push_back(i);
    }
    // A torn record that could not be cut off ends its file; other files have the rest.
    std::vector<int> found;
    const auto names = storage.List(kEpisodeFolder);
    for (const std::string& name : *names) {
      Status error;
      const Buffer file = *storage.Read(std::string(kEpisodeFolder) + "/" + name, 1 << 30);
      for (const Episode& e : Read(std::string(file.text()), &error)) {
        found.push_back(-int(e.rewards.as<float>()[0]));
      }
      EXPECT_TRUE(error.ok()) << error.ToString();
    }
    EXPECT_EQ(found, expected) << fail;
    EXPECT_EQ(writer->episodes(), std::int64_t(expected.size()));
  }
}

}  // namespace
}  // namespace troop
