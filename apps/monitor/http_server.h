#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "apps/monitor/http_mailbox.h"
#include "apps/monitor/http_message.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// A small HTTP server for the metrics and pages of a run and for the actions of a policy, all in
// one separate thread. By default: GET, HEAD and (`posts`) an empty POST, one request per
// connection. Options add bodies (`limits.body_bytes`), connections of several requests
// (`keep_alive`) and answers that other threads give later (`deferred`).
//
// It tolerates untrusted clients. A slow or silent one occupies one of `connections_max`
// descriptors and at most a head and a body of memory until a deadline; if there is no free
// descriptor, the oldest connection without a complete request is closed for a new one, so that
// such clients do not lock out others. A connection that awaits a deferred answer is never closed
// for another: if all do, a new one gets 503. Slow readers only use memory for responses (at most
// `answer_bytes_max` in total).
//
// Handlers run in the server's thread and must not block: they read data that other threads
// publish (a shared_ptr under a mutex). Owner: any one thread; Stop, or the destructor, joins the
// server's thread.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Takes a request whose answer is given through the reply, now or later.
  using DeferredHandler = std::function<void(HttpRequest, HttpReply)>;
  struct Options {
    std::string address;  // HOST:PORT; port 0: any free one; "*:PORT": all addresses
    // A file with the token that every request must carry (one line, 16 to 256 visible characters;
    // mode 0600). Empty: no token, which requires a loopback address or `insecure`.
    std::string token_file;
    bool insecure = false;
    // Path -> handler; a path that ends in "/" serves everything below it without its own route.
    std::map<std::string, Handler> routes;
    // Path -> handler of POST requests, by the exact path.
    std::map<std::string, DeferredHandler> deferred;
    // Paths of `routes` that need no token.
    std::set<std::string> public_paths;
    // Replaces the token check: returns null to accept a request, else the response. Empty:
    // HasBearerToken.
    std::function<std::unique_ptr<HttpResponse>(const HttpRequest&, const std::string& token)>
        guard;
    int connections_max = 64;
    std::size_t answer_bytes_max = std::size_t{64} << 20;  // unsent responses; beyond it 503
    Duration request_deadline = Seconds(5);                // for receiving a request
    Duration answer_deadline = Seconds(5);                 // for a deferred answer; then 504
    Duration response_deadline = Seconds(15);              // for sending a response
    Duration idle_deadline = Seconds(60);                  // between requests of a connection
    Duration drain_grace = Seconds(1);                     // the same while draining
    HttpLimits limits;
    bool posts = false;       // also passes POST to handlers
    bool keep_alive = false;  // several requests per connection
  };
  struct Counters {
    std::uint64_t requests = 0;  // passed to a handler
    std::uint64_t refused = 0;   // answered with an error, before a handler
    std::uint64_t cut_off = 0;   // closed without a complete response
    std::uint64_t overdue = 0;   // answered with 504 at the answer deadline
  };

  // Starts a server. Errors: kInvalidArgument: the address, the token file, or a non-loopback
  // address without a token; kAlreadyExists: the port is in use (with the process if known).
  static Result<std::unique_ptr<HttpServer>> Make(Options options);
  ~HttpServer();
  // Ends the thread; no handler runs after it returns.
  void Stop();
  // Stops accepting connections, answers the requests of the accepted ones, and ends the thread. An
  // idle connection can send one more request for `drain_grace`, which is answered with
  // `Connection: close`. Blocks for `limit` at most. Returns the number of connections that were
  // cut off then.
  std::size_t Drain(Duration limit);

  const std::string& address() const { return address_; }  // HOST:PORT with the actual port
  Counters counters() const;                               // thread-safe

 private:
  class Loop;
  HttpServer(std::unique_ptr<Loop> loop, std::string address);

  const std::unique_ptr<Loop> loop_;
  const std::string address_;
  std::thread thread_;
};

// The config keys of an address and its token file ("fleet.metrics", "fleet.metrics_token").
struct HttpAddressKeys {
  std::string_view address, token;
  bool offers_insecure = true;  // --insecure is a remedy
};
// Checks that a server may listen at `address`: anywhere with a token or `insecure`, else on
// loopback only. Errors: kInvalidArgument, with the key to change.
Status CheckHttpAddress(std::string_view address, bool token, bool insecure,
                        const HttpAddressKeys& keys);
// Reads a token file. Errors: kNotFound; kInvalidArgument: readable by others, or not a valid
// token; with the remedy.
Result<std::string> ReadToken(const std::string& file);

}  // namespace troop
