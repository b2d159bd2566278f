#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace troop {

// The subset of HTTP/1.1 (RFC 9112) that a server of pages, metrics and actions needs: a body has a
// Content-Length, never a Transfer-Encoding.

struct HttpRequest {
  std::string method;                          // as sent: "GET"
  std::string path;                            // decoded, begins with /, no "." or ".." in it
  std::map<std::string, std::string> query;    // decoded; the first of duplicate names
  std::map<std::string, std::string> headers;  // names in lower case
  std::size_t body_bytes = 0;                  // Content-Length
  std::string body;                            // set by the server once it is complete
  std::string peer;                            // PeerAddress of the client; set by the server
  bool keep_alive = false;                     // the client can send further requests
  // The value of a header or a query parameter; "" if there is none.
  const std::string& Header(const std::string& name) const;
  const std::string& Query(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::shared_ptr<const std::string> shared;  // replaces `body`; shared by several responses
  std::vector<std::pair<std::string, std::string>> headers;  // besides those of HttpHead

  const std::string& content() const { return shared ? *shared : body; }
};

// Limits on a request.
struct HttpLimits {
  std::size_t head_bytes = 16384;
  std::size_t headers = 100;
  std::size_t body_bytes = 0;  // 0: requests must not have a body
};

// Offset of the end of a request head, after its empty line; npos: `bytes` has no complete head.
std::size_t HttpHeadEnd(std::string_view bytes);
// Parses a complete head as HttpHeadEnd delimits it. Errors, with the HTTP status they map to:
// kInvalidArgument 400, kResourceExhausted 431, kFailedPrecondition 413 (a body that is too large,
// or whose length is not announced), kOutOfRange 505.
Result<HttpRequest> ParseHttpRequest(std::string_view head, const HttpLimits& limits = {});
// The response to a request that failed, by the code of `status`.
HttpResponse HttpFailure(const Status& status);

// The status line and the headers: Content-Length, Connection, and those that prevent content
// sniffing, framing and caching. Line breaks in header values are dropped. keep_alive: the server
// reads further requests of the connection.
std::string HttpHead(const HttpResponse& response, bool keep_alive = false);

// True if a Host header shows a possible DNS rebinding attack: it is neither an address, nor
// localhost, nor the host of `listened`, the configured HOST:PORT. An empty Host passes, since all
// browsers send one.
bool IsForeignHost(std::string_view host, std::string_view listened = {});
// True if the request has "Authorization: Bearer <token>". Compares in constant time.
bool HasBearerToken(const HttpRequest& request, std::string_view token);

}  // namespace troop
