#include "fleet/run/metrics_writer.h"

#include <gtest/gtest.h>

#include "core/graphics/plot/line_plot.h"
#include "core/storage/json.h"

namespace troop {
namespace {

RunView ViewAt(std::int64_t steps, std::int64_t steps_at_start = 0) {
  RunView view{.steps = steps, .steps_total = 10000, .steps_at_start = steps_at_start};
  view.metrics["actor/episodes"].value = double(steps);
  return view;
}

void Evaluate(RunView* view, double mean) {
  view->evaluations.push_back({.steps = view->steps,
                               .episodes = 10,
                               .return_mean = mean,
                               .return_min = mean - 1,
                               .return_max = mean + 1});
}

std::string Text(Storage* run, std::string_view name) {
  const auto text = run->Read(name, 1 << 24);
  EXPECT_TRUE(text.ok()) << name;
  return text.ok() ? std::string(text->text()) : "";
}

// Steps 1000 and 2000 in one part; in two parts when `resumed`.
std::string CurveOf(bool resumed) {
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), Config());
  EXPECT_TRUE(recorder.ok());
  RunView view = ViewAt(1000);
  Evaluate(&view, 10);
  (*recorder)->Record(Time{}, view, {});
  if (resumed) {
    view = ViewAt(1500);  // evaluated, but after the checkpoint that the run resumes from
    Evaluate(&view, -500);
    (*recorder)->Record(Time{}, {.evaluations = {{}, view.evaluations[0]}}, {});
    recorder = MetricsWriter::Make(run.get(), Config());
    EXPECT_TRUE(recorder.ok());
    view = ViewAt(2000, 1000);
  } else {
    view.steps = 2000;
  }
  Evaluate(&view, 20);
  (*recorder)->Record(Time(Seconds(1)), view, {});
  return Text(run.get(), "curve.png");
}

// Regression: the curve restarted with every resume.
TEST(RunRecorderTest, CurveOfResumedRunCoversWholeRun) {
  if (!HasPlots()) GTEST_SKIP() << "built without Cairo";
  EXPECT_EQ(CurveOf(true), CurveOf(false));
}

TEST(RunRecorderTest, ResumesAfterTornLineAndKeepsWallClock) {
  const auto run = MakeMemoryStorage();
  ASSERT_TRUE(
      run->WriteAtomic("metrics.jsonl", "{\"wall_s\": 5000.5, \"steps\": 10}\n{\"wal").ok());
  ASSERT_TRUE(run->WriteAtomic("evaluations.jsonl", "{\"wall_s\": 4000").ok());
  auto recorder = MetricsWriter::Make(run.get(), Config());
  ASSERT_TRUE(recorder.ok()) << recorder.status().ToString();
  RunView view = ViewAt(2000, 1000);
  Evaluate(&view, 20);
  ASSERT_TRUE((*recorder)->Finish(view, {.elapsed_s = 2}, Status::Ok()).ok());
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"}) {
    const std::string text = Text(run.get(), name);
    const std::size_t last = text.rfind('\n', text.size() - 2);
    // The one line of a file whose torn line was all that it had.
    const std::size_t begin = last == std::string::npos ? 0 : last + 1;
    const auto line = ParseJson(std::string_view(text).substr(begin));
    ASSERT_TRUE(line.ok()) << text;
    EXPECT_GE(line->Find("wall_s")->number, 5000.5) << name;
  }
  const auto result = ParseJson(Text(run.get(), "result.json"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->Find("wall_s")->number, 5002.5);
}

// It was the difference of two readings of a clock that is set now and then.
TEST(RunRecorderTest, MeasuresTimeWithMonotonicClock) {
  const auto run = MakeMemoryStorage();
  ManualClock clock;
  for (int part = 1; part <= 2; ++part) {
    clock.Set(Time(Seconds(1000 / part)));  // another boot of the machine
    auto recorder = MetricsWriter::Make(run.get(), Config(), {.clock = &clock});
    ASSERT_TRUE(recorder.ok());
    clock.Advance(Seconds(7));
    (*recorder)->Record(clock.Now(), ViewAt(1000), {});
    const std::string text = Text(run.get(), "metrics.jsonl");
    const auto line = ParseJson(text.substr(text.find_last_of('\n', text.size() - 2) + 1));
    ASSERT_TRUE(line.ok()) << text;
    EXPECT_EQ(line->Find("wall_s")->number, 7 * part);
  }
}

// Updates that were made again after a death counted twice.
TEST(RunRecorderTest, RecordsUpdatesOfWeights) {
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), Config());
  ASSERT_TRUE(recorder.ok());
  RunView view = ViewAt(1000);
  view.updates = 120;
  view.metrics["learner/updates"].value = 150;
  ASSERT_TRUE((*recorder)->Finish(view, {}, Status::Ok()).ok());
  EXPECT_EQ(*ParseJson(Text(run.get(), "result.json"))->Integer("updates"), 120);
  EXPECT_EQ(*ParseJson(Text(run.get(), "metrics.jsonl"))->Integer("updates"), 120);
}

// After kill -9 and a resume the steps of metrics.jsonl ran backwards.
TEST(RunRecorderTest, ResumeRemovesLinesAfterCheckpoint) {
  const auto run = MakeMemoryStorage();
  const std::string lines = "{\"steps\": 10, \"wall_s\": 1}\n{\"steps\": 20, \"wall_s\": 2}\n";
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"}) {
    ASSERT_TRUE(run->WriteAtomic(name, lines + "{\"steps\": 30, \"wall_s\": 3}\n{\"ste").ok());
  }
  ManualClock clock;
  auto recorder = MetricsWriter::Make(run.get(), Config(), {.clock = &clock, .steps = 20});
  ASSERT_TRUE(recorder.ok()) << recorder.status().ToString();
  EXPECT_EQ(Text(run.get(), "evaluations.jsonl"), lines);
  (*recorder)->Record(clock.Now(), ViewAt(25, 20), {});
  const std::string text = Text(run.get(), "metrics.jsonl");
  ASSERT_TRUE(text.starts_with(lines)) << text;
  const auto line = ParseJson(text.substr(lines.size()));
  ASSERT_TRUE(line.ok()) << text;
  EXPECT_EQ(*line->Integer("steps"), 25);
  EXPECT_EQ(line->Find("wall_s")->number, 3);  // that time was spent
}

// The learners have left when it is written.
TEST(RunRecorderTest, LastLineHasLoss) {
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), Config());
  ASSERT_TRUE(recorder.ok());
  RunView view = ViewAt(1000);
  view.metrics["learner/loss"] = {.kind = MetricKind::kGaugeMean, .value = 0.5};
  (*recorder)->Record(Time{}, view, {});
  view.metrics.erase("learner/loss");
  ASSERT_TRUE((*recorder)->Finish(view, {}, Status::Ok()).ok());
  const std::string text = Text(run.get(), "metrics.jsonl");
  const auto line = ParseJson(text.substr(text.find('\n') + 1));
  ASSERT_TRUE(line.ok()) << text;
  ASSERT_NE(line->Find("learner/loss"), nullptr) << text;
  EXPECT_EQ(line->Find("learner/loss")->number, 0.5);
}

// The actors have left when it is written. Former fault: min and max were missing there.
TEST(RunRecorderTest, LastLineHasMetricsOfEnvironment) {
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), Config());
  ASSERT_TRUE(recorder.ok());
  RunView view = ViewAt(1000);
  const std::tuple<const char*, MetricKind, double> values[] = {
      {"env.speed.mean", MetricKind::kGaugeRatio, 0.5},
      {"env.speed.min", MetricKind::kGaugeMin, -2},
      {"env.speed.max", MetricKind::kGaugeMax, 7}};
  for (const auto& [name, kind, value] : values)
    view.metrics[name] = {.kind = kind, .value = value};
  (*recorder)->Record(Time{}, view, {});
  for (const auto& [name, kind, value] : values) view.metrics.erase(name);
  ASSERT_TRUE((*recorder)->Finish(view, {}, Status::Ok()).ok());
  const std::string text = Text(run.get(), "metrics.jsonl");
  const auto line = ParseJson(text.substr(text.find('\n') + 1));
  ASSERT_TRUE(line.ok()) << text;
  for (const auto& [name, kind, value] : values) {
    ASSERT_NE(line->Find(name), nullptr) << name << " in " << text;
    EXPECT_EQ(line->Find(name)->number, value);
  }
}

// TensorBoard drew sums over the whole run.
TEST(RunRecorderTest, WritesCountersAsRatesToTensorBoard) {
  const auto run = MakeMemoryStorage();
  ManualClock clock;
  auto recorder = MetricsWriter::Make(run.get(), Config(), {.clock = &clock});
  ASSERT_TRUE(recorder.ok());
  RunView view = ViewAt(1000);
  view.metrics["learner/busy_s"].value = 1;
  view.metrics["actor/episode_return_sum"].value = 1;
  (*recorder)->Record(clock.Now(), view, {});
  clock.Advance(Seconds(100));
  (*recorder)->Record(clock.Now(), view, {.episode_return_mean = 7, .episode_len_mean = 9});
  std::string events;
  const auto names = run->List("");
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (name.starts_with("events.")) events += Text(run.get(), name);
  }
  for (const char* tag : {"actor/episodes_per_s", "learner/busy_fraction",
                          "run/episode_return_mean", "run/episode_len_mean", "run/updates"}) {
    EXPECT_NE(events.find(tag), std::string::npos) << tag;
  }
  EXPECT_EQ(events.find("return_sum"), std::string::npos);
}

// Each video once, when the evaluator has written it.
TEST(RunRecorderTest, CopiesNewVideosToTensorBoard) {
  for (const std::int64_t every : {0, 1}) {
    const auto run = MakeMemoryStorage();
    ManualClock clock;
    Config config;
    config.evaluator.video_every = every;
    auto recorder = MetricsWriter::Make(run.get(), config, {.clock = &clock});
    ASSERT_TRUE(recorder.ok());
    const auto record = [&] {
      clock.Advance(Seconds(100));
      (*recorder)->Record(clock.Now(), ViewAt(1000), {});
    };
    record();
    for (const char* name : {"000000000007.gif", "000000000030.gif"}) {
      const std::string gif = std::string("GIF89a\4\1\2\0", 10) + "pixels of " + name;
      ASSERT_TRUE(run->WriteAtomic(std::string("videos/") + name, gif).ok());
      record();
      record();
    }
    std::string events;
    const auto names = run->List("");
    ASSERT_TRUE(names.ok());
    for (const std::string& name : *names) {
      if (name.starts_with("events.")) events += Text(run.get(), name);
    }
    for (const char* name : {"pixels of 000000000007", "pixels of 000000000030"}) {
      const std::size_t first = events.find(name);
      EXPECT_EQ(first != events.npos, every == 1) << name;
      if (first == events.npos) continue;
      EXPECT_EQ(events.find(name, first + 1), events.npos) << name;
    }
  }
}

TEST(RunRecorderTest, PlotsTrainingReturnWithoutEvaluator) {
  if (!HasPlots()) GTEST_SKIP() << "built without Cairo";
  Config config;
  config.evaluator.enabled = false;
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), config);
  ASSERT_TRUE(recorder.ok());
  ASSERT_TRUE((*recorder)->Finish(ViewAt(100), {.episode_return_mean = 3}, Status::Ok()).ok());
  const std::string first = Text(run.get(), "curve.png");
  recorder = MetricsWriter::Make(run.get(), config);
  ASSERT_TRUE(recorder.ok());
  const RunView view = ViewAt(200, 100);
  ASSERT_TRUE((*recorder)->Finish(view, {.episode_return_mean = 4}, Status::Ok()).ok());
  EXPECT_NE(Text(run.get(), "curve.png"), first);
}

// It was recorded as 0, in curves, TensorBoard and the result.
TEST(RunRecorderTest, OmitsUnknownValues) {
  Config config;
  config.evaluator.enabled = false;
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), config);
  ASSERT_TRUE(recorder.ok());
  const RunView view{.steps = 10, .steps_total = 10000};
  (*recorder)->Record(Time{}, view, {});
  ASSERT_TRUE((*recorder)->Finish(view, {}, Status::Ok()).ok());
  EXPECT_EQ(Text(run.get(), "metrics.jsonl").find("episode_return_mean"), std::string::npos);
  EXPECT_EQ(Text(run.get(), "result.json").find("samples_per_insert"), std::string::npos);
  EXPECT_FALSE(run->Exists("curve.png"));  // no points to draw
  const auto names = run->List("");
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    EXPECT_EQ(Text(run.get(), name).find("episode_return_mean"), std::string::npos) << name;
  }
}

TEST(RunRecorderTest, HistogramCoversTimeSincePreviousLine) {
  const auto run = MakeMemoryStorage();
  auto recorder = MetricsWriter::Make(run.get(), Config());
  ASSERT_TRUE(recorder.ok());
  Histogram age;
  age.Add(100, 5);
  RunView view = ViewAt(1000);
  view.metrics["replay/age"] = {MetricKind::kHistogram, age.mean(), age};
  (*recorder)->Record(Time{}, view, {});
  age.Add(2, 10);
  view.metrics["replay/age"].histogram = age;
  (*recorder)->Record(Time(Seconds(3600)), view, {});
  const std::string text = Text(run.get(), "metrics.jsonl");
  const std::size_t end = text.find('\n');
  const auto first = ParseJson(text.substr(0, end)), second = ParseJson(text.substr(end + 1));
  ASSERT_TRUE(first.ok() && second.ok()) << text;
  ASSERT_TRUE(first->Find("replay/age") != nullptr && second->Find("replay/age") != nullptr);
  EXPECT_EQ(*first->Find("replay/age")->Integer("count"), 5);
  EXPECT_EQ(first->Find("replay/age")->Find("p50")->number, 100);
  EXPECT_EQ(*second->Find("replay/age")->Integer("count"), 10);
  EXPECT_LT(second->Find("replay/age")->Find("p99")->number, 2.5);
  EXPECT_NE(ViewJson(view, {}).find(R"("replay/age": {"count": 15,)"), std::string::npos);
}

}  // namespace
}  // namespace troop
