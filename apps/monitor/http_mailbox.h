#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "apps/monitor/http_message.h"
#include "apps/monitor/http_socket.h"

namespace troop {

// Answers that other threads give to requests of an HttpServer. Thread-safe. It outlives the server
// while a reply exists, so that a late answer goes nowhere instead of to freed memory.
class HttpMailbox {
 public:
  using Post = std::pair<std::uint64_t, HttpResponse>;  // number of the request, answer
  // wake: an eventfd that interrupts the server's poll().
  explicit HttpMailbox(Descriptor wake) : wake_(std::move(wake)) {}

  // Adds an answer and wakes the server's thread.
  void Add(std::uint64_t request, HttpResponse response);
  // Interrupts poll() without an answer.
  void Wake();
  // Returns all answers since the last call and resets the eventfd. Called by the server's thread.
  std::vector<Post> Take();
  int descriptor() const { return wake_.get(); }

 private:
  const Descriptor wake_;
  std::mutex mutex_;  // protects posts_
  std::vector<Post> posts_;
};

// The answer to one request, which any thread gives later; of several answers the first one counts.
// A request without an answer gets 504 at HttpServer's answer_deadline.
class HttpReply {
 public:
  HttpReply() = default;
  HttpReply(std::shared_ptr<HttpMailbox> mailbox, std::uint64_t request)
      : mailbox_(std::move(mailbox)), request_(request) {}
  // Sends the answer. Does not block. A default-constructed reply drops it.
  void Send(HttpResponse response) const {
    if (mailbox_) mailbox_->Add(request_, std::move(response));
  }

 private:
  std::shared_ptr<HttpMailbox> mailbox_;
  std::uint64_t request_ = 0;
};

}  // namespace troop
