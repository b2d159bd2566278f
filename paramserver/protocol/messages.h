#pragma once

// Message bodies of the parameter server protocol; docs/design/protocol.md specifies them.

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "net/message.h"
#include "paramserver/codec/gradient_codec.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

// Body of kPublish. Part 0: [P] f32, all parameters.
struct PublishBody {
  std::uint64_t version = 0;
  template <class A>
  void serialize(A& a) {
    a(version);
  }
};

// Body of kPublishReply.
struct PublishReplyBody {
  std::uint64_t version = 0;  // newest version of the server
  template <class A>
  void serialize(A& a) {
    a(version);
  }
};

// Body of kPull: requests the newest version if it is newer than `known`, or exactly version
// `exact` if that is not 0.
struct PullBody {
  std::uint64_t known = 0;
  std::uint64_t exact = 0;
  template <class A>
  void serialize(A& a) {
    a(known, exact);
  }
};

// Body of kPullReply. Part 0 if `version` is not 0: the [P] f32 of it. A `version` of 0 means that
// nothing is newer than `known`.
struct PullReplyBody {
  std::uint64_t version = 0;  // version of the part
  std::uint64_t newest = 0;   // newest version of the server
  template <class A>
  void serialize(A& a) {
    a(version, newest);
  }
};

// Body of kShardPush, from a learner; its index and incarnation are in the message's origin. Part i
// is the payload of parts[i]; together they are the shard's elements in order, at most
// kPartFloatsMax each.
struct ShardPushBody {
  std::uint64_t sequence = 0;  // number of the push from this learner to this shard, from 1
  std::uint64_t epoch = 0;     // epoch of the shard map
  std::uint64_t clock = 0;     // version of the parameters that the gradient was computed at
  std::uint64_t step = 0;      // the largest such version among all shards
  float learning_rate = 0;
  float loss = 0, norm = 0;
  std::vector<CodedGradient> parts;
  template <class A>
  void serialize(A& a) {
    a(sequence, epoch, clock, step, learning_rate, loss, norm, parts);
  }
};
// Decodes and checks a kShardPush for a shard of map `epoch`. Errors: kFailedPrecondition: cut by
// another map; kDataLoss: damaged, or more than `elements`; kInvalidArgument: not from a learner.
Result<ShardPush> ReadShardPush(Message message, std::int64_t elements, std::uint64_t epoch);

// Body of kShardPushReply, sent once the push is settled (applied or dropped).
struct ShardPushReplyBody {
  std::uint8_t outcome = 0;   // ParameterShard::Outcome; kHeld: applied
  std::uint64_t version = 0;  // current version of the shard
  template <class A>
  void serialize(A& a) {
    a(outcome, version);
  }
};

// Body of kShardPull. A learner's pull waits until the sync policy lets the learner continue. The
// first pull makes the learner a member; it stays one until it dies or sends a pull with `leave`,
// which is answered at once and without parts.
struct ShardPullBody {
  std::uint64_t epoch = 0;
  std::uint64_t known = 0;    // version that the caller has
  std::uint64_t exact = 0;    // 0: the newest
  std::uint64_t lineage = 0;  // lineage of `known`; `known` is ignored if the shard's differs
  bool leave = false;         // do not wait for this learner until its next pull
  template <class A>
  void serialize(A& a) {
    a(epoch, known, exact, lineage, leave);
  }
};

// Body of kShardPullReply. Parts if `version` is not 0: the shard's f32 in order, at most
// kPartFloatsMax each. A `version` of 0 means that nothing is newer than `known`.
struct ShardPullReplyBody {
  std::uint64_t version = 0;  // version of the parts
  std::uint64_t newest = 0;
  // Lineage of the shard's versions. It grows when versions may have decreased: the shard restarted
  // from its initial weights or from a snapshot on disk.
  std::uint64_t lineage = 0;
  template <class A>
  void serialize(A& a) {
    a(version, newest, lineage);
  }
};

// Body of kShardState, primary to backup: part 0 is a piece of ParameterShard::Snapshot; the pieces
// arrive in order. Each is answered with an empty kShardStateReply, the last one once the backup
// has restored the state.
struct ShardStateBody {
  std::uint64_t term = 0;
  std::uint64_t lineage = 0;
  std::uint64_t offset = 0, total = 0;  // bytes
  template <class A>
  void serialize(A& a) {
    a(term, lineage, offset, total);
  }
};

// Body of kShardFetch, from the process that will serve `shard` in the next map to a paused shard
// that gives up ranges to it. The kShardFetchReply holds a ShardStateBody whose term is the
// resharding's number, and part 0: the piece at `offset` of the snapshot of those ranges.
struct ShardFetchBody {
  std::uint64_t move = 0;
  std::int32_t shard = 0;
  std::uint64_t offset = 0;  // bytes
  template <class A>
  void serialize(A& a) {
    a(move, shard, offset);
  }
};

// Body of kShardUpdate, primary to backup: part 0 is ShardUpdate::sum if there is one. Answered
// with an empty kShardUpdateReply once the backup has applied the update.
struct ShardUpdateBody {
  std::uint64_t term = 0;
  ShardUpdate update;
  template <class A>
  void serialize(A& a) {
    a(term, update);
  }
};

}  // namespace troop
