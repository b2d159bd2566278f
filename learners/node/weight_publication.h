#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/base/event_history.h"
#include "net/control/fleet_member.h"
#include "net/network.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// Publication of a learner's weights to the actors through the parameter server: when it is due,
// and which version the server has. Owner: the node's thread.
class WeightPublication {
 public:
  struct Options {
    Network* network = nullptr;
    const FleetMember* member = nullptr;
    EventHistory* history = nullptr;  // nullptr: none
    std::uint64_t every_updates = 1;  // learner.publish_every_updates
  };
  explicit WeightPublication(const Options& options) : options_(options) {}

  // Connects once the parameter server's endpoint is known. Returns true if it has just connected.
  // Errors: a wrong endpoint.
  Result<bool> Connect(const ChannelOptions& options);
  // Sends what waits. Errors: those that a retry does not fix.
  Status Poll(Time now);
  bool connected() const { return publisher_ != nullptr; }

  // True, once per interval, if the job whose last update is number `submitted` must return a copy
  // of the weights.
  bool TakeDue(std::uint64_t submitted);
  // Begins the next interval at `updates`.
  void Begin(std::uint64_t updates) { due_since_ = updates; }
  // Begins the interval at `updates`, unless it began before: some were lost with a group.
  void ReturnTo(std::uint64_t updates) { due_since_ = std::min(due_since_, updates); }

  // Publishes a version with its weights. REQUIRES: connected().
  void Publish(std::uint64_t version, Buffer value);
  // Version of the last Publish; 0: none.
  std::uint64_t published() const { return published_; }
  // True if the server has this version or a newer one.
  bool Has(std::uint64_t version) const;
  // True if another incarnation of the server is known than the one that received the last weights.
  bool ServerReplaced() const;

 private:
  std::uint64_t server() const { return options_.member->Incarnation(Role::kParamServer, 0); }

  const Options options_;
  std::unique_ptr<WeightPublisher> publisher_;
  std::uint64_t due_since_ = 0;  // number of the update of the last copy that was due
  std::uint64_t published_ = 0;
  std::uint64_t published_to_ = 0;  // incarnation of the server that received it
};

}  // namespace troop
