// Tests of the monitoring commands: status, metrics, doctor.
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cmath>
#include <map>

#include "tests/core/python.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class WatchTest : public SystemTest {
 protected:
  // Python's own client reads the page: {"name{labels}": value}, or what it complains of.
  std::map<std::string, double> Scrape(const std::string& address) const {
    const std::string script = folder() + "/scrape.py";
    std::ofstream(script) << R"(
import json, sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families
answer = urllib.request.urlopen(f"http://{sys.argv[1]}/metrics", timeout=20)
assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
out = {}
for family in text_string_to_metric_families(answer.read().decode()):
    assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    for s in family.samples:
        labels = ",".join(f"{k}={v}" for k, v in sorted(s.labels.items()))
        key = f"{s.name}{{{labels}}}"
        assert key not in out, key
        out[key] = s.value
print(json.dumps({k: v for k, v in out.items() if v == v and abs(v) != float("inf")}))
)";
    const auto page = ParseJson(RunPython(script + " " + address));
    EXPECT_TRUE(page.ok()) << page.status().message();
    std::map<std::string, double> values;
    if (page.ok()) {
      for (const auto& [name, value] : page->object) values[name] = value.number;
    }
    return values;
  }
  std::string MetricsAddress() const {
    std::string address;
    EXPECT_TRUE(Await([&] {
      const auto info = ParseJson(FileText(run() + "/run.json"));
      if (info.ok() && info->String("metrics").ok()) address = *info->String("metrics");
      return !address.empty();
    }));
    return address;
  }
  JsonValue RoleOf(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"status", run(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const auto status = Start(words);
    if (status->Wait() != 0) return {};
    const auto view = ParseJson(status->output());
    const JsonValue* const roles = view.ok() ? view->Find("roles") : nullptr;
    for (std::size_t i = 0; roles != nullptr && i < roles->array.size(); ++i) {
      if (*roles->array[i].String("role") == name) return roles->array[i];
    }
    return {};
  }
  std::string Doctor(const std::vector<std::string>& words, int code,
                     const std::vector<std::string>& starter = {}) const {
    std::vector<std::string> all{"doctor"};
    all.insert(all.end(), words.begin(), words.end());
    if (words[0] == config()) all.insert(all.begin() + 2, "log.dir=" + folder());
    Troop doctor(all, folder(), {}, starter);
    EXPECT_EQ(doctor.Wait(), code) << doctor.output();
    return doctor.output();
  }
  // Returns the line of an item, or an empty string.
  static std::string LineOf(const std::string& text, const std::string& item) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.size() > 8 && line.substr(8).starts_with(item)) return line;
    }
    return "";
  }
  static void ExpectFails(const std::string& text, const std::string& item,
                          const std::string& what) {
    const std::string line = LineOf(text, item);
    EXPECT_NE(line.find("FAIL"), std::string::npos) << item << ": " << text;
    EXPECT_NE(line.find(what), std::string::npos) << line;
  }
};

TEST_F(WatchTest, ShowsKilledRoleWithRestartAndReason) {
  const auto troop = Train({"run.total_steps=1e9"});
  ASSERT_TRUE(AwaitSteps(1000)) << troop->output();
  const auto before = RoleOf("actor-1");
  ASSERT_EQ(*before.String("state"), "alive");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(*before.String("host"), host);
  EXPECT_EQ(*before.Integer("restarts"), 0);
  SendSignal(pid_t(*before.Integer("process")), SIGKILL);
  EXPECT_TRUE(Await([&] {
    const JsonValue now = RoleOf("actor-1");
    return now.Find("restarts") != nullptr && *now.Integer("restarts") == 1 &&
           *now.String("state") == "alive" && now.Find("work_per_s")->number > 0;
  }));
  EXPECT_NE(RoleOf("actor-1").String("last_error")->find("signal 9"), std::string::npos);
  EXPECT_GT(RoleOf("learner-0").Find("work_per_s")->number, 0);
  const auto text = Start({"status", run()});
  EXPECT_EQ(text->Wait(), 0);
  EXPECT_NE(text->output().find("killed by signal 9"), std::string::npos) << text->output();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130);
  // The console was silent about it.
  EXPECT_NE(troop->output().find("troop: actor-1 ended: killed by signal 9"), std::string::npos)
      << troop->output();
  EXPECT_NE(troop->output().find("; restart 1 of at most 20 in "), std::string::npos)
      << troop->output();
}

// It suggested a resume, which found no checkpoint; and an interrupted run was "running".
TEST_F(WatchTest, StatusNamesCommandToContinueRun) {
  const auto killed = Train({"run.total_steps=1e9", "checkpoint.every_s=86400"});
  ASSERT_TRUE(AwaitSteps(200)) << killed->output();
  killed->Signal(SIGKILL);
  EXPECT_EQ(killed->Wait(), 128 + SIGKILL);
  const auto status = Start({"status", run()});
  EXPECT_EQ(status->Wait(), 1);
  const std::string again = "troop train " + run() + "/config.toml --overwrite";
  EXPECT_NE(status->output().find("no checkpoint to resume from; restart with: " + again),
            std::string::npos)
      << status->output();
  std::filesystem::remove(run() + "/metrics.jsonl");
  const auto troop = Start({"train", run() + "/config.toml", "--overwrite", "--plain"});
  ASSERT_TRUE(AwaitSteps(200)) << troop->output();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_EQ(*Json(run() + "/result.json").String("phase"), "interrupted");
  const auto interrupted = Start({"status", run()});
  EXPECT_EQ(interrupted->Wait(), 0);
  for (const std::string& part :
       {std::string("the run was interrupted"), "resume with: troop resume " + run() + "\n"}) {
    EXPECT_NE(interrupted->output().find(part), std::string::npos) << interrupted->output();
  }
}

TEST_F(WatchTest, PrometheusMatchesStatus) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const auto troop = Train({"run.total_steps=1e9", "fleet.metrics=127.0.0.1:0"});
  const std::string address = MetricsAddress();
  ASSERT_TRUE(AwaitSteps(2000)) << troop->output();
  const double steps_before = double(Steps());
  std::map<std::string, double> page;
  ASSERT_TRUE(Await([&] {  // a state is up to a second old
    page = Scrape(address);
    return page["troop_run_steps_total{}"] >= steps_before;
  }));
  const JsonValue actor = RoleOf("actor-0");
  EXPECT_LE(page["troop_role_work_total{index=0,role=actor}"], actor.Find("work")->number);
  EXPECT_EQ(page["troop_role_incarnation{index=0,role=actor}"], actor.Find("incarnation")->number);
  EXPECT_EQ(page["troop_role_up{index=1,role=actor}"], 1);
  EXPECT_EQ(page["troop_roles{role=actor,state=alive}"], 2);
  EXPECT_EQ(page["troop_run_steps_budget{}"], 1e9);
  EXPECT_GT(page["troop_replay_age_count{}"], 0);
  EXPECT_EQ(page["troop_replay_age_bucket{le=+Inf}"], page["troop_replay_age_count{}"]);
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130);
}

TEST_F(WatchTest, RemoteMetricsRequireToken) {
  const auto open = Train({"fleet.metrics=0.0.0.0:0"});
  EXPECT_EQ(open->Wait(), 2);
  EXPECT_NE(open->output().find("fleet.metrics_token"), std::string::npos) << open->output();
  EXPECT_FALSE(std::filesystem::exists(run() + "/config.toml"));
  std::ofstream(folder() + "/token") << "sixteen-letters!\n";
  std::filesystem::permissions(folder() + "/token", std::filesystem::perms(0644));
  const auto readable =
      Train({"fleet.metrics=0.0.0.0:0", "fleet.metrics_token=" + folder() + "/token"});
  EXPECT_EQ(readable->Wait(), 2);
  EXPECT_NE(readable->output().find("chmod 600"), std::string::npos) << readable->output();
}

TEST_F(WatchTest, StatusAndDoctorReachRemoteRunWithToolKey) {
  const std::string keys = folder() + "/keys";
  ASSERT_EQ(Start({"keygen", keys})->Wait(), 0);
  const auto troop =
      Train({"run.total_steps=1e9", "fleet.listen=tcp://127.0.0.2:0", "security.keys=" + keys});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  const std::string address = Coordinator().substr(0, Coordinator().find('#'));
  const auto status = Start({"status", address, "--key", keys + "/tool.key"});
  EXPECT_EQ(status->Wait(), 0) << status->output();
  EXPECT_NE(status->output().find("actor-0"), std::string::npos) << status->output();
  const auto actor = Start({"status", address, "--key", keys + "/actor.key"});
  EXPECT_NE(actor->Wait(), 0);
  const std::string seen = Doctor({"--coordinator", address, "--key", keys + "/tool.key"}, 0);
  for (const char* item : {"names", "coordinator", "clock", "round trip", "link"}) {
    EXPECT_NE(LineOf(seen, item), "") << item << ": " << seen;
  }
  EXPECT_NE(LineOf(seen, "clock").find("+0.0"), std::string::npos) << seen;
  const std::string as_actor = Doctor({"--coordinator", address, "--key", keys + "/actor.key"}, 0);
  EXPECT_NE(LineOf(as_actor, "round trip"), "") << as_actor;
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130);
  const auto away = Start({"status", address, "--key", keys + "/tool.key"});
  EXPECT_EQ(away->Wait(), 1);
  EXPECT_NE(away->output().find("no answer from a coordinator"), std::string::npos)
      << away->output();
}

TEST_F(WatchTest, DoctorPassesValidConfig) {
  const std::string text = Doctor({config()}, 0);
  EXPECT_NE(text.find("ready to start"), std::string::npos) << text;
  EXPECT_EQ(text.find("FAIL"), std::string::npos) << text;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    EXPECT_EQ(entry.path().filename().string().find("doctor"), std::string::npos) << entry.path();
  }
}

TEST_F(WatchTest, DoctorNamesTheKernelsOfTheProcessor) {
  // The kernel's list of flags is independent of Troop's CPUID.
  std::ifstream info("/proc/cpuinfo");
  std::string flags;
  while (std::getline(info, flags) && !flags.starts_with("flags")) {
  }
  const auto has = [&](const std::string& flag) {
    return (flags + " ").find(" " + flag + " ") != std::string::npos;
  };
  const bool fast = has("avx2") && has("fma") && has("bmi2");
  const std::string line = LineOf(Doctor({config()}, 0), "processor");
  EXPECT_EQ(line.find("plain kernels") == std::string::npos, fast) << line;
  EXPECT_NE(line.find(" kernels"), std::string::npos) << line;
}

TEST_F(WatchTest, DoctorReportsInvalidConfig) {
  ExpectFails(Doctor({config(), "learner.batch=3"}, 1), "config", "learner.batch");
  ExpectFails(Doctor({config(), "env.id=Nothing-v0"}, 1), "task", "Nothing-v0");
}

TEST_F(WatchTest, DoctorReportsUsedPortAndForeignAddress) {
  const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in here{.sin_family = AF_INET};
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof here;
  ASSERT_EQ(bind(held, reinterpret_cast<const sockaddr*>(&here), size), 0);
  ASSERT_EQ(listen(held, 1), 0);
  getsockname(held, reinterpret_cast<sockaddr*>(&here), &size);
  const std::string port = std::to_string(ntohs(here.sin_port));
  ExpectFails(Doctor({config(), "fleet.listen=tcp://127.0.0.1:" + port}, 1), "ports",
              "process " + std::to_string(getpid()));
  ExpectFails(Doctor({config(), "fleet.metrics=127.0.0.1:" + port}, 1), "ports",
              "process " + std::to_string(getpid()));
  ExpectFails(Doctor({config(), "fleet.dashboard=127.0.0.1:" + port}, 1), "ports",
              "process " + std::to_string(getpid()));
  close(held);
  ExpectFails(Doctor({config(), "fleet.listen=tcp://192.0.2.1:7701", "--insecure"}, 1), "ports",
              "no such address");
  ExpectFails(Doctor({config(), "fleet.listen=tcp://nowhere.invalid:7701", "--insecure"}, 1),
              "ports", "nowhere.invalid");
  ExpectFails(Doctor({config(), "fleet.listen=tcp://192.0.2.1:7701"}, 1), "ports", "keygen");
}

TEST_F(WatchTest, DoctorReportsLowLimits) {
  ExpectFails(Doctor({config(), "fleet.actors=64"}, 1, {"prlimit", "--nofile=100:100"}),
              "open files", "the limit is 100");
  ExpectFails(Doctor({config()}, 1, {"prlimit", "--nproc=20:20"}), "processes", "20 threads");
  ExpectFails(Doctor({config()}, 1, {"prlimit", "--as=900000000"}), "memory", "ulimit -v");
  ExpectFails(Doctor({config(), "fleet.actors=100000"}, 1), "memory", "needs about");
}

TEST_F(WatchTest, DoctorReportsUnwritableFolder) {
  std::ofstream(folder() + "/file") << "no folder";
  ExpectFails(Doctor({config(), "log.dir=" + folder() + "/file/runs"}, 1), "disk", "log.dir");
}

TEST_F(WatchTest, DoctorReportsInvalidKeys) {
  const std::string keys = folder() + "/keys";
  ASSERT_EQ(Start({"keygen", keys})->Wait(), 0);
  EXPECT_NE(LineOf(Doctor({config(), "security.keys=" + keys}, 0), "keys").find("ok"),
            std::string::npos);
  std::filesystem::permissions(keys + "/actor.key", std::filesystem::perms(0644));
  ExpectFails(Doctor({config(), "security.keys=" + keys}, 1), "keys", "0644");
  std::filesystem::permissions(keys + "/actor.key", std::filesystem::perms(0600));
  std::ofstream(keys + "/allowed") << "# empty\n";
  ExpectFails(Doctor({config(), "security.keys=" + keys}, 1), "keys", "key of the role");
  ExpectFails(Doctor({config(), "security.keys=" + folder() + "/none"}, 1), "keys", "no such file");
}

TEST_F(WatchTest, DoctorReportsUnreachableCoordinator) {
  ExpectFails(Doctor({"--coordinator", "tcp://nowhere.invalid:7701"}, 1), "names",
              "nowhere.invalid");
  ExpectFails(Doctor({"--coordinator", "tcp://127.0.0.1:1"}, 1), "coordinator", "no answer");
  ExpectFails(Doctor({"--coordinator", "ipc://there"}, 1), "coordinator", "not tcp://HOST:PORT");
}

}  // namespace
}  // namespace troop
