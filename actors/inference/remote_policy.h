#pragma once

#include <memory>

#include "actors/policy.h"
#include "core/base/time.h"
#include "net/network.h"

namespace troop {

// Policy that calls an InferenceServer. A request is kept until its reply arrives; a call that
// fails or times out is retried with the same keys, so retries do not change the actions. Owner:
// the node's thread.
class RemotePolicy final : public Policy {
 public:
  // observation: of one environment, as the network's input.
  // outputs: columns of PolicyOutput::q.
  RemotePolicy(const TensorSpec& observation, const ActionSpec& action, std::int64_t outputs);

  // Sets the channel to the server; a pending request is sent again.
  void Connect(std::unique_ptr<Channel> channel) { channel_ = std::move(channel); }
  bool connected() const { return channel_ != nullptr; }
  // Sets the current time; called once per turn.
  void Advance(Time now) { now_ = now; }
  // Not ok: the server permanently rejects the requests.
  const Status& status() const { return status_; }
  std::uint64_t version() const { return output_.version; }  // of the last reply
  std::int64_t retries() const { return retries_; }

  // REQUIRES: connected().
  void Submit(ConstTensor observation, std::span<const ExploreKey> keys) override;
  const PolicyOutput* Poll() override;
  // No effect: the server pulls the weights.
  Status SetWeights(std::uint64_t version, std::span<const float> value) override;

 private:
  void Send();
  // Validates a reply and makes it the output.
  Status Receive(const Message& message);

  const TensorSpec observation_;
  const ActionSpec action_;
  const std::int64_t outputs_;  // columns of q
  std::unique_ptr<Channel> channel_;
  std::vector<Buffer> asked_;  // parts of the pending request; empty: none
  std::int64_t rows_ = 0;
  Ticket ticket_ = 0;
  Time now_{}, next_try_{};
  std::vector<Buffer> answered_;  // memory of output_
  PolicyOutput output_;
  std::int64_t retries_ = 0;
  Status status_;
};

}  // namespace troop
