#pragma once

// Utilities of the tests of net/.
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/time.h"
#include "net/network.h"

namespace troop {

// Records its requests. Answers at once with the same bytes, unless `park` is set.
class EchoService : public Service {
 public:
  void Handle(Message message, Reply reply) override {
    handled.push_back(message.origin);
    bodies.push_back(message.body);
    if (park) {
      parked.emplace_back(std::move(message), std::move(reply));
    } else {
      message.type = MessageType::kTestReply;
      reply.Send(std::move(message));
    }
  }
  Status CheckOrigin(const Origin& caller, Time) override {
    return caller.incarnation <= issued ? Status::Ok() : refusal;
  }
  void PeerChanged(const Origin& peer, PeerState state) override {
    changes.emplace_back(peer, state);
  }
  bool Saw(std::int32_t index, PeerState state) const {
    for (const auto& [peer, s] : changes) {
      if (peer.index == index && s == state) return true;
    }
    return false;
  }

  bool park = false;
  std::uint64_t issued = ~std::uint64_t{0};  // larger incarnations get the refusal
  Status refusal = Unavailable("not issued");
  std::vector<Origin> handled;
  std::vector<std::string> bodies;
  std::deque<std::pair<Message, Reply>> parked;
  std::vector<std::pair<Origin, PeerState>> changes;
};

inline Message TestMessage(std::string body, std::vector<Buffer> parts = {}) {
  return {.type = MessageType::kTest, .body = std::move(body), .parts = std::move(parts)};
}

// `size` bytes that depend on `seed`.
inline Buffer TestBytes(std::size_t size, std::uint32_t seed = 1) {
  MutableBuffer bytes(size);
  for (std::byte& b : bytes.bytes()) {
    seed = seed * 1664525u + 1013904223u;
    b = static_cast<std::byte>(seed >> 24);
  }
  return std::move(bytes).Freeze();
}

inline ChannelOptions ActorOptions(std::int32_t index = 0, std::uint64_t incarnation = 1) {
  ChannelOptions options;
  options.origin = {.role = Role::kActor, .index = index, .incarnation = incarnation};
  return options;
}

}  // namespace troop
