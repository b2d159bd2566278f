// A run's folder with one hostile file, as a resumed run reads it. The first byte of an input
// chooses the file, whose bytes are the rest:
//   0: metrics.jsonl   1: evaluations.jsonl   2: incarnation
//   3, 4: as 0 and 1, only read: drawing the curve takes nearly all of the time
// The recorder appends a line to the existing content and draws the curve; the coordinator assigns
// a higher incarnation than the file contains, or none.
#include <charconv>
#include <string>

#include "core/base/check.h"
#include "core/storage/json.h"
#include "core/storage/memory_storage.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/run/metrics_writer.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

constexpr const char* kFiles[] = {"metrics.jsonl", "evaluations.jsonl", "incarnation"};

RunView ViewAt(std::int64_t steps) {
  RunView view{.steps = steps, .steps_total = 10000, .steps_at_start = steps};
  view.metrics["actor/episodes"].value = 5;
  return view;
}

std::string TextOfFile(Storage* run, std::string_view name) {
  const Result<Buffer> text = run->Read(name, std::size_t{1} << 24);
  TROOP_CHECK(text.ok(), "{}", text.status().ToString());
  return std::string(text->text());
}

void CheckLines(bool evaluated, const std::string& past) {
  MemoryStorage run;
  const char* const name = kFiles[evaluated ? 1 : 0];
  TROOP_CHECK(run.WriteAtomic(name, past).ok(), "no disk");
  Config config;
  config.evaluator.enabled = evaluated;
  auto recorder = MetricsWriter::Make(&run, config);
  TROOP_CHECK(recorder.ok(), "{}", recorder.status().ToString());
  RunView view = ViewAt(2000);
  if (evaluated) view.evaluations.push_back({.steps = 2000, .return_mean = 3});
  const RunThroughput rates{.elapsed_s = 2, .episode_return_mean = 3};
  TROOP_CHECK((*recorder)->Finish(view, rates, Status::Ok()).ok(), "not finished");
  const std::string text = TextOfFile(&run, name);
  TROOP_CHECK(text.starts_with(past) && text.size() > past.size() + 1, "the past is not kept");
  const std::string_view lines(text.data(), text.size() - 1);
  const std::string_view last = lines.substr(lines.rfind('\n') + 1);
  TROOP_CHECK(ParseJson(last).ok(), "the last line is not JSON: {}", last);
  TROOP_CHECK(ParseJson(TextOfFile(&run, "result.json")).ok(), "result.json is not JSON");
  TROOP_CHECK(TextOfFile(&run, "curve.png").size() < 1 << 20, "a picture of more than 1 MiB");
}

// Only the beginning: an unfinished line is ended, and nothing else changes.
void CheckReading(bool evaluated, const std::string& past) {
  MemoryStorage run;
  const char* const name = kFiles[evaluated ? 1 : 0];
  TROOP_CHECK(run.WriteAtomic(name, past).ok(), "no disk");
  Config config;
  config.evaluator.enabled = evaluated;
  TROOP_CHECK(MetricsWriter::Make(&run, config).ok(), "no recorder");
  const bool torn = !past.empty() && past.back() != '\n';
  TROOP_CHECK(TextOfFile(&run, name) == past + (torn ? "\n" : ""), "the past was changed");
}

void CheckIncarnation(const std::string& text) {
  MemoryStorage run;
  TROOP_CHECK(run.WriteAtomic(kFiles[2], text).ok(), "no disk");
  const auto made = Coordinator::Make({.run = &run});
  std::uint64_t number = 0;
  std::string_view digits = text;
  while (!digits.empty() && digits.back() == '\n') digits.remove_suffix(1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool good = error == std::errc() && end == digits.data() + digits.size() && number > 0;
  TROOP_CHECK(good || !made.ok(), "\"{}\" was taken for a number", text);
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  for (const bool evaluated : {false, true}) {
    MemoryStorage run;
    Config config;
    config.evaluator.enabled = evaluated;
    auto recorder = std::move(*MetricsWriter::Make(&run, config));
    RunView view = ViewAt(1000);
    Histogram ages;
    ages.Add(3, 4);
    view.metrics["replay/age"] = {MetricKind::kHistogram, 0, ages};
    if (evaluated) {
      view.evaluations.push_back({.steps = 1000, .episodes = 10, .return_mean = 2.5});
    }
    TROOP_CHECK(
        recorder->Finish(view, {.elapsed_s = 2, .episode_return_mean = 3}, Status::Ok()).ok(),
        "not finished");
    const std::string text = TextOfFile(&run, kFiles[evaluated ? 1 : 0]);
    write(kFiles[evaluated ? 1 : 0], std::string(1, evaluated ? 1 : 0) + text);
    write(evaluated ? "evaluations_read" : "metrics_read",
          std::string(1, evaluated ? 4 : 3) + text + text);
    write(evaluated ? "evaluations_torn" : "metrics_torn",
          std::string(1, evaluated ? 1 : 0) + text + text + text.substr(0, text.size() / 2));
  }
  write("incarnation", std::string(1, 2) + "17\n");
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const int place = input.Take<std::uint8_t>();
  const std::string text = StringOf(input.TakeRest());
  if (place <= 1) CheckLines(place == 1, text);
  if (place == 2) CheckIncarnation(text);
  if (place == 3 || place == 4) CheckReading(place == 4, text);
  return 0;
}
