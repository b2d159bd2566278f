// The dashboard as a browser shows it, in front of real fleets.
#include <atomic>
#include <cstdlib>
#include <iostream>

#include "apps/monitor/dashboard_api.h"
#include "apps/monitor/http_server.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/run/run_directory.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class DashboardPageTest : public SystemTest {
 protected:
  // The address that a troop has printed, once it has.
  static std::string AddressIn(const std::function<std::string()>& output) {
    std::string address;
    EXPECT_TRUE(Await([&] {
      const std::string text = output();
      const std::size_t at = text.find("dashboard: http://");
      const std::size_t end = text.find('/', at + 18);
      if (at == std::string::npos || end == std::string::npos) return false;
      address = text.substr(at + 11, end + 1 - at - 11);
      return true;
    })) << output();
    return address;
  }
  // Runs tests/system/dashboard_page.py and returns its output and its exit code.
  int Look(const std::vector<std::string>& words, std::string* said) const {
    const std::string script = std::string(TROOP_SOURCE_DIR) + "/tests/system/dashboard_page.py";
    const std::string output = folder() + "/page";
    std::string command = "PYTHONDONTWRITEBYTECODE=1 timeout -k 5 100 python3 " + script;
    for (const std::string& word : words) command += " '" + word + "'";
    const int status = std::system((command + " > " + output + " 2>&1").c_str());
    *said = FileText(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  void ExpectLook(const std::vector<std::string>& words) {
    std::string said;
    const int code = Look(words, &said);
    if (code == 77) GTEST_SKIP() << said;
    EXPECT_EQ(code, 0) << said;
    if (code == 0) std::cout << said;
  }
  std::vector<std::string> DashboardWords(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"dashboard", run(), "--listen", "127.0.0.1:0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(DashboardPageTest, ShowsFleetLearningCartPole) {
  const auto past = Train({"name=past", "run.total_steps=3000"});
  ASSERT_EQ(past->Wait(), 0) << past->output();
  const auto fleet = Train({"run.total_steps=1e9", "fleet.dashboard=127.0.0.1:0"});
  ASSERT_TRUE(AwaitCheckpoint()) << fleet->output();
  const std::string address = AddressIn([&] { return fleet->output(); });
  ExpectLook({"live", address});
  fleet->Signal(SIGINT);
  EXPECT_EQ(fleet->Wait(), 130) << fleet->output();
}

TEST_F(DashboardPageTest, ShowsInferenceServer) {
  const auto fleet =
      Train({"run.total_steps=1e9", "actor.inference=server", "fleet.dashboard=127.0.0.1:0"});
  ASSERT_TRUE(AwaitCheckpoint()) << fleet->output();
  ExpectLook({"asked", AddressIn([&] { return fleet->output(); })});
  fleet->Signal(SIGINT);
  EXPECT_EQ(fleet->Wait(), 130) << fleet->output();
}

TEST_F(DashboardPageTest, RequiresTokenFromFile) {
  const auto past = Train({"run.total_steps=2000", "evaluator.final_episodes=1"});
  ASSERT_EQ(past->Wait(), 0) << past->output();
  const std::string file = folder() + "/token", token = "0123456789abcdef-secret";
  std::ofstream(file) << token << "\n";
  std::filesystem::permissions(file, std::filesystem::perms(0600));
  const auto dashboard = Start(DashboardWords({"--token-file", file}));
  ExpectLook({"token", AddressIn([&] { return dashboard->output(); }), token});
  EXPECT_EQ(dashboard->output().find(token), std::string::npos);
  dashboard->Signal(SIGTERM);
  EXPECT_EQ(dashboard->Wait(), 0);
}

TEST_F(DashboardPageTest, ReportsErrorsInOneLine) {
  const auto none = Start({"dashboard", folder() + "/none"});
  EXPECT_EQ(none->Wait(), 2);
  EXPECT_NE(none->output().find("no such folder"), std::string::npos) << none->output();
  const auto past = Train({"run.total_steps=2000", "evaluator.final_episodes=1"});
  ASSERT_EQ(past->Wait(), 0) << past->output();
  const auto open = Start({"dashboard", run(), "--listen", "0.0.0.0:0"});
  EXPECT_EQ(open->Wait(), 2);
  EXPECT_NE(open->output().find("--token-file"), std::string::npos) << open->output();
  const auto first = Start(DashboardWords());
  const std::string address = AddressIn([&] { return first->output(); });
  const std::string port = address.substr(7, address.size() - 8);
  const auto second = Start({"dashboard", run(), "--listen", port});
  EXPECT_EQ(second->Wait(), 3);
  EXPECT_NE(second->output().find("in use by process " + std::to_string(first->process())),
            std::string::npos)
      << second->output();
  const auto fleet = Train({"name=other", "fleet.dashboard=0.0.0.0:0"});
  EXPECT_EQ(fleet->Wait(), 2) << fleet->output();
}

// A stand-in for the coordinator, which says what a real one does of so many.
TEST_F(DashboardPageTest, IsFastWithThousandActors) {
  Config config;
  config.name = "run";
  config.log.dir = folder();
  config.env.id = "CartPole-v1";
  config.fleet.actors = 1000;
  auto made = OpenRunFolder(config, FolderUse::kFresh);
  ASSERT_TRUE(made.ok() && BeginRun(*made).ok());
  std::ofstream lines(run() + "/metrics.jsonl");
  for (int i = 0; i < 20000; ++i) {
    lines << fmt::format(
        R"({{"wall_s": {}, "phase": "running", "steps": {}, "steps_per_s": {}, )"
        R"("episode_return_mean": {}, "learner/loss": {}, "bottleneck": "learner", )"
        R"("replay/inserts": {}, "replay/age": {{"count": 9, "p50": 3, "p90": 5, )"
        R"("p99": 7, "max": 9, "octaves": [[1, 2], [2, 4], [4, 3]]}}}})"
        "\n",
        i, 100 * i, 100 + i % 7, i % 200, 1.0 / (1 + i), 100 * i);
  }
  lines.close();
  auto catalog = RunIndex::Make({run()});
  ASSERT_TRUE(catalog.ok());
  std::atomic<int> asked{0};
  Dashboard::Options options;
  options.ask = [&asked](const std::string&) -> Result<std::string> {
    const RunView view{.steps = 2000000 + ++asked, .steps_total = 10000000};
    std::vector<RoleView> roles;
    for (int i = 0; i < 1000; ++i) {
      roles.push_back({.role = Role::kActor,
                       .index = i,
                       .state = RoleView::State::kAlive,
                       .incarnation = 7,
                       .process = 1000 + i,
                       .host = fmt::format("node-{}", i % 50),
                       .heartbeat_age_s = 0.001 * ((i * 37 + asked) % 250),
                       .work_per_s = 100.0 + i});
    }
    roles.push_back({.role = Role::kLearner, .state = RoleView::State::kAlive, .host = "node-0"});
    return ViewJson(view, roles);
  };
  Dashboard dashboard(std::move(*catalog), std::move(options));
  HttpServer::Options server{.address = "127.0.0.1:0", .posts = true};
  server.routes["/"] = [&dashboard](const HttpRequest& request) {
    return dashboard.Handle(SystemClock().Now(), request);
  };
  const auto served = HttpServer::Make(std::move(server));
  ASSERT_TRUE(served.ok()) << served.status().ToString();
  ExpectLook({"thousand", "http://" + (*served)->address() + "/"});
}

}  // namespace
}  // namespace troop
