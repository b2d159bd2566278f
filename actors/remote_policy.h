#pragma once

#include <memory>

#include "actors/policy.h"
#include "core/time.h"
#include "net/network.h"

namespace troop {

// Asks an InferenceServer. What is asked is kept until it is answered: a call that fails or takes
// too long is made again, with the same keys, so that the answer does not depend on it. Owner: the
// node's thread.
class RemotePolicy final : public Policy {
 public:
  // observation: of one environment, as the network takes it.
  RemotePolicy(const TensorSpec& observation, const ActionSpec& action);

  void Connect(std::unique_ptr<Channel> channel) { channel_ = std::move(channel); }
  bool connected() const { return channel_ != nullptr; }
  // Once a turn.
  void Advance(Time now) { now_ = now; }
  // Not ok: the server refuses what is asked, and will.
  const Status& status() const { return status_; }
  std::uint64_t version() const { return output_.version; }  // of the last answer
  std::int64_t retries() const { return retries_; }

  // REQUIRES: connected().
  void Submit(ConstTensor observation, std::span<const ExploreKey> keys) override;
  const PolicyOutput* Poll() override;
  // Does nothing: the server pulls its own.
  Status SetWeights(std::uint64_t version, std::span<const float> value) override;

 private:
  void Send();
  Status Receive(const Message& message);

  const TensorSpec observation_;
  const ActionSpec action_;
  std::unique_ptr<Channel> channel_;
  std::vector<Buffer> asked_;  // the parts; empty: nothing is
  std::int64_t rows_ = 0;
  Ticket ticket_ = 0;
  Time now_{}, next_try_{};
  std::vector<Buffer> answered_;  // what output_ shows
  PolicyOutput output_;
  std::int64_t retries_ = 0;
  Status status_;
};

}  // namespace troop
