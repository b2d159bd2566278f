// Hogwild cases of `troop selftest sync`.
#include "apps/selfcheck/hogwild_check.h"

#include <memory>
#include <thread>
#include <utility>

#include "core/base/executor.h"
#include "core/base/time.h"
#include "nn/optimizer.h"
#include "nn/parallel/hogwild_arena.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {
namespace {

constexpr Duration kApplyWithin = Seconds(30);

// Applies pushes until at most `open_max` are held or in progress in other threads.
Status WaitForRoom(ParameterShard* shard, std::size_t open_max) {
  const SystemClock clock;
  const Time deadline = clock.Now() + kApplyWithin;
  // This thread applies held pushes too, so that progress does not depend on the executor.
  while (shard->held() + shard->applying() > open_max) {
    if (shard->ApplyNext()) continue;
    if (clock.Now() >= deadline)
      return DeadlineExceeded("{} pushes were not applied in time", shard->applying());
    std::this_thread::yield();
  }
  return Status::Ok();
}

// Pushes gradients to one shard whose executor has `threads` threads.
Result<std::vector<float>> RunShard(const HogwildCase& c) {
  ToyModel problem(c.seed);
  const std::vector<float> first = problem.FirstValue();
  ThreadExecutor executor(c.threads, nullptr);
  TROOP_ASSIGN_OR_RETURN(const auto shard,
                         ParameterShard::Make({.optimizer = c.config.optimizer,
                                               .ranges = {{0, problem.parameters()}},
                                               .undecayed = problem.Biases(),
                                               .sync = {.mode = SyncMode::kAsync},
                                               .hogwild = &executor},
                                              first));
  shard->Join(0);
  std::vector<float> gradient(first.size());
  for (int t = 0; t < c.steps; ++t) {
    // One thread: each push is applied before the next gradient; else up to 16 are in flight.
    TROOP_RETURN_IF_ERROR(WaitForRoom(shard.get(), c.threads == 1 ? 0 : 16));
    TROOP_ASSIGN_OR_RETURN(const WeightSnapshot now, shard->Pull());
    // At the initial parameters a gradient does not depend on the order of the other threads.
    problem.Gradient(c.threads == 1 ? now.value.as<float>() : std::span<const float>(first),
                     std::uint64_t(t), gradient);
    ShardPush push{.id = {.learner = 0, .incarnation = 1, .sequence = std::uint64_t(t) + 1},
                   .epoch = 1,
                   .clock = now.version,
                   .learning_rate = c.learning_rate};
    TROOP_ASSIGN_OR_RETURN(
        GradientPayload payload,
        GradientPayload::Parse(
            CodedGradient::Dense(Buffer::Copy(std::as_bytes(std::span(gradient)))),
            problem.parameters()));
    push.parts.push_back(std::move(payload));
    TROOP_ASSIGN_OR_RETURN(const auto outcome, shard->Push(std::move(push)));
    if (outcome != ParameterShard::Outcome::kHeld) return Internal("push {} was not accepted", t);
  }
  TROOP_RETURN_IF_ERROR(WaitForRoom(shard.get(), 0));
  return std::vector<float>(shard->value().begin(), shard->value().end());
}

// Learner threads step on one shared arena.
Result<std::vector<float>> RunLearners(const HogwildCase& c) {
  const std::vector<float> first = ToyModel(c.seed).FirstValue();
  std::vector<float> shared = first;
  TROOP_ASSIGN_OR_RETURN(const auto optimizer,
                         MakeOptimizer(c.config.optimizer, std::int64_t(first.size())));
  TROOP_ASSIGN_OR_RETURN(const auto arena,
                         HogwildArena::Make(c.config.optimizer, shared, optimizer.get()));
  std::vector<std::unique_ptr<ToyModel>> problems;
  // A ToyModel has workspaces, so each thread needs its own.
  for (int i = 0; i < c.threads; ++i) problems.push_back(std::make_unique<ToyModel>(c.seed));
  RunHogwild(c.threads, c.steps, [&](int thread, std::int64_t step) {
    std::vector<float> value = first, gradient(first.size());
    // Like a shard, only a single thread takes its gradient at the present parameters.
    if (c.threads == 1) arena->Read(value);
    problems[std::size_t(thread)]->Gradient(value, std::uint64_t(step), gradient);
    const std::span<const float> whole(gradient);
    arena->StepParts({&whole, 1}, 1, problems[std::size_t(thread)]->Groups(c.learning_rate));
  });
  return shared;
}

}  // namespace

Result<std::vector<float>> RunHogwildCase(const HogwildCase& c) {
  return c.shard ? RunShard(c) : RunLearners(c);
}

// Sequential fp64 steps; with several threads all gradients are taken at the initial parameters.
Doubles ReplayHogwild(const HogwildCase& c, const ToyModel& problem) {
  const std::vector<float> start = problem.FirstValue();
  const Doubles first(start.begin(), start.end());
  Doubles value = first;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < value.size(); ++i) all.push_back(i);
  ReferenceOptimizer optimizer(c.config, problem);
  for (int t = 0; t < c.steps; ++t) {
    const Doubles gradient =
        ReferenceGradient(problem, c.threads == 1 ? value : first, std::uint64_t(t));
    optimizer.Step(all, gradient, 1, double(c.learning_rate), t + 1, &value);
  }
  return value;
}

}  // namespace troop
