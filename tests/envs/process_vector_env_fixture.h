#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "envs/subprocess/subproc_vector_env.h"
#include "tests/core/python.h"
#include "tests/core/temp_folder.h"
#include "tests/envs/seeds.h"

namespace troop {

// Expected values of tests/envs/faulty_env.py, computed separately.
struct Model {
  std::uint64_t seed = 0;
  int episode = -1, step = 0;
  float action = 0;
  void Begin(int index) {
    ++episode;
    seed = SeedOf(index, episode) & 0x7fffffff;
    step = 0;
    action = 0;
  }
  void Step(int a) {
    ++step;
    action = float(a);
  }
  float reward() const { return float(step) + 10 * action; }
  bool over() const { return step >= 3 + int(seed % 5); }
  std::vector<float> observation() const { return {float(seed % 1000), float(step), action}; }
};

inline std::vector<float> Row(const ConstTensor& tensor, int row) {
  const auto all = tensor.as<float>();
  return {all.begin() + row * 3, all.begin() + row * 3 + 3};
}

// The next batch; nullptr: the status is not ok, or the test's deadline passed.
inline const StepBatch* Await(VectorEnv* env) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (env->status().ok() && std::chrono::steady_clock::now() < end) {
    if (const StepBatch* batch = env->Poll()) return batch;
    if (env->fd() < 0) continue;
    pollfd ready{env->fd(), POLLIN, 0};
    poll(&ready, 1, 100);
  }
  return nullptr;
}

inline int ActionOf(int row, int t) { return (row * 3 + t) % 7; }

// Empty where there is no such process, also where it ends meanwhile: reading fails then.
inline std::string StatOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat);
  return stat;
}

// True also for a zombie that its new parent, which is not this process, has not reaped.
inline bool Gone(pid_t pid) {
  const std::string stat = StatOf(pid);
  const std::size_t name = stat.rfind(')');
  return name == std::string::npos || stat.find_first_of("ZX", name) == name + 2;
}
inline bool GoneSoon(pid_t pid) {
  for (int i = 0; i < 3000 && !Gone(pid); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Gone(pid);
}

class ProcessVectorEnvTest : public testing::Test {
 protected:
  void SetUp() override {
    TROOP_SKIP_WITHOUT_PYTHON();
    setenv("PYTHONPATH", TROOP_SOURCE_DIR "/tests/envs", 1);
    setenv("TROOP_PYTHON_PATH", TROOP_SOURCE_DIR "/python", 1);
    options_.python = getenv("TROOP_TEST_PYTHON");
  }
  void Option(const std::string& name, decltype(EnvOption::value) value) {
    options_.options.push_back({name, std::move(value)});
  }
  std::string File(const std::string& name) const { return folder_.path() + "/" + name; }

  // An environment of `size` rows, reset; nullptr after a failure.
  std::unique_ptr<VectorEnv> Open(int size, const std::string& id = "python:faulty_env:Counter") {
    auto env = MakeVectorEnv(id, options_, size, CountingSeeder());
    EXPECT_TRUE(env.ok()) << env.status().ToString();
    if (!env.ok()) return nullptr;
    models_.assign(std::size_t(size), {});
    (*env)->SubmitReset();
    const StepBatch* batch = Await(env->get());
    EXPECT_NE(batch, nullptr) << (*env)->status().ToString();
    for (int i = 0; i < size; ++i) models_[std::size_t(i)].Begin(i);
    t_ = 0;
    return std::move(*env);
  }
  // Steps all environments and compares them with the models; rows with a fault restart.
  void Step(VectorEnv* env) {
    Tensor action(DType::kI32, {env->size()});
    for (int i = 0; i < env->size(); ++i) {
      action.as<std::int32_t>()[std::size_t(i)] = ActionOf(i, t_);
      models_[std::size_t(i)].Step(ActionOf(i, t_));
    }
    ++t_;
    env->Submit(action);
    const StepBatch* batch = Await(env);
    ASSERT_NE(batch, nullptr) << env->status().ToString();
    std::size_t faults = 0;
    for (int i = 0; i < env->size(); ++i) {
      SCOPED_TRACE(fmt::format("row {} step {}", i, t_));
      faults += batch->fault.as<std::uint8_t>()[std::size_t(i)];
      Compare(*batch, i);
    }
    ASSERT_EQ(env->faults().size(), faults);
  }
  void Compare(const StepBatch& batch, int i) {
    const auto at = std::size_t(i);
    Model& model = models_[at];
    const bool fault = batch.fault.as<std::uint8_t>()[at] != 0;
    const bool over = !fault && model.over();
    EXPECT_EQ(batch.reward.as<float>()[at], fault ? 0 : model.reward());
    EXPECT_EQ(batch.terminated.as<std::uint8_t>()[at], over && model.seed % 2 == 0);
    EXPECT_EQ(batch.truncated.as<std::uint8_t>()[at], over && model.seed % 2 == 1);
    if (over) {
      EXPECT_EQ(Row(batch.final_observation, i), model.observation());
    }
    if (fault || over) model.Begin(i);
    EXPECT_EQ(Row(batch.observation, i), model.observation());
  }
  // Steps until a batch has faults, ten at most.
  std::vector<EnvFault> StepToFaults(VectorEnv* env) {
    for (int t = 0; t < 10; ++t) {
      Step(env);
      if (HasFatalFailure()) return {};
      if (!env->faults().empty()) return {env->faults().begin(), env->faults().end()};
    }
    ADD_FAILURE() << "no fault in ten steps";
    return {};
  }
  // Returns the process ids in a file: by default of the processes that made environments, one
  // each.
  std::vector<pid_t> Pids(const std::string& name = "pids") const {
    std::ifstream file(File(name));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids;
  }

  TempFolder folder_;
  EnvOptions options_;
  std::vector<Model> models_;
  int t_ = 0;
};

}  // namespace troop
