#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/json.h"

namespace troop {

// The connection of a learner to the program that computes its updates (learner.algorithm =
// "external"): a SOCK_SEQPACKET socket for messages, each one JSON object with a "type", and shared
// memory for tensors. The program listens; python/troop/_learner.py is its side. One thread at a
// time.
class ProgramChannel {
 public:
  // socket: path of the program's socket. timeout: for the connection, and for each answer.
  ProgramChannel(std::string socket, Duration timeout)
      : socket_(std::move(socket)), timeout_(timeout) {}
  ~ProgramChannel();
  ProgramChannel(const ProgramChannel&) = delete;

  // Connects, makes shared memory of this size (zeros), and sends `hello` with it; the answer must
  // have this type too. Errors: kUnavailable: no program listens there, or as Call.
  Status Connect(const std::string& hello, std::size_t bytes);
  bool connected() const { return fd_ >= 0; }
  // The memory that both sides map; empty: not connected.
  std::span<std::byte> memory() const { return memory_; }

  struct Answer {
    JsonValue message;
    Buffer file;  // the bytes of the file that the program attached; empty: none
  };
  // Sends a message, with the bytes of `file` as an attached file unless it is empty, and waits for
  // the answer. Errors: kUnavailable: the program has closed the connection, does not answer in
  // time, or violates the protocol; the connection is closed then.
  Result<Answer> Call(const std::string& message, std::span<const std::byte> file = {});
  void Close();

 private:
  Status Send(const std::string& message, int file) const;
  Result<Answer> Receive() const;
  Status Fail(const std::string& what);

  const std::string socket_;
  const Duration timeout_;
  int fd_ = -1;
  std::span<std::byte> memory_;
};

}  // namespace troop
