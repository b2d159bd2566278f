// EnvWorker: the state machine of one worker process, driven by Poll.

#include "envs/subprocess/worker.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace troop {
namespace {

// Time for a process to exit after it closed its socket, before it is killed.
constexpr Duration kDying = Milliseconds(100);
// Maximum time that Poll blocks with Options::wait.
constexpr Duration kWaitMax = Milliseconds(100);

// Receive timeout: a quarter of the shorter deadline, so that deadlines are checked often enough.
Duration Shortest(Duration start, Duration step) {
  return std::clamp(std::min(start, step) / 4, Milliseconds(1), kWaitMax);
}

}  // namespace

void EnvWorker::Start(Time now, WorkerProcess spare) {
  TROOP_CHECK(down(), "the worker is running already");
  since_ = now;
  state_ = State::kStarting;
  const bool ready = spare.process() > 0 && !spare.ended();
  Result<WorkerProcess> process =
      ready ? std::move(spare) : WorkerProcess::Start(options_.program, options_.memory);
  failed_ = !process.ok();
  if (failed_) {
    death_ = {.what = process.status().message(), .starting = true};
    return;
  }
  process_ = std::move(process).value();
  const auto wait = Shortest(options_.start_timeout, options_.step_timeout);
  // Limits blocking receives, so that Poll can check the deadlines.
  const timeval timeout{0, std::chrono::duration_cast<std::chrono::microseconds>(wait).count()};
  setsockopt(process_.socket(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  Queue(options_.request);
}

void EnvWorker::Map(const worker::Layout& layout, std::byte* memory, Time now) {
  TROOP_CHECK(state_ == State::kSpec, "Map must follow Event::kSpec");
  layout_ = layout;
  memory_ = memory;
  since_ = now;
  state_ = State::kMapping;
  Queue(worker::LayoutMessage(layout));
}

void EnvWorker::Begin(worker::Message round, Time now) {
  TROOP_CHECK(idle(), "the previous round is still under way");
  // The worker process writes it too: `progress` is the row that was under way if the worker dies.
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(memory_ + layout_.progress)).store(0);
  progress_ = 0;
  since_ = now;
  round_ = round;
  state_ = State::kBusy;
  const char byte = round;
  Send({&byte, 1});
}

std::uint32_t EnvWorker::progress() const {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(memory_ + layout_.progress)).load();
}

// An error needs no handling here: the next Receive detects that the peer has exited.
bool EnvWorker::Send(std::string_view message) {
  return send(process_.socket(), message.data(), message.size(), MSG_NOSIGNAL) ==
         ssize_t(message.size());
}

void EnvWorker::Queue(std::string json) {
  inbox_.clear();
  outbox_ = worker::InParts(std::move(json));
  Flush();
}

// Sends as many parts as fit into the socket buffer; a worker that does not read yet must not block
// the caller. After an error the rest is dropped, and Receive reports the cause.
void EnvWorker::Flush() {
  while (!outbox_.empty()) {
    const std::size_t part = std::min(outbox_.size(), worker::kPartBytes);
    const ssize_t sent = send(process_.socket(), outbox_.data(), part, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    outbox_.erase(0, sent < 0 ? outbox_.size() : part);
  }
}

std::string_view EnvWorker::Receive(bool wait) {
  // An empty result means end of file or an error, and `silent_` that nothing has arrived.
  const ssize_t got =
      recv(process_.socket(), buffer_.data(), buffer_.size(), wait ? 0 : MSG_DONTWAIT);
  silent_ = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return {buffer_.data(), std::size_t(std::max<ssize_t>(got, 0))};
}

EnvWorker::Event EnvWorker::Poll(Time now) {
  if (std::exchange(failed_, false)) {
    state_ = State::kDown;
    return Event::kDied;
  }
  if (state_ == State::kDown || state_ == State::kSpec || state_ == State::kIdle) {
    return Event::kNothing;
  }
  Flush();
  std::string_view message = Receive(options_.wait && outbox_.empty());
  // A worker that exits with unread input causes ECONNRESET once before its last message.
  if (message.empty() && !silent_) message = Receive(false);
  if (!message.empty()) return Take(message);
  return silent_ ? Late(now) : Lost();
}

// Handles one message part according to the state.
EnvWorker::Event EnvWorker::Take(std::string_view part) {
  // An answer that exceeds the limit is treated as complete, and then fails to parse.
  if (!worker::TakePart(part, &inbox_) && inbox_.size() < worker::kAnswerBytesMax) {
    return Event::kNothing;
  }
  const std::string message = std::exchange(inbox_, {});
  if (state_ == State::kStarting) return TakeStarting(message);
  if (message.size() != 1 || message[0] != worker::kDone) {
    return Die(fmt::format("sent an invalid reply of {} bytes", message.size()));
  }
  return std::exchange(state_, State::kIdle) == State::kMapping ? Event::kReady : Event::kDone;
}

// Handles the answer to the request.
EnvWorker::Event EnvWorker::TakeStarting(std::string_view message) {
  // The child sends kExec with errno if execve failed (worker_process.cc).
  if (message[0] == worker::kExec) {
    int error = 0;
    memcpy(&error, message.data() + 1, std::min(message.size() - 1, sizeof(error)));
    return Die(
        fmt::format("cannot run {}: {}", options_.program.path, strerror(error)),
        NotFound("{}: cannot run {}: {}", options_.id, options_.program.path, strerror(error)));
  }
  // A worker that reports an error or an invalid spec cannot be fixed by a restart.
  spec_ = worker::ParseSpecMessage(message, options_.id);
  if (!spec_.ok()) return Die(spec_.status().message(), spec_.status());
  state_ = State::kSpec;
  return Event::kSpec;
}

// The connection ended; the exit status of the process shows the reason.
EnvWorker::Event EnvWorker::Lost() {
  const std::string how = process_.End(kDying);
  return Die(how.empty() ? "closed the connection" : how);
}

// Checks the deadline. Each row that the worker enters restarts it, once. Progress values out of
// range are ignored.
EnvWorker::Event EnvWorker::Late(Time now) {
  if (process_.ended()) {  // its own child may keep the socket open
    std::string_view last = Receive(false);
    if (last.empty()) last = Receive(false);
    return last.empty() ? Lost() : Take(last);
  }
  const bool starting = state_ != State::kBusy;
  const std::uint32_t reached = starting ? 0 : progress();
  if (reached > progress_ && reached <= 2 * std::uint32_t(layout_.rows)) {
    progress_ = reached;
    since_ = now;
  }
  if (now - since_ <= (starting ? options_.start_timeout : options_.step_timeout)) {
    return Event::kNothing;
  }
  if (starting) {
    return Die(fmt::format("was not ready within env.start_timeout_s = {:g} s",
                           ToSeconds(options_.start_timeout)));
  }
  return Die(fmt::format("took longer than env.step_timeout_s = {:g} s",
                         ToSeconds(options_.step_timeout)));
}

// Ends the process and records the cause. `final`: an error that a restart cannot fix.
EnvWorker::Event EnvWorker::Die(std::string what, Status final) {
  const bool busy = state_ == State::kBusy;
  process_.End({});
  death_ = {.what = std::move(what),
            .starting = !busy,
            .resetting = busy && resetting(),
            .final = std::move(final)};
  // The process is dead, so progress() no longer changes; a value out of range is ignored.
  const std::uint32_t reached = busy ? progress() : 0;
  if (reached >= 1 && reached <= 2 * std::uint32_t(layout_.rows)) {
    death_.row = int(reached - 1) / 2;
    death_.resetting = reached == worker::Progress(std::size_t(death_.row), true);
  }
  state_ = State::kDown;
  return Event::kDied;
}

// Receives one message within `patience`; false after a timeout or an error.
bool EnvWorker::ReceiveWithin(Duration patience, std::string_view* message) {
  pollfd ready{process_.socket(), POLLIN, 0};
  const SystemClock clock;
  const Time end = clock.Now() + patience;
  int found = 0;
  do {  // repeat after a signal
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.Now());
    const std::int64_t ms = std::clamp<std::int64_t>(left.count() + 1, 0, 1 << 30);
    found = poll(&ready, 1, int(ms));
  } while (found < 0 && errno == EINTR);
  if (found != 1) return false;
  *message = Receive(false);
  return !message->empty();
}

// A worker without a valid answer is hung up on; the next round detects its exit.
void EnvWorker::TakeMetrics(EnvMetrics* into) {
  TROOP_CHECK(idle(), "TakeMetrics is only allowed between two rounds");
  std::string_view message;
  if (!Send(std::string(1, worker::kMetrics))) return;
  if (!ReceiveWithin(options_.step_timeout, &message) ||
      !worker::ParseMetricsMessage(message, into).ok()) {
    Hang();
  }
}

// Blocks up to step_timeout per message.
Picture EnvWorker::Render(int row) {
  TROOP_CHECK(idle(), "Render is only allowed between two rounds");
  const auto fail = [this] {
    Hang();  // a late answer would be misread; the next round detects the exit
    return Picture{};
  };
  std::string_view message;
  if (!Send(fmt::format("{}{}", char(worker::kRender), row))) return {};
  if (!ReceiveWithin(options_.step_timeout, &message)) return fail();
  const Result<JsonValue> json = ParseJson(message);
  if (!json.ok()) return fail();
  if (json->Find("error") != nullptr) return {};
  const std::int64_t height = json->Integer("height").ok() ? *json->Integer("height") : 0;
  const std::int64_t width = json->Integer("width").ok() ? *json->Integer("width") : 0;
  // Sizes come from another process: check them before allocating.
  constexpr std::int64_t kMax = worker::kPictureSideMax;
  if (height < 1 || width < 1 || height > kMax || width > kMax) return fail();
  Picture picture{.width = int(width), .height = int(height), .rgb = {}};
  const auto bytes = std::size_t(height * width * 3);
  picture.rgb.reserve(bytes);
  while (picture.rgb.size() < bytes) {
    if (!ReceiveWithin(options_.step_timeout, &message)) return fail();
    // More bytes than announced: the worker and this side disagree about the message.
    if (message.size() > bytes - picture.rgb.size()) return fail();
    picture.rgb.insert(picture.rgb.end(), message.begin(), message.end());
  }
  return picture;
}

}  // namespace troop
