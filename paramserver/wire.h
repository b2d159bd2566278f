#pragma once

// Bodies of the weight messages, as docs/protocol.md says.

#include <cstdint>

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

}  // namespace troop
