// Requests with bodies whose answers come later from other threads, on connections of several
// requests; and their drain.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "apps/monitor/http_server.h"
#include "tests/apps/monitor/raw_http_client.h"
#include "tests/testing/patience.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A server whose handler only keeps what it is given; the test answers.
class HttpDeferredTest : public testing::Test {
 protected:
  struct Given {
    HttpRequest request;
    HttpReply reply;
  };
  HttpServer::Options Defaults() {
    HttpServer::Options options{.address = "127.0.0.1:0", .keep_alive = true};
    options.limits.body_bytes = 1 << 20;
    options.answer_deadline = options.drain_grace = Seconds(600);
    options.deferred["/act"] = [this](HttpRequest request, HttpReply reply) {
      const std::lock_guard lock(mutex_);
      given_.push_back({std::move(request), std::move(reply)});
    };
    options.routes["/now"] = [](const HttpRequest& r) {
      return HttpResponse{.body = "now " + r.peer};
    };
    return options;
  }
  std::unique_ptr<HttpServer> Start(HttpServer::Options options) {
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Make(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().message();
    return std::move(*server);
  }
  // The next request that reaches the handler.
  Given Next() {
    Patience patience(20);
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (!given_.empty()) {
          Given first = std::move(given_.front());
          given_.pop_front();
          return first;
        }
      }
      if (patience.Ended()) break;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no request";
    return {};
  }
  static std::string Request(const std::string& body, const std::string& headers = "") {
    return fmt::format("POST /act HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{}", headers, body.size(),
                       body);
  }

  std::mutex mutex_;  // protects given_
  std::deque<Given> given_;
};

TEST_F(HttpDeferredTest, ConnectionsAreAnsweredInAnyOrder) {
  const auto server = Start(Defaults());
  RawHttpClient first(server->address()), second(server->address());
  first.Send(Request("one"));
  const Given one = Next();
  second.Send(Request("two"));
  const Given two = Next();
  EXPECT_EQ(one.request.body, "one");
  EXPECT_EQ(one.request.peer, "127.0.0.1");
  two.reply.Send({.body = "2"});
  EXPECT_EQ(HttpBodyOf(second.ReceiveResponse()), "2");
  one.reply.Send({.body = "1"});
  one.reply.Send({.body = "again"});  // ignored
  EXPECT_EQ(HttpBodyOf(first.ReceiveResponse()), "1");
  EXPECT_EQ(HttpBodyOf(first.Get("/now")), "now 127.0.0.1");
}

TEST_F(HttpDeferredTest, ConnectionServesPipelinedRequestsInOrder) {
  const auto server = Start(Defaults());
  RawHttpClient client(server->address());
  client.Send(Request("a") + Request("bb") + "GET /now HTTP/1.1\r\n\r\n" +
              Request("c").substr(0, 30));
  for (const std::string want : {"a", "bb"}) {
    const Given given = Next();
    EXPECT_EQ(given.request.body, want);
    given.reply.Send({.body = want + "!"});
    EXPECT_EQ(HttpBodyOf(client.ReceiveResponse()), want + "!");
  }
  EXPECT_THAT(client.ReceiveResponse(), HasSubstr("now"));
  client.Send(Request("c").substr(30));
  const Given last = Next();
  EXPECT_EQ(last.request.body, "c");
  last.reply.Send({.body = "c!"});
  const std::string response = client.ReceiveResponse();
  EXPECT_THAT(response, HasSubstr("\r\nConnection: keep-alive\r\n"));
  EXPECT_EQ(HttpBodyOf(response), "c!");
}

TEST_F(HttpDeferredTest, BodyMayArriveInParts) {
  const auto server = Start(Defaults());
  RawHttpClient client(server->address());
  std::string body(300'000, 'x');
  body += std::string("\r\n\r\n\0end", 8);
  const std::string request = Request(body, "Expect: 100-continue\r\nConnection: close\r\n");
  const std::size_t head = request.find("\r\n\r\n") + 4;
  client.Send(request.substr(0, 40));
  client.Send(request.substr(40, head - 40));
  EXPECT_THAT(client.ReceiveResponse(), StartsWith("HTTP/1.1 100 Continue\r\n"));
  client.Send(request.substr(head, 100'000));
  client.Send(request.substr(head + 100'000));
  const Given given = Next();
  EXPECT_EQ(given.request.body, body);
  given.reply.Send({.body = "done"});
  EXPECT_THAT(client.Receive(), HasSubstr("\r\nConnection: close\r\n"));
}

TEST_F(HttpDeferredTest, RequestsThatAreRefusedNeedNoBody) {
  const auto server = Start(Defaults());
  const std::pair<std::string, int> cases[] = {
      {"POST /act HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", 413},
      {"POST /act HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413},
      {"POST /act HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /act HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"GET /act HTTP/1.1\r\n\r\n", 405},
      {"POST /now HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 405},
      {"POST /act/more HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 405},
      {"GET /none HTTP/1.1\r\n\r\n", 404},
      {"POST /act HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\n", 403}};
  for (const auto& [text, status] : cases) {
    RawHttpClient client(server->address());
    client.Send(text);
    EXPECT_EQ(HttpStatusOf(client.Receive()), status) << text;
  }
  EXPECT_EQ(server->counters().requests, 0u);
}

TEST_F(HttpDeferredTest, OverdueRequestGets504) {
  HttpServer::Options options = Defaults();
  options.answer_deadline = Milliseconds(50);
  const auto server = Start(std::move(options));
  RawHttpClient client(server->address());
  client.Send(Request("late"));
  const Given given = Next();
  EXPECT_EQ(HttpStatusOf(client.ReceiveResponse()), 504);
  given.reply.Send({.body = "too late"});
  EXPECT_THAT(client.Get("/now"), HasSubstr("now"));  // the late answer is not taken for this one's
  EXPECT_EQ(server->counters().overdue, 1u);
}

TEST_F(HttpDeferredTest, WaitingRequestsAreNotClosedForNewConnections) {
  HttpServer::Options options = Defaults();
  options.connections_max = 2;
  const auto server = Start(std::move(options));
  RawHttpClient first(server->address()), idle(server->address());
  first.Send(Request("1"));
  const Given one = Next();
  EXPECT_THAT(idle.Get("/now"), HasSubstr("now"));
  RawHttpClient second(server->address());  // takes the place of the idle connection
  second.Send(Request("2"));
  const Given two = Next();
  EXPECT_EQ(idle.Receive(), "");
  RawHttpClient third(server->address());
  const std::string full = third.Receive();
  EXPECT_EQ(HttpStatusOf(full), 503);
  EXPECT_THAT(full, HasSubstr("\r\nRetry-After: 1\r\n"));
  one.reply.Send({.body = "1"});
  two.reply.Send({.body = "2"});
  EXPECT_EQ(HttpBodyOf(first.ReceiveResponse()), "1");
  EXPECT_EQ(HttpBodyOf(second.ReceiveResponse()), "2");
}

TEST_F(HttpDeferredTest, IdleAndSlowConnectionsEnd) {
  HttpServer::Options options = Defaults();
  options.idle_deadline = Milliseconds(100);
  options.request_deadline = Milliseconds(300);
  const auto server = Start(std::move(options));
  RawHttpClient idle(server->address()), slow(server->address());
  EXPECT_THAT(idle.Get("/now"), HasSubstr("now"));
  slow.Send(Request("a body that never comes").substr(0, 60));
  EXPECT_EQ(idle.Receive(), "");
  EXPECT_EQ(slow.Receive(), "");
  EXPECT_EQ(server->counters().cut_off, 1u);  // of the slow one
}

TEST_F(HttpDeferredTest, DrainAnswersAllAcceptedRequests) {
  const auto server = Start(Defaults());
  RawHttpClient waiting(server->address()), partial(server->address()), kept(server->address());
  EXPECT_THAT(kept.Get("/now"), HasSubstr("keep-alive"));
  waiting.Send(Request("1"));
  const Given one = Next();
  partial.Send(Request("22").substr(0, 30));
  auto drained = std::async(std::launch::async, [&] { return server->Drain(Seconds(600)); });
  // The listener is closed once the drain has begun.
  Patience patience(20);
  while (RawHttpClient(server->address()).connected() && !patience.Ended()) {
    std::this_thread::yield();
  }
  // A client without notice of the drain sends one more request.
  EXPECT_THAT(kept.Get("/now"), HasSubstr("\r\nConnection: close\r\n"));
  partial.Send(Request("22").substr(30));
  const Given two = Next();
  EXPECT_EQ(two.request.body, "22");
  two.reply.Send({.body = "2"});
  one.reply.Send({.body = "1"});
  EXPECT_EQ(HttpBodyOf(waiting.ReceiveResponse()), "1");
  EXPECT_EQ(HttpBodyOf(partial.ReceiveResponse()), "2");
  EXPECT_EQ(drained.get(), 0u);
}

TEST_F(HttpDeferredTest, DrainEndsAtItsLimit) {
  const auto server = Start(Defaults());
  RawHttpClient waiting(server->address());
  waiting.Send(Request("1"));
  const Given one = Next();
  EXPECT_EQ(server->Drain(Milliseconds(50)), 1u);
  one.reply.Send({.body = "after the end"});  // goes nowhere
}

TEST_F(HttpDeferredTest, PublicPathNeedsNoToken) {
  const std::string file = testing::TempDir() + "deferred-token-" + std::to_string(getpid());
  {
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(write(fd, "sixteen-letters!\n", 17), 17);
    close(fd);
  }
  HttpServer::Options options = Defaults();
  options.token_file = file;
  options.public_paths = {"/now"};
  const auto server = Start(std::move(options));
  RawHttpClient client(server->address());
  EXPECT_THAT(client.Get("/now"), HasSubstr("now"));
  EXPECT_EQ(HttpStatusOf(client.Post("/act", "x")), 401);
  RawHttpClient with(server->address());
  with.Send(Request("x", "Authorization: Bearer sixteen-letters!\r\n"));
  Next().reply.Send({.body = "yes"});
  EXPECT_EQ(HttpBodyOf(with.ReceiveResponse()), "yes");
  unlink(file.c_str());
}

}  // namespace
}  // namespace troop
