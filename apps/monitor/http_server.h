#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "apps/monitor/http_message.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// A small HTTP server for the metrics and pages of a run: GET, HEAD and (`posts`) POST, one request
// per connection, all in one separate thread.
//
// It tolerates untrusted clients. A slow or silent one occupies one of `connections_max`
// descriptors and a 16 KiB head until a deadline; if there is no free descriptor, the oldest
// unfinished connection is closed for a new one, so that such clients do not lock out others.
// Slow readers only use memory for responses (at most `answer_bytes_max` in total).
//
// Handlers run in the server's thread and must not block: they read data that other threads
// publish (a shared_ptr under a mutex). Owner: any one thread; Stop, or the destructor, joins the
// server's thread.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  struct Options {
    std::string address;  // HOST:PORT; port 0: any free one; "*:PORT": all addresses
    // A file with the token that every request must carry (one line, 16 to 256 visible characters;
    // mode 0600). Empty: no token, which requires a loopback address or `insecure`.
    std::string token_file;
    bool insecure = false;
    // Path -> handler; a path that ends in "/" serves everything below it without its own route.
    std::map<std::string, Handler> routes;
    // Replaces the token check: returns null to accept a request, else the response. Empty:
    // HasBearerToken.
    std::function<std::unique_ptr<HttpResponse>(const HttpRequest&, const std::string& token)>
        guard;
    int connections_max = 64;
    std::size_t answer_bytes_max = std::size_t{64} << 20;  // unsent responses; beyond it 503
    Duration request_deadline = Seconds(5);                // for receiving a head
    Duration response_deadline = Seconds(15);              // for sending a response
    HttpLimits limits;
    bool posts = false;  // also passes POST to handlers; Content-Length must be 0
  };
  struct Counters {
    std::uint64_t requests = 0;  // answered by a handler
    std::uint64_t refused = 0;   // answered with an error, before a handler
    std::uint64_t cut_off = 0;   // closed without a complete response
  };

  // Starts a server. Errors: kInvalidArgument: the address, the token file, or a non-loopback
  // address without a token; kAlreadyExists: the port is in use (with the process if known).
  static Result<std::unique_ptr<HttpServer>> Make(Options options);
  ~HttpServer();
  // Ends the thread; no handler runs after it returns.
  void Stop();

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
};
// Checks that a server may listen at `address`: anywhere with a token or `insecure`, else on
// loopback only. Errors: kInvalidArgument, with the key to change.
Status CheckHttpAddress(std::string_view address, bool token, bool insecure,
                        const HttpAddressKeys& keys);
// Reads a token file. Errors: kNotFound; kInvalidArgument: readable by others, or not a valid
// token; with the remedy.
Result<std::string> ReadToken(const std::string& file);

}  // namespace troop
