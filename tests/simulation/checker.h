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

// Checks all histories against a model of the guarantees (docs/design/guarantees.md):
//   - an item is inserted at most once per life of a shard's log, and only if an actor sent it;
//   - only a few items of a stream are dropped, when their frames were lost with a shard's memory;
//   - acknowledged items are present; with replay.durability = "disk", also after every restart of
//   the shard;
//   - the weights that an actor receives, and the checkpoints of a learner process, never get
//   older;
//   - a learner resumes from the newest checkpoint that its predecessor wrote, or a later one,
//   unless a replaced learner has written since ("Not promised" in docs/design/guarantees.md);
//   - an acknowledged gradient survives a failover, and is not applied twice. If a parameter shard
//   restarts from disk, its lineage number grows and the newest gradients may be lost.
// The first violation is kept, as text.
class Checker {
 public:
  // `durable`: an acknowledgement means that the item is on disk. `goes_back`: parameter shards
  // make the updates, and a shard that restarts from disk has fewer of them.
  Checker(int shards, bool durable, bool goes_back = false);
  ~Checker();

  // EventHistory of one process; owned by the checker.
  EventHistory* Of(const std::string& who, bool replay, int shard);
  void ShardDied(int shard);
  // The shard has restarted and reported what it restored.
  void ShardIsBack(int shard);
  // All memory is lost; the run is resumed from its folder.
  void PowerLost();
  void Breach(std::string what);

  const std::string& breach() const { return breach_; }
  std::int64_t sent() const { return std::int64_t(sent_.size()); }
  std::int64_t acknowledged() const { return acknowledged_; }
  std::int64_t restored() const { return restored_; }
  std::uint64_t published() const { return published_; }
  std::int64_t applied() const { return applied_; }  // gradients
  std::vector<std::int64_t> ItemsOfShards() const;   // inserted, over all lives
  // Items sent per actor; `envs`: environments per actor.
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
    Names acknowledged;                            // must survive restarts
    std::unordered_map<std::uint64_t, int> drops;  // by stream, in this life
    int deaths = 0;
    bool up = true;
  };
  // Gradients of one epoch of the shard map.
  struct Gradients {
    std::uint64_t epoch = 0, lineage = 0;
    // (learner, incarnation, push) -> version that it made.
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
  const Teller* learner_ = nullptr;      // latest learner that reported a start or a checkpoint
  std::uint64_t newest_checkpoint_ = 0;  // updates; 0: unknown
  std::string breach_;
};

}  // namespace troop::simulation
