// `troop serve`, the program itself over real sockets: its actions equal plain loops over the
// weights of the checkpoint that each answer names; reloads and drains lose no request.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "nn/io/safetensors.h"
#include "tests/apps/monitor/raw_http_client.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The network of a checkpoint: two hidden layers with ReLU, and a linear head.
class PlainNetwork {
 public:
  explicit PlainNetwork(const std::string& checkpoint) {
    const std::string bytes = FileText(checkpoint + "/weights.safetensors");
    auto file = DecodeSafetensors(Buffer::Copy(std::as_bytes(std::span(bytes))));
    EXPECT_TRUE(file.ok()) << checkpoint;
    if (file.ok()) tensors_ = std::move(file->tensors);
  }
  std::vector<double> Values(const std::vector<float>& observation) const {
    std::vector<double> x(observation.begin(), observation.end());
    for (const std::string layer : {"layers.0", "layers.1", "head"}) {
      const auto weight = tensors_.find(layer + ".weight"), bias = tensors_.find(layer + ".bias");
      if (weight == tensors_.end() || bias == tensors_.end()) {
        ADD_FAILURE() << "no " << layer;
        return {};
      }
      std::vector<double> y;
      for (std::int64_t o = 0; o < weight->second.dim(0); ++o) {
        double sum = bias->second.as<float>()[std::size_t(o)];
        for (std::size_t i = 0; i < x.size(); ++i)
          sum += double(weight->second.as<float>()[std::size_t(o) * x.size() + i]) * x[i];
        y.push_back(layer == "head" ? sum : std::max(0.0, sum));
      }
      x = y;
    }
    return x;
  }

 private:
  std::map<std::string, ConstTensor> tensors_;
};

std::string ActBody(const std::vector<float>& x) {
  return fmt::format("{{\"observations\": [[{}, {}, {}, {}]], \"q_values\": true}}", x[0], x[1],
                     x[2], x[3]);
}

class ServeTest : public SystemTest {
 protected:
  // A finished run with several checkpoints.
  void TrainRun(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"network.dueling=false", "fleet.mode=serial",
                                   "run.total_steps=2001",  "replay.min_items=200",
                                   "checkpoint.keep=50",    "checkpoint.every_s=0.02"};
    words.insert(words.end(), more.begin(), more.end());
    const auto troop = Train(words);
    ASSERT_EQ(troop->Wait(), 0) << troop->output();
    for (const auto& entry : fs::directory_iterator(run() + "/checkpoints"))
      checkpoints_.push_back(entry.path().filename());
    std::ranges::sort(checkpoints_);
    ASSERT_GE(checkpoints_.size(), 2u);
  }
  std::string Checkpoint(const std::string& name) const { return run() + "/checkpoints/" + name; }
  // Starts a server and waits for its address.
  std::unique_ptr<Troop> Serve(std::vector<std::string> words, std::string* address) const {
    if (std::ranges::find(words, "--listen") == words.end())
      words.insert(words.end(), {"--listen", "127.0.0.1:0"});
    words.insert(words.begin(), {"serve", run()});
    auto troop = Start(words);
    EXPECT_TRUE(Await([&] {
      const std::string output = troop->output();
      const std::size_t at = output.find("serving http://");
      if (at == std::string::npos) return !troop->Running();
      *address = output.substr(at + 15, output.find("/v1/", at) - at - 15);
      return output.find("drains and ends") != std::string::npos;
    })) << troop->output();
    EXPECT_NE(*address, "") << troop->output();
    return troop;
  }
  // True if an answer in JSON equals the plain loops over the checkpoint that it names.
  bool IsRight(const std::string& response, const std::vector<float>& x,
               std::uint64_t* updates) const {
    const auto json = ParseJson(HttpBodyOf(response));
    if (HttpStatusOf(response) != 200 || !json.ok() || !json->Integer("updates").ok()) return false;
    *updates = std::uint64_t(*json->Integer("updates"));
    const auto name = std::ranges::find_if(checkpoints_, [&](const std::string& checkpoint) {
      return std::stoull(checkpoint) == *updates;
    });
    if (name == checkpoints_.end()) return false;
    const std::vector<double> want = networks_.at(*name).Values(x);
    const JsonValue& q = json->Find("q_values")->array.at(0);
    const double action = json->Find("actions")->array.at(0).number;
    for (std::size_t a = 0; a < want.size(); ++a) {
      if (!(std::abs(q.array.at(a).number - want[a]) <= 1e-4 * std::max(1.0, std::abs(want[a]))))
        return false;
      if (q.array.at(std::size_t(action)).number < q.array.at(a).number) return false;
    }
    return want.size() == q.array.size();
  }
  void ReadNetworks() {
    for (const std::string& name : checkpoints_) networks_.emplace(name, Checkpoint(name));
  }
  static std::vector<float> Observation(std::mt19937* random) {
    std::uniform_real_distribution<float> any(-2, 2);
    return {any(*random), any(*random), any(*random), any(*random)};
  }

  std::vector<std::string> checkpoints_;  // sorted by updates
  std::map<std::string, PlainNetwork> networks_;
};

TEST_F(ServeTest, AnswersEqualPlainLoops) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  ReadNetworks();
  std::string address;
  const auto server = Serve({}, &address);
  RawHttpClient client(address);
  std::mt19937 random(1);
  std::uint64_t updates = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> x = Observation(&random);
    const std::string json = client.Post("/v1/act", ActBody(x));
    EXPECT_TRUE(IsRight(json, x, &updates)) << json;
    // The binary form: one i32 action, then two f32 values.
    const std::string bytes(reinterpret_cast<const char*>(x.data()), 16);
    const std::string binary =
        client.Post("/v1/act?q_values=1", bytes, "Content-Type: application/octet-stream\r\n");
    ASSERT_EQ(HttpBodyOf(binary).size(), 12u) << binary;
    EXPECT_THAT(binary, HasSubstr(fmt::format("\r\nTroop-Updates: {}\r\n", updates)));
    float q[2];
    std::int32_t action = -1;
    std::memcpy(&action, HttpBodyOf(binary).data(), 4);
    std::memcpy(q, HttpBodyOf(binary).data() + 4, 8);
    const std::vector<double> want = networks_.at(checkpoints_.back()).Values(x);
    for (const int a : {0, 1}) EXPECT_NEAR(q[a], want[std::size_t(a)], 1e-4 * (1 + std::abs(q[a])));
    EXPECT_EQ(action, q[1] > q[0] ? 1 : 0);
  }
  EXPECT_EQ(updates, std::stoull(checkpoints_.back()));
  const auto policy = ParseJson(HttpBodyOf(client.Get("/v1/policy")));
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(*policy->String("environment"), "CartPole-v1");
  EXPECT_EQ(policy->Find("observation")->Find("shape")->array.at(0).number, 4);
  EXPECT_THAT(client.Get("/metrics"), HasSubstr("troop_serve_requests_total{code=\"200\"} 40\n"));
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << server->output();
}

// Checkpoints appear by a rename, as the learner writes them, while clients send requests.
TEST_F(ServeTest, ConcurrentClientsLoseNothingWhileCheckpointsReload) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  ReadNetworks();
  const std::string hidden = folder() + "/hidden";
  fs::create_directories(hidden);
  for (std::size_t i = 1; i < checkpoints_.size(); ++i)
    fs::rename(Checkpoint(checkpoints_[i]), hidden + "/" + checkpoints_[i]);
  std::string address;
  const auto server =
      Serve({"--reload-s", "0.01", "--deadline-ms", "100000", "--drain-s", "102"}, &address);
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> answered = 0, wrong = 0, backwards = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      RawHttpClient client(address);
      std::mt19937 random(std::uint32_t(c) + 5);
      std::uint64_t last = 0;
      while (!stop) {
        const std::vector<float> x = Observation(&random);
        std::uint64_t updates = 0;
        wrong += !IsRight(client.Post("/v1/act", ActBody(x)), x, &updates);
        backwards += updates < last;
        last = updates;
        ++answered;
      }
    });
  }
  RawHttpClient watch(address);
  for (std::size_t i = 1; i < checkpoints_.size(); ++i) {
    fs::rename(hidden + "/" + checkpoints_[i], Checkpoint(checkpoints_[i]));
    const std::string line =
        fmt::format("\ntroop_serve_updates {}\n", std::stoull(checkpoints_[i]));
    EXPECT_TRUE(Await([&] { return watch.Get("/metrics").find(line) != std::string::npos; }))
        << line << server->output();
    const std::int64_t before = answered;
    EXPECT_TRUE(Await([&] { return answered > before + 20; }));
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(backwards, 0);
  server->Signal(SIGINT);
  EXPECT_EQ(server->Wait(), 0) << server->output();
}

TEST_F(ServeTest, DrainUnderLoadLosesNoAcceptedRequest) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  ReadNetworks();
  std::string address;
  const auto server =
      Serve({"--deadline-ms", "100000", "--drain-s", "200", "--drain-grace-s", "100"}, &address);
  std::atomic<int> ready = 0, closed = 0;
  std::atomic<std::int64_t> wrong = 0;
  std::vector<std::thread> clients;
  constexpr int kClients = 6;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      RawHttpClient client(address);
      std::mt19937 random(std::uint32_t(c) + 50);
      for (int i = 0;; ++i) {
        const std::vector<float> x = Observation(&random);
        std::uint64_t updates = 0;
        const std::string response = client.Post("/v1/act", ActBody(x));
        if (!IsRight(response, x, &updates)) {
          ++wrong;
          return;
        }
        if (i == 20) ++ready;
        // The server announces the end of the connection: the client sends nothing after it.
        if (response.find("\r\nConnection: close\r\n") == std::string::npos) continue;
        ++closed;
        return;
      }
    });
  }
  EXPECT_TRUE(Await([&] { return ready == kClients || wrong > 0; }));
  server->Signal(SIGTERM);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(closed, kClients);
  EXPECT_EQ(server->Wait(), 0) << server->output();
  EXPECT_FALSE(RawHttpClient(address).connected());
}

TEST_F(ServeTest, ServerThatIsKilledCanBeStartedAgain) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  std::string address;
  const auto first = Serve({}, &address);
  const std::string frame = R"("observations": [[1, 2, 3, 4]], "session": "robot")";
  RawHttpClient client(address);
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", "{" + frame + ", \"reset\": true}")), 200);
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", "{" + frame + "}")), 200);
  first->Signal(SIGKILL);
  EXPECT_EQ(first->Wait(), 128 + SIGKILL);
  std::string again;
  const auto second = Serve({"--listen", address}, &again);
  EXPECT_EQ(again, address);
  RawHttpClient next(address);
  // The frames of the session are gone, which must not look like an episode's begin.
  EXPECT_EQ(HttpStatusOf(next.Post("/v1/act", "{" + frame + "}")), 409);
  EXPECT_EQ(HttpStatusOf(next.Post("/v1/act", "{" + frame + ", \"reset\": true}")), 200);
}

TEST_F(ServeTest, OtherAddressesNeedATokenAndEveryRequestCarriesIt) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  const auto refused = Start({"serve", run(), "--listen", "0.0.0.0:0"});
  EXPECT_EQ(refused->Wait(), 2);
  EXPECT_THAT(refused->output(), HasSubstr("set --token-file, or listen on 127.0.0.1"));
  const std::string token = folder() + "/token";
  std::ofstream(token) << "0123456789abcdef\n";
  fs::permissions(token, fs::perms(0644));
  const auto readable = Start({"serve", run(), "--listen", "0.0.0.0:0", "--token-file", token});
  EXPECT_EQ(readable->Wait(), 2);
  fs::permissions(token, fs::perms(0600));
  std::string address;
  const auto server = Serve({"--listen", "0.0.0.0:0", "--token-file", token}, &address);
  const std::string body = ActBody({1, 2, 3, 4});
  const std::string type = "Content-Type: application/json\r\n";
  for (const char* wrong :
       {"", "Authorization: Bearer 0123456789abcdeF\r\n",
        "Authorization: Bearer 0123456789abcde\r\n", "Authorization: Basic 0123456789abcdef\r\n"}) {
    RawHttpClient client(address);
    EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", body, type + wrong)), 401) << wrong;
    RawHttpClient other(address);
    EXPECT_EQ(HttpStatusOf(other.Get("/metrics", wrong)), 401) << wrong;
  }
  RawHttpClient client(address);
  EXPECT_EQ(HttpStatusOf(
                client.Post("/v1/act", body, type + "Authorization: Bearer 0123456789abcdef\r\n")),
            200);
  EXPECT_EQ(HttpStatusOf(client.Get("/health")), 200);
}

TEST_F(ServeTest, HostileBytesDoNotEndTheProgram) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  std::string address;
  const auto server = Serve({"--body-bytes", "4096"}, &address);
  const std::string good = "{\"observations\": [[1, 2, 3, 4]]}";
  const std::pair<std::string, int> bodies[] = {
      {"{\"observations\": [[1, 2, 3]]}", 400},
      {"{\"observations\": [[1, 2, 3, NaN]]}", 400},
      {"{\"observations\": [[1, 2, 3, 1e400]]}", 400},
      {"{\"observations\": " + std::string(4000, '['), 400},
      {std::string(4096, '\0'), 400},
      {std::string(4097, '1'), 413},
      {good, 200}};
  for (const auto& [body, status] : bodies) {
    RawHttpClient client(address);
    const std::string response = client.Post("/v1/act", body);
    EXPECT_EQ(HttpStatusOf(response), status) << body.substr(0, 50) << response;
    if (status == 400) {
      EXPECT_EQ(std::ranges::count(HttpBodyOf(response), '\n'), 1) << response;
    }
  }
  // Requests that are cut, changed or random.
  const std::string request = fmt::format(
      "POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      good.size(), good);
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    std::string bytes = request;
    if (i % 4 == 0) bytes.resize(random() % bytes.size());
    if (i % 4 == 1) bytes[random() % bytes.size()] = char(random());
    if (i % 4 == 2) bytes.insert(random() % bytes.size(), 1, char(random()));
    if (i % 4 == 3) std::ranges::generate(bytes, [&] { return char(random()); });
    RawHttpClient client(address);
    client.Send(bytes);
    client.CloseSending();
    client.Receive();
  }
  ASSERT_TRUE(server->Running()) << server->output();
  RawHttpClient client(address);
  EXPECT_EQ(HttpStatusOf(client.Post("/v1/act", good)), 200);
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << server->output();
}

TEST_F(ServeTest, InvalidSettingsAreRefused) {
  ASSERT_NO_FATAL_FAILURE(TrainRun());
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"serve", run(), "--queue-rows", "10"}, "--queue-rows is 10, must be at least"},
      {{"serve", run(), "--batch-wait-us", "2000000"}, "must be less than --deadline-ms"},
      {{"serve", run(), "--deadline-ms", "9001"}, "--drain-s is 10, must be at least 10.001"},
      {{"serve", run(), "--drain-s", "1", "--drain-grace-s", "0.5"}, "must be at least 1.5"},
      {{"serve", run(), "--batch-rows", "0"}, "--batch-rows"},
      {{"serve", run(), "--best"}, "keep_best"},
      {{"serve", folder() + "/none"}, "neither a checkpoint"}};
  for (const auto& [words, message] : cases) {
    const auto troop = Start(words);
    EXPECT_NE(troop->Wait(), 0) << message;
    EXPECT_THAT(troop->output(), HasSubstr(message));
  }
}

// The answers for texts equal those of another command, for several clients at once.
TEST_F(ServeTest, ServesTextClassifier) {
  const auto troop = Start(ClassifierWords({"fleet.mode=serial", "run.epochs=2"}));
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  const std::vector<std::string> texts{"a fine film", "", "never dull, and a moving film"};
  const auto predicted = Start({"predict", run(), "--json", texts[0], texts[1], texts[2]});
  ASSERT_EQ(predicted->Wait(), 0) << predicted->output();
  std::string address;
  const auto server = Serve({"--batch-wait-us", "1000"}, &address);
  std::vector<std::string> responses(4);
  std::vector<std::thread> clients;
  for (std::string& response : responses) {
    clients.emplace_back([&response, &address, &texts] {
      RawHttpClient client(address);
      response = client.Post("/v1/predict", JsonObject().Add("texts", JsonArray::Of(texts)).str());
    });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& response : responses) {
    ASSERT_EQ(HttpStatusOf(response), 200) << response;
    const auto json = ParseJson(HttpBodyOf(response));
    std::istringstream lines(predicted->output());
    for (const JsonValue& one : json->Find("predictions")->array) {
      std::string line;
      std::getline(lines, line);
      const auto want = ParseJson(line);
      ASSERT_TRUE(want.ok()) << line;
      EXPECT_EQ(one.Find("label")->string, want->Find("label")->string);
      EXPECT_EQ(*one.Integer("tokens"), *want->Integer("tokens"));
      for (const auto& [name, p] : want->Find("probabilities")->object)
        EXPECT_NEAR(one.Find("probabilities")->Find(name)->number, p.number, 1e-5) << line;
    }
    EXPECT_EQ(json->Find("predictions")->array.size(), texts.size());
  }
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << server->output();
}

}  // namespace
}  // namespace troop
