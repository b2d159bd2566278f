// Implements the queue of answers between other threads and the HTTP server's thread.
#include "apps/monitor/http_mailbox.h"

#include <unistd.h>

namespace troop {

// Only the first answer since Take needs to wake the server.
void HttpMailbox::Add(std::uint64_t request, HttpResponse response) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = posts_.empty();
    posts_.emplace_back(request, std::move(response));
  }
  if (first) Wake();
}

// A full eventfd wakes poll() as well, so a failed write needs no handling.
void HttpMailbox::Wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

// The eventfd is reset first: an answer that arrives in between wakes the server once more.
std::vector<HttpMailbox::Post> HttpMailbox::Take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(posts_, {});
}

}  // namespace troop
