#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/buffer.h"
#include "core/base/time.h"
#include "core/tensor/trajectory.h"
#include "net/network.h"
#include "paramserver/weight_snapshot.h"

namespace troop {

// Sends a learner's weights to the parameter server. Owner: the learner's node thread. Only the
// newest version matters: while a publish is in flight, newer ones replace each other and the last
// is sent.
class WeightPublisher {
 public:
  virtual ~WeightPublisher() = default;
  // Queues a snapshot; replaces one that still waits.
  virtual void Publish(WeightSnapshot snapshot) = 0;
  // Processes the reply and sends what waits.
  virtual void Poll(Time now) = 0;
  // Newest version that the server has acknowledged.
  virtual std::uint64_t acked_version() const = 0;
  // A permanent error, which a retry cannot fix; ok otherwise.
  virtual Status error() const = 0;
};

// Pulls weights that are newer than its own. Owner: the node thread of an actor or evaluator.
class WeightSubscriber {
 public:
  virtual ~WeightSubscriber() = default;
  // Sends a pull unless one is in flight.
  virtual void Request(Time now) = 0;
  virtual bool requesting() const = 0;
  // Returns a newer snapshot, aligned for f32, or nullopt if none has arrived or there is nothing
  // newer. Versions never decrease.
  virtual std::optional<WeightSnapshot> Poll(Time now) = 0;
  virtual std::uint64_t version() const = 0;         // of the newest snapshot received
  virtual std::uint64_t server_version() const = 0;  // as last reported
  virtual Status error() const = 0;                  // as in WeightPublisher
};

std::unique_ptr<WeightPublisher> MakeWeightPublisher(std::unique_ptr<Channel> channel);
std::unique_ptr<WeightSubscriber> MakeWeightSubscriber(std::unique_ptr<Channel> channel);

}  // namespace troop
