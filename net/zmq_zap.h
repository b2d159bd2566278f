#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/status.h"
#include "net/keys.h"
#include "net/log_gate.h"

namespace troop {

// CURVE's arithmetic. Errors: kFailedPrecondition: this ZeroMQ was built without it.
struct CurvePair {
  PublicKey public_key{};
  SecretKey secret_key;
};
Result<CurvePair> MakeCurvePair();
Result<PublicKey> PublicHalf(const SecretKey& secret);

// Says to ZeroMQ who comes in (rfc.zeromq.org/spec/27): keys that the ring of the socket's domain
// allows, and everybody where there are no keys (ipc). One per context, with a thread of its own,
// because ZeroMQ asks while the nodes' threads are busy. It knows lists only while their rings
// live.
class ZapHandler {
 public:
  // Errors: kResourceExhausted.
  static Result<std::unique_ptr<ZapHandler>> Start(void* context);
  // REQUIRES: the context was shut down (zmq_ctx_shutdown), which ends the thread.
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  // Answers for the ring's domain from now on. Thread safe.
  void Serve(const KeyRing& ring);
  // In a forked child, where there is no such thread.
  void Abandon() { thread_.release(); }

 private:
  explicit ZapHandler(void* socket) : socket_(socket) {}
  void Run();
  // The user id of who may come in, "<role number> <name>"; nullopt: nobody may.
  std::optional<std::string> Admit(const std::string& domain, const std::string& address,
                                   const std::string& mechanism, const std::string& key);

  void* const socket_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<AllowList>> lists_;  // by domain
  LogGate refused_;                                        // of the thread
  std::unique_ptr<std::thread> thread_;
};

}  // namespace troop
