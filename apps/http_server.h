#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "apps/http_message.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// A small web server for numbers and pages of a run: GET, HEAD and (`posts`) POST, one request a
// connection, all in one thread of its own that nobody waits for. It is made for an address that
// strangers may reach: whoever is slow, endless or silent costs one of `connections_max`
// descriptors and a head of 16 KiB until a deadline passes, and the longest unfinished one is cut
// off where a newcomer finds no room, so that many of them keep nobody out who asks and leaves.
// Clients that read slowly share nothing but memory for their answers (`answer_bytes_max` over
// all).
//
// Handlers run in the server's thread, and must not block: they look at data that others leave
// for them (a shared_ptr behind a mutex). Owner: any one thread; Stop, or the destructor, joins the
// server's.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  struct Options {
    std::string address;  // HOST:PORT; port 0: any free one; "*:PORT": all addresses
    // A file whose one line all requests must bring (16 to 256 visible characters; mode 0600).
    // Empty: none, which beyond this machine takes `insecure`.
    std::string token_file;
    bool insecure = false;
    // Path → handler; one that ends in "/" serves all below it that has none of its own.
    std::map<std::string, Handler> routes;
    // Asked before `routes` in place of the comparison of tokens; empty: HasBearerToken. Null: come
    // in; or what is answered instead.
    std::function<std::unique_ptr<HttpResponse>(const HttpRequest&, const std::string& token)>
        guard;
    int connections_max = 64;
    std::size_t answer_bytes_max = std::size_t{64} << 20;  // waiting to be sent; then 503
    Duration request_deadline = Seconds(5);                // for a head to come
    Duration response_deadline = Seconds(15);              // for an answer to be taken
    HttpLimits limits;
    bool posts = false;  // handlers get POST as well; its Content-Length must be 0
  };
  struct Counters {
    std::uint64_t requests = 0;  // answered by a handler
    std::uint64_t refused = 0;   // answered with an error before any
    std::uint64_t cut_off = 0;   // without an answer, or in the middle of it
  };

  // Errors: kInvalidArgument: an address, a token's file, or beyond this machine without a token;
  // kAlreadyExists: the port is in use, by whom where that is known.
  static Result<std::unique_ptr<HttpServer>> Make(Options options);
  ~HttpServer();
  void Stop();  // no handler runs any more when it returns

  const std::string& address() const { return address_; }  // HOST:PORT, the real one
  Counters counters() const;                               // thread safe

 private:
  class Loop;
  HttpServer(std::unique_ptr<Loop> loop, std::string address);

  const std::unique_ptr<Loop> loop_;
  const std::string address_;
  std::thread thread_;
};

// Whether such a server may listen at `address`: with a token or `insecure` anywhere, else on this
// machine alone. Errors: kInvalidArgument, with the key to mend. `keys`: what the address and the
// token's file are called in the config ("fleet.metrics", "fleet.metrics_token").
struct HttpAddressKeys {
  std::string_view address, token;
};
Status CheckHttpAddress(std::string_view address, bool token, bool insecure,
                        const HttpAddressKeys& keys);
// The token in a file. Errors: kNotFound; kInvalidArgument: others can read it, or what is in it
// is none; with what to do.
Result<std::string> ReadToken(const std::string& file);

}  // namespace troop
