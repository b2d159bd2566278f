#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/serial_fleet.h"
#include "core/config.h"
#include "core/time.h"

namespace troop {

// The nodes of an allocation: who plays where, and which of them are in doubt. Node 0 is the one
// where the launcher is: never in doubt, and also home of what costs little (weight publisher,
// evaluator). Learners, replay and parameter shards go where the most CPUs are left, to the others
// before node 0; actors share what CPUs remain everywhere. A node is in doubt when a role there was
// lost with its connection, or never came: its roles move, and it gets none for a while, twice as
// long each time, until somebody on it is heard. No clock, no processes. Owner: one thread.
class SlurmNodes {
 public:
  struct Node {
    std::string name;
    std::int64_t cpus = 1;
  };
  // REQUIRES: nodes is not empty. More parameter servers than the config's may follow.
  SlurmNodes(const Config& config, std::vector<Node> nodes);

  int count() const { return int(nodes_.size()); }
  const std::string& name(int node) const { return nodes_[std::size_t(node)].name; }
  // Of any role but an actor. One that has no node yet gets one.
  int NodeOf(FleetRole role);
  std::int32_t ActorsOn(int node) const { return actors_[std::size_t(node)]; }

  void Doubt(int node, Time now);
  void Trust(int node);
  bool InDoubt(int node, Time now) const;
  // Another node for a role, the best of those that are in no doubt; its own if there is none.
  int Move(FleetRole role, Time now);

 private:
  struct Mark {
    Time until{};
    int times = 0;  // in a row
  };
  std::int64_t CpusOf(FleetRole role) const;
  double LeftOn(int node) const;
  int Best(int avoid, Time now) const;
  int FirstNode(FleetRole role) const;
  void ShareActors();

  const Config config_;
  const std::vector<Node> nodes_;
  std::map<std::pair<Role, std::int32_t>, int> places_;
  std::vector<std::int32_t> actors_;
  std::map<int, Mark> doubts_;
};

// The CPUs of each node, from SLURM_JOB_CPUS_PER_NODE: "4(x2),8" is 4, 4, 8. Errors:
// kInvalidArgument: it has another form, or not as many as `nodes`.
Result<std::vector<std::int64_t>> ParseCpusPerNode(const std::string& text, std::size_t nodes);

}  // namespace troop
