#include "learners/pipeline/schedule_checker.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/philox.h"
#include "learners/pipeline/schedule_generators.h"
#include "tests/learners/pipeline/naive_pipeline.h"

namespace troop {
namespace {

// Two stages, one micro-batch, written by hand.
PipelineSchedule TwoStageSchedule() {
  PipelineSchedule schedule;
  schedule.micro_batches = 1;
  schedule.placement = {{0}, {1}};
  schedule.memory_max = {{1, 0, 1, 1}, {1, 0, 1, 1}};
  using Kind = StageOpKind;
  const auto gradient = Payload::kGradient;
  schedule.stages = {{{.kind = Kind::kForward},
                      {.kind = Kind::kSend, .peer = 1},
                      {.kind = Kind::kReceive, .payload = gradient, .peer = 1},
                      {.kind = Kind::kBackward},
                      {.kind = Kind::kUpdate, .version = 1}},
                     {{.kind = Kind::kReceive, .chunk = 1},
                      {.kind = Kind::kForward, .chunk = 1},
                      {.kind = Kind::kBackward, .chunk = 1},
                      {.kind = Kind::kSend, .payload = gradient, .chunk = 1},
                      {.kind = Kind::kUpdate, .version = 1}}};
  return schedule;
}

// Expects a refusal whose message has the part.
void ExpectScheduleRefused(const PipelineSchedule& schedule, std::string_view part) {
  const Status status = CheckSchedule(schedule);
  ASSERT_EQ(status.code(), Code::kInvalidArgument) << part;
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(ScheduleCheckerTest, AcceptsAScheduleWrittenByHand) {
  const Status status = CheckSchedule(TwoStageSchedule());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ScheduleCheckerTest, NamesStageOperationAndReason) {
  PipelineSchedule schedule = TwoStageSchedule();
  std::swap(schedule.stages[1][2], schedule.stages[1][3]);
  ExpectScheduleRefused(schedule,
                        "stage 1, operation 2 (send of the gradient of micro-batch 0, chunk 1, "
                        "to stage 0): its pass is missing");
  schedule = TwoStageSchedule();
  schedule.stages[0].pop_back();
  ExpectScheduleRefused(schedule,
                        "stage 0, operation 4 (end of the list): missing is update to version 1");
  schedule = TwoStageSchedule();
  schedule.stages[0].erase(schedule.stages[0].begin() + 1);
  ExpectScheduleRefused(schedule, "missing is send of the activation of micro-batch 0, chunk 0");
  schedule = TwoStageSchedule();
  schedule.stages[1][1].version = 1;
  ExpectScheduleRefused(schedule,
                        "stage 1, operation 1 (forward of micro-batch 0, chunk 1, version 1): the "
                        "newest version is 0");
  schedule = TwoStageSchedule();
  schedule.stages[1].insert(schedule.stages[1].begin() + 2, schedule.stages[1][1]);
  ExpectScheduleRefused(schedule,
                        "stage 1, operation 2 (forward of micro-batch 0, chunk 1, version 0): it "
                        "occurs twice");
}

TEST(ScheduleCheckerTest, RefusesMoreMemoryThanDeclared) {
  for (auto count : {&StageMemory::activations, &StageMemory::messages, &StageMemory::versions}) {
    PipelineSchedule schedule =
        MadeSchedule({.kind = ScheduleKind::kPipedream, .stages = 3, .micro_batches = 5});
    --(schedule.memory_max[1].*count);
    ExpectScheduleRefused(schedule, "are held, the schedule declares at most");
  }
  PipelineSchedule schedule = MadeSchedule(
      {.kind = ScheduleKind::kGpipe, .stages = 3, .micro_batches = 5, .recompute = true});
  --schedule.memory_max[2].inputs;
  ExpectScheduleRefused(schedule,
                        "stage 2, operation 9 (forward of micro-batch 4, chunk 2, version 0): 5 "
                        "inputs are held, the schedule declares at most 4");
}

TEST(ScheduleCheckerTest, FindsADeadlockOfRendezvousSends) {
  PipelineSchedule schedule =
      MadeSchedule({.kind = ScheduleKind::k1f1b, .stages = 2, .micro_batches = 3});
  EXPECT_EQ(schedule.send_slots, 1);
  schedule.send_slots = 0;  // both stages send before they receive
  ExpectScheduleRefused(schedule, "deadlock with 0 send slots: stage 0, operation");
  EXPECT_FALSE(RunNaive(schedule).has_value());
}

TEST(ScheduleCheckerTest, RefusesPlacementsAndPropertiesThatDoNotFit) {
  PipelineSchedule schedule = TwoStageSchedule();
  schedule.placement[1] = {};
  ExpectScheduleRefused(schedule, "chunk 1 is on no stage");
  schedule.placement[1] = {0};
  ExpectScheduleRefused(schedule, "stage 1 has no chunk");
  schedule.placement[1] = {0, 1};
  ExpectScheduleRefused(schedule, "stage 0 occurs twice in chunk 1, or with other replicas");
  schedule.placement[1] = {1, 1};
  ExpectScheduleRefused(schedule, "stage 1 occurs twice in chunk 1");
  schedule.placement[1] = {2};
  ExpectScheduleRefused(schedule, "a stage of the placement is 2, must be from 0 to 1");
  schedule = TwoStageSchedule();
  schedule.bidirectional_first = true;
  ExpectScheduleRefused(schedule, "bidirectional_first needs recurrent");
  schedule.recurrent = true;
  schedule.weights = WeightPolicy::kStashed;
  ExpectScheduleRefused(schedule, "recurrent needs the weights current");
  schedule = TwoStageSchedule();
  schedule.forward_only = true;
  ExpectScheduleRefused(schedule, "the schedule is forward_only");
  schedule.weights = WeightPolicy::kPredicted;
  ExpectScheduleRefused(schedule, "forward_only has no backward pass");
  schedule = TwoStageSchedule();
  schedule.micro_batches = kMicroBatchesMax;  // more than the lists can have
  ExpectScheduleRefused(schedule, "the number of operations is 10");
}

// A stage that runs micro-batches in another order than the stage before it sends them.
TEST(ScheduleCheckerTest, RefusesMessagesInAnotherOrder) {
  PipelineSchedule schedule =
      MadeSchedule({.kind = ScheduleKind::kGpipe, .stages = 2, .micro_batches = 2});
  std::swap(schedule.stages[1][0], schedule.stages[1][2]);  // receives
  std::swap(schedule.stages[1][1], schedule.stages[1][3]);  // forward passes
  ExpectScheduleRefused(schedule,
                        "stage 1, operation 0 (receive of the activation of micro-batch 1, chunk "
                        "1, from stage 0): stage 0 sends at this place, in operation 1, the "
                        "activation of micro-batch 0, chunk 0");
  EXPECT_FALSE(RunNaive(schedule).has_value());
}

// Asynchronous gradients belong to one update each: a later update with two of them is refused.
TEST(ScheduleCheckerTest, RefusesUpdatesThatMergeMicroBatches) {
  PipelineSchedule schedule;
  schedule.weights = WeightPolicy::kStashed;
  schedule.micro_batches = 2;
  schedule.placement = {{0}};
  schedule.memory_max = {{2, 0, 0, 2}};
  using Kind = StageOpKind;
  schedule.stages = {{{.kind = Kind::kForward},
                      {.kind = Kind::kBackward},
                      {.kind = Kind::kForward, .micro_batch = 1},
                      {.kind = Kind::kBackward, .micro_batch = 1},
                      {.kind = Kind::kUpdate, .version = 1}}};
  ExpectScheduleRefused(schedule, "its gradient belongs to version 2, the next one is 1");
  schedule.weights = WeightPolicy::kCurrent;
  EXPECT_TRUE(CheckSchedule(schedule).ok()) << "a synchronous step has one update";
}

// Schedules of all kinds that the naive executor can run.
std::vector<PipelineSchedule> SampleSchedules() {
  std::vector<PipelineSchedule> samples;
  for (const std::int64_t stages : {1, 2, 3}) {
    for (const std::int64_t count : {1, 2, 5}) {
      for (const ScheduleKind kind :
           {ScheduleKind::kNone, ScheduleKind::kGpipe, ScheduleKind::k1f1b,
            ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble, ScheduleKind::kPipedream,
            ScheduleKind::kWavefront}) {
        ScheduleOptions options{.kind = kind, .stages = stages, .micro_batches = count};
        if (kind == ScheduleKind::kInterleaved) options.chunks_per_stage = 2;
        samples.push_back(MadeSchedule(options));
        options.vertical_sync = kind == ScheduleKind::kPipedream;
        options.recompute = kind == ScheduleKind::kGpipe;
        if (options.vertical_sync || options.recompute) samples.push_back(MadeSchedule(options));
      }
    }
  }
  samples.push_back(MadeSchedule(
      {.kind = ScheduleKind::kPipedream, .stages = 3, .micro_batches = 5, .replicas = {3, 1, 2}}));
  return samples;
}

// Changes a schedule at a random place.
void MutateSchedule(Rng* rng, PipelineSchedule* schedule) {
  auto& ops = schedule->stages[rng->Below(std::uint32_t(schedule->stages.size()))];
  if (ops.empty()) return;
  const std::size_t at = rng->Below(std::uint32_t(ops.size()));
  const std::size_t other = rng->Below(std::uint32_t(ops.size()));
  const std::int64_t step = rng->Below(2) == 0 ? 1 : -1;
  switch (rng->Below(9)) {
    case 0:
      ops.erase(ops.begin() + std::ptrdiff_t(at));
      break;
    case 1:
      ops.insert(ops.begin() + std::ptrdiff_t(other), StageOp(ops[at]));
      break;
    case 2:
      std::swap(ops[at], ops[other]);
      break;
    case 3:
      if (at + 1 < ops.size()) std::swap(ops[at], ops[at + 1]);
      break;
    case 4:
      ops[at].micro_batch += step;
      break;
    case 5:
      ops[at].chunk += step;
      break;
    case 6:
      ops[at].version += step;
      break;
    case 7:
      ops[at].kind = StageOpKind(rng->Below(8));
      break;
    case 8:
      ops[at].peer += step;
      break;
  }
}

// Whatever the checker accepts computes the values of the original schedule.
TEST(ScheduleCheckerTest, RefusesEachMutationThatChangesTheResult) {
  Rng rng({.index = 35});
  int accepted = 0, wrong = 0;
  for (const PipelineSchedule& sample : SampleSchedules()) {
    const std::optional<NaiveOutcome> expected = RunNaive(sample);
    ASSERT_TRUE(expected.has_value());
    for (int trial = 0; trial < 150; ++trial) {
      PipelineSchedule mutant = sample;
      for (std::uint32_t n = 0; n <= rng.Below(2); ++n) MutateSchedule(&rng, &mutant);
      const std::optional<NaiveOutcome> outcome = RunNaive(mutant);
      const bool right =
          outcome && outcome->weights == expected->weights && outcome->outputs == expected->outputs;
      const Status status = CheckSchedule(mutant);
      if (status.ok()) {
        ASSERT_TRUE(right) << "trial " << trial << " of " << EnumName(sample.weights);
      }
      accepted += status.ok();
      wrong += !right;
    }
  }
  // Both kinds of mutants occur: operations that may change places, and damage.
  EXPECT_GT(accepted, 200);
  EXPECT_GT(wrong, 3000);
}

// Any bytes in any field end in a status.
TEST(ScheduleCheckerTest, SurvivesHostileFields) {
  Rng rng({.index = 36});
  const std::int64_t values[] = {-1,
                                 0,
                                 1,
                                 7,
                                 1 << 20,
                                 std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::int64_t>::min()};
  const auto any = [&] { return values[rng.Below(7)]; };
  for (const PipelineSchedule& sample : SampleSchedules()) {
    for (int trial = 0; trial < 60; ++trial) {
      PipelineSchedule hostile = sample;
      auto& ops = hostile.stages[rng.Below(std::uint32_t(hostile.stages.size()))];
      StageOp& op = ops[rng.Below(std::uint32_t(ops.size()))];
      switch (rng.Below(12)) {
        case 0:
          op.micro_batch = any();
          break;
        case 1:
          op.chunk = any();
          break;
        case 2:
          op.version = any();
          break;
        case 3:
          op.peer = any();
          break;
        case 4:
          op.kind = StageOpKind(any() % 100);
          break;
        case 5:
          op.payload = Payload(any() % 100);
          break;
        case 6:
          hostile.micro_batches = any();
          break;
        case 7:
          hostile.send_slots = any();
          break;
        case 8:
          hostile.placement[0] = {any(), any()};
          break;
        case 9:
          hostile.memory_max[0] = {any(), any(), any(), any()};
          break;
        case 10:
          hostile.weights = WeightPolicy(any() % 100);
          break;
        case 11:
          hostile.recurrent = !hostile.recurrent;
          break;
      }
      const Status status = CheckSchedule(hostile);
      EXPECT_TRUE(status.ok() || !status.message().empty());
    }
  }
  EXPECT_FALSE(CheckSchedule({}).ok());
}

}  // namespace
}  // namespace troop
