#include "apps/monitor/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/apps/monitor/raw_http_client.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kToken[] = "sixteen-letters!";

std::string Ask(const HttpServer& server, const std::string& request) {
  RawHttpClient client(server.address());
  client.Send(request + "\r\n");
  return client.Receive();
}

HttpServer::Options At(const std::string& address) {
  HttpServer::Options options{.address = address};
  options.routes["/numbers"] = [](const HttpRequest&) { return HttpResponse{.body = "one 1\n"}; };
  options.routes["/pages/"] = [](const HttpRequest& request) {
    return HttpResponse{.body = "page " + request.path + " " + request.Query("x")};
  };
  return options;
}

std::unique_ptr<HttpServer> Start(HttpServer::Options options) {
  Result<std::unique_ptr<HttpServer>> server = HttpServer::Make(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status().message();
  return server.ok() ? std::move(*server) : nullptr;
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    folder_ = testing::TempDir() + "http-" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  ~HttpServerTest() override { std::filesystem::remove_all(folder_); }
  std::string TokenFile(const std::string& text, int mode = 0600) const {
    const std::string path = folder_ + "/token";
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms(mode));
    return path;
  }
  std::string folder_;
};

TEST_F(HttpServerTest, ServesOnlyKnownRoutes) {
  const auto server = Start(At("127.0.0.1:0"));
  const std::string answer = Ask(*server, "GET /numbers HTTP/1.1\r\nHost: localhost\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 6\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\none 1\n")) << answer;
  EXPECT_THAT(Ask(*server, "GET /pages/a?x=7 HTTP/1.0\r\n"), HasSubstr("page /pages/a 7"));
  const std::string head = Ask(*server, "HEAD /numbers HTTP/1.1\r\n");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 6\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  EXPECT_EQ(server->counters().requests, 3u);
  EXPECT_THAT(Ask(*server, "GET /numbers/more HTTP/1.1\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(*server, "GET / HTTP/1.1\r\n"), StartsWith("HTTP/1.1 404"));
  const std::string post = Ask(*server, "DELETE /numbers HTTP/1.1\r\n");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  EXPECT_EQ(server->counters().requests, 3u);
  EXPECT_EQ(server->counters().refused, 3u);
}

TEST_F(HttpServerTest, AcceptsEmptyPostsWhereEnabled) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.posts = true;
  const auto server = Start(std::move(options));
  const std::string empty = "POST /numbers HTTP/1.1\r\nContent-Length: 0\r\n";
  EXPECT_THAT(Ask(*server, empty), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(*server, "POST /numbers HTTP/1.1\r\nContent-Length: 1\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask(*server, "PUT /numbers HTTP/1.1\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask(*Start(At("127.0.0.1:0")), empty), StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpServerTest, RejectsAndCountsMalformedRequests) {
  const auto server = Start(At("127.0.0.1:0"));
  EXPECT_THAT(Ask(*server, "\x16\x03\x01\x02\r\n"), StartsWith("HTTP/1.1 400"));  // TLS knocks
  EXPECT_THAT(Ask(*server, "POST /numbers HTTP/1.1\r\nContent-Length: 99999999999\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(server->counters().refused, 2u);
  EXPECT_EQ(server->counters().requests, 0u);
}

TEST_F(HttpServerTest, RejectsEndlessHead) {
  const auto server = Start(At("127.0.0.1:0"));
  RawHttpClient endless(server->address());
  endless.Send("GET /numbers HTTP/1.1\r\nX: ");
  const std::string more(4096, 'x');
  int sent = 0;
  while (sent < 100'000 && endless.Send(more)) ++sent;  // 400 MB
  EXPECT_LT(sent, 100'000);
  RawHttpClient lines(server->address());
  lines.Send("GET /numbers HTTP/1.1\r\n");
  std::string many;
  for (int i = 0; i < 200; ++i) many += fmt::format("H{}: v\r\n", i);
  lines.Send(many + "\r\n");
  EXPECT_THAT(lines.Receive(), StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, DelayedClientsDoNotBlockOthers) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.connections_max = 4;
  options.request_deadline = Seconds(600);
  const auto server = Start(std::move(options));
  std::vector<std::unique_ptr<RawHttpClient>> slow;
  for (int i = 0; i < 16; ++i) {
    slow.push_back(std::make_unique<RawHttpClient>(server->address()));
    slow.back()->Send("GET /num");
    EXPECT_THAT(Ask(*server, "GET /numbers HTTP/1.1\r\n"), StartsWith("HTTP/1.1 200")) << i;
  }
  EXPECT_EQ(slow[0]->Receive(), "");  // the first one had to go
  EXPECT_GE(server->counters().cut_off, 12u);
}

TEST_F(HttpServerTest, ClosesTrickledRequestAtDeadline) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.request_deadline = Milliseconds(200);
  const auto server = Start(std::move(options));
  RawHttpClient drips(server->address());
  int drops = 0;
  while (drops < 10'000 && drips.Send("x")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++drops;
  }
  EXPECT_LT(drops, 10'000);
  EXPECT_THAT(drips.Receive(), Not(HasSubstr("HTTP")));
  EXPECT_EQ(server->counters().cut_off, 1u);
}

HttpServer::Options WithLargePage(std::size_t bytes) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.routes["/large"] = [page = std::make_shared<const std::string>(bytes, 'p')](
                                 const HttpRequest&) { return HttpResponse{.shared = page}; };
  return options;
}

TEST_F(HttpServerTest, ClosesClientThatDoesNotReadResponse) {
  HttpServer::Options options = WithLargePage(16 << 20);
  options.response_deadline = Milliseconds(200);
  const auto server = Start(std::move(options));
  RawHttpClient lazy(server->address(), 4096);
  lazy.Send("GET /large HTTP/1.1\r\n\r\n");
  for (int i = 0; i < 2000 && server->counters().cut_off == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(server->counters().cut_off, 1u);
  EXPECT_LT(lazy.Receive().size(), std::size_t{16} << 20);
}

TEST_F(HttpServerTest, LimitsPendingResponseBytes) {
  HttpServer::Options options = WithLargePage(8 << 20);
  options.answer_bytes_max = 10 << 20;
  options.response_deadline = Seconds(600);
  const auto server = Start(std::move(options));
  auto lazy = std::make_unique<RawHttpClient>(server->address(), 4096);
  lazy->Send("GET /large HTTP/1.1\r\n\r\n");
  while (server->counters().requests == 0) std::this_thread::yield();
  EXPECT_THAT(Ask(*server, "GET /large HTTP/1.1\r\n"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Ask(*server, "GET /numbers HTTP/1.1\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_GT(lazy->Receive().size(), std::size_t{8} << 20);
  EXPECT_THAT(Ask(*server, "GET /large HTTP/1.1\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, RejectsRequestsWithoutToken) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.token_file = TokenFile(std::string(kToken) + "\n");
  const auto server = Start(std::move(options));
  const std::string none = Ask(*server, "GET /numbers HTTP/1.1\r\n");
  EXPECT_THAT(none, StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(none, HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(none, Not(HasSubstr(kToken)));
  EXPECT_THAT(Ask(*server, "GET /numbers HTTP/1.1\r\nAuthorization: Bearer sixteen-letters?\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Ask(*server, "GET /nothing HTTP/1.1\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_EQ(server->counters().requests, 0u);
  EXPECT_THAT(Ask(*server, fmt::format("GET /numbers HTTP/1.1\r\nHost: name.example\r\n"
                                       "Authorization: Bearer {}\r\n",
                                       kToken)),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, RejectsForeignHost) {
  const auto server = Start(At("127.0.0.1:0"));
  EXPECT_THAT(Ask(*server, "GET /numbers HTTP/1.1\r\nHost: evil.example:9464\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Ask(*server, "GET /numbers HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, RejectsReadableOrWeakTokenFile) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.token_file = folder_ + "/missing";
  EXPECT_EQ(HttpServer::Make(options).status().code(), Code::kNotFound);
  options.token_file = TokenFile(kToken, 0644);
  EXPECT_THAT(HttpServer::Make(options).status().message(), HasSubstr("chmod 600"));
  options.token_file = TokenFile("short");
  EXPECT_THAT(HttpServer::Make(options).status().message(), HasSubstr("16 to 256"));
  options.token_file = TokenFile("sixteen letters !!");
  EXPECT_THAT(HttpServer::Make(options).status().message(), HasSubstr("16 to 256"));
}

TEST_F(HttpServerTest, RemoteListeningRequiresTokenOrInsecure) {
  const HttpAddressKeys keys{"fleet.metrics", "fleet.metrics_token"};
  for (const char* far : {"0.0.0.0:0", "*:0", "10.0.0.5:80", "[::]:80", "name.example:80"}) {
    EXPECT_FALSE(HttpServer::Make(At(far)).ok()) << far;
    EXPECT_THAT(CheckHttpAddress(far, false, false, keys).message(),
                HasSubstr("set fleet.metrics_token"));
    EXPECT_TRUE(CheckHttpAddress(far, true, false, keys).ok()) << far;
    EXPECT_TRUE(CheckHttpAddress(far, false, true, keys).ok()) << far;
  }
  for (const char* near : {"127.0.0.1:0", "localhost:80", "[::1]:80"}) {
    EXPECT_TRUE(CheckHttpAddress(near, false, false, keys).ok()) << near;
  }
  HttpServer::Options options = At("*:0");
  options.insecure = true;
  EXPECT_THAT(Ask(*Start(std::move(options)), "GET /numbers HTTP/1.1\r\nHost: a.example\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ListensOnNamesAndBothAddressFamilies) {
  EXPECT_THAT(Ask(*Start(At("localhost:0")), "GET /numbers HTTP/1.1\r\n"),
              StartsWith("HTTP/1.1 200"));
  const auto six = HttpServer::Make(At("[::1]:0"));
  if (six.ok()) {
    EXPECT_THAT((*six)->address(), StartsWith("[::1]:"));
  } else {  // a machine without IPv6
    EXPECT_THAT(six.status().message(), HasSubstr("can't listen on [::1]:0 ([::1]: "));
  }
  EXPECT_THAT(HttpServer::Make(At("::1:9000")).status().message(),
              HasSubstr("brackets: [::1]:9000"));
  HttpServer::Options far = At("192.0.2.1:0");
  far.insecure = true;
  EXPECT_THAT(HttpServer::Make(std::move(far)).status().message(),
              HasSubstr("192.0.2.1: Cannot assign requested address"));
}

TEST_F(HttpServerTest, ReportsInvalidOrUsedAddress) {
  for (const char* bad : {"", "9464", "127.0.0.1:", "127.0.0.1:99999", ":9464", "a:b"}) {
    EXPECT_THAT(HttpServer::Make(At(bad)).status().message(), HasSubstr("HOST:PORT")) << bad;
  }
  const auto server = Start(At("127.0.0.1:0"));
  const Status second = HttpServer::Make(At(server->address())).status();
  EXPECT_EQ(second.code(), Code::kAlreadyExists);
  EXPECT_THAT(second.message(), HasSubstr(fmt::format("process {}", getpid())));
}

TEST_F(HttpServerTest, StopDoesNotWaitForClients) {
  HttpServer::Options options = WithLargePage(8 << 20);
  options.request_deadline = options.response_deadline = Seconds(600);
  auto server = Start(std::move(options));
  RawHttpClient slow(server->address()), lazy(server->address(), 4096);
  slow.Send("GET");
  lazy.Send("GET /large HTTP/1.1\r\n\r\n");
  while (server->counters().requests == 0) std::this_thread::yield();
  server->Stop();
  server.reset();
  EXPECT_EQ(slow.Receive(), "");
}

}  // namespace
}  // namespace troop
