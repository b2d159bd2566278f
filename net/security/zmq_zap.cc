// Implements CURVE keys and the ZAP handler, which decides about client keys on its own thread.
#include "net/security/zmq_zap.h"

#include <fmt/format.h>
#include <zmq.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/time.h"

namespace troop {
namespace {

// Fixed by ZeroMQ RFC 27 (ZAP).
constexpr char kAddress[] = "inproc://zeromq.zap.01";
constexpr std::size_t kKeyDigits = 40;  // length of a key in Z85, the notation of ZeroMQ
constexpr std::size_t kFramesMax = 16;  // per request; the protocol uses 7

Status NoCurve() {
  return FailedPrecondition(
      "this ZeroMQ was built without CURVE (libsodium); install one that has it");
}

// Blocks until the next request and returns its frames; empty when the context ends.
std::vector<std::string> Receive(void* socket) {
  std::vector<std::string> frames;
  for (bool more = true; more;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, 0) < 0) {
      const bool again = zmq_errno() == EINTR;
      zmq_msg_close(&frame);
      if (again) continue;
      return {};
    }
    // Surplus frames are received but not kept.
    if (frames.size() < kFramesMax) {
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    }
    more = zmq_msg_more(&frame) != 0;
    zmq_msg_close(&frame);
  }
  return frames;
}

}  // namespace

Result<CurvePair> MakeCurvePair() {
  // Texts of secret keys are wiped after use.
  std::array<char, kKeyDigits + 1> public_text{}, secret_text{};
  if (zmq_has("curve") == 0) return NoCurve();
  if (zmq_curve_keypair(public_text.data(), secret_text.data()) != 0) return NoCurve();
  CurvePair pair;
  std::array<std::byte, 32> secret{};
  zmq_z85_decode(reinterpret_cast<std::uint8_t*>(pair.public_key.data()), public_text.data());
  zmq_z85_decode(reinterpret_cast<std::uint8_t*>(secret.data()), secret_text.data());
  pair.secret_key = SecretKey(secret);
  explicit_bzero(secret.data(), secret.size());
  explicit_bzero(secret_text.data(), secret_text.size());
  return pair;
}

Result<PublicKey> DerivePublicKey(const SecretKey& secret) {
  if (zmq_has("curve") == 0) return NoCurve();
  std::array<char, kKeyDigits + 1> public_text{}, secret_text{};
  zmq_z85_encode(secret_text.data(), reinterpret_cast<const std::uint8_t*>(secret.bytes().data()),
                 secret.bytes().size());
  const bool made = zmq_curve_public(public_text.data(), secret_text.data()) == 0;
  explicit_bzero(secret_text.data(), secret_text.size());
  if (!made) return NoCurve();
  PublicKey key{};
  zmq_z85_decode(reinterpret_cast<std::uint8_t*>(key.data()), public_text.data());
  return key;
}

Result<std::unique_ptr<ZapHandler>> ZapHandler::Start(void* context) {
  void* const socket = zmq_socket(context, ZMQ_REP);
  if (socket == nullptr) {
    return ResourceExhausted("can't create a socket: {}", zmq_strerror(zmq_errno()));
  }
  // Unsent answers must not delay the end of the context.
  const int linger = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
  if (zmq_bind(socket, kAddress) != 0) {
    const Status failed =
        ResourceExhausted("can't start the ZAP handler: {}", zmq_strerror(zmq_errno()));
    zmq_close(socket);
    return failed;
  }
  std::unique_ptr<ZapHandler> handler(new ZapHandler(socket));
  handler->thread_ = std::make_unique<std::thread>([h = handler.get()] { h->Run(); });
  return handler;
}

ZapHandler::~ZapHandler() {
  if (thread_) thread_->join();
}

// Expired lists belong to destroyed key rings.
void ZapHandler::Serve(const KeyRing& ring) {
  const std::lock_guard lock(mutex_);
  std::erase_if(lists_, [](const auto& entry) { return entry.second.expired(); });
  lists_[ring.domain] = ring.allowed;
}

// Answers requests until the context ends. Frames of a request: version, id, domain, address,
// identity, mechanism, credentials.
void ZapHandler::Run() {
  for (;;) {
    const std::vector<std::string> request = Receive(socket_);
    if (request.empty()) break;
    std::optional<std::string> user;
    // Malformed requests are rejected.
    const bool whole = request.size() >= 6 && request[0] == "1.0";
    if (whole) {
      user = Admit(request[2], request[3], request[5], request.size() > 6 ? request[6] : "");
    }
    // Frames of an answer: version, id, status code, status text, user id, metadata.
    const std::string answer[] = {"1.0",
                                  request.size() > 1 ? request[1] : "",
                                  user ? "200" : "400",
                                  user ? "OK" : "this key is not allowed",
                                  user.value_or(""),
                                  ""};
    for (const std::string& frame : answer) {
      const bool last = &frame == &answer[std::size(answer) - 1];
      zmq_send(socket_, frame.data(), frame.size(), last ? 0 : ZMQ_SNDMORE);
    }
  }
  zmq_close(socket_);
}

// Returns the user id, "<role> <name>", or nullopt if the key is rejected.
std::optional<std::string> ZapHandler::Admit(const std::string& domain, const std::string& address,
                                             const std::string& mechanism, const std::string& key) {
  // Sockets without keys have no restrictions here; tcp:// without keys is restricted by
  // CheckMayListen.
  if (mechanism != "CURVE") return std::string();
  std::shared_ptr<AllowList> list;
  // The list is used outside the lock, because it may read its file.
  {
    const std::lock_guard lock(mutex_);
    const auto found = lists_.find(domain);
    if (found != lists_.end()) list = found->second.lock();
  }
  PublicKey public_key{};
  if (list == nullptr || key.size() != public_key.size()) return std::nullopt;
  std::memcpy(public_key.data(), key.data(), key.size());
  const Result<AllowList::Entry> entry = list->Find(public_key);
  if (entry.ok()) return fmt::format("{} {}", int(entry->role), entry->name);
  if (refused_.Next(SystemClock().Now())) {
    LogWarning("rejected a connection from {}, number {}: {}", address, refused_.number,
               entry.status().message());
  }
  return std::nullopt;
}

}  // namespace troop
