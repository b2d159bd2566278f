#pragma once

#include <cstdint>

namespace troop {

// An action of a node that others rely on, recorded for a checker that compares the histories of
// all nodes with a model (tests/simulation).
struct HistoryEvent {
  enum What : std::uint8_t {
    kSent,          // item, by its actor
    kAcknowledged,  // item, to its actor
    kInserted,      // item, into a replay table
    kDropped,       // item whose first frames are no longer in the replay
    kRestored,      // item, from the journal of a previous process
    kPublished,     // weights, by the learner
    kReceived,      // weights, by an actor
    kCheckpointed,  // state of the learner, once complete on disk
    kResumed,       // state of the learner, from a checkpoint
    kServed,        // parameter shard, when it starts to answer
    kApplied,       // gradient, by its shard, when the learner is answered
  } what = kSent;
  // Identity of an item; a stream is one environment of one incarnation of an actor.
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t length = 0;
  // WeightsVersion of weights; number of updates of a learner state; for a gradient, the resulting
  // version.
  std::uint64_t version = 0;
  // Parameter shard. For its gradients, `stream` is the learner and `first_frame` the push.
  std::int32_t shard = 0;
  std::uint64_t epoch = 0, lineage = 0, incarnation = 0;
};

// Receiver of events. Owner: the node's thread. Pointers to it are null if nothing is recorded.
class EventHistory {
 public:
  virtual ~EventHistory() = default;
  virtual void Note(const HistoryEvent& event) = 0;
};

}  // namespace troop
