// Whole fleets: what a run leaves, and what it survives.

#include <sys/stat.h>

#include <map>
#include <set>
#include <sstream>

#include "core/graphics/plot/line_plot.h"
#include "tests/core/python.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class FleetTest : public SystemTest {};

TEST_F(FleetTest, WritesAllFilesAndTakesExactSteps) {
  const auto troop = Train();
  ExpectDone(troop.get(), 8001);
  for (const char* name :
       {"config.toml", "run.json", "result.json", "metrics.jsonl", "evaluations.jsonl",
        "incarnation", "lock", "logs/launcher.log", "logs/actor-0.log", "logs/actor-1.log",
        "logs/replay-0.log", "logs/learner-0.log", "logs/paramserver-0.log",
        "logs/evaluator-0.log"}) {
    EXPECT_TRUE(fs::exists(run() + "/" + name)) << name;
  }
  EXPECT_EQ(fs::exists(run() + "/curve.png"), HasPlots());
  const JsonValue result = Json(run() + "/result.json");
  const std::string checkpoint = run() + "/" + *result.String("checkpoint");
  for (const char* name :
       {"weights.safetensors", "state.safetensors", "state.json", "manifest.json"}) {
    EXPECT_TRUE(fs::exists(checkpoint + "/" + name)) << name;
  }
  EXPECT_EQ(*Json(checkpoint + "/state.json").Integer("steps"), 8001);
  EXPECT_EQ(*result.Integer("final_episodes"), 4);
  EXPECT_TRUE(std::ranges::any_of(fs::directory_iterator(run()), [](const auto& entry) {
    return entry.path().filename().string().starts_with("events.out.tfevents.");
  }));
  const std::string metrics = FileText(run() + "/metrics.jsonl");
  for (const char* name : {"learner/learning_rate", "actor/epsilon", "episode_len_mean"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
  EXPECT_GT(Metric("learner/loss"), 0);  // of the last line
  EXPECT_NE(troop->output().find("final score"), std::string::npos) << troop->output();
  EXPECT_NE(troop->output().find("bottleneck"), std::string::npos) << troop->output();
  EXPECT_TRUE(RoleProcesses(Coordinator()).empty());
  EXPECT_FALSE(SocketFolderLeft());
}

TEST_F(FleetTest, WeightsAndEventsAreReadableByOtherPrograms) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const auto troop = Train({"run.total_steps=1000"});
  ExpectDone(troop.get(), 1000);
  const std::string weights =
      run() + "/" + *Json(run() + "/result.json").String("checkpoint") + "/weights.safetensors";
  EXPECT_EQ(RunPython("-c \"from safetensors.numpy import load_file as l; "
                      "t = l('" +
                      weights +
                      "'); print(sum(v.size for v in t.values()), "
                      "sorted(t)[0])\""),
            "4675 head.advantage.bias\n");
  const std::string events =
      RunPython(std::string(TROOP_SOURCE_DIR) + "/tests/core/read_events.py " + run());
  EXPECT_NE(events.find("run/steps_per_s"), std::string::npos) << events;
}

// TensorBoard finds the very bytes of the run's GIF files, with the size that their headers have.
TEST_F(FleetTest, TensorBoardReadsEvaluationVideos) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const auto troop = Train({"run.total_steps=2000", "evaluator.video_every=1",
                            "evaluator.final_episodes=1", "log.metrics_every_s=0.1"});
  ExpectDone(troop.get(), 2000);
  std::istringstream lines(
      RunPython(std::string(TROOP_SOURCE_DIR) + "/tests/core/read_events.py " + run()));
  std::set<std::string> shown;  // "width height checksum"
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("evaluation/video ")) continue;
    std::istringstream words(line);
    std::string tag, step, wall_s, size;
    words >> tag >> step >> wall_s;
    std::getline(words, size);
    shown.insert(size);
  }
  std::set<std::string> written;
  for (const auto& entry : std::filesystem::directory_iterator(run() + "/videos")) {
    if (entry.path().extension() != ".gif") continue;
    const std::string gif = FileText(entry.path().string());
    ASSERT_GT(gif.size(), 10u);
    const auto u16 = [&](std::size_t at) {
      return int(std::uint8_t(gif[at])) | int(std::uint8_t(gif[at + 1])) << 8;
    };
    std::string checksum = RunPython(
        "-c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], \"rb\").read())"
        ".hexdigest())' " +
        entry.path().string());
    checksum.pop_back();  // the line feed
    written.insert(fmt::format(" {} {} {}", u16(6), u16(8), checksum));
  }
  ASSERT_FALSE(shown.empty());
  for (const std::string& video : shown) EXPECT_TRUE(written.contains(video)) << video;
}

class KilledRoleTest : public FleetTest, public testing::WithParamInterface<const char*> {};

TEST_P(KilledRoleTest, IsRestartedAndRunTakesExactSteps) {
  const std::string role = GetParam();
  const bool served = role == "inference";
  const auto troop = TrainLong({served ? "actor.inference=server" : "actor.inference=local"});
  ASSERT_TRUE(AwaitSteps(3000)) << troop->output();
  const pid_t process = AwaitRole(role);
  SendSignal(process, SIGKILL);
  EXPECT_TRUE(Await([&] {
    const auto found = RoleProcesses(Coordinator(), role);
    return !found.empty() && std::ranges::find(found, process) == found.end();
  })) << LauncherLog();
  ExpectDone(troop.get(), kLongSteps);
  const std::string log = LauncherLog();
  EXPECT_NE(log.find(role + "-0 ended (killed by signal 9"), std::string::npos) << log;
  EXPECT_TRUE(Json(run() + "/result.json").Find("final_return_mean") != nullptr);
}

INSTANTIATE_TEST_SUITE_P(Roles, KilledRoleTest,
                         testing::Values("actor", "replay", "learner", "paramserver", "evaluator",
                                         "inference"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(FleetTest, RestartsRoleTerminatedExternally) {
  const auto troop = TrainLong({"fleet.actors=1"});
  ASSERT_TRUE(AwaitSteps(1000)) << troop->output();
  SendSignal(AwaitRole("actor"), SIGTERM);
  ExpectDone(troop.get(), kLongSteps);
  EXPECT_NE(LauncherLog().find("before the end of the run"), std::string::npos) << LauncherLog();
}

TEST_F(FleetTest, RepeatedRoleFailureEndsRunWithReason) {
  const auto troop = TrainLong({"fleet.restarts_max=1"});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Await([&] { return Steps() > 500 * (i + 1) || !troop->Running(); }));
    SendSignal(AwaitRole("learner"), SIGKILL);
    if (i == 0) {
      EXPECT_TRUE(Await([&] { return LauncherLog().find("restart 1") != std::string::npos; }));
    }
  }
  EXPECT_EQ(troop->Wait(), 1) << troop->output();
  EXPECT_NE(troop->output().find("learner-0 failed 2 times"), std::string::npos) << troop->output();
  EXPECT_TRUE(FileHas(run() + "/result.json", "learner-0 failed 2 times"));
}

TEST_F(FleetTest, KilledLauncherEndsFleetAndRunResumes) {
  auto troop = TrainLong();
  ASSERT_TRUE(AwaitSteps(6000)) << troop->output();
  ASSERT_TRUE(AwaitCheckpoint());
  const std::string coordinator = Coordinator();
  EXPECT_EQ(RoleProcesses(coordinator).size(), 6u);
  troop->Signal(SIGKILL);
  ASSERT_EQ(troop->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Await([&] { return RoleProcesses(coordinator).empty(); }, 2));

  const auto status = Start({"status", run()});
  EXPECT_EQ(status->Wait(), 1);
  EXPECT_NE(status->output().find("troop resume"), std::string::npos) << status->output();

  // The next run clears away the sockets of the killed one, once they are older than a minute.
  for (const auto& entry : fs::directory_iterator(folder() + "/tmp")) {
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const auto resumed = Start({"resume", run()});
  ExpectDone(resumed.get(), kLongSteps);
  EXPECT_FALSE(SocketFolderLeft());
}

TEST_F(FleetTest, CtrlCDrainsAndRunResumesToExactSteps) {
  const auto troop = TrainLong();
  ASSERT_TRUE(AwaitSteps(3000)) << troop->output();
  const auto start = std::chrono::steady_clock::now();
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  // fleet.shutdown_grace_s is 5; the rest is for a busy machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(troop->output().find("troop resume"), std::string::npos) << troop->output();
  const JsonValue stopped = Json(run() + "/result.json");
  EXPECT_EQ(*stopped.String("status"), "interrupted");
  EXPECT_LT(*stopped.Integer("steps"), kLongSteps);
  const std::string checkpoint = run() + "/" + *stopped.String("checkpoint");
  EXPECT_GT(*Json(checkpoint + "/state.json").Integer("updates"), 0) << checkpoint;
  EXPECT_FALSE(SocketFolderLeft());

  const auto resumed = Start({"resume", run()});
  ExpectDone(resumed.get(), kLongSteps);
  EXPECT_NE(resumed->output().find("resuming"), std::string::npos) << resumed->output();
}

TEST_F(FleetTest, CtrlCDuringStartEndsRun) {
  const auto troop = TrainLong();
  ASSERT_TRUE(Await([&] { return fs::exists(run() + "/run.json"); }));
  troop->Signal(SIGINT);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_FALSE(SocketFolderLeft());
}

TEST_F(FleetTest, CtrlCTwiceEndsAtOnce) {
  // The learner can't drain: only the second signal ends this soon.
  const auto troop = TrainLong({"fleet.shutdown_grace_s=1000"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  const pid_t learner = AwaitRole("learner");
  SendSignal(learner, SIGSTOP);
  troop->Signal(SIGINT);
  ASSERT_TRUE(Await([&] { return troop->output().find("stopping") != std::string::npos; }));
  EXPECT_TRUE(troop->Running());
  // Those within half a second of the first are the same wish.
  EXPECT_TRUE(Await([&] {
    troop->Signal(SIGINT);
    return !troop->Running();
  }));
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_TRUE(CommandLine(learner).empty());
}

// Regression: the message suggested `troop resume`, which then had no checkpoint to resume from.
TEST_F(FleetTest, InterruptBeforeCheckpointDoesNotSuggestResume) {
  const auto troop = TrainLong({"fleet.shutdown_grace_s=1000", "checkpoint.every_s=0"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(AwaitRole("learner"), SIGSTOP);
  EXPECT_TRUE(Await([&] {
    troop->Signal(SIGINT);
    return !troop->Running();
  }));
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_EQ(troop->output().find("troop resume"), std::string::npos) << troop->output();
  EXPECT_NE(troop->output().find("--overwrite"), std::string::npos) << troop->output();
  const auto resumed = Start({"resume", run()});
  EXPECT_EQ(resumed->Wait(), 2);
  for (const char* part : {"no checkpoint to resume from", "--overwrite"}) {
    EXPECT_NE(resumed->output().find(part), std::string::npos) << resumed->output();
  }
}

// The checkpoint held the count of the learner's last heartbeat, 0 in a short run.
TEST_F(FleetTest, FinalCheckpointHasStepsOfResult) {
  const auto holds = [&](const std::string& name) {
    const JsonValue result = Json(run(name) + "/result.json");
    const std::string path = run(name) + "/" + *result.String("checkpoint");
    EXPECT_GT(*result.Integer("steps"), 0);
    EXPECT_EQ(*Json(path + "/state.json").Integer("steps"), *result.Integer("steps"));
  };
  const auto shortest = Train({"run.max_updates=20"});
  EXPECT_EQ(shortest->Wait(), 0) << shortest->output();
  holds("run");
  for (const std::string mode : {"serial", "processes"}) {
    const auto troop = Train({"fleet.mode=" + mode, "name=" + mode, "checkpoint.every_s=0",
                              "run.total_steps=100000000"});
    ASSERT_TRUE(AwaitSteps(1500, mode)) << troop->output();
    // A closed terminal, or Ctrl-C.
    troop->Signal(mode == "serial" ? SIGHUP : SIGINT);
    EXPECT_EQ(troop->Wait(), 130) << troop->output();
    EXPECT_EQ(*Json(run(mode) + "/result.json").String("status"), "interrupted");
    holds(mode);
  }
}

TEST_F(FleetTest, FailsWithoutFinalCheckpoint) {
  fs::create_directories(run());
  std::ofstream(run() + "/checkpoints") << "a file in the way";
  const auto troop = Train({"run.total_steps=2000"});
  EXPECT_EQ(troop->Wait(), 1) << troop->output();
  EXPECT_NE(troop->output().find("final checkpoint could not be written"), std::string::npos)
      << troop->output();
  EXPECT_TRUE(FileHas(run() + "/result.json", "final checkpoint could not be written"));
}

TEST_F(FleetTest, RolesIgnoreSignalToProcessGroup) {
  const auto troop = TrainLong();
  ASSERT_TRUE(AwaitSteps(1000)) << troop->output();
  for (const pid_t role : RoleProcesses(Coordinator())) SendSignal(role, SIGINT);  // ignored
  ExpectDone(troop.get(), kLongSteps);
  EXPECT_EQ(LauncherLog().find("restart"), std::string::npos) << LauncherLog();
}

// No replay ratio says when enough was sampled: the learner went on for good.
TEST_F(FleetTest, EndsAfterStepsWithoutReplayRatio) {
  for (const std::string mode : {"serial", "processes"}) {
    const auto troop = Train({"fleet.mode=" + mode, "name=" + mode, "replay.samples_per_insert=0",
                              "run.total_steps=3000"});
    EXPECT_EQ(troop->Wait(), 0) << troop->output();
    const JsonValue result = Json(run(mode) + "/result.json");
    EXPECT_EQ(*result.String("status"), "ok");
    EXPECT_EQ(*result.Integer("steps"), 3000);
  }
}

TEST_F(FleetTest, ConcurrentRunsAreIndependent) {
  const auto one = Train({"name=one"}), two = Train({"name=two", "run.total_steps=7003"});
  ExpectDone(one.get(), 8001, "one");
  ExpectDone(two.get(), 7003, "two");
}

TEST_F(FleetTest, SerialModeReproducesWeights) {
  for (const char* name : {"one", "two"}) {
    const auto troop =
        Train({"fleet.mode=serial", std::string("name=") + name, "run.total_steps=3001"});
    ExpectDone(troop.get(), 3001, name);
  }
  const auto weights = [&](const char* name) {
    return FileText(run(name) + "/" + *Json(run(name) + "/result.json").String("checkpoint") +
                    "/weights.safetensors");
  };
  EXPECT_FALSE(weights("one").empty());
  EXPECT_EQ(weights("one"), weights("two"));
}

TEST_F(FleetTest, DryRunDescribesRunAndStartsNothing) {
  const auto troop = Train({"--dry-run"});
  EXPECT_EQ(troop->Wait(), 0);
  for (const char* part :
       {"coordinator", "replay-0", "actor-1", "GiB", "8001", "ipc://", "algorithm    dqn on ",
        ", seed ", "ends         after 8001 steps and the updates"}) {
    EXPECT_NE(troop->output().find(part), std::string::npos) << part << troop->output();
  }
  const auto unlimited = Train({"--dry-run", "replay.samples_per_insert=0"});
  EXPECT_EQ(unlimited->Wait(), 0);
  EXPECT_NE(unlimited->output().find("after 8001 steps, however many updates"), std::string::npos)
      << unlimited->output();
  EXPECT_FALSE(fs::exists(run()));
  EXPECT_FALSE(SocketFolderLeft());
}

TEST_F(FleetTest, StatusShowsLiveAndEndedRun) {
  const auto troop = TrainLong();
  ASSERT_TRUE(AwaitSteps(1000)) << troop->output();
  const auto live = Start({"status", run()});
  EXPECT_EQ(live->Wait(), 0) << live->output();
  for (const std::string part : {"running", "actor-0", "learner-0", "of 40003 agent steps"}) {
    EXPECT_NE(live->output().find(part), std::string::npos) << part << live->output();
  }
  const auto json = Start({"status", "--json", run()});
  EXPECT_EQ(json->Wait(), 0);
  const auto live_view = ParseJson(json->output());
  ASSERT_TRUE(live_view.ok()) << json->output();
  ExpectDone(troop.get(), kLongSteps);
  // No role had a fault, and each saw others leave.
  for (const auto& log : fs::directory_iterator(run() + "/logs")) {
    EXPECT_FALSE(FileHas(log.path().string(), "the peer is down")) << log.path();
  }
  const auto ended_json = Start({"status", "--json", run()});
  EXPECT_EQ(ended_json->Wait(), 0);
  const auto ended_view = ParseJson(ended_json->output());
  ASSERT_TRUE(ended_view.ok()) << ended_json->output();
  for (const auto& [key, value] : live_view->object) {
    EXPECT_NE(ended_view->Find(key), nullptr) << key;
  }
  EXPECT_EQ(*live_view->String("state"), "running");
  EXPECT_EQ(*ended_view->String("state"), "ended");
  const auto ended = Start({"status", run()});
  EXPECT_EQ(ended->Wait(), 0);
  EXPECT_NE(ended->output().find("the run has ended: 40003 of 40003 agent steps\n  score "),
            std::string::npos)
      << ended->output();
}

TEST_F(FleetTest, EvalAndPlayUseCheckpoint) {
  const auto troop = Train({"run.total_steps=1000"});
  ExpectDone(troop.get(), 1000);
  const auto eval = Start({"eval", run(), "--episodes", "3", "--json"});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  const auto score = ParseJson(eval->output());
  ASSERT_TRUE(score.ok()) << eval->output();
  EXPECT_EQ(*score->Integer("episodes"), 3);
  // Evaluates the same episodes again, from the checkpoint's own folder.
  const std::string checkpoint = run() + "/" + *Json(run() + "/result.json").String("checkpoint");
  const auto again = Start({"eval", checkpoint + "/", "--episodes", "3", "--json"});
  ASSERT_EQ(again->Wait(), 0) << again->output();
  EXPECT_EQ(ParseJson(again->output())->Find("return_mean")->number,
            score->Find("return_mean")->number);

  const std::string gif = folder() + "/play.gif", png = folder() + "/play.png";
  const auto play = Start({"play", run(), "--gif", gif, "--png", png});
  ASSERT_EQ(play->Wait(), 0) << play->output();
  EXPECT_NE(play->output().find("over 1 episode, "), std::string::npos) << play->output();
  EXPECT_TRUE(FileText(gif).starts_with("GIF89a"));
  EXPECT_TRUE(FileText(png).starts_with("\x89PNG"));
  const auto piped = Start({"play", run(), "--fps", "100"});
  ASSERT_EQ(piped->Wait(), 0);
  EXPECT_EQ(piped->output().find('\x1b'), std::string::npos) << piped->output();
  EXPECT_NE(piped->output().find("\nreturn "), std::string::npos) << piped->output();
  // In a terminal it draws.
  Troop terminal({"play", run(), "--fps", "100"}, folder(), {},
                 {"python3", "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"});
  ASSERT_EQ(terminal.Wait(), 0) << terminal.output();
  EXPECT_NE(terminal.output().find("▀"), std::string::npos);
}

// It started the fleet again and replaced the result, in part with zeros.
TEST_F(FleetTest, ResumeOfFinishedRunNeedsLargerBudget) {
  const std::vector<std::string> keys{"fleet.mode=serial", "run.total_steps=2000"};
  ExpectDone(Train(keys).get(), 2000);
  const auto bytes = [this] {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(run())) {
      if (entry.is_regular_file()) all[entry.path().string()] = FileText(entry.path().string());
    }
    return all;
  };
  const auto before = bytes();
  std::vector<std::string> again = TrainWords(keys);
  again.emplace_back("--continue");
  for (const auto& words :
       {std::vector<std::string>{"resume", run()}, {"resume", run() + "/", keys[1]}, again}) {
    const auto resumed = Start(words);
    EXPECT_EQ(resumed->Wait(), 0) << resumed->output();
    EXPECT_NE(resumed->output().find("/run is finished and was not changed; raise "
                                     "run.total_steps to continue it\n"),
              std::string::npos)
        << resumed->output();
    EXPECT_TRUE(bytes() == before) << words[0];
  }
  again[4] = "run.total_steps=3001";
  ExpectDone(Start(again).get(), 3001);
}

// Regression: only the learner detected the mismatch, and was restarted permanently.
TEST_F(FleetTest, RejectsResumeWithOtherNetworkOrOptimizer) {
  const auto troop = Train({"run.total_steps=1000"});
  ExpectDone(troop.get(), 1000);
  const std::string result = FileText(run() + "/result.json");
  for (const char* change : {"optimizer.type=rmsprop", "network.dueling=false",
                             "network.layers=[{type = \"linear\", units = 32}]"}) {
    const auto resumed = Start({"resume", run(), "run.total_steps=2000", change});
    EXPECT_EQ(resumed->Wait(), 2) << change << resumed->output();
    EXPECT_NE(resumed->output().find("does not fit this config"), std::string::npos)
        << resumed->output();
  }
  EXPECT_EQ(FileText(run() + "/result.json"), result);
}

TEST_F(FleetTest, ResumeWithMoreStepsContinues) {
  const auto troop = Train({"run.total_steps=2000"});
  ExpectDone(troop.get(), 2000);
  const auto resumed = Start({"resume", run(), "run.total_steps=3001"});
  ExpectDone(resumed.get(), 3001);
}

}  // namespace
}  // namespace troop
