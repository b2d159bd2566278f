#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/tensor/spec.h"

namespace troop {

// One complete episode of one environment, as an actor has played it. Frames are single: stacks are
// formed by the reader.
struct Episode {
  std::string env;         // id
  TensorSpec observation;  // of one frame
  ActionSpec action;
  std::int64_t steps = 0;                      // T >= 1
  bool terminated = false, truncated = false;  // of the last step; at least one is true
  std::optional<std::uint64_t> seed;           // of the environment's reset; nullopt: not known
  double exploration = 0;            // ε of the first step; continuous actions: σ of the noise
  std::uint64_t policy_updates = 0;  // updates of the weights that chose the first action
  std::int64_t agent_steps = 0;      // of the whole fleet, at the first step
  double reward_scale = 1;           // env.reward_scale, which the rewards include
  double observation_clip = 0;       // env.observation_clip, which the observations include
  Buffer observations;               // [T + 1, ...observation]; the last one has no action
  Buffer actions;                    // [T, ...action]
  Buffer rewards;                    // [T] f32, neither clipped nor normalized
};

// The file format of recorded episodes (docs/reference/episodes.md): records in sequence, each with
// the whole description of its episode. All integers are little-endian.
//   magic "TROOPEP1"; u64 size of the body; u32 CRC-32C of the body; u32 CRC-32C of the 20 bytes
//   before; body: u32 size of the header; header (JSON); observations, actions, rewards.
inline constexpr std::size_t kEpisodePreludeBytes = 24;
inline constexpr std::size_t kEpisodeBytesMax = std::size_t{1} << 30;  // of a body

// Encodes one record. REQUIRES: sizes that agree with the specs.
std::vector<std::byte> EncodeEpisode(const Episode& episode);

// Reads the records of a file in order. The bytes are not trusted: each field is checked before
// use. Owner: one thread.
class EpisodeReader {
 public:
  explicit EpisodeReader(Buffer file) : file_(std::move(file)) {}
  // The next episode, whose arrays share the file's bytes (copied only if misaligned); nullopt: the
  // end of the complete records. Errors: kDataLoss: a damaged record, with its number, its offset
  // and the reason in one line.
  Result<std::optional<Episode>> Next();
  // Bytes after the last complete record, which a killed writer leaves. Valid at the end.
  std::size_t torn_bytes() const { return file_.size() - at_; }

 private:
  Buffer file_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;  // index of the next episode
};

// The files of a dataset: a file of episodes, a folder of them, or a run folder (its episodes/).
// Sorted by name. Errors: kNotFound: no such path, or no file of episodes there.
Result<std::vector<std::string>> FindEpisodeFiles(const std::string& path);
inline constexpr char kEpisodeFolder[] = "episodes";   // in a run folder
inline constexpr char kEpisodeSuffix[] = ".episodes";  // of file names

}  // namespace troop
