// Hostile requests to the pages. The first two bytes limit the head; then come bytes from a
// connection. What is accepted is what it promises: a path that begins with / and leads nowhere up,
// names in lower case; and an answer that quotes it has no lines but its own.
#include <algorithm>
#include <string>

#include "apps/monitor/http_message.h"
#include "core/base/check.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

void CheckRequest(const HttpRequest& request) {
  TROOP_CHECK(request.path.starts_with('/'), "path {}", request.path);
  const std::string path = request.path + "/";
  TROOP_CHECK(path.find("/../") == std::string::npos && path.find("/./") == std::string::npos,
              "path {}", request.path);
  TROOP_CHECK(path.find('\0') == std::string::npos, "a path with a 0");
  for (const auto& [name, value] : request.headers) {
    TROOP_CHECK(std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; }),
                "header {}", name);
    TROOP_CHECK(request.Header(name) == value, "header {}", name);
  }
  for (const auto& [name, value] : request.query) {
    TROOP_CHECK(request.Query(name) == value, "query {}", name);
  }
  IsForeignHost(request.Header("host"));
  TROOP_CHECK(!HasBearerToken(request, "a token that was never issued, 7f3a"), "a token");
}

// Values of a request in an answer: as many lines as without them.
void CheckAnswer(const HttpRequest& request) {
  HttpResponse plain, quoting;
  plain.headers = {{"Location", "/"}};
  quoting.headers = {{"Location", request.path + request.Query("next") + request.Header("host")}};
  const auto lines = [](const std::string& head) { return std::ranges::count(head, '\n'); };
  const std::string head = HttpHead(quoting);
  TROOP_CHECK(lines(head) == lines(HttpHead(plain)), "{}", head);
  TROOP_CHECK(HttpHeadEnd(head) == head.size(), "an answer's head ends at {} of {}",
              HttpHeadEnd(head), head.size());
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  const auto seed = [](std::uint16_t limit, const std::string& text) {
    return std::string(reinterpret_cast<const char*>(&limit), sizeof limit) + text;
  };
  write("get",
        seed(4096, "GET /api/run?name=a%20b&next=%2Fx HTTP/1.1\r\nHost: localhost:80\r\n\r\n"));
  write("token", seed(4096, "GET / HTTP/1.0\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n"));
  write("post", seed(4096, "POST /scale HTTP/1.1\r\nContent-Length: 0\r\nHost: [::1]\r\n\r\n"));
  write("up", seed(4096, "GET /%2e%2e/./a/../etc/passwd HTTP/1.1\nHost: evil.example\n\n"));
  write("body", seed(256, "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  FuzzInput input(data, size);
  HttpLimits limits;
  limits.head_bytes = input.Take<std::uint16_t>();
  limits.headers = 20;
  const std::string bytes = StringOf(input.TakeRest());
  const std::size_t end = HttpHeadEnd(bytes);
  if (end == std::string::npos) return 0;
  TROOP_CHECK(end <= bytes.size(), "a head of {} of {} bytes", end, bytes.size());
  const Result<HttpRequest> request =
      ParseHttpRequest(std::string_view(bytes).substr(0, end), limits);
  if (request.ok()) {
    CheckRequest(*request);
    CheckAnswer(*request);
  } else {
    TROOP_CHECK(!request.status().message().empty(), "no reason is given");
    const HttpResponse failure = HttpFailure(request.status());
    TROOP_CHECK(failure.status >= 400, "a failure answered by {}", failure.status);
  }
  return 0;
}
