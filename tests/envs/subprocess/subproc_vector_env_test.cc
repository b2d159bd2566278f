#include "envs/subprocess/subproc_vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/philox.h"
#include "envs/subprocess/protocol.h"
#include "tests/core/python.h"
#include "tests/core/temp_folder.h"
#include "tests/envs/process_vector_env_fixture.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

struct Spread {
  int size, processes;
  bool wait;
};
class Spreads : public ProcessVectorEnvTest, public testing::WithParamInterface<Spread> {};

TEST_P(Spreads, MatchesModel) {
  options_.processes = GetParam().processes;
  options_.wait = GetParam().wait;
  const auto env = Open(GetParam().size);
  ASSERT_NE(env, nullptr);
  EXPECT_EQ(env->spec().observation.ToString(), "f32[3]");
  EXPECT_EQ(env->spec().action.count, 7);
  for (int t = 0; t < 60 && !HasFailure(); ++t) Step(env.get());
  EXPECT_GT(models_[0].episode, 5);
}

INSTANTIATE_TEST_SUITE_P(Envs, Spreads,
                         testing::Values(Spread{1, 1, true}, Spread{5, 1, false},
                                         Spread{5, 2, true}, Spread{8, 3, false}));

// Against the model, over several intervals and two processes.
TEST_F(ProcessVectorEnvTest, TakesMetricsOfPythonEnvironments) {
  options_.processes = 2;
  options_.metrics = true;
  const auto env = Open(5, "python:faulty_env:Reporter");
  ASSERT_NE(env, nullptr);
  for (const int steps : {1, 7, 30}) {
    std::vector<double> rewards, twice;
    for (int t = 0; t < steps; ++t) {
      for (int i = 0; i < 5; ++i) {
        const int step = models_[std::size_t(i)].step + 1, action = ActionOf(i, t_);
        rewards.push_back(step + 10 * action);
        if (step % 2 == 0) twice.push_back(2 * action);
      }
      Step(env.get());
    }
    EnvMetrics taken;
    env->TakeMetrics(&taken);
    EXPECT_EQ(taken.problem(), "");
    EXPECT_EQ(taken.summaries().size(), twice.empty() ? 1u : 2u);
    for (const auto& [name, all] : {std::pair("reward", rewards), {"twice", twice}}) {
      if (all.empty()) continue;
      double sum = 0;
      for (const double x : all) sum += x;
      const MetricSummary& got = taken.summaries().find(name)->second;
      EXPECT_EQ(got.count, double(all.size()));
      EXPECT_NEAR(got.mean, sum / double(all.size()), 1e-9);
      EXPECT_EQ(got.min, *std::ranges::min_element(all));
      EXPECT_EQ(got.max, *std::ranges::max_element(all));
    }
  }
}

// Invalid metrics are described once, and the valid ones next to them still count.
TEST_F(ProcessVectorEnvTest, DescribesInvalidMetricsOfPython) {
  options_.metrics = true;
  const std::vector<EnvOption> plain = options_.options;
  for (const auto& [bad, want] :
       {std::pair("nan", "metric odd is nan, must be finite"),
        {"text", "metric odd is a str, must be a number"},
        {"name", "the metric name 'an odd name' must have 1 to 64 letters"},
        {"many", "is the 33th name, at most 32 are kept"}}) {
    options_.options = plain;
    Option("bad", std::string(bad));
    const auto env = Open(1, "python:faulty_env:Reporter");
    ASSERT_NE(env, nullptr);
    Step(env.get());
    EnvMetrics taken;
    env->TakeMetrics(&taken);
    EXPECT_THAT(taken.problem(), HasSubstr(want));
    EXPECT_TRUE(taken.summaries().contains("reward"));
    EXPECT_LE(taken.summaries().size(), 32u);
  }
  options_.options = plain;
  Option("whole", true);
  const auto env = Open(1, "python:faulty_env:Reporter");
  ASSERT_NE(env, nullptr);
  Step(env.get());
  EnvMetrics taken;
  env->TakeMetrics(&taken);
  EXPECT_EQ(taken.problem(), "info[\"metrics\"] is a float, must be a dict of numbers");
}

// Walk reports its position, which is also the first element of its observation.
TEST(ProcessVectorEnvNativeTest, TakesMetricsOfPluginInAnyProcess) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  for (const Isolation isolation : {Isolation::kNone, Isolation::kProcess}) {
    EnvOptions options{.plugin = TROOP_PLUGIN_FOLDER "/walk.so", .metrics = true};
    options.isolation = isolation;
    options.processes = 2;
    const auto env = MakeVectorEnv("Walk-v0", options, 3, CountingSeeder());
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    (*env)->SubmitReset();
    ASSERT_NE(Await(env->get()), nullptr);
    std::vector<double> positions;
    for (int t = 0; t < 60; ++t) {
      Tensor action(DType::kI32, {3});
      for (int i = 0; i < 3; ++i) action.as<std::int32_t>()[std::size_t(i)] = ActionOf(i, t) % 3;
      (*env)->Submit(action);
      const StepBatch* batch = Await(env->get());
      ASSERT_NE(batch, nullptr);
      for (int i = 0; i < 3; ++i) {
        const auto at = std::size_t(i);
        const bool ended = (batch->terminated.as<std::uint8_t>()[at] |
                            batch->truncated.as<std::uint8_t>()[at]) != 0;
        positions.push_back(Row(ended ? batch->final_observation : batch->observation, i)[0]);
      }
    }
    double sum = 0;
    for (const double x : positions) sum += x;
    EnvMetrics taken;
    (*env)->TakeMetrics(&taken);
    const MetricSummary& got = taken.summaries().find("position")->second;
    EXPECT_EQ(got.count, 180);
    EXPECT_NEAR(got.mean, sum / 180, 1e-9);
    EXPECT_EQ(got.min, *std::ranges::min_element(positions));
    EXPECT_EQ(got.max, *std::ranges::max_element(positions));
  }
}

TEST(ProcessVectorEnvNativeTest, RefusesMetricsOfEnvironmentsWithoutAny) {
  for (const char* id : {"CartPole-v1", "ALE/Pong-v5", "gymnasium_vector:CartPole-v1"}) {
    const Status status = MakeVectorEnv(id, {.metrics = true}, 1, CountingSeeder()).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(" reports no metrics; env.metrics is for plug-ins"));
  }
}

TEST(ProcessVectorEnvNativeTest, NativeEnvironmentsGiveSameBytesInProcess) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  EnvOptions options;
  for (const std::string id : {"CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v0", "Walk-v0"}) {
    SCOPED_TRACE(id);
    options.plugin = id == "Walk-v0" ? TROOP_PLUGIN_FOLDER "/walk.so" : "";
    constexpr int kSize = 5;
    options.isolation = Isolation::kNone;
    auto here = MakeVectorEnv(id, options, kSize, CountingSeeder());
    options.isolation = Isolation::kProcess;
    options.processes = 2;
    options.measure = true;
    auto there = MakeVectorEnv(id, options, kSize, CountingSeeder());
    ASSERT_TRUE(here.ok() && there.ok()) << there.status().ToString();
    ASSERT_EQ((*here)->spec(), (*there)->spec());
    const ActionSpec& spec = (*here)->spec().action;
    const TensorSpec one = spec.tensor();
    Tensor action(one.dtype, one.shape.Prepend(kSize));
    (*here)->SubmitReset();
    (*there)->SubmitReset();
    for (int t = 0; t < 300; ++t) {
      const StepBatch* a = Await(here->get());
      const StepBatch* b = Await(there->get());
      ASSERT_TRUE(a != nullptr && b != nullptr);
      ASSERT_TRUE(std::ranges::equal(a->observation.bytes(), b->observation.bytes())) << t;
      ASSERT_TRUE(std::ranges::equal(a->reward.bytes(), b->reward.bytes())) << t;
      ASSERT_TRUE(std::ranges::equal(a->terminated.bytes(), b->terminated.bytes())) << t;
      ASSERT_TRUE(std::ranges::equal(a->truncated.bytes(), b->truncated.bytes())) << t;
      const std::size_t row = a->final_observation.bytes().size() / kSize;
      for (std::size_t i = 0; i < kSize; ++i) {
        if (a->terminated.as<std::uint8_t>()[i] + a->truncated.as<std::uint8_t>()[i] == 0) continue;
        ASSERT_TRUE(std::ranges::equal(a->final_observation.bytes().subspan(i * row, row),
                                       b->final_observation.bytes().subspan(i * row, row)));
      }
      for (int i = 0; i < kSize && spec.discrete(); ++i) {
        action.as<std::int32_t>()[std::size_t(i)] = ActionOf(i, t) % std::int32_t(spec.count);
      }
      (*here)->Submit(action);
      (*there)->Submit(action);
    }
    ASSERT_TRUE(Await(here->get()) != nullptr && Await(there->get()) != nullptr);
    const Environment::Picture drawn = (*there)->Render(3);
    EXPECT_EQ(drawn.rgb, (*here)->Render(3).rgb);
    EXPECT_EQ(drawn.width, (*here)->Render(3).width);
    EXPECT_FALSE(drawn.rgb.empty());
    EXPECT_FALSE((*here)->inside());
    EXPECT_GT((*there)->inside().value_or(Duration{}), Duration{});
  }
}

TEST(ProcessVectorEnvNativeTest, PluginCrashOrExceptionCostsOnlyEpisodes) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  for (const std::string fault : {"segfault", "throws"}) {
    EnvOptions options{.plugin = TROOP_PLUGIN_FOLDER "/walk.so"};
    options.options = {{"fault", fault}};
    auto env = MakeVectorEnv("Walk-v0", options, 2, CountingSeeder());
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    (*env)->SubmitReset();
    ASSERT_NE(Await(env->get()), nullptr);
    int seen = 0;
    for (int t = 1; t <= 20; ++t) {
      Tensor action(DType::kI32, {2});
      std::ranges::fill(action.as<std::int32_t>(), 1 + t % 2);
      (*env)->Submit(action);
      ASSERT_NE(Await(env->get()), nullptr) << (*env)->status().ToString();
      for (const EnvFault& f : (*env)->faults()) {
        EXPECT_EQ(f.step, 5);
        EXPECT_THAT(f.what, HasSubstr(fault == "throws" ? "planted: step 5" : "signal 11"));
        ++seen;
      }
    }
    EXPECT_EQ(seen, 8) << fault;  // of two, each fifth step
  }
}

// Requests of several parts, also of full ones alone, and the longest answer there is.
TEST_F(ProcessVectorEnvTest, SupportsLongMessages) {
  const std::string id = "python:faulty_env:Wide";
  options_.options = {{"text", ""}};
  const std::size_t rest = worker::WorkerRequest(id, options_, 1).size();
  for (const std::size_t length :
       {worker::kPartBytes - rest, 2 * worker::kPartBytes - rest, std::size_t{1'000'000}}) {
    options_.options = {{"text", std::string(length, 'x')}};
    options_.wait = !options_.wait;
    auto env = MakeVectorEnv(id, options_, 1, CountingSeeder());
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    EXPECT_EQ((*env)->spec().action.low, std::vector<float>(4096, -1.0f / 3));
    (*env)->SubmitReset();
    const StepBatch* batch = Await(env->get());
    ASSERT_NE(batch, nullptr) << (*env)->status().ToString();
    EXPECT_EQ(batch->observation.as<float>()[0], float(length));
  }
}

TEST_F(ProcessVectorEnvTest, PassesOptionsAsTypedKeywordArguments) {
  options_.options = {{"goal", EnvOption::Json{R"([1, 2.0, ["é"]])"}},
                      {"limits", EnvOption::Json{R"({"low": "None", "high": 3})"}},
                      {"mass", 2.0},
                      {"mode", "None"}};
  const auto env = MakeVectorEnv("python:faulty_env:arguments", options_, 1, CountingSeeder());
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  (*env)->SubmitReset();
  const StepBatch* batch = Await(env->get());
  ASSERT_NE(batch, nullptr) << (*env)->status().ToString();
  EXPECT_EQ(batch->observation.as<float>()[0], 1);
}

TEST(ProcessVectorEnvNativeTest, SupportsLongRequests) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  EnvOptions options{.plugin = TROOP_PLUGIN_FOLDER "/walk.so"};
  options.options = {{"fault", std::string(200'000, 'x')}};
  const auto env = MakeVectorEnv("Walk-v0", options, 1, CountingSeeder());
  EXPECT_TRUE(env.ok()) << env.status().ToString();
}

struct Fault {
  const char* kind;
  const char* what;  // of the row under way
  bool whole_process;
};
class Faults : public ProcessVectorEnvTest, public testing::WithParamInterface<Fault> {};

TEST_P(Faults, EndEpisodesOfTheirProcessAndNameEnvironment) {
  const Fault& fault = GetParam();
  Option("fault", fault.kind);
  Option("which", std::int64_t{1});
  Option("once", File("once"));
  options_.processes = 2;  // rows 0 and 1; 2 and 3: its second one meets the file
  options_.step_timeout = Seconds(fault.kind == std::string("hang") ? 0.5 : 60);
  const auto env = Open(4);
  ASSERT_NE(env, nullptr);
  const std::vector<EnvFault> faults = StepToFaults(env.get());
  ASSERT_THAT(faults, SizeIs(fault.whole_process ? 2 : 1));
  // Either process may have been the first to make the file.
  const int first = faults[0].index / 2 * 2;
  const EnvFault& guilty = faults.back();
  EXPECT_EQ(guilty.index, first + 1);
  EXPECT_THAT(guilty.what, MatchesRegex(fault.what));
  EXPECT_EQ(guilty.step, 2);
  EXPECT_EQ(guilty.seed, SeedOf(guilty.index, 0));
  if (fault.whole_process) {
    EXPECT_EQ(faults[0].index, first);
    EXPECT_THAT(faults[0].what,
                HasSubstr(fmt::format("shared a process with environment {}, which", first + 1)));
  }
  for (int t = 0; t < 20 && !HasFailure(); ++t) {
    Step(env.get());
    EXPECT_THAT(env->faults(), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Envs, Faults,
    testing::Values(
        Fault{"kill", "ended by signal 9 \\(Killed\\)", true},
        Fault{"abort", "ended by signal 6 \\(Aborted\\)", true},
        Fault{"segfault", "ended by signal 11 \\(Segmentation fault\\)", true},
        Fault{"exit", "ended with exit code 3", true},
        Fault{"hang", "took longer than env.step_timeout_s = 0.5 s", true},
        Fault{"garbage", "sent an invalid reply of 700 bytes", true},
        Fault{"close", "closed the connection", true},
        Fault{"unicode", "RuntimeError: \\? (é)+ \\(faulty_env.py:[0-9]+\\)", false},
        Fault{"mute", "Mute \\(faulty_env.py:[0-9]+\\)", false},
        Fault{"raise", "RuntimeError: the door is stuck \\(faulty_env.py:[0-9]+\\)", false},
        Fault{"shape", "ValueError: observation is f32\\[2\\], the space says f32\\[3\\]", false},
        Fault{"text", "ValueError: observation is .*, the space says f32\\[3\\]", false},
        Fault{"few", "TypeError: step must return .*, not 3 values", false},
        Fault{"old", "TypeError: step must return .*, not 4 values: .* old gym; .*", false},
        Fault{"reward", "TypeError: reward is 'much', not a number", false}),
    [](const auto& info) { return info.param.kind; });

TEST_F(ProcessVectorEnvTest, RestartsProcessThatDiesBetweenSteps) {
  Option("pids", File("pids"));
  for (const bool wait : {false, true}) {
    std::filesystem::remove(File("pids"));
    options_.wait = wait;
    const auto env = Open(2);
    ASSERT_NE(env, nullptr);
    Step(env.get());
    ASSERT_THAT(Pids(), SizeIs(2));
    ASSERT_EQ(kill(Pids()[0], SIGKILL), 0);
    const std::vector<EnvFault> faults = StepToFaults(env.get());
    ASSERT_THAT(faults, SizeIs(2));
    EXPECT_EQ(faults[0].what, "ended by signal 9 (Killed)");
    for (int t = 0; t < 10 && !HasFailure(); ++t) Step(env.get());
  }
}

TEST_F(ProcessVectorEnvTest, PythonVectorsMatchSingleEnvironments) {
  const auto play = [&](const std::string& id) {
    std::vector<float> seen;
    auto env = MakeVectorEnv(id, options_, 3, CountingSeeder());
    EXPECT_TRUE(env.ok()) << env.status().ToString();
    if (!env.ok()) return seen;
    (*env)->SubmitReset();
    for (int t = 0; t < 60; ++t) {
      const StepBatch* batch = Await(env->get());
      EXPECT_NE(batch, nullptr) << (*env)->status().ToString();
      if (batch == nullptr) return seen;
      EXPECT_THAT((*env)->faults(), IsEmpty());
      const auto all = batch->observation.as<float>();
      seen.insert(seen.end(), all.begin(), all.end());
      Tensor action(DType::kI32, {3});
      for (int i = 0; i < 3; ++i) action.as<std::int32_t>()[std::size_t(i)] = ActionOf(i, t) % 2;
      (*env)->Submit(action);
    }
    Await(env->get());
    return seen;
  };
  const std::vector<float> single = play("gymnasium:CartPole-v1");
  EXPECT_THAT(single, SizeIs(60 * 3 * 4));
  EXPECT_EQ(play("gymnasium_vector:CartPole-v1"), single);
  Option("id", "CartPole-v1");
  Option("vectorization_mode", "sync");
  EXPECT_EQ(play("python_vector:gymnasium:make_vec"), single);
}

TEST_F(ProcessVectorEnvTest, RestartStartsNextEpisodeOnlyInThatEnvironment) {
  const auto env = Open(4);
  ASSERT_NE(env, nullptr);
  for (int t = 0; t < 6 && !HasFailure(); ++t) {
    Step(env.get());
    const int rows[] = {1, 3};
    env->SubmitRestart(rows);
    const StepBatch* batch = Await(env.get());
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(env->faults(), IsEmpty());
    for (const int i : rows) models_[std::size_t(i)].Begin(i);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(Row(batch->observation, i), models_[std::size_t(i)].observation()) << i;
    }
  }
}

// Regression: an environment that failed in each reset was restarted forever within one Poll.
TEST_F(ProcessVectorEnvTest, FailsWithReasonAfterRepeatedFailedStarts) {
  for (const std::string fault : {"raise", "kill"}) {
    options_.options.clear();
    Option("fault", fault);
    Option("at", std::int64_t{0});
    options_.wait = fault == "kill";
    auto env = MakeVectorEnv("python:faulty_env:Counter", options_, 2, CountingSeeder());
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    (*env)->SubmitReset();
    if (fault == "raise") {  // the second environment of a process has no fault
      EXPECT_NE(Await(env->get()), nullptr);
      ASSERT_THAT((*env)->faults(), SizeIs(1));
      EXPECT_EQ((*env)->faults()[0].step, 0);
      continue;
    }
    EXPECT_EQ(Await(env->get()), nullptr);
    EXPECT_EQ((*env)->status().code(), Code::kCancelled);  // no restart cures it
    EXPECT_THAT((*env)->status().message(),
                HasSubstr("6 consecutive starts failed; the last: ended by signal 9 (Killed)"));
    EXPECT_EQ((*env)->Poll(), nullptr);
  }
}

TEST_F(ProcessVectorEnvTest, RejectsSpecThatChangesOnRestart) {
  Option("once", File("once"));
  const auto env = Open(1, "python:faulty_env:change_of_mind");
  ASSERT_NE(env, nullptr);
  Tensor action(DType::kI32, {1});
  for (int t = 0; t < 3 && env->status().ok(); ++t) {
    env->Submit(action);
    Await(env.get());
  }
  EXPECT_THAT(env->status().message(), HasSubstr("f32[3] and f32[4]"));
}

TEST_F(ProcessVectorEnvTest, CrashesLeakNoDescriptorsOrProcesses) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = count();
  setenv("TROOP_TEST_PIDS", File("pids").c_str(), 1);
  {
    Option("fault", "children");
    Option("at", std::int64_t{3});  // of every episode: each is at least so long
    Option("pids", File("pids"));
    const auto env = Open(1);
    ASSERT_NE(env, nullptr);
    const auto open = count();
    for (int n = 0; n < 3; ++n) ASSERT_THAT(StepToFaults(env.get()), SizeIs(1));
    EXPECT_EQ(count(), open + 1) << "the spare one's socket";
  }
  EXPECT_EQ(count(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  ASSERT_GE(Pids().size(), 6U);
  for (const pid_t pid : Pids()) EXPECT_TRUE(GoneSoon(pid)) << pid;
}

TEST_F(ProcessVectorEnvTest, MeasuresTimeInsideEnvironments) {
  EXPECT_FALSE(Open(1)->inside()) << "it was not requested";
  options_.measure = true;
  options_.processes = 2;
  Option("fault", "nap");  // 10 ms in the first environment of each process
  Option("at", std::int64_t{1});
  const auto env = Open(3);
  ASSERT_NE(env, nullptr);
  const auto start = std::chrono::steady_clock::now();
  const Duration resets = env->inside().value_or(Duration{});
  EXPECT_GT(resets, Duration{});
  Step(env.get());
  const Duration first = env->inside().value_or(Duration{});
  EXPECT_GE(first - resets, Milliseconds(20));
  Step(env.get());
  const Duration both = env->inside().value_or(Duration{});
  EXPECT_GT(both, first);
  EXPECT_LE(both - resets, 2 * (std::chrono::steady_clock::now() - start)) << "of two processes";
}

TEST_F(ProcessVectorEnvTest, RendersWholePicturesOnlyBetweenSteps) {
  options_.processes = 2;
  const auto env = Open(3);
  ASSERT_NE(env, nullptr);
  Step(env.get());
  Step(env.get());
  for (const int row : {0, 2}) {
    const Environment::Picture picture = env->Render(row);
    ASSERT_EQ(picture.width, 160);
    ASSERT_EQ(picture.height, 120);
    ASSERT_EQ(picture.rgb.size(), std::size_t(160 * 120 * 3));
    for (std::size_t i = 0; i < picture.rgb.size(); ++i) {
      ASSERT_EQ(picture.rgb[i], (i % 251 + 2) % 256) << i;
    }
  }
  env->Submit(Tensor(DType::kI32, {3}));
  EXPECT_TRUE(env->Render(0).rgb.empty());
  ASSERT_NE(Await(env.get()), nullptr);
  EXPECT_FALSE(env->Render(0).rgb.empty());
}

TEST_F(ProcessVectorEnvTest, WorkersExitWithTheirOwner) {
  Option("pids", File("pids"));
  Option("fault", "hang");
  Option("at", std::int64_t{1});
  options_.step_timeout = Seconds(1000);
  const pid_t owner = fork();
  if (owner == 0) {
    auto env = MakeVectorEnv("python:faulty_env:Counter", options_, 1, CountingSeeder());
    if (!env.ok()) _exit(1);
    (*env)->SubmitReset();
    if (Await(env->get()) == nullptr) _exit(1);
    (*env)->Submit(Tensor(DType::kI32, {1}));
    std::ofstream(File("stuck")) << "yes";
    Await(env->get());
    _exit(0);
  }
  for (int i = 0; i < 3000 && !std::filesystem::exists(File("stuck")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  ASSERT_THAT(Pids(), SizeIs(1));
  EXPECT_TRUE(GoneSoon(Pids()[0]));
}

TEST_F(ProcessVectorEnvTest, ReportsUnavailableEnvironmentOnOneLine) {
  const auto error = [&](const std::string& id) {
    const Status status = MakeVectorEnv(id, options_, 2, CountingSeeder()).status();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    return status.message();
  };
  EXPECT_THAT(error("python:no_such_module:make"), HasSubstr("no module named no_such_module"));
  EXPECT_THAT(error("python:faulty_env:nothing"), HasSubstr("faulty_env has no nothing"));
  EXPECT_THAT(error("python:faulty_env"), HasSubstr("is not of the form module:callable"));
  EXPECT_THAT(error("python:faulty_env:NoSpaces"), HasSubstr("a NoSpaces, which has no reset"));
  Option("fault", "kill");
  Option("at", std::int64_t{-1});
  EXPECT_THAT(error("python:faulty_env:Counter"), HasSubstr("ended by signal 9"));
  options_.options[0].value = "hang";
  options_.start_timeout = Seconds(0.5);
  EXPECT_THAT(error("python:faulty_env:Counter"), HasSubstr("env.start_timeout_s = 0.5 s"));
  options_.start_timeout = Seconds(60);
  options_.python = File("bare");  // without what is installed for it, NumPy among that
  std::ofstream(File("bare")) << "#!/bin/sh\nexec " << getenv("TROOP_TEST_PYTHON")
                              << " -S \"$@\"\n";
  chmod(File("bare").c_str(), 0755);
  EXPECT_THAT(error("python:faulty_env:Counter"), HasSubstr("NumPy is not installed for "));
  options_.python = "no-such-python";
  EXPECT_THAT(error("python:faulty_env:Counter"), HasSubstr("no program \"no-such-python\""));
  options_.python = File("text");
  std::ofstream(File("text")) << "no program\n";
  chmod(File("text").c_str(), 0755);
  EXPECT_THAT(error("python:faulty_env:Counter"), HasSubstr("/text: Exec format error"));
  options_.isolation = Isolation::kNone;
  EXPECT_THAT(error("python:faulty_env:Counter"), HasSubstr("remove env.isolation = \"none\""));
}

}  // namespace
}  // namespace troop
