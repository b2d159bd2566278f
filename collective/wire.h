#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/status.h"
#include "core/time.h"

namespace troop {

// Why a group has ended, and the rank that it is about (-1: none).
struct Failure {
  Status status;
  int suspect = -1;
};

// One rank's byte streams to and from every other one, in order, and the word that ends the group.
// Two implementations: sockets, and pipes of a simulated network. Owner: one thread.
class Wire {
 public:
  virtual ~Wire() = default;  // says good-bye: what was sent before still arrives
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Takes the first bytes of `first`, then of `second`; the number of bytes; 0: none at present.
  virtual std::size_t Send(int peer, std::span<const std::byte> first,
                           std::span<const std::byte> second) = 0;
  // Fills `first`, then `second`; the number of bytes; 0: none at present.
  virtual std::size_t Receive(int peer, std::span<std::byte> first,
                              std::span<std::byte> second) = 0;
  // Blocks until there may be more to send, receive or know, or until then. A time that has passed:
  // only looks. Send and Receive that gave 0 may be tried again afterwards.
  virtual void Idle(Time until) = 0;
  // What another rank, or a broken connection to it, has said up to the last Idle.
  virtual std::optional<Failure> failure() const = 0;
  // Whether `peer` has said good-bye; left: and all its bytes have been received.
  virtual bool said_good_bye(int peer) const = 0;
  virtual bool left(int peer) const = 0;
  // Tells all others.
  virtual void Abort(const Failure& failure) = 0;
  virtual Time Now() const = 0;
};

}  // namespace troop
