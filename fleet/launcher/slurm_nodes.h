#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "fleet/config/config.h"
#include "fleet/serial/serial_fleet.h"

namespace troop {

// Placement of roles on the nodes of a Slurm allocation, and suspicion of failed nodes.
//
// Node 0 runs the launcher; it is never suspected, and also runs cheap roles (weight publisher,
// evaluator). Learners, replay and parameter shards go to the node with the most free CPUs, other
// nodes before node 0; actors share the remaining CPUs of all nodes. A node is suspected when a
// role there lost its connection or never registered: its roles move, and it receives none for a
// time that doubles with each suspicion, until a role on it registers.
// Pure bookkeeping: no clock, no processes. Owner: one thread.
class SlurmNodes {
 public:
  struct Node {
    std::string name;
    std::int64_t cpus = 1;
  };
  // Places all roles of the config; a reshard may add parameter servers later.
  // REQUIRES: nodes is not empty.
  SlurmNodes(const Config& config, std::vector<Node> nodes);

  int count() const { return int(nodes_.size()); }
  const std::string& name(int node) const { return nodes_[std::size_t(node)].name; }
  // The node of a role other than an actor; places a role that has none.
  int NodeOf(FleetRole role);
  std::int32_t ActorsOn(int node) const { return actors_[std::size_t(node)]; }

  // Suspects a node from `now` on; no effect for node 0 and for nodes already suspected.
  void MarkSuspect(int node, Time now);
  // Ends the suspicion and resets its duration.
  void ClearSuspect(int node);
  bool IsSuspect(int node, Time now) const;
  // Moves a role to the best node that is not suspected; it stays if there is no other.
  int Move(FleetRole role, Time now);

 private:
  struct Mark {
    Time until{};
    int times = 0;  // consecutive suspicions
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

// Parses SLURM_JOB_CPUS_PER_NODE into the CPUs of each node: "4(x2),8" is 4, 4, 8. Errors:
// kInvalidArgument: malformed, or not `nodes` values.
Result<std::vector<std::int64_t>> ParseCpusPerNode(const std::string& text, std::size_t nodes);

}  // namespace troop
