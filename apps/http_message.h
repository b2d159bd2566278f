#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"

namespace troop {

// The part of HTTP/1.1 (RFC 9112) that a server of pages and numbers needs: requests without a
// body, one a connection.

struct HttpRequest {
  std::string method;                          // as sent: "GET"
  std::string path;                            // decoded, begins with /, no "." or ".." in it
  std::map<std::string, std::string> query;    // decoded; of a name that comes twice the first
  std::map<std::string, std::string> headers;  // names in lower case
  // "": there is none.
  const std::string& Header(const std::string& name) const;
  const std::string& Query(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::shared_ptr<const std::string> shared;  // in place of `body`, where many get the same
  std::vector<std::pair<std::string, std::string>> headers;  // beside those that all have

  const std::string& content() const { return shared ? *shared : body; }
};

// What a head may have: bytes of its lines, and how many of them.
struct HttpLimits {
  std::size_t head_bytes = 16384;
  std::size_t headers = 100;
};

// Where the head of a request ends, behind its empty line; npos: not yet in `bytes`.
std::size_t HttpHeadEnd(std::string_view bytes);
// A whole head as HttpHeadEnd delimits it. Errors, by the answer that they want: kInvalidArgument
// 400, kResourceExhausted 431, kFailedPrecondition 413 (a body is announced), kOutOfRange 505.
Result<HttpRequest> ParseHttpRequest(std::string_view head, const HttpLimits& limits = {});
// What is answered to a request that could not be read, or to one that nobody waits for any more.
HttpResponse HttpFailure(const Status& status);

// The status line and the headers: Content-Length, `Connection: close`, and those that keep a
// browser from guessing, framing and caching. Line breaks in a header's value are left out.
std::string HttpHead(const HttpResponse& response);

// Whether a browser may have been led here by a foreign name: its Host is neither an address, nor
// localhost, nor the name of `listened`, the HOST:PORT that the server was configured with (DNS
// rebinding). An empty Host, of old clients, is no browser's.
bool IsForeignHost(std::string_view host, std::string_view listened = {});
// "Authorization: Bearer <token>". Takes the same time wherever they differ.
bool HasBearerToken(const HttpRequest& request, std::string_view token);

}  // namespace troop
