// The endpoint of a model over real sockets, with a model whose computation the test controls.
#include "apps/serving/model_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "core/storage/json.h"
#include "tests/apps/monitor/raw_http_client.h"
#include "tests/testing/patience.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A gate that computations pass only when the test lets them.
struct Gate {
  std::mutex mutex;  // protects the members below
  std::condition_variable changed;
  bool open = true;
  int inside = 0;                    // computations that have begun
  std::vector<std::size_t> batches;  // requests of each

  void Set(bool to) {
    const std::lock_guard lock(mutex);
    open = to;
    changed.notify_all();
  }
  void Pass(std::size_t requests) {
    std::unique_lock lock(mutex);
    ++inside;
    batches.push_back(requests);
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
  }
  void AwaitInside(int count) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(100), [&] { return inside >= count; }));
  }
};

// Answers a body of N bytes, which count as N rows, with the body and the updates.
class EchoModel final : public ServedModel {
 public:
  EchoModel(Gate* gate, std::uint64_t updates, bool accepts = true)
      : gate_(gate), updates_(updates), accepts_(accepts) {}
  std::string_view path() const override { return "/v1/act"; }
  std::uint64_t updates() const override { return updates_; }
  std::size_t body_bytes_min() const override { return 1; }
  std::string Description() const override { return "{\"echo\": true}"; }
  bool Accepts(const ServedModel&) const override { return accepts_; }
  Result<ServingRequest> Parse(const HttpRequest& request) const override {
    if (request.body.empty()) return InvalidArgument("the body is empty");
    Result<ServingRequest> parsed = ServingRequest();
    parsed->rows = std::int64_t(request.body.size());
    parsed->input.emplace<PredictRequest>().texts.push_back({request.body});
    return parsed;
  }
  std::vector<HttpResponse> Answer(std::span<const ServingRequest> batch, Time) override {
    gate_->Pass(batch.size());
    std::vector<HttpResponse> responses;
    for (const ServingRequest& request : batch) {
      responses.push_back(
          {.body = fmt::format("{}@{}", std::get<PredictRequest>(request.input).texts[0].text,
                               updates_)});
    }
    return responses;
  }

 private:
  Gate* const gate_;
  const std::uint64_t updates_;
  const bool accepts_;
};

class ModelServerTest : public testing::Test {
 protected:
  void Start(ModelServer::Options options) {
    options.address = "127.0.0.1:0";
    auto server = ModelServer::Make(options, std::make_shared<EchoModel>(&gate_, 1), &metrics_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  static ModelServer::Options Patient() {
    ModelServer::Options options;
    options.deadline = options.drain_grace = Seconds(500);
    return options;
  }
  ~ModelServerTest() override { gate_.Set(true); }
  // A request in its own thread.
  std::future<std::string> Post(const std::string& body) const {
    return std::async(std::launch::async, [this, body] {
      RawHttpClient client(server_->address());
      return client.Post("/v1/act", body);
    });
  }
  // Waits until `rows` rows are queued, as /metrics shows.
  void AwaitMetric(const std::string& line) const {
    Patience patience(60);
    RawHttpClient client(server_->address());
    while (!patience.Ended()) {
      if (client.Get("/metrics").find("\n" + line + "\n") != std::string::npos) return;
    }
    ADD_FAILURE() << line << " is not in " << client.Get("/metrics");
  }

  Gate gate_;
  ServingMetrics metrics_;
  std::unique_ptr<ModelServer> server_;
};

TEST_F(ModelServerTest, RequestsOfConnectionsShareABatch) {
  Start(Patient());
  gate_.Set(false);
  auto first = Post("a");
  gate_.AwaitInside(1);
  std::vector<std::future<std::string>> others;
  for (const char* body : {"b", "cc", "ddd"}) others.push_back(Post(body));
  AwaitMetric("troop_serve_queue_rows 6");
  gate_.Set(true);
  EXPECT_EQ(HttpBodyOf(first.get()), "a@1");
  EXPECT_EQ(HttpBodyOf(others[0].get()), "b@1");
  EXPECT_EQ(HttpBodyOf(others[1].get()), "cc@1");
  EXPECT_EQ(HttpBodyOf(others[2].get()), "ddd@1");
  EXPECT_THAT(gate_.batches, ElementsAre(1, 3));
  AwaitMetric("troop_serve_rows_total 7");
  AwaitMetric("troop_serve_batches_total 2");
  AwaitMetric("troop_serve_requests_total{code=\"200\"} 4");
}

TEST_F(ModelServerTest, FullQueueAnswersAtOnce) {
  ModelServer::Options options = Patient();
  options.queue = {.rows_max = 4, .queue_rows_max = 4};
  Start(options);
  gate_.Set(false);
  auto computed = Post("a");
  gate_.AwaitInside(1);
  auto waiting = Post("bbbb");
  AwaitMetric("troop_serve_queue_rows 4");
  RawHttpClient client(server_->address());
  const std::string full = client.Post("/v1/act", "c");  // while the gate is closed
  EXPECT_EQ(HttpStatusOf(full), 503);
  EXPECT_THAT(full, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_EQ(HttpBodyOf(full), "the queue is full: 4 rows wait, the limit is 4; retry later\n");
  EXPECT_THAT(full, HasSubstr("keep-alive"));
  gate_.Set(true);
  EXPECT_EQ(HttpBodyOf(waiting.get()), "bbbb@1");
  EXPECT_EQ(HttpBodyOf(computed.get()), "a@1");
  EXPECT_EQ(HttpBodyOf(client.Post("/v1/act", "c")), "c@1");
}

TEST_F(ModelServerTest, EveryRequestEndsByItsDeadline) {
  ModelServer::Options options;
  options.deadline = Milliseconds(100);
  Start(options);
  gate_.Set(false);
  auto computed = Post("a");
  gate_.AwaitInside(1);
  auto waiting = Post("b");
  EXPECT_EQ(HttpStatusOf(computed.get()), 504);  // the computation has not ended
  EXPECT_EQ(HttpStatusOf(waiting.get()), 504);
  gate_.Set(true);
  // The queued one is dropped without a computation.
  RawHttpClient client(server_->address());
  Patience patience(60);
  while (HttpBodyOf(client.Post("/v1/act", "c")) != "c@1" && !patience.Ended()) {
  }
  EXPECT_EQ(HttpBodyOf(client.Post("/v1/act", "d")), "d@1");
  for (const std::size_t requests : gate_.batches) EXPECT_EQ(requests, 1u);
}

TEST_F(ModelServerTest, NewModelAnswersLaterBatches) {
  Start(Patient());
  gate_.Set(false);
  auto before = Post("a");
  gate_.AwaitInside(1);
  ASSERT_TRUE(server_->Publish(std::make_shared<EchoModel>(&gate_, 2)).ok());
  auto after = Post("b");
  gate_.Set(true);
  EXPECT_EQ(HttpBodyOf(before.get()), "a@1");
  EXPECT_EQ(HttpBodyOf(after.get()), "b@2");
  const Status other = server_->Publish(std::make_shared<EchoModel>(&gate_, 3, false));
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_EQ(HttpBodyOf(Post("c").get()), "c@2");
  AwaitMetric("troop_serve_updates 2");
}

TEST_F(ModelServerTest, DrainAnswersWhatWaits) {
  Start(Patient());
  RawHttpClient kept(server_->address());
  EXPECT_THAT(HttpBodyOf(kept.Get("/health")), HasSubstr("\"ready\", \"updates\": 1"));
  gate_.Set(false);
  auto computed = Post("a");
  gate_.AwaitInside(1);
  auto waiting = Post("b");
  AwaitMetric("troop_serve_queue_rows 1");
  auto drained = std::async(std::launch::async, [this] { return server_->Drain(Seconds(500)); });
  Patience patience(60);
  while (RawHttpClient(server_->address()).connected() && !patience.Ended()) {
  }
  const std::string health = kept.Get("/health");
  EXPECT_EQ(HttpStatusOf(health), 503);
  EXPECT_THAT(health, HasSubstr("draining"));
  gate_.Set(true);
  EXPECT_EQ(HttpBodyOf(computed.get()), "a@1");
  EXPECT_EQ(HttpBodyOf(waiting.get()), "b@1");
  EXPECT_EQ(drained.get(), 0u);
}

TEST_F(ModelServerTest, LimitsRateOfAClient) {
  ModelServer::Options options = Patient();
  options.requests_per_second = 1e-3;  // one, and the next after 1000 s
  Start(options);
  RawHttpClient client(server_->address());
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", "a")), 200);
  const std::string refused = client.Post("/v1/act", "b");
  EXPECT_EQ(HttpStatusOf(refused), 429);
  const std::size_t at = refused.find("Retry-After: ");
  ASSERT_NE(at, std::string::npos) << refused;
  EXPECT_GT(std::stoi(refused.substr(at + 13)), 900);
  EXPECT_EQ(HttpStatusOf(client.Get("/health")), 200);  // not limited
}

TEST_F(ModelServerTest, RefusesOtherTypesPathsAndBodies) {
  Start(Patient());
  RawHttpClient client(server_->address());
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", "a", "Content-Type: text/plain\r\n")), 415);
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", "a", "")), 415);
  const std::string empty = client.Post("/v1/act", "");
  EXPECT_EQ(HttpStatusOf(empty), 400);
  EXPECT_EQ(HttpBodyOf(empty), "the body is empty\n");
  EXPECT_EQ(HttpBodyOf(client.Post("/v1/act", "a")), "a@1");
  EXPECT_EQ(HttpBodyOf(client.Get("/v1/policy")), "{\"echo\": true}\n");
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/predict", "a")), 405);
  RawHttpClient second(server_->address());
  EXPECT_EQ(HttpStatusOf(second.Get("/v1/predict")), 404);
  RawHttpClient large(server_->address());
  EXPECT_EQ(HttpStatusOf(large.Post("/v1/act", std::string((1 << 20) + 1, 'x'))), 413);
}

TEST(ModelServerOptionsTest, RemoteAddressNeedsTokenAndBodyMustFit) {
  Gate gate;
  ServingMetrics metrics;
  ModelServer::Options options;
  options.address = "0.0.0.0:0";
  const auto model = std::make_shared<EchoModel>(&gate, 1);
  const Status open = ModelServer::Make(options, model, &metrics).status();
  EXPECT_THAT(open.message(), HasSubstr("set --token-file, or listen on 127.0.0.1"));
  EXPECT_THAT(open.message(), testing::Not(HasSubstr("--insecure")));
  options.address = "127.0.0.1:0";
  options.body_bytes_max = 0;
  EXPECT_THAT(ModelServer::Make(options, model, &metrics).status().message(),
              HasSubstr("--body-bytes is 0, must be at least 1"));
}

}  // namespace
}  // namespace troop
