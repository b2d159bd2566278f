// Runs of an environment with an action mask: a full column of Connect Four is a fault.

#include <gmock/gmock.h>

#include <cmath>

#include "tests/apps/monitor/raw_http_client.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

using testing::HasSubstr;

class ActionMaskRunTest : public SystemTest {
 protected:
  static std::vector<std::string> Words(const std::string& algorithm, int steps) {
    std::vector<std::string> words{
        "name=" + algorithm,
        "learner.algorithm=" + algorithm,
        "env.id=ConnectFour-v0",
        "env.plugin=" TROOP_PLUGIN_FOLDER "/connect_four.so",
        "network.layers=[{type=\"conv2d\", filters=16, kernel=4}, {type=\"linear\", units=32}]",
        "learner.batch_size=8",
        "run.total_steps=" + std::to_string(steps)};
    if (algorithm == "dqn") return words;
    const std::vector<std::string> unrolls{
        "actor.unroll_length=16",     "actor.insert_batch_size=8",   "replay.sampler=fifo",
        "replay.max_times_sampled=1", "replay.samples_per_insert=1", "replay.min_items=16",
        "replay.capacity_items=512"};
    words.insert(words.end(), unrolls.begin(), unrolls.end());
    return words;
  }
};

// Random exploration, sampled policies and evaluation choose allowed actions alone, through deaths;
// learners find no other action in the batches.
TEST_F(ActionMaskRunTest, NeverPlaysForbiddenAction) {
  for (const auto& [algorithm, steps] :
       {std::pair<std::string, int>("dqn", 10001), {"pqn", 100001}, {"ppo", 100001}}) {
    const auto troop = Train(Words(algorithm, steps));
    ASSERT_TRUE(AwaitSteps(2000, algorithm)) << troop->output();
    for (const char* const role : {"learner", "actor"}) {
      const std::vector<pid_t> processes = RoleProcesses(Coordinator(algorithm), role);
      ASSERT_FALSE(processes.empty());
      SendSignal(processes[0], SIGKILL);
    }
    ExpectDone(troop.get(), steps, algorithm);
    EXPECT_EQ(Metric("actor/env_faults", algorithm), 0);
    const JsonValue result = Json(run(algorithm) + "/result.json");
    EXPECT_GT(result.Find("updates")->number, 100);
    EXPECT_TRUE(std::isfinite(result.Find("final_return_mean")->number));
    EXPECT_TRUE(std::isfinite(Metric("learner/loss", algorithm)));
  }
}

// Board of 6 x 7 pixels with 2 channels, then the mask. A full column is forbidden, whatever the
// weights are; the exported files and the server name the mask.
TEST_F(ActionMaskRunTest, ExportedAndServedPoliciesObeyTheMask) {
  ExpectDone(Train(Words("dqn", 2001)).get(), 2001, "dqn");
  for (const char* const format : {"safetensors", "onnx", "c"}) {
    const std::string path = folder() + "/policy." + format;
    const auto exported = Start({"export", run("dqn"), "--format", format, "--out", path});
    ASSERT_EQ(exported->Wait(), 0) << exported->output();
    EXPECT_THAT(FileText(path), HasSubstr("action_mask")) << format;
  }
  const auto server = Start({"serve", run("dqn"), "--listen", "127.0.0.1:0"});
  std::string address;
  ASSERT_TRUE(Await([&] {
    const std::string output = server->output();
    const std::size_t at = output.find("serving http://");
    if (at != std::string::npos)
      address = output.substr(at + 15, output.find("/v1/", at) - at - 15);
    return !address.empty() && output.find("drains and ends") != std::string::npos;
  })) << server->output();
  for (int allowed = 0; allowed < 7; ++allowed) {
    std::string row(2 * 84, ' ');
    for (std::size_t i = 0; i < 84; ++i) row.replace(2 * i, 2, "1,");
    for (int a = 0; a < 7; ++a) row += std::string(a == 0 ? "" : ",") + (a == allowed ? "1" : "0");
    const std::string body = "{\"observations\": [[" + row + "]], \"q_values\": true}";
    const std::string response = RawHttpClient(address).Post("/v1/act", body);
    ASSERT_EQ(HttpStatusOf(response), 200) << response;
    const auto answer = ParseJson(HttpBodyOf(response));
    ASSERT_TRUE(answer.ok()) << response;
    EXPECT_EQ(answer->Find("actions")->array.at(0).number, allowed);
    for (int a = 0; a < 7; ++a) {
      const double q = answer->Find("q_values")->array.at(0).array.at(std::size_t(a)).number;
      EXPECT_EQ(q < -9e29, a != allowed) << a;
    }
  }
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << server->output();
}

}  // namespace
}  // namespace troop
