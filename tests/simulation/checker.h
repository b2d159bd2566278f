#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/event_history.h"

namespace troop::simulation {

// The model that all histories are held against:
//   - an item is inserted once in a life of its shard's log, and only what an actor sent;
//   - a few items of a stream are dropped when frames that they need died with a shard's memory;
//   - what was acknowledged is there; where that means the disk, also after any death of the shard;
//   - an actor's weights never grow older; a learner's checkpoints neither, while it lives;
//   - a learner goes on from the newest checkpoint that its predecessor wrote, or a later one; not
//     where one that was replaced wrote since (docs/design/guarantees.md, "Not promised");
//   - a gradient that a parameter shard has answered for is in it after a takeover, and is applied
//     no second time; where a shard comes back from disk its course grows, and newer ones may go.
// The first breach is kept, in words.
class Checker {
 public:
  // `durable`: an acknowledgement means the disk. `goes_back`: parameter shards make the updates,
  // and one that comes back from its disk has fewer.
  Checker(int shards, bool durable, bool goes_back = false);
  ~Checker();

  // The history of one process; lives as long as the checker.
  History* Of(const std::string& who, bool replay, int shard);
  void ShardDied(int shard);
  // The shard is back and has told what it restored.
  void ShardIsBack(int shard);
  // All memory is gone, and the run begins again from its folder.
  void PowerLost();
  void Breach(std::string what);

  const std::string& breach() const { return breach_; }
  std::int64_t sent() const { return std::int64_t(sent_.size()); }
  std::int64_t acknowledged() const { return acknowledged_; }
  std::int64_t restored() const { return restored_; }
  std::uint64_t published() const { return published_; }
  std::int64_t applied() const { return applied_; }  // gradients
  std::vector<std::int64_t> ItemsOfShards() const;   // inserted, in all lives
  // Sent, by each actor that sent any; `envs`: environments of an actor.
  std::vector<std::int64_t> ItemsOfActors(std::uint64_t envs) const;

 private:
  struct Name {
    std::uint64_t stream, first_frame;
    std::uint32_t length;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Name& name) const {
      std::uint64_t h = name.stream * 0x9E3779B97F4A7C15u ^ name.first_frame * 0xC2B2AE3D27D4EB4Fu;
      h ^= name.length * 0x165667B19E3779F9u;
      return std::size_t(h ^ h >> 29);
    }
  };
  using Names = std::unordered_set<Name, Hash>;
  struct Shard {
    Names present;  // in its table now
    Names ever;     // in any of its lives
    Names dropped;
    Names acknowledged;                            // those that must come back
    std::unordered_map<std::uint64_t, int> drops;  // by stream, in this life
    int deaths = 0;
    bool up = true;
  };
  // Of one epoch of the shard map.
  struct Gradients {
    std::uint64_t epoch = 0, course = 0;
    // Learner, incarnation and push; and the version that it made.
    std::map<std::array<std::uint64_t, 3>, std::uint64_t> applied;
  };
  class Teller;

  void Note(const Teller& teller, const HistoryEvent& event);
  void NoteServed(const Teller& teller, const HistoryEvent& event);
  void NoteApplied(const Teller& teller, const HistoryEvent& event);
  bool IsNewest(const Teller& teller);
  Shard& ShardOfItem(const Name& name);
  std::string Describe(const std::string& who, const Name& name, const char* what) const;

  const bool durable_, goes_back_;
  std::vector<std::unique_ptr<Teller>> tellers_;
  std::vector<Shard> shards_;
  std::map<std::int32_t, Gradients> gradients_;  // by parameter shard
  std::int64_t applied_ = 0;
  Names sent_;
  std::int64_t acknowledged_ = 0, restored_ = 0;
  std::uint64_t published_ = 0;
  const Teller* learner_ = nullptr;      // that told last of a beginning or a checkpoint
  std::uint64_t newest_checkpoint_ = 0;  // updates; 0: nobody knows
  std::string breach_;
};

}  // namespace troop::simulation
