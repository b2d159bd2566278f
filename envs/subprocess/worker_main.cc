// Worker process for plug-ins and native environments: requests, rounds, faults.

#include "envs/subprocess/worker_main.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "envs/environment.h"
#include "envs/subprocess/protocol.h"

namespace troop {
namespace {

using namespace worker;

// One worker process: environments, socket and shared memory. Single-threaded.
// Message parts and results are defined in protocol.h.
class WorkerLoop {
 public:
  int Run();

 private:
  // Handshake: request, spec, layout, ready.
  Status Prepare();
  Status Make(std::size_t row);
  Status MapMemory();
  template <class Call>
  void Measure(const Call& call);
  void StepAll();
  void ResetMarked();
  void Step(std::size_t row);
  void BeginNext(std::size_t row);
  void Reset(std::size_t row);
  void Render(std::string_view row);
  Status SendMetrics();
  void Fault(std::size_t row, std::string_view why);
  void Drop(std::size_t row, std::string_view why);
  Status Send(std::string_view message);
  Status SendJson(std::string json);
  Result<std::string_view> Receive();
  Result<std::string> ReceiveJson();
  // Publishes the row under way, so that the owner can name it if this process dies or hangs.
  void Enter(std::size_t row, bool resetting) {
    std::atomic_ref(*At<std::uint32_t>(layout_.progress)).store(Progress(row, resetting));
  }
  template <class T>
  T* At(std::size_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  // Row of an array at offset `array` with `bytes` per row.
  std::span<std::byte> Row(std::size_t array, std::size_t bytes, std::size_t row) const {
    return {memory_ + array + row * bytes, bytes};
  }

  Request request_;
  Layout layout_;
  std::byte* memory_ = nullptr;
  std::size_t action_bytes_ = 0, observation_bytes_ = 0;
  std::vector<std::unique_ptr<Environment>> envs_;  // nullptr: threw; created again at its reset
  std::array<char, kPartBytes> buffer_;
  EnvMetrics metrics_;  // of all rows; its names limit those of the process
};

// Sends one message. REQUIRES: at most kPartBytes.
Status WorkerLoop::Send(std::string_view message) {
  while (send(kSocket, message.data(), message.size(), MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Unavailable("the owner has exited: {}", strerror(errno));
  }
  return Status::Ok();
}

// Sends a message in parts, since a SOCK_SEQPACKET message has a limited size.
Status WorkerLoop::SendJson(std::string json) {
  json = InParts(std::move(json));
  for (std::size_t at = 0; at < json.size(); at += kPartBytes) {
    TROOP_RETURN_IF_ERROR(Send(std::string_view(json).substr(at, kPartBytes)));
  }
  return Status::Ok();
}

// Receives one message; valid until the next call.
Result<std::string_view> WorkerLoop::Receive() {
  for (;;) {
    const ssize_t got = recv(kSocket, buffer_.data(), buffer_.size(), 0);
    if (got > 0) return std::string_view(buffer_.data(), std::size_t(got));
    if (got == 0 || errno != EINTR) return Unavailable("the owner has exited");
  }
}

Result<std::string> WorkerLoop::ReceiveJson() {
  std::string json;
  // A part shorter than kPartBytes ends the message.
  for (bool whole = false; !whole;) {
    TROOP_ASSIGN_OR_RETURN(const std::string_view part, Receive());
    whole = TakePart(part, &json);
  }
  return json;
}

// Creates the environment of one row.
Status WorkerLoop::Make(std::size_t row) {
  TROOP_ASSIGN_OR_RETURN(envs_[row], MakeEnvironment(request_.id, request_.options));
  return Status::Ok();
}

// Steps: receive the request, create environments, send the spec, receive the layout, map, send
// done.
Status WorkerLoop::Prepare() {
  TROOP_ASSIGN_OR_RETURN(const std::string text, ReceiveJson());
  TROOP_ASSIGN_OR_RETURN(request_, ParseRequest(text));
  // At least one environment, because its spec is the answer.
  envs_.resize(std::size_t(std::max(request_.rows, 1)));
  // Environments are created before the answer, so that their errors reach the owner.
  Status made;
  for (std::size_t i = 0; i < envs_.size() && made.ok(); ++i) made = Make(i);
  if (!made.ok()) {
    TROOP_RETURN_IF_ERROR(SendJson(JsonObject().Add("error", made.message()).str()));
    return made;
  }
  const EnvSpec& spec = envs_[0]->spec();
  action_bytes_ = spec.action.tensor().bytes();
  observation_bytes_ = spec.observation.bytes();
  TROOP_RETURN_IF_ERROR(SendJson(SpecMessage(spec)));
  TROOP_ASSIGN_OR_RETURN(const std::string layout, ReceiveJson());
  TROOP_ASSIGN_OR_RETURN(layout_, ParseLayout(layout));
  TROOP_RETURN_IF_ERROR(MapMemory());
  return Send(std::string(1, kDone));
}

// Never unmapped: the mapping lives as long as the process.
Status WorkerLoop::MapMemory() {
  void* mapped = mmap(nullptr, layout_.total, PROT_READ | PROT_WRITE, MAP_SHARED, kMemory, 0);
  if (mapped == MAP_FAILED)
    return ResourceExhausted("cannot map the shared memory: {}", strerror(errno));
  memory_ = static_cast<std::byte*>(mapped);
  return Status::Ok();
}

// Reports a fault to the owner through the row's text and flags.
void WorkerLoop::Fault(std::size_t row, std::string_view why) {
  // The text is truncated; the last byte stays 0.
  const auto text = Row(layout_.text, kTextBytes, row);
  std::ranges::fill(text, std::byte{0});
  memcpy(text.data(), why.data(), std::min(why.size(), kTextBytes - 1));
  At<std::uint8_t>(layout_.flags)[row] = kFault;
}

// After an exception the environment may be in any state: discard it, and create it again at its
// next reset.
void WorkerLoop::Drop(std::size_t row, std::string_view why) {
  Fault(row, why);
  envs_[row].reset();
}

// Adds the time of a call into an environment to `spent`, if that is requested.
template <class Call>
void WorkerLoop::Measure(const Call& call) {
  if (!request_.options.measure) return call();
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
  *At<std::uint64_t>(layout_.spent) += std::uint64_t(took.count());
}

// A fault ends the episode of that row only; the other rows still step.
void WorkerLoop::StepAll() {
  for (std::size_t i = 0; i < envs_.size(); ++i) {
    Enter(i, false);
    try {
      Step(i);
    } catch (const std::exception& error) {
      Drop(i, error.what());
    }
  }
}

// Steps one row and writes its result.
void WorkerLoop::Step(std::size_t row) {
  StepResult result;
  Measure([&] {
    result = envs_[row]->Step(Row(layout_.action, action_bytes_, row),
                              Row(layout_.observation, observation_bytes_, row));
  });
  if (const std::string_view why = envs_[row]->fault(); !why.empty()) return Fault(row, why);
  // Written before `flags`; the owner reads both only after the reply.
  At<float>(layout_.reward)[row] = result.reward;
  At<std::uint8_t>(layout_.flags)[row] =
      std::uint8_t((result.terminated ? kTerminated : 0) | (result.truncated ? kTruncated : 0));
  if (result.terminated || result.truncated) BeginNext(row);
}

// Begins the next episode in the same round, which saves a round trip. A failure does not change
// the result of the ended episode.
void WorkerLoop::BeginNext(std::size_t row) {
  std::uint8_t& flags = At<std::uint8_t>(layout_.flags)[row];
  // Reset may set kFault in `flags`, which is added to the end of the old episode.
  const std::uint8_t end = flags;
  std::ranges::copy(Row(layout_.observation, observation_bytes_, row),
                    Row(layout_.final, observation_bytes_, row).begin());
  Enter(row, true);
  try {
    Reset(row);
  } catch (const std::exception& error) {
    Drop(row, error.what());
  }
  flags = std::uint8_t(end | kBegun | (flags & kFault));
}

// Resets the rows that the owner marked, and creates those again that threw.
void WorkerLoop::ResetMarked() {
  for (std::size_t i = 0; i < envs_.size(); ++i) {
    if (At<std::uint8_t>(layout_.reset)[i] == 0) continue;
    Enter(i, true);
    At<std::uint8_t>(layout_.flags)[i] = 0;
    try {
      const Status made = envs_[i] == nullptr ? Make(i) : Status::Ok();
      if (made.ok()) {
        Reset(i);
      } else {
        Fault(i, made.message());
      }
    } catch (const std::exception& error) {
      Drop(i, error.what());
    }
  }
}

// Resets one row with the seed from shared memory.
void WorkerLoop::Reset(std::size_t row) {
  Measure([&] {
    envs_[row]->Reset(At<std::uint64_t>(layout_.seed)[row],
                      Row(layout_.observation, observation_bytes_, row));
  });
  if (const std::string_view why = envs_[row]->fault(); !why.empty()) Fault(row, why);
}

// Reply: a JSON message with the size, then the RGB bytes in parts; or a JSON error.
void WorkerLoop::Render(std::string_view row) {
  std::size_t index = 0;
  std::from_chars(row.data(), row.data() + row.size(), index);
  const bool drawable = index < envs_.size() && envs_[index] != nullptr;
  const Picture picture = drawable ? envs_[index]->Render() : Picture{};
  const std::string_view bytes(reinterpret_cast<const char*>(picture.rgb.data()),
                               picture.rgb.size());
  if (bytes.empty()) {
    (void)Send(JsonObject().Add("error", "no picture").str());
    return;
  }
  Status sent = Send(JsonObject().Add("height", picture.height).Add("width", picture.width).str());
  for (std::size_t at = 0; at < bytes.size() && sent.ok(); at += kPartBytes) {
    sent = Send(bytes.substr(at, kPartBytes));
  }
}

Status WorkerLoop::SendMetrics() {
  for (const auto& env : envs_) {
    if (env != nullptr) env->TakeMetrics(&metrics_);
  }
  const Status sent = Send(MetricsMessage(metrics_));
  metrics_.Clear();
  return sent;
}

// Exit codes: 0 normal end, 1 failed start, 2 unknown message.
int WorkerLoop::Run() {
  if (const Status ready = Prepare(); !ready.ok()) {
    fmt::print(stderr, "troop env-worker: {}\n", ready.message());
    return 1;
  }
  for (;;) {
    // End of file is the normal end: the owner has exited or closed the socket.
    const Result<std::string_view> message = Receive();
    if (!message.ok()) return 0;
    switch ((*message)[0]) {
      case kStep:
        StepAll();
        break;
      case kReset:
        ResetMarked();
        break;
      case kRender:
        Render(message->substr(1));
        continue;
      case kMetrics:
        if (!SendMetrics().ok()) return 0;
        continue;
      default:
        return 2;
    }
    if (!Send(std::string(1, kDone)).ok()) return 0;
  }
}

}  // namespace

int RunEnvWorker() { return std::make_unique<WorkerLoop>()->Run(); }

}  // namespace troop
