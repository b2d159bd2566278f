#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/log_rate_limit.h"
#include "core/base/status.h"
#include "net/security/keys.h"

namespace troop {

// A key pair of CURVE. Errors of both functions: kFailedPrecondition if this ZeroMQ was built
// without it.
struct CurvePair {
  PublicKey public_key{};
  SecretKey secret_key;
};
Result<CurvePair> MakeCurvePair();
Result<PublicKey> DerivePublicKey(const SecretKey& secret);

// Implements the ZAP protocol (rfc.zeromq.org/spec/27), by which ZeroMQ asks about clients. Admits
// keys that are allowed by the ring of the socket's domain, and all clients of sockets without keys
// (ipc). One instance per context, with a separate thread, because ZeroMQ asks while the threads of
// the nodes are busy. Lists are referenced only as long as their rings exist.
class ZapHandler {
 public:
  // Binds the ZAP endpoint and starts the thread. Errors: kResourceExhausted.
  static Result<std::unique_ptr<ZapHandler>> Start(void* context);
  // REQUIRES: the context was shut down (zmq_ctx_shutdown), which ends the thread.
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  // Starts to answer for the domain of the ring. Thread safe.
  void Serve(const KeyRing& ring);
  // Releases the thread object in a forked child, where the thread does not exist.
  void Abandon() { thread_.release(); }

 private:
  explicit ZapHandler(void* socket) : socket_(socket) {}
  void Run();
  // Returns the user id of an admitted client, "<role number> <name>"; nullopt if rejected.
  std::optional<std::string> Admit(const std::string& domain, const std::string& address,
                                   const std::string& mechanism, const std::string& key);

  void* const socket_;
  // Guards lists_, which the thread reads.
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<AllowList>> lists_;  // by domain
  LogRateLimit refused_;                                   // used by the thread only
  std::unique_ptr<std::thread> thread_;
};

}  // namespace troop
