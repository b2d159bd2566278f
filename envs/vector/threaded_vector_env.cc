// Vector that steps ranges of native environments in threads.

#include "envs/vector/threaded_vector_env.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

constexpr int kThreadsMax = 1024;  // more than any machine that is known to run this has CPUs

// Threads that run one function for parts 1, 2, …, while the caller runs it for part 0. One owner
// thread. Invariant: outside of Run all threads wait for `round_` to change.
class PartThreads {
 public:
  PartThreads(int parts, std::function<void(int part)> run) : run_(std::move(run)) {
    for (int part = 1; part < parts; ++part) threads_.emplace_back([this, part] { Serve(part); });
  }
  ~PartThreads() {
    stopping_ = true;
    Wake();
    for (std::thread& thread : threads_) thread.join();
  }
  PartThreads(const PartThreads&) = delete;
  PartThreads& operator=(const PartThreads&) = delete;

  // Runs all parts; returns when the last one is finished.
  void Run() {
    left_.store(int(threads_.size()), std::memory_order_relaxed);
    Wake();
    run_(0);
    // Acquire: what the threads wrote is visible to the owner.
    for (int left = left_.load(std::memory_order_acquire); left > 0;
         left = left_.load(std::memory_order_acquire)) {
      left_.wait(left, std::memory_order_acquire);
    }
  }

 private:
  // Release: the work that the owner prepared, and stopping_, are visible to the threads.
  void Wake() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  // Loop of one thread. It cannot miss a round: Run returns only after every thread has finished.
  void Serve(int part) {
    for (std::uint32_t round = 0;; ++round) {
      round_.wait(round, std::memory_order_acquire);
      if (stopping_) return;
      run_(part);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  const std::function<void(int)> run_;
  std::atomic<std::uint32_t> round_{0};  // number of Run calls so far; orders stopping_ as well
  std::atomic<int> left_{0};             // threads that have not finished this round
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// First row of a part: parts differ by at most one row.
int FirstRow(int size, int parts, int part) { return int(std::int64_t{size} * part / parts); }

// Copies all rows of a part to their place in the joined tensor.
void CopyRows(const ConstTensor& from, int first, const Tensor& to) {
  if (from.bytes().empty()) return;
  const std::size_t row = from.bytes().size() / std::size_t(from.dim(0));
  std::memcpy(to.bytes().data() + std::size_t(first) * row, from.bytes().data(),
              from.bytes().size());
}

// Invariants: part p has the rows from First(p) to First(p + 1) of the joined batch, and during a
// step only its thread touches them. Between two calls only the owner thread reads them.
class ThreadedVectorEnv final : public VectorEnv {
 public:
  ThreadedVectorEnv(std::vector<std::unique_ptr<VectorEnv>> parts, int size)
      : parts_(std::move(parts)),
        size_(size),
        restart_(parts_.size()),
        observation_(spec().observation.dtype, spec().observation.shape.Prepend(size)),
        final_observation_(spec().observation.dtype, spec().observation.shape.Prepend(size)),
        reward_(DType::kF32, {size}),
        terminated_(DType::kU8, {size}),
        truncated_(DType::kU8, {size}) {
    batch_ = {.observation = observation_,
              .final_observation = final_observation_,
              .reward = reward_,
              .terminated = terminated_,
              .truncated = truncated_,
              .fault = Tensor(DType::kU8, {size})};  // native environments never fail
  }
  ~ThreadedVectorEnv() override {
    // A child of fork has no such threads to join; their memory is given up.
    if (threads_ != nullptr && owner_ != getpid()) (void)threads_.release();
  }

  const EnvSpec& spec() const override { return parts_[0]->spec(); }
  int size() const override { return size_; }
  void SubmitReset() override { Run(Work::kReset); }
  void Submit(ConstTensor action) override {
    action_ = std::move(action);
    Run(Work::kStep);
  }
  void SubmitRestart(std::span<const int> indices) override {
    for (std::vector<int>& part : restart_) part.clear();
    for (const int index : indices) {
      TROOP_CHECK(index >= 0 && index < size_, "environment {} of {}", index, size_);
      const int part = PartOf(index);
      restart_[std::size_t(part)].push_back(index - First(part));
    }
    Run(Work::kRestart);
  }
  const StepBatch* Poll() override { return std::exchange(pending_, false) ? &batch_ : nullptr; }
  Environment::Picture Render(int index) const override {
    TROOP_CHECK(index >= 0 && index < size_, "environment {} of {}", index, size_);
    const int part = PartOf(index);
    return parts_[std::size_t(part)]->Render(index - First(part));
  }
  void TakeMetrics(EnvMetrics* into) override {
    for (const auto& part : parts_) part->TakeMetrics(into);
  }

 private:
  enum class Work : std::uint8_t { kReset, kStep, kRestart };

  int First(int part) const { return FirstRow(size_, int(parts_.size()), part); }
  // A linear search: restarts and pictures are rare, and there are few parts.
  int PartOf(int index) const {
    int part = 0;
    while (First(part + 1) <= index) ++part;
    return part;
  }

  // Runs one call of all parts, and waits for them.
  void Run(Work work) {
    TROOP_CHECK(!pending_, "the previous step was not polled");
    work_ = work;
    if (threads_ == nullptr || owner_ != getpid()) StartThreads();
    threads_->Run();
    pending_ = true;
  }

  // Threads start at the first use, so that a vector that was made before a fork works after it.
  void StartThreads() {
    (void)threads_.release();  // a parent's: not in this process
    threads_ =
        std::make_unique<PartThreads>(int(parts_.size()), [this](int part) { RunOne(part); });
    owner_ = getpid();
  }

  // Runs in the thread of the part, and touches only rows of this part.
  void RunOne(int part) {
    VectorEnv& env = *parts_[std::size_t(part)];
    switch (work_) {
      case Work::kReset:
        env.SubmitReset();
        break;
      case Work::kStep:
        env.Submit(action_.Rows(First(part), env.size()));
        break;
      case Work::kRestart:
        if (restart_[std::size_t(part)].empty()) return;
        env.SubmitRestart(restart_[std::size_t(part)]);
        break;
    }
    const StepBatch* batch = env.Poll();
    TROOP_CHECK(batch != nullptr, "a native vector is ready at once");
    const int first = First(part);
    CopyRows(batch->observation, first, observation_);
    CopyRows(batch->final_observation, first, final_observation_);
    CopyRows(batch->reward, first, reward_);
    CopyRows(batch->terminated, first, terminated_);
    CopyRows(batch->truncated, first, truncated_);
  }

  const std::vector<std::unique_ptr<VectorEnv>> parts_;
  const int size_;
  Work work_ = Work::kReset;
  ConstTensor action_;                     // of the current step
  std::vector<std::vector<int>> restart_;  // per part: its indices of the current restart
  Tensor observation_, final_observation_, reward_, terminated_, truncated_;
  StepBatch batch_;
  bool pending_ = false;
  pid_t owner_ = 0;  // process in which threads_ run
  std::unique_ptr<PartThreads> threads_;
};

}  // namespace

Result<std::unique_ptr<VectorEnv>> MakeThreadedVectorEnv(std::string_view id,
                                                         const EnvOptions& options, int size,
                                                         int threads, const EpisodeSeeder& seeder) {
  if (threads < 1 || threads > kThreadsMax || (threads > size && size > 0)) {
    return InvalidArgument("{}: threads is {}, must be 1 to {}; use at most one per environment",
                           id, threads, std::min(std::max(size, 1), kThreadsMax));
  }
  const std::vector<std::string> native = EnvironmentIds();
  if (!options.plugin.empty() || std::ranges::find(native, id) == native.end()) {
    return InvalidArgument("{} is not a native environment, which threads need", id);
  }
  // One thread needs no joined batch, so nothing is copied.
  if (threads == 1) return MakeVectorEnv(id, options, size, seeder);
  std::vector<std::unique_ptr<VectorEnv>> parts;
  for (int part = 0; part < threads; ++part) {
    const int first = FirstRow(size, threads, part);
    const int rows = FirstRow(size, threads, part + 1) - first;
    TROOP_ASSIGN_OR_RETURN(auto env, MakeVectorEnv(id, options, rows, [seeder, first](int i) {
                             return seeder(first + i);
                           }));
    parts.push_back(std::move(env));
  }
  return std::unique_ptr<VectorEnv>(std::make_unique<ThreadedVectorEnv>(std::move(parts), size));
}

}  // namespace troop
