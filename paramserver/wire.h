#pragma once

// Bodies of the weight messages, as docs/protocol.md says.

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "net/message.h"
#include "paramserver/gradient_codec.h"
#include "paramserver/parameter_shard.h"

namespace troop {

// kPublish. Part 0: [P] f32.
struct PublishBody {
  std::uint64_t version = 0;
  template <class A>
  void serialize(A& a) {
    a(version);
  }
};

// kPublishReply.
struct PublishReplyBody {
  std::uint64_t version = 0;  // the server's newest
  template <class A>
  void serialize(A& a) {
    a(version);
  }
};

// kPull: the newest, if newer than `known`; or exactly `exact`, where that is not 0.
struct PullBody {
  std::uint64_t known = 0;
  std::uint64_t exact = 0;
  template <class A>
  void serialize(A& a) {
    a(known, exact);
  }
};

// kPullReply. Part 0, when `version` is not 0: its [P] f32. Without: nothing newer than known.
struct PullReplyBody {
  std::uint64_t version = 0;  // of the part
  std::uint64_t newest = 0;   // that the server has
  template <class A>
  void serialize(A& a) {
    a(version, newest);
  }
};

// kShardPush, of a learner: its index and incarnation are the message's origin's. Part i: the
// payload of parts[i]; together they are the shard's elements in order, kPartFloatsMax each at
// most.
struct ShardPushBody {
  std::uint64_t sequence = 0;  // of the learner's pushes to this shard, from 1
  std::uint64_t epoch = 0;     // of the shard map
  std::uint64_t clock = 0;     // version of the parameters that it was computed at
  std::uint64_t step = 0;      // the same of the shard that is furthest
  float learning_rate = 0;
  float loss = 0, norm = 0;
  std::vector<CodedGradient> parts;
  template <class A>
  void serialize(A& a) {
    a(sequence, epoch, clock, step, learning_rate, loss, norm, parts);
  }
};
// What a kShardPush asks of a shard of the map `epoch`. Errors: kFailedPrecondition: it is for
// another map; kDataLoss: damaged, or more than `elements`; kInvalidArgument: of another role.
Result<ShardPush> ReadShardPush(Message message, std::int64_t elements, std::uint64_t epoch);

// kShardPushReply, when the push is settled.
struct ShardPushReplyBody {
  std::uint8_t outcome = 0;   // ParameterShard::Outcome; kHeld: applied
  std::uint64_t version = 0;  // of the shard, now
  template <class A>
  void serialize(A& a) {
    a(outcome, version);
  }
};

// kShardPull. A learner's waits until it may go on; with it a learner takes part, until it dies, or
// says that it leaves: then it is answered at once, without parts.
struct ShardPullBody {
  std::uint64_t epoch = 0;
  std::uint64_t known = 0;   // version that the caller has
  std::uint64_t exact = 0;   // 0: the newest
  std::uint64_t course = 0;  // of `known`; where it is another one, `known` says nothing
  bool leave = false;        // nobody is to wait for this learner until its next pull
  template <class A>
  void serialize(A& a) {
    a(epoch, known, exact, course, leave);
  }
};

// kShardPullReply. Parts, when `version` is not 0: the shard's f32 in order, kPartFloatsMax each at
// most. Without: nothing newer than known.
struct ShardPullReplyBody {
  std::uint64_t version = 0;  // of the parts
  std::uint64_t newest = 0;
  // Grows when the shard's versions may have gone back: it began anew, or from a snapshot on disk.
  std::uint64_t course = 0;
  template <class A>
  void serialize(A& a) {
    a(version, newest, course);
  }
};

// kShardState, primary → backup: part 0 is a piece of ParameterShard::Snapshot; pieces come in
// order. Answered with an empty kShardStateReply, the last one when the backup has the state.
struct ShardStateBody {
  std::uint64_t term = 0;
  std::uint64_t course = 0;
  std::uint64_t offset = 0, total = 0;  // bytes
  template <class A>
  void serialize(A& a) {
    a(term, course, offset, total);
  }
};

// kShardFetch, of who will serve `shard` in the next map: what moves to it from the shard that is
// asked, which stands still. Answered with a kShardFetchReply: a ShardStateBody whose term is the
// move's number, and part 0, the piece of the snapshot of those ranges that begins at `offset`.
struct ShardFetchBody {
  std::uint64_t move = 0;
  std::int32_t shard = 0;
  std::uint64_t offset = 0;  // bytes
  template <class A>
  void serialize(A& a) {
    a(move, shard, offset);
  }
};

// kShardUpdate, primary → backup: part 0 is ShardUpdate::sum, where there is one. Answered with an
// empty kShardUpdateReply when the backup has done it.
struct ShardUpdateBody {
  std::uint64_t term = 0;
  ShardUpdate update;
  template <class A>
  void serialize(A& a) {
    a(term, update);
  }
};

}  // namespace troop
