#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/buffer.h"
#include "core/time.h"
#include "core/trajectory.h"
#include "net/network.h"

namespace troop {

// All parameters of a model at one version: [P] f32.
struct WeightSnapshot {
  std::uint64_t version = 0;  // from 1; grows with the learner's updates; 0: none
  Buffer value;
};

// Hands weights to the parameter server. Owner: the learner's node thread. Only the newest matters:
// while a publish is in flight, newer ones replace each other and the last is sent.
class WeightPublisher {
 public:
  virtual ~WeightPublisher() = default;
  virtual void Publish(WeightSnapshot snapshot) = 0;
  virtual void Poll(Time now) = 0;
  virtual std::uint64_t acked_version() const = 0;
  virtual Status error() const = 0;  // a refusal that no retry can mend; ok otherwise
};

// Pulls weights if newer. Owner: an actor's or evaluator's node thread.
class WeightSubscriber {
 public:
  virtual ~WeightSubscriber() = default;
  // Asks once, unless a pull is in flight.
  virtual void Request(Time now) = 0;
  virtual bool requesting() const = 0;
  // The answer: a newer snapshot, aligned for f32; nullopt: none yet, or nothing newer. Versions
  // never go back.
  virtual std::optional<WeightSnapshot> Poll(Time now) = 0;
  virtual std::uint64_t version() const = 0;         // of the newest snapshot received
  virtual std::uint64_t server_version() const = 0;  // as last heard
  virtual Status error() const = 0;                  // as above
};

std::unique_ptr<WeightPublisher> MakeWeightPublisher(std::unique_ptr<Channel> channel);
std::unique_ptr<WeightSubscriber> MakeWeightSubscriber(std::unique_ptr<Channel> channel);

}  // namespace troop
