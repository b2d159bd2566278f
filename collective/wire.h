#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Error that ended a group, and the rank that caused it (-1: unknown).
struct Failure {
  Status status;
  int suspect = -1;
};

// Byte streams of one rank to and from every other one, in order, and the message that ends the
// group. Two implementations: sockets, and pipes of a simulated network. Owner: one thread.
class Wire {
 public:
  virtual ~Wire() = default;  // sends good-byes: what was sent before still arrives
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends a prefix of `first` followed by `second`. Returns the number of bytes; 0: no room at
  // present.
  virtual std::size_t Send(int peer, std::span<const std::byte> first,
                           std::span<const std::byte> second) = 0;
  // Fills `first`, then `second`. Returns the number of bytes; 0: none at present.
  virtual std::size_t Receive(int peer, std::span<std::byte> first,
                              std::span<std::byte> second) = 0;
  // Blocks until there may be more to send or receive, or a failure, or until `until`. A time in
  // the past only polls. Afterwards Send and Receive that returned 0 may be retried.
  virtual void Idle(Time until) = 0;
  // Failure reported by another rank, or of a connection, as of the last Idle.
  virtual std::optional<Failure> failure() const = 0;
  // said_goodbye: `peer` has sent a good-bye. left: also all its bytes have been received.
  virtual bool said_goodbye(int peer) const = 0;
  virtual bool left(int peer) const = 0;
  // Sends the failure to all other ranks.
  virtual void Abort(const Failure& failure) = 0;
  virtual Time Now() const = 0;
};

}  // namespace troop
