#include "apps/monitor/dashboard_api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "core/storage/json.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/run/run_directory.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

bool Await(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class DashboardTest : public testing::Test {
 protected:
  DashboardTest() { MakeRun("run"); }
  // Writes the files of a run that was killed; with `alive`, its lock stays held.
  void MakeRun(const std::string& name, bool alive = false) {
    Config config;
    config.name = name;
    config.log.dir = folder();
    config.env.id = "CartPole-v1";
    auto made = OpenRunFolder(config, FolderUse::kFresh);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    ASSERT_TRUE(BeginRun(*made).ok());
    Write(name, "metrics.jsonl",
          R"({"wall_s": 1, "phase": "running", "steps": 100, )"
          R"("steps_per_s": 50, "replay/fill": 0.25})"
          "\n");
    fs::create_directories(run(name) + "/logs");
    Write(name, "logs/actor-0.log", "joined\n");
    if (alive) alive_.push_back(std::move(*made));
  }
  void Write(const std::string& name, const std::string& file, const std::string& text) {
    std::ofstream(run(name) + "/" + file) << text;
  }
  void Begin(Dashboard::Options options = {}) {
    if (!options.ask)
      options.ask = [](const std::string&) { return Unavailable("no coordinator"); };
    auto catalog = RunIndex::Make({run("run")});
    ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
    dashboard_ = std::make_unique<Dashboard>(std::move(*catalog), std::move(options));
  }
  static Dashboard::Options Asking(AskStatus ask) {
    Dashboard::Options options;
    options.ask = std::move(ask);
    return options;
  }
  std::string folder() const { return temp_.path(); }
  std::string run(const std::string& name) const { return folder() + "/" + name; }

  HttpResponse Get(const std::string& path, std::map<std::string, std::string> query = {},
                   std::map<std::string, std::string> headers = {{"host", "localhost:8800"}},
                   const std::string& method = "GET") {
    return dashboard_->Handle(
        clock_.Now(),
        {.method = method, .path = path, .query = std::move(query), .headers = std::move(headers)});
  }
  JsonValue GetJson(const std::string& path, std::map<std::string, std::string> query = {}) {
    const HttpResponse reply = Get(path, std::move(query));
    EXPECT_EQ(reply.status, 200) << path << ": " << reply.body;
    EXPECT_EQ(reply.type, "application/json");
    Result<JsonValue> value = ParseJson(reply.body);
    EXPECT_TRUE(value.ok()) << reply.body;
    return value.ok() ? std::move(*value) : JsonValue();
  }

  TempFolder temp_;
  std::vector<RunFolder> alive_;
  const SystemClock clock_;
  std::unique_ptr<Dashboard> dashboard_;
};

constexpr char kRun[] = "/api/v1/runs/run";

TEST_F(DashboardTest, ServesRunFromItsFiles) {
  Write("run", "evaluations.jsonl",
        R"({"wall_s": 1, "steps": 90, "return_mean": 21.5})"
        "\n");
  Begin();
  const JsonValue view = GetJson(kRun);
  EXPECT_EQ(*view.String("state"), "killed");
  EXPECT_EQ(*view.String("problem"), "CartPole-v1");
  EXPECT_EQ(NumberOf(view, "steps"), 100);
  EXPECT_EQ(NumberOf(*view.Find("metrics"), "replay/fill"), 0.25);
  EXPECT_EQ(NumberOf(*view.Find("evaluated"), "return_mean"), 21.5);
  const JsonValue curves =
      GetJson(std::string(kRun) + "/curves", {{"names", "steps_per_s,nothing"}});
  EXPECT_EQ(curves.Find("series")->object.size(), 1u);
  EXPECT_EQ(curves.Find("series")->Find("steps_per_s")->array[0].number, 50);
  EXPECT_EQ(curves.Find("evaluations")->Find("return_mean")->array[0].number, 21.5);
  EXPECT_NE(GetJson(std::string(kRun) + "/config").String("text")->find("CartPole-v1"),
            std::string::npos);
}

// A replaced file shows at the next request; a damaged one shows nothing.
TEST_F(DashboardTest, ShowsBestScore) {
  Begin();
  EXPECT_EQ(GetJson(kRun).Find("best"), nullptr);
  fs::create_directories(run("run") + "/best");
  Write("run", "best/manifest.json", "{}");
  for (const double score : {21.5, 30.0}) {
    Write("run", "best/state.json",
          JsonObject()
              .Add("score", score)
              .Add("episodes", 10)
              .Add("version", 7)
              .Add("unix_time", 1700000000)
              .str());
    const JsonValue view = GetJson(kRun);
    ASSERT_NE(view.Find("best"), nullptr) << score;
    EXPECT_EQ(NumberOf(*view.Find("best"), "score"), score);
    EXPECT_EQ(NumberOf(*view.Find("best"), "episodes"), 10);
  }
  Write("run", "best/state.json", R"({"score": "high"})");
  EXPECT_EQ(GetJson(kRun).Find("best"), nullptr);
}

TEST_F(DashboardTest, ListsAllRunsWithNamedOneFirst) {
  MakeRun("other");
  MakeRun("alive", true);
  Write("other", "result.json", R"({"status": "ok", "steps": 7, "final_return_mean": 200})");
  Write("alive", "evaluations.jsonl", "{\"steps\": 90, \"return_mean\": 21.5}\n");
  fs::create_directories(folder() + "/no run");
  Begin();
  const JsonValue list = GetJson("/api/v1/runs");
  std::map<std::string, std::string> states;
  for (const JsonValue& entry : list.Find("runs")->array) {
    states[*entry.String("name")] = *entry.String("state");
  }
  EXPECT_EQ(states, (std::map<std::string, std::string>{
                        {"run", "killed"}, {"other", "ended"}, {"alive", "running"}}));
  EXPECT_EQ(*list.Find("runs")->array[0].String("name"), "run");
  // Regression: the entry of a live run had no steps, time or score.
  for (const JsonValue& entry : list.Find("runs")->array) {
    if (*entry.String("name") != "alive") continue;
    const JsonValue& progress = *entry.Find("progress");
    EXPECT_EQ(NumberOf(progress, "steps"), 100);
    EXPECT_EQ(NumberOf(progress, "wall_s"), 1);
    EXPECT_EQ(NumberOf(progress, "return_mean"), 21.5);
  }
}

TEST_F(DashboardTest, RejectsPathTraversal) {
  std::ofstream(folder() + "/secret.log") << "secret";
  Write("run", "hidden.log", "secret");
  fs::create_symlink(folder() + "/secret.log", run("run") + "/logs/link.log");
  fs::create_directories(run("run") + "/logs/folder.log");
  Write("run", "logs/notes.txt", "secret");
  Begin();
  for (const std::string name :
       {"../hidden.log", "..", ".", "", "/etc/passwd", "link.log", "folder.log", "notes.txt",
        "../../secret.log", "actor-0.log/../../hidden.log", "actor-0.log ", "logs/actor-0.log"}) {
    const HttpResponse reply = Get(std::string(kRun) + "/logs/" + name);
    if (reply.status == 200) {  // the list, of names alone
      EXPECT_TRUE(name.empty()) << name;
      EXPECT_EQ(reply.body.find("link.log"), std::string::npos) << reply.body;
      EXPECT_EQ(reply.body.find("folder.log"), std::string::npos) << reply.body;
    } else {
      EXPECT_EQ(reply.status, 404) << name;
    }
    EXPECT_EQ(reply.body.find("secret"), std::string::npos) << name;
  }
  for (const std::string name : {"..", ".", "../run", "run/..", "other", "/", "run/../run"}) {
    EXPECT_EQ(Get("/api/v1/runs/" + name + "/config").status, 404) << name;
  }
  EXPECT_EQ(Get("/../apps/dashboard.cc").status, 404);
}

TEST_F(DashboardTest, ServesOnlyEndOfLog) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("line {}\n", i);
  Write("run", "logs/learner-0.log", text + "\xff the end\n");
  Begin();
  const JsonValue log = GetJson(std::string(kRun) + "/logs/learner-0.log", {{"bytes", "1000"}});
  const std::string tail = *log.String("text");
  EXPECT_LE(tail.size(), 1000u);
  EXPECT_TRUE(tail.starts_with("line "));  // a whole one
  EXPECT_TRUE(tail.ends_with("? the end\n")) << tail;
  EXPECT_TRUE(log.Find("cut")->boolean);
  EXPECT_EQ(GetJson(std::string(kRun) + "/logs", {{"text", "learner"}}).Find("logs")->array.size(),
            1u);
}

TEST_F(DashboardTest, ServesNewestEvaluationVideo) {
  Begin();
  EXPECT_EQ(*GetJson(std::string(kRun) + "/video").String("name"), "");
  EXPECT_EQ(Get(std::string(kRun) + "/video.gif").status, 404);
  fs::create_directories(run("run") + "/videos");
  Write("run", "videos/000000000900.gif", "GIF89a, old");
  Write("run", "videos/000000001000.gif", "GIF89a, new");
  Write("run", "videos/000000002000.mp4", "other");
  EXPECT_EQ(*GetJson(std::string(kRun) + "/video").String("name"), "000000001000.gif");
  const HttpResponse gif = Get(std::string(kRun) + "/video.gif");
  EXPECT_EQ(gif.status, 200);
  EXPECT_EQ(gif.type, "image/gif");
  EXPECT_EQ(gif.body, "GIF89a, new");
}

TEST_F(DashboardTest, RejectsRequestsWithoutToken) {
  Dashboard::Options options;
  options.token = "correct horse battery staple";
  options.ask = [](const std::string&) { return Unavailable("no coordinator"); };
  Begin(std::move(options));
  for (const char* path : {"/api/v1/runs", kRun, "/api/v1/runs/run/logs/actor-0.log",
                           "/api/v1/runs/none", "/api/v2/runs", "/api/v1/runs/run/episode.gif"}) {
    for (const char* header : {"", "Bearer", "Bearer ", "Bearer correct horse battery stapl",
                               "Bearer correct horse battery staplf",
                               "Basic Y29ycmVjdA==", "correct horse battery staple"}) {
      const HttpResponse reply = Get(path, {}, {{"host", "h"}, {"authorization", header}});
      EXPECT_EQ(reply.status, 401) << path << " " << header;
      EXPECT_NE(reply.body.find("token"), std::string::npos);
      EXPECT_EQ(reply.body.find("correct"), std::string::npos);
      EXPECT_EQ(std::ranges::count(reply.body, '\n'), 0);
    }
  }
  const std::map<std::string, std::string> right{
      {"host", "h"}, {"authorization", "Bearer correct horse battery staple"}};
  EXPECT_EQ(Get("/api/v1/runs", {}, right).status, 200);
  EXPECT_EQ(Get("/").status, 200);  // the page that asks for it
}

TEST_F(DashboardTest, RejectsForeignHostWithoutToken) {
  Begin();
  for (const char* host : {"evil.example", "evil.example:8800", "localhost.evil.example:8800",
                           "127.0.0.1.evil.example"}) {
    EXPECT_EQ(Get("/api/v1/runs", {}, {{"host", host}}).status, 403) << host;
    EXPECT_EQ(Get("/", {}, {{"host", host}}).status, 403) << host;
  }
  for (const char* host : {"localhost", "localhost:1234", "127.0.0.1:8800", "[::1]:8800"}) {
    EXPECT_EQ(Get("/api/v1/runs", {}, {{"host", host}}).status, 200) << host;
  }
}

TEST_F(DashboardTest, AllResponsesHaveSecurityHeaders) {
  Begin();
  for (const char* path : {"/", "/main.js", "/none", kRun, "/api/v1/runs/none", "/api/v1/none"}) {
    const HttpResponse reply = Get(path);
    const std::string head = HttpHead(reply);
    EXPECT_NE(head.find("X-Content-Type-Options: nosniff"), std::string::npos) << path;
    EXPECT_NE(head.find("X-Frame-Options: DENY"), std::string::npos) << path;
    EXPECT_NE(head.find("frame-ancestors 'none'"), std::string::npos) << path;
    EXPECT_NE(head.find("script-src 'self';"), std::string::npos) << path;
    EXPECT_EQ(head.find("unsafe"), std::string::npos) << path;
  }
}

// Else the page would not work: inline code is not run under its own policy.
TEST_F(DashboardTest, PageHasNoInlineCodeOrForeignResources) {
  for (const DashboardFile& file : DashboardFiles()) {
    if (file.path == "/chart.js") continue;
    const std::string text(file.bytes);
    EXPECT_GT(text.size(), 100u) << file.path;
    for (const char* foreign :
         {"https://", "//cdn", "style=\"", "onclick=", "eval(", "innerHTML"}) {
      EXPECT_EQ(text.find(foreign), std::string::npos) << file.path << ": " << foreign;
    }
  }
}

TEST_F(DashboardTest, StartsRecordingOnlyForOwnPage) {
  Dashboard::Options options;
  options.ask = [](const std::string&) { return Unavailable("no coordinator"); };
  options.player = "/bin/false";
  Begin(std::move(options));
  const std::string path = std::string(kRun) + "/episode";
  EXPECT_EQ(Get(path, {}, {{"host", "localhost"}}, "POST").status, 403);
  EXPECT_EQ(*GetJson(path).String("state"), "none");
  EXPECT_EQ(Get(kRun, {}, {{"host", "localhost"}, {"x-troop", "1"}}, "POST").status, 405);
  EXPECT_EQ(Get(path, {}, {{"host", "localhost"}, {"x-troop", "1"}}, "DELETE").status, 405);
  EXPECT_EQ(Get(path, {}, {{"host", "localhost"}, {"x-troop", "1"}}, "POST").status, 200);
  EXPECT_TRUE(Await([&] { return *GetJson(path).String("state") == "failed"; }));
  EXPECT_EQ(Get(path + ".gif").status, 404);
}

TEST_F(DashboardTest, RejectsOutOfRangeNumbersNamingLimit) {
  Begin();
  const std::string base = kRun;
  std::string many = "a";
  for (int i = 0; i < 20; ++i) many += ",a";
  for (const auto& [path, query, words] :
       std::vector<std::tuple<std::string, std::map<std::string, std::string>, std::string>>{
           {"/curves", {{"points", "1"}}, "from 2 to 1024"},
           {"/curves", {{"points", "1000000000000"}}, "must be a non-negative integer"},
           {"/curves", {{"names", many}}, "at most 16"},
           {"/members", {{"limit", "0"}}, "from 1 to 200"},
           {"/members", {{"limit", "-5"}}, "must be a non-negative integer"},
           {"/members", {{"limit", "201"}}, "from 1 to 200"},
           {"/members", {{"sort", "secret"}}, "role, host"},
           {"/logs/actor-0.log", {{"bytes", "65537"}}, "from 1 to 65536"},
           {"/logs/actor-0.log", {{"bytes", "x"}}, "must be a non-negative integer"}}) {
    const HttpResponse reply = Get(base + path, query);
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_NE(reply.body.find(words), std::string::npos) << reply.body;
  }
  EXPECT_EQ(Get(std::string(5000, 'a')).status, 414);
  EXPECT_EQ(Get(base + "/logs", {{"text", std::string(5000, 'a')}}).status, 414);
}

// By the coordinator's own way to write it.
std::string StatusOf(int actors) {
  const RunView view{.steps = 500, .steps_total = 1000};
  std::vector<RoleView> roles;
  for (int i = 0; i < actors; ++i) {
    roles.push_back({.role = Role::kActor,
                     .index = i,
                     .state = RoleView::State::kAlive,
                     .incarnation = std::uint64_t(i + 7),
                     .process = 1000 + i,
                     .host = fmt::format("node-{}", i % 50),
                     .heartbeat_age_s = i == 321 ? 2.5 : 0.1});
  }
  roles.push_back({.role = Role::kLearner, .state = RoleView::State::kAlive, .host = "node-0"});
  return ViewJson(view, roles);
}

TEST_F(DashboardTest, PaginatesThousandActors) {
  MakeRun("alive", true);
  Begin(Asking([](const std::string&) -> Result<std::string> { return StatusOf(1000); }));
  const std::string path = "/api/v1/runs/alive";
  ASSERT_TRUE(Await([&] { return NumberOf(GetJson(path + "/members"), "total") == 1001; }));
  EXPECT_LT(Get(path).body.size(), 20000u);
  EXPECT_LT(Get(path + "/members").body.size(), 20000u);
  const JsonValue view = GetJson(path);
  EXPECT_EQ(NumberOf(view, "steps"), 500);  // newer than the file's
  const auto& roles = view.Find("roles")->array;
  const auto actors = std::ranges::find_if(
      roles, [](const JsonValue& role) { return *role.String("role") == "actor"; });
  ASSERT_NE(actors, roles.end());
  EXPECT_EQ(NumberOf(*actors, "present"), 1000);
  EXPECT_EQ(NumberOf(*actors, "hosts"), 50);
  EXPECT_EQ(NumberOf(*actors, "heartbeat_age_max_s"), 2.5);
  const JsonValue silent =
      GetJson(path + "/members", {{"sort", "heartbeat_age_s"}, {"order", "desc"}, {"limit", "3"}});
  ASSERT_EQ(silent.Find("members")->array.size(), 3u);
  EXPECT_EQ(*silent.Find("members")->array[0].String("name"), "actor-321");
  const JsonValue page = GetJson(path + "/members", {{"role", "actor"}, {"offset", "10"}});
  EXPECT_EQ(*page.Find("members")->array[0].String("name"), "actor-10");  // as people count
  EXPECT_EQ(page.Find("members")->array.size(), 50u);
  EXPECT_EQ(NumberOf(GetJson(path + "/members", {{"text", "node-7"}}), "matching"), 20);
  EXPECT_TRUE(
      GetJson(path + "/members", {{"offset", "4000000000"}}).Find("members")->array.empty());
}

TEST_F(DashboardTest, ReportsSilentCoordinatorWithoutBlocking) {
  MakeRun("alive", true);
  std::atomic<bool> go{false};
  Begin(Asking([&go](const std::string&) -> Result<std::string> {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return DeadlineExceeded("no answer for 1 s");
  }));
  EXPECT_EQ(*GetJson("/api/v1/runs/alive").String("status_error"), "");  // the request is open
  go = true;
  EXPECT_TRUE(Await([this] {
    return *GetJson("/api/v1/runs/alive").String("status_error") == "no answer for 1 s";
  }));
}

TEST_F(DashboardTest, SurvivesHostileRunFiles) {
  for (const char* file : {"metrics.jsonl", "evaluations.jsonl", "result.json", "config.toml"}) {
    for (const std::string& bytes :
         {std::string(), std::string("\0\0\n", 3), std::string("[1]\n"),
          std::string("{\"steps\": {}}\n"),
          std::string("{\"replay/age\": {\"p50\": 1, \"octaves\": [1, [], [\"x\"]]}}\n"),
          std::string(200000, '[') + "\n"}) {
      Write("run", file, bytes);
      Begin();
      for (const char* what : {"", "/curves", "/members", "/logs", "/config", "/episode"}) {
        EXPECT_EQ(Get(std::string(kRun) + what, {{"names", "steps,replay/age.p50"}}).status, 200);
      }
      EXPECT_EQ(Get("/api/v1/runs").status, 200);
    }
  }
}

TEST(RunCatalogTest, RejectsFolderWithoutRuns) {
  TempFolder temp;
  EXPECT_EQ(RunIndex::Make({temp.path() + "/none"}).status().code(), Code::kNotFound);
  const Status empty = RunIndex::Make({temp.path()}).status();
  EXPECT_EQ(empty.code(), Code::kNotFound);
  EXPECT_NE(empty.message().find("config.toml"), std::string::npos);
}

TEST(RunCatalogTest, DistinguishesRunsOfSameName) {
  TempFolder temp;
  for (const char* folder : {"a/run", "b/run"}) {
    fs::create_directories(temp.path() + "/" + folder);
    std::ofstream(temp.path() + "/" + folder + "/config.toml") << "name = \"run\"\n";
  }
  const auto catalog = RunIndex::Make({temp.path() + "/a/run/", temp.path() + "/b"});
  ASSERT_TRUE(catalog.ok());
  const std::string root = fs::path(temp.path()).lexically_normal().string();
  EXPECT_EQ(catalog->Find("run"), root + "/a/run");
  EXPECT_EQ(catalog->Find("run~2"), root + "/b/run");
  EXPECT_EQ(catalog->Find("run~3"), "");
}

}  // namespace
}  // namespace troop
