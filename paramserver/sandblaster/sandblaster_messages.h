#pragma once

// Messages of Sandblaster L-BFGS: commands from its coordinator to the shards, and their replies.
// None has a size that depends on the model.

#include <cstdint>
#include <vector>

#include "nn/lbfgs/vector_command.h"

namespace troop {

// A command to all shards. Commands are numbered: a shard executes each once, in order, and answers
// a repeat with the same results.
struct SandblasterCommand {
  std::uint64_t term = 0;    // of the coordinator; rises with each new one
  std::uint64_t number = 0;  // from 1
  std::vector<VectorCommand> vectors;
  bool evaluate = false;      // then value and gradient at the new weights are wanted
  std::vector<double> state;  // Lbfgs::Save before this command: for a new coordinator
  template <class A>
  void serialize(A& a) {
    a(term, number, vectors, evaluate, state);
  }
};

// Reply to a command.
struct SandblasterReply {
  std::uint64_t number = 0;
  // Results of the dot products over this shard's part; then, for an evaluation that is complete,
  // the value, which is the same on all shards.
  std::vector<double> results;
  std::vector<std::int32_t> missing;  // portions whose gradient has not arrived yet
  bool operator==(const SandblasterReply&) const = default;
  template <class A>
  void serialize(A& a) {
    a(number, results, missing);
  }
};

// State of a shard, for a coordinator that takes over.
struct SandblasterHead {
  SandblasterCommand last;  // number 0: none yet
  template <class A>
  void serialize(A& a) {
    a(last);
  }
};

}  // namespace troop
