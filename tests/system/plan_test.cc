// `troop plan` for two machines, end to end.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/system/troop_process.h"
#include "tests/system/two_machines.h"

namespace troop {
namespace {

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";

// Returns a port that is currently free.
std::string FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<const sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

class PlanTest : public SystemTest {
 protected:
  void SetUp() override {
    SystemTest::SetUp();
    std::ofstream(config()) << "version = 1\n"
                               "learner = {algorithm = \"classifier\", batch_size = 4}\n"
                               "data = {max_length = 16, cache = \"\"}\n"
                               "model = {hidden_size = 32, num_hidden_layers = 2, "
                               "num_attention_heads = 4, max_position_embeddings = 24}\n"
                               "evaluator = {enabled = false}\n";
  }
  std::string config() const { return folder() + "/reviews.toml"; }
  std::vector<std::string> Plan(const std::string& machine) const {
    return {"plan",
            config(),
            "data.reviews=" + kFixtures + "reviews.csv",
            "data.vocabulary=" + kFixtures + "vocab.txt",
            "--machine",
            machine,
            "--learners",
            "4"};
  }
};

// GB/s behind "to <machine> … us and".
double SpeedTo(const std::string& machine, const std::string& output) {
  const auto at = output.find("to " + machine);
  const auto number = output.find(" us and ", at);
  if (at == std::string::npos || number == std::string::npos) return -1;
  return std::stod(output.substr(number + 8));
}

TEST_F(PlanTest, PlansForMachineByMeasuredLink) {
  const TwoMachines machines;
  const std::string there = "10.77.0.2:7700";
  bool shaped = machines.ok();
  for (int i = 0; shaped && i < 2; ++i) {
    const std::string words = "ip netns exec " + machines.On(i).back() +
                              " tc qdisc add dev cable root tbf rate 400mbit burst 64k latency "
                              "20ms > /dev/null 2>&1";
    shaped = std::system(words.c_str()) == 0;
  }
  if (!shaped) GTEST_SKIP() << "no network namespaces with shaped links here: that needs root";
  const auto serve = std::make_unique<Troop>(std::vector<std::string>{"plan", "--serve", there},
                                             folder(), std::vector<std::string>{}, machines.On(1));
  ASSERT_TRUE(Await([&] { return serve->output().find("waiting at") != std::string::npos; }));
  for (int i = 0; i < 2; ++i) {  // it keeps waiting
    const auto plan =
        std::make_unique<Troop>(Plan(there), folder(), std::vector<std::string>{}, machines.On(0));
    ASSERT_EQ(plan->Wait(), 0) << plan->output();
    // 400 Mbit/s are 0.05 GB/s.
    const double speed = SpeedTo(there, plan->output());
    EXPECT_GT(speed, 0.015) << plan->output();
    EXPECT_LT(speed, 0.06) << plan->output();
    EXPECT_NE(plan->output().find("2 machines of"), std::string::npos) << plan->output();
    EXPECT_NE(plan->output().find("| 2 | 2 |"), std::string::npos) << plan->output();
  }
  // A second server fails, since the port is in use.
  const auto second = std::make_unique<Troop>(std::vector<std::string>{"plan", "--serve", there},
                                              folder(), std::vector<std::string>{}, machines.On(1));
  EXPECT_EQ(second->Wait(), 3) << second->output();
  EXPECT_NE(second->output().find("in use"), std::string::npos) << second->output();
  EXPECT_TRUE(
      Await([&] { return serve->output().find("the link was measured") != std::string::npos; }));
}

TEST_F(PlanTest, NamesUnreachableMachine) {
  const std::string nobody = "127.0.0.1:" + FreePort();
  const auto plan = Start(Plan(nobody));
  EXPECT_EQ(plan->Wait(), 1) << plan->output();
  EXPECT_NE(plan->output().find("first run `troop plan --serve " + nobody + "` there"),
            std::string::npos)
      << plan->output();
  const auto says = [this](const std::vector<std::string>& words, const std::string& part) {
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), 2) << troop->output();
    EXPECT_NE(troop->output().find(part), std::string::npos) << troop->output();
  };
  says({"plan"}, "config");
  says({"plan", config(), "--machines", "3"}, "--machine");
  says({"plan", config(), "--serve", nobody}, "--serve");
  says({"plan", "--serve", "nowhere"}, "nowhere");
  says({"plan", "--serve", "127.0.0.1:99999"}, "\"99999\" is not a port");
}

}  // namespace
}  // namespace troop
