// Parsing of HTTP request heads and formatting of response heads. Strict: malformed or ambiguous
// input is rejected, never repaired.
#include "apps/monitor/http_message.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace troop {
namespace {

// True for a token (RFC 9110, section 5.6.2), which method and header names consist of.
bool IsToken(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return std::isalnum(c) != 0 || kMarks.find(char(c)) != std::string_view::npos;
  });
}

// Tabs are allowed; other control characters could split headers or log lines.
bool HasControls(std::string_view text) {
  return std::ranges::any_of(text,
                             [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; });
}

// Optional white space of RFC 9110, section 5.6.3: spaces and tabs.
std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Value of a hexadecimal digit, or -1.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Decodes %XX, and + as a space in a query. Errors: kInvalidArgument: an incomplete escape, or a
// control character.
Result<std::string> Decode(std::string_view text, bool query) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = high < 0 ? -1 : HexDigit(text[i + 2]);
      if (low < 0) return InvalidArgument("a % without two hexadecimal digits");
      c = char(high * 16 + low);
      i += 2;
    } else if (c == '+' && query) {
      c = ' ';
    }
    out.push_back(c);
  }
  // Checked after decoding, since %0A is a line feed.
  if (HasControls(out)) return InvalidArgument("a control character in the target");
  return out;
}

// True for an absolute path without ".", ".." and backslashes: no path above the root, and one
// spelling per resource.
bool IsPlainPath(std::string_view path) {
  if (path.empty() || path[0] != '/' || path.find('\\') != std::string_view::npos) return false;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    if (part == "." || part == "..") return false;
    path.remove_prefix(part.size());
  }
  return true;
}

// Splits the target into path and query, then decodes both.
Status ParseTarget(std::string_view target, HttpRequest* request) {
  // Split before decoding: an encoded "?" or "&" is part of the text.
  const std::size_t mark = target.find('?');
  TROOP_ASSIGN_OR_RETURN(request->path, Decode(target.substr(0, mark), false));
  if (!IsPlainPath(request->path)) return InvalidArgument("invalid path");
  std::string_view query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const std::size_t equals = pair.find('=');
    TROOP_ASSIGN_OR_RETURN(std::string name, Decode(pair.substr(0, equals), true));
    TROOP_ASSIGN_OR_RETURN(
        std::string value,
        Decode(equals == std::string_view::npos ? "" : pair.substr(equals + 1), true));
    // The first of several equal names counts.
    request->query.emplace(std::move(name), std::move(value));
  }
  return Status::Ok();
}

// "GET /path HTTP/1.1"
Status ParseRequestLine(std::string_view line, HttpRequest* request) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || HasControls(line)) {
    return InvalidArgument("invalid request line");
  }
  request->method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(request->method) || !version.starts_with("HTTP/")) {
    return InvalidArgument("invalid request line");
  }
  // A well-formed line of another version gets 505 instead of 400.
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return OutOfRange("only HTTP/1.1 and HTTP/1.0 are supported");
  }
  request->keep_alive = version == "HTTP/1.1";  // its default; a header may say otherwise
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (target.find(' ') != std::string_view::npos) return InvalidArgument("invalid request line");
  return ParseTarget(target, request);
}

// Reads the length of a body. Only digits are a length: no sign, no list.
Status ParseContentLength(std::string_view value, const HttpLimits& limits, HttpRequest* request) {
  if (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos)
    return InvalidArgument("invalid Content-Length");
  const auto read = std::from_chars(value.data(), value.data() + value.size(), request->body_bytes);
  if (read.ec == std::errc() && request->body_bytes <= limits.body_bytes) return Status::Ok();
  if (limits.body_bytes == 0) return FailedPrecondition("requests must not have a body");
  return FailedPrecondition("the body has {} bytes, must have at most {}; send fewer rows", value,
                            limits.body_bytes);
}

// Adds one "Name: value" line.
Status AddHeader(std::string_view line, const HttpLimits& limits, HttpRequest* request) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon)) || HasControls(line)) {
    return InvalidArgument("invalid header line");
  }
  const std::string name = Lower(line.substr(0, colon));
  const std::string_view value = Trim(line.substr(colon + 1));
  // Duplicates of these headers are ambiguous, which request smuggling exploits.
  const bool twice = !request->headers.emplace(name, value).second;
  if (twice && (name == "host" || name == "authorization" || name == "content-length")) {
    return InvalidArgument("duplicate header {}", name);
  }
  // A chunked body has no announced length, so its limit could not be checked in advance.
  if (name == "transfer-encoding") {
    if (limits.body_bytes == 0) return FailedPrecondition("requests must not have a body");
    return FailedPrecondition("Transfer-Encoding is not supported; send Content-Length");
  }
  if (name == "content-length") return ParseContentLength(value, limits, request);
  if (name == "connection" && Lower(value).find("close") != std::string::npos)
    request->keep_alive = false;
  return Status::Ok();
}

// Reason phrases (RFC 9110, section 15) of the statuses that this server sends.
const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

// A missing entry is an empty string; the reference stays valid with the map.
const std::string& Find(const std::map<std::string, std::string>& in, const std::string& name) {
  static const std::string kNone;
  const auto it = in.find(name);
  return it == in.end() ? kNone : it->second;
}

}  // namespace

const std::string& HttpRequest::Header(const std::string& name) const {
  return Find(headers, name);
}

const std::string& HttpRequest::Query(const std::string& name) const { return Find(query, name); }

// Bare line feeds do not end a line: only CRLF is accepted.
std::size_t HttpHeadEnd(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  return end == std::string_view::npos ? end : end + 4;
}

// The first line is the request line, the others are headers; limits are checked first.
Result<HttpRequest> ParseHttpRequest(std::string_view head, const HttpLimits& limits) {
  if (head.size() > limits.head_bytes) {
    return ResourceExhausted("a head must have at most {} bytes", limits.head_bytes);
  }
  if (HttpHeadEnd(head) != head.size()) return InvalidArgument("incomplete head");
  // Keeps the CRLF of the last header, so that each line has one.
  head.remove_suffix(2);
  HttpRequest request;
  std::size_t lines = 0;
  while (!head.empty()) {
    const std::size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (lines > limits.headers) {
      return ResourceExhausted("a head must have at most {} headers", limits.headers);
    }
    TROOP_RETURN_IF_ERROR(lines == 0 ? ParseRequestLine(line, &request)
                                     : AddHeader(line, limits, &request));
    ++lines;
  }
  return request;
}

// The inverse of the error codes of ParseHttpRequest; unknown codes become 500.
HttpResponse HttpFailure(const Status& status) {
  HttpResponse response{.status = 500, .body = status.message() + "\n"};
  switch (status.code()) {
    case Code::kInvalidArgument:
      response.status = 400;
      break;
    case Code::kResourceExhausted:
      response.status = 431;
      break;
    case Code::kFailedPrecondition:
      response.status = 413;
      break;
    case Code::kOutOfRange:
      response.status = 505;
      break;
    case Code::kDeadlineExceeded:
      response.status = 408;
      break;
    case Code::kNotFound:
      response.status = 404;
      break;
    default:
      break;
  }
  return response;
}

// Line breaks are dropped from values, which prevents response splitting.
std::string HttpHead(const HttpResponse& response, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, ReasonOf(response.status));
  const auto add = [&head](std::string_view name, std::string_view value) {
    head += name;
    head += ": ";
    for (const char c : value) {
      if (c != '\r' && c != '\n') head += c;
    }
    head += "\r\n";
  };
  add("Content-Type", response.type);
  add("Content-Length", std::to_string(response.content().size()));
  add("Connection", keep_alive ? "keep-alive" : "close");
  add("X-Content-Type-Options", "nosniff");
  add("X-Frame-Options", "DENY");
  add("Referrer-Policy", "no-referrer");
  bool cached = false;
  for (const auto& [name, value] : response.headers) {
    cached = cached || Lower(name) == "cache-control";
    add(name, value);
  }
  // Data of a live run must not come from a cache.
  if (!cached) add("Cache-Control", "no-store");
  return head + "\r\n";
}

// Addresses can't be rebound by DNS, so they are never foreign.
bool IsForeignHost(std::string_view host, std::string_view listened) {
  if (host.empty()) return false;
  // An IPv6 address in brackets; the part after them is the port.
  if (host[0] == '[') {
    const std::size_t end = host.find(']');
    in6_addr ignored{};
    return end == std::string_view::npos ||
           inet_pton(AF_INET6, std::string(host.substr(1, end - 1)).c_str(), &ignored) != 1;
  }
  const std::string name = Lower(host.substr(0, host.find(':')));
  in_addr ignored{};
  if (!listened.empty() && name == Lower(listened.substr(0, listened.rfind(':')))) return false;
  return name != "localhost" && inet_pton(AF_INET, name.c_str(), &ignored) != 1;
}

// The scheme is case-insensitive (RFC 9110, section 11.1).
bool HasBearerToken(const HttpRequest& request, std::string_view token) {
  const std::string& given = request.Header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (Lower(std::string_view(given).substr(0, kScheme.size())) != kScheme) return false;
  const std::string_view tried = Trim(std::string_view(given).substr(kScheme.size()));
  // No early exit, so that the time does not depend on the position of the first difference.
  unsigned char different = tried.size() == token.size() ? 0 : 1;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    different |= static_cast<unsigned char>(tried[i] ^ (i < token.size() ? token[i] : 0));
  }
  return different == 0 && !token.empty();
}

}  // namespace troop
