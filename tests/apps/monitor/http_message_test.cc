#include "apps/monitor/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

Result<HttpRequest> Parse(const std::string& lines) { return ParseHttpRequest(lines + "\r\n"); }

TEST(HttpMessageTest, ParsesRequest) {
  const Result<HttpRequest> r = Parse(
      "GET /roles/a%20b?kind=all+of&x=%2F&x=2&empty HTTP/1.1\r\nHost: localhost:9464\r\n"
      "X-Thing: \t one two \r\n");
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->method, "GET");
  EXPECT_EQ(r->path, "/roles/a b");
  EXPECT_EQ(r->Query("kind"), "all of");
  EXPECT_EQ(r->Query("x"), "/");
  EXPECT_EQ(r->Query("empty"), "");
  EXPECT_EQ(r->Header("x-thing"), "one two");
  EXPECT_EQ(r->Header("missing"), "");
}

TEST(HttpMessageTest, RejectsMalformedRequestsWithStatus) {
  const std::pair<std::string, int> cases[] = {
      {"", 400},
      {"GET\r\n", 400},
      {"GET / \r\n", 400},
      {"GET /a b HTTP/1.1\r\n", 400},
      {"G\tT / HTTP/1.1\r\n", 400},
      {"GET nothing HTTP/1.1\r\n", 400},
      {"GET http://other/ HTTP/1.1\r\n", 400},
      {"GET /../secret HTTP/1.1\r\n", 400},
      {"GET /a/%2e%2e/secret HTTP/1.1\r\n", 400},
      {"GET /a/./b HTTP/1.1\r\n", 400},
      {"GET /a\\b HTTP/1.1\r\n", 400},
      {"GET /%zz HTTP/1.1\r\n", 400},
      {"GET /%4 HTTP/1.1\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n", 400},
      {"GET /?a=%0d HTTP/1.1\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n", 17), 400},
      {"GET / HTTP/1.1\r\nno colon\r\n", 400},
      {"GET / HTTP/1.1\r\n: nameless\r\n", 400},
      {"GET / HTTP/1.1\r\nname : space\r\n", 400},
      {"GET / HTTP/1.1\r\n folded: line\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\x01\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400},
      {"GET / HTTP/1.1\r\nAuthorization: a\r\nauthorization: b\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 5\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 413},
      {"PRI * HTTP/2.0\r\n", 505},
  };
  for (const auto& [text, status] : cases) {
    const Result<HttpRequest> r = Parse(text);
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(HttpFailure(r.status()).status, status) << text << ": " << r.status().message();
  }
}

TEST(HttpMessageTest, ReadsLengthOfBodyWithinLimit) {
  const HttpLimits limits{.body_bytes = 100};
  const auto parse = [&](const std::string& headers) {
    return ParseHttpRequest("POST / HTTP/1.1\r\n" + headers + "\r\n", limits);
  };
  EXPECT_EQ(parse("")->body_bytes, 0u);
  EXPECT_EQ(parse("Content-Length: 100\r\n")->body_bytes, 100u);
  const std::pair<const char*, int> cases[] = {{"101", 413},  {"99999999999999999999999", 413},
                                               {"-1", 400},   {"+5", 400},
                                               {"0x10", 400}, {"5, 5", 400},
                                               {"", 400}};
  for (const auto& [length, status] : cases) {
    const auto r = parse(fmt::format("Content-Length: {}\r\n", length));
    ASSERT_FALSE(r.ok()) << length;
    EXPECT_EQ(HttpFailure(r.status()).status, status) << length;
  }
  const auto chunked = parse("Transfer-Encoding: chunked\r\n");
  EXPECT_THAT(chunked.status().message(), testing::HasSubstr("send Content-Length"));
}

TEST(HttpMessageTest, ConnectionsAreKeptByDefaultOnlyInHttp11) {
  EXPECT_TRUE(Parse("GET / HTTP/1.1\r\n")->keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.0\r\n")->keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nConnection: Close\r\n")->keep_alive);
  EXPECT_THAT(HttpHead({}), testing::HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(HttpHead({}, true), testing::HasSubstr("\r\nConnection: keep-alive\r\n"));
}

TEST(HttpMessageTest, LimitsHeadSizeAndHeaderCount) {
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 10; ++i) many += fmt::format("H{}: v\r\n", i);
  EXPECT_TRUE(ParseHttpRequest(many + "\r\n", {.headers = 10}).ok());
  EXPECT_EQ(ParseHttpRequest(many + "\r\n", {.headers = 9}).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(ParseHttpRequest(many + "\r\n", {.head_bytes = 50}).status().code(),
            Code::kResourceExhausted);
}

TEST(HttpMessageTest, PreventsHeaderInjection) {
  const std::string head = HttpHead(
      {.status = 303, .body = "12345", .headers = {{"Location", "/x\r\nSet-Cookie: a=b"}}});
  EXPECT_THAT(head, testing::StartsWith("HTTP/1.1 303 See Other\r\n"));
  EXPECT_THAT(head, testing::HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(head, testing::HasSubstr("\r\nLocation: /xSet-Cookie: a=b\r\n"));
  EXPECT_THAT(head, testing::HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_EQ(HttpHeadEnd(head), head.size());
  EXPECT_THAT(HttpHead({.headers = {{"cache-control", "max-age=9"}}}),
              testing::Not(testing::HasSubstr("no-store")));
}

TEST(HttpMessageTest, DetectsForeignHosts) {
  for (const char* ours :
       {"", "localhost", "LocalHost:80", "127.0.0.1:9464", "10.0.0.5", "[::1]:9464", "[fe80::1]"}) {
    EXPECT_FALSE(IsForeignHost(ours)) << ours;
  }
  for (const char* foreign : {"evil.example", "evil.example:9464", "localhost.evil.example",
                              "127.0.0.1.evil.example", "[::1", "[evil]:1", "1.2.3"}) {
    EXPECT_TRUE(IsForeignHost(foreign)) << foreign;
    EXPECT_TRUE(IsForeignHost(foreign, "myhost:8800")) << foreign;
    EXPECT_TRUE(IsForeignHost(foreign, "[::1]:8800")) << foreign;
  }
  // A dashboard that listened on a name answered 403 to its own address.
  EXPECT_FALSE(IsForeignHost("myhost:8800", "MyHost:0"));
  EXPECT_FALSE(IsForeignHost("myhost", "myhost:80"));
  EXPECT_TRUE(IsForeignHost("myhost", ""));
}

TEST(HttpMessageTest, AcceptsOnlyExactBearerToken) {
  const auto has = [](const std::string& line) {
    return HasBearerToken(*Parse("GET / HTTP/1.1\r\n" + line), "0123456789abcdef");
  };
  EXPECT_TRUE(has("Authorization: Bearer 0123456789abcdef\r\n"));
  EXPECT_TRUE(has("authorization: bearer  0123456789abcdef \r\n"));
  EXPECT_FALSE(has(""));
  EXPECT_FALSE(has("Authorization: 0123456789abcdef\r\n"));
  EXPECT_FALSE(has("Authorization: Basic 0123456789abcdef\r\n"));
  EXPECT_FALSE(has("Authorization: Bearer 0123456789abcde\r\n"));
  EXPECT_FALSE(has("Authorization: Bearer 0123456789abcdef0\r\n"));
  EXPECT_FALSE(has("Authorization: Bearer 0123456789abcdeF\r\n"));
  EXPECT_FALSE(has("Authorization: Bearer \r\n"));
  EXPECT_FALSE(HasBearerToken(*Parse("GET / HTTP/1.1\r\nAuthorization: Bearer \r\n"), ""));
}

}  // namespace
}  // namespace troop
