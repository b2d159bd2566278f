#pragma once

#include <cstdint>

namespace troop {

// What a node did that others rely on, told as it happens: a checker holds the histories of all
// nodes against a model of what may be (tests/simulation). Null where nobody listens.
struct HistoryEvent {
  enum What : std::uint8_t {
    kSent,          // an item, by its actor
    kAcknowledged,  // an item, to its actor
    kInserted,      // an item, into a replay's table
    kDropped,       // an item whose first frames the replay does not have any more
    kRestored,      // an item, out of the log of an earlier life
    kPublished,     // weights, by the learner
    kReceived,      // weights, by an actor
    kCheckpointed,  // the learner's state; told when it is whole on disk
    kResumed,       // the learner's state, out of a checkpoint
    kServed,        // a parameter shard begins to answer
    kApplied,       // a gradient, by its shard; told when the learner is answered
  } what = kSent;
  // Of an item: these three name it; a stream is one environment of one incarnation of an actor.
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t length = 0;
  // WeightsVersion of weights; updates of a learner's state; of a gradient, the one that it made.
  std::uint64_t version = 0;
  // Of a parameter shard. Its gradients: `stream` is the learner, `first_frame` the push.
  std::int32_t shard = 0;
  std::uint64_t epoch = 0, course = 0, incarnation = 0;
};

// Owner: the node's thread.
class History {
 public:
  virtual ~History() = default;
  virtual void Note(const HistoryEvent& event) = 0;
};

}  // namespace troop
