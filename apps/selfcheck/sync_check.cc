// `troop selftest sync`: runs the product's gradient synchronization and compares the parameters
// after some updates with an independent fp64 reference.
#include "apps/selfcheck/sync_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "apps/selfcheck/allreduce_check.h"
#include "apps/selfcheck/hogwild_check.h"
#include "apps/selfcheck/paramserver_check.h"
#include "apps/selfcheck/sync_cases.h"
#include "apps/selfcheck/trace_replay.h"
#include "core/storage/json.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

// Values are f64: rounding errors are far below this limit, and a wrong element is far above it.
constexpr double kAdjointLimit = 1e-12;

// |want - got| / |want| in the Euclidean norm over one tensor; 1e30 if it is not finite.
double RelativeError(const Doubles& want, std::span<const float> got, const ParamSpec& spec) {
  // A tensor of zeros has no relative error; the absolute one is taken instead.
  double difference = 0, norm = 0;
  for (std::int64_t i = spec.offset; i < spec.offset + spec.shape.elements(); ++i) {
    const double w = want[std::size_t(i)], d = double(got[std::size_t(i)]) - w;
    difference += d * d, norm += w * w;
  }
  const double error = std::sqrt(difference / (norm > 0 ? norm : 1));
  return std::isfinite(error) ? error : 1e30;
}

// One error per tensor: a wrong small layer would vanish in the norm over all parameters.
std::vector<std::pair<std::string, double>> ErrorsOf(const ToyModel& problem, const Doubles& want,
                                                     std::span<const float> got) {
  std::vector<std::pair<std::string, double>> errors;
  for (const ParamSpec& spec : problem.params()) {
    errors.push_back({spec.name, RelativeError(want, got, spec)});
  }
  return errors;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A case that could not run, with the reason; it has no errors and so is never ok.
SyncVerdict Failed(std::string_view mode, std::string what, const Status& status) {
  return {.mode = std::string(mode), .what = std::move(what), .why = status.ToString()};
}

// Parameter shards. Cases over sockets always run, since only those use real threads.
std::vector<SyncVerdict> CheckShards(std::string_view mode, std::uint64_t seed,
                                     std::size_t stride) {
  std::vector<SyncVerdict> verdicts;
  const std::vector<SyncCase> cases = SyncCasesOf(mode, seed);
  // Modes with few cases are not thinned out.
  const std::size_t step = cases.size() < 10 * stride ? 1 : stride;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const SyncCase& c = cases[i];
    if (!c.sockets && i % step != 0) continue;
    const ToyModel problem(c.seed);
    const Result<SyncTrace> trace = RunSync(c, problem);
    verdicts.push_back(trace.ok() ? JudgeSync(mode, c, problem, *trace)
                                  : Failed(mode, SyncCaseText(c), trace.status()));
  }
  return verdicts;
}

// All ranks must end bit-equal, and close to the fp64 reference.
SyncVerdict CheckRanks(const RanksCase& c, std::string_view mode) {
  SyncVerdict verdict{.mode = std::string(mode),
                      .what = fmt::format("{} ranks, {}", c.ranks, SyncOptimizerText(c.config))};
  const ToyModel problem(c.seed);
  const auto values = RunRanksCase(c);
  if (!values.ok()) return Failed(mode, verdict.what, values.status());
  verdict.errors = ErrorsOf(problem, ReplayRanks(c, problem), (*values)[0]);
  // Different bits on two ranks would let their parameters drift apart in a long run.
  for (const auto& value : *values) {
    if (!SameBits(value, (*values)[0])) verdict.why = "two ranks differ in bits";
  }
  // Bit-equal to one device if the sum has the same order: two ranks allow only one order, and
  // shared memory adds in rank order.
  if (c.ranks <= 2 || c.wire == "shm") {
    SyncCase plain{.config = c.config, .learning_rate = c.learning_rate, .seed = c.seed};
    plain.sync.learners = c.ranks;
    const auto want = RunOneDevice(plain, problem, std::uint64_t(c.steps));
    verdict.same_bits = SameBits((*values)[0], want);
  }
  return verdict;
}

// All-reduce over one transport, with the optimizers that differ most in state and steps.
std::vector<SyncVerdict> CheckAllReduce(const std::string& wire, std::string_view mode,
                                        std::uint64_t seed) {
  std::vector<SyncVerdict> verdicts;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::string_view optimizer : {"sgd", "centered", "adam", "radam"}) {
      RanksCase c{.wire = wire, .ranks = ranks, .config = SyncOptimizer(optimizer), .seed = seed};
      if (optimizer != "sgd") c.learning_rate = 0.005f;
      verdicts.push_back(CheckRanks(c, mode));
    }
  }
  return verdicts;
}

// Lock-free updates: one thread with every optimizer, then more threads with SGD only, whose result
// does not depend on the order.
std::vector<SyncVerdict> CheckHogwild(std::string_view mode, std::uint64_t seed) {
  std::vector<HogwildCase> cases;
  HogwildCase base{.shard = mode == "hogwild+shard", .seed = seed};
  for (const std::string_view optimizer : SyncOptimizers()) {
    HogwildCase c = base;
    c.config = SyncOptimizer(optimizer);
    if (optimizer != "sgd") c.learning_rate = 0.005f;
    cases.push_back(c);
  }
  base.config = SyncOptimizer("sgd");
  for (const int threads : {2, 3, 4, 8}) {
    base.threads = threads;
    cases.push_back(base);
  }
  std::vector<SyncVerdict> verdicts;
  const ToyModel problem(seed);
  for (const HogwildCase& c : cases) {
    SyncVerdict verdict{.mode = std::string(mode),
                        .what = fmt::format("{} thread{}, {}", c.threads, c.threads == 1 ? "" : "s",
                                            SyncOptimizerText(c.config))};
    const auto value = RunHogwildCase(c);
    if (!value.ok()) {
      verdicts.push_back(Failed(mode, verdict.what, value.status()));
      continue;
    }
    verdict.errors = ErrorsOf(problem, ReplayHogwild(c, problem), *value);
    // More threads add in any order, so that only the single thread can be bit-equal.
    if (c.threads == 1) {
      const SyncCase plain{.config = c.config, .learning_rate = c.learning_rate, .seed = seed};
      verdict.same_bits = SameBits(*value, RunOneDevice(plain, problem, std::uint64_t(c.steps)));
    }
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

// Collectives are linear, so each must satisfy <Fx, y> = <x, F*y> with its adjoint F*.
std::vector<SyncVerdict> CheckAdjoint(const std::string& wire, std::string_view mode,
                                      std::uint64_t seed) {
  const auto results = CheckAdjoints(wire, seed);
  if (!results.ok()) return {Failed(mode, "all operations", results.status())};
  std::vector<SyncVerdict> verdicts;
  for (const AdjointResult& r : *results) {
    verdicts.push_back({.mode = std::string(mode),
                        .what = fmt::format("{}, {} ranks", r.operation, r.ranks),
                        .errors = {{"<Fx, y> - <x, F*y>", r.error}},
                        .limit = kAdjointLimit});
  }
  return verdicts;
}

}  // namespace

// Replays the recorded arrivals in the reference, then compares parameters, versions and backups.
SyncVerdict JudgeSync(std::string_view mode, const SyncCase& c, const ToyModel& problem,
                      const SyncTrace& trace) {
  SyncVerdict verdict{.mode = std::string(mode), .what = SyncCaseText(c)};
  const auto map = MapOf(c, problem);
  if (!map.ok()) return Failed(mode, verdict.what, map.status());
  const auto expected = ReplaySync(c, problem, *map, trace.arrivals);
  if (!expected.ok()) return Failed(mode, verdict.what, expected.status());
  verdict.errors = ErrorsOf(problem, expected->value, trace.value);
  for (std::size_t s = 0; s < trace.versions.size(); ++s) {
    // Version 1 is the initial state, hence one less in the message.
    if (trace.versions[s] == expected->versions[s]) continue;
    verdict.why = fmt::format("shard {} made {} updates, not {}", s, trace.versions[s] - 1,
                              expected->versions[s] - 1);
  }
  if (!trace.backups.empty() && !SameBits(trace.backups, trace.value)) {
    verdict.why = "a backup differs from its primary in bits";
  }
  // Synchronous cases must equal one device bit for bit, shard by shard.
  if (!IsInStep(c)) return verdict;
  verdict.same_bits = true;
  for (std::size_t s = 0; s < trace.versions.size(); ++s) {
    const std::vector<float> one = RunOneDevice(c, problem, trace.versions[s] - 1);
    // Shards may have stopped at different versions, so each is compared with its own replay.
    for (const ParamRange& range : map->RangesOf(map->shards()[s])) {
      const auto begin = std::size_t(range.begin), size = std::size_t(range.size());
      const std::span<const float> got(trace.value), want(one);
      if (!SameBits(got.subspan(begin, size), want.subspan(begin, size))) verdict.same_bits = false;
    }
  }
  return verdict;
}

double SyncVerdict::worst() const {
  double worst = 0;
  for (const auto& [name, error] : errors) worst = std::max(worst, error);
  return worst;
}
// A case without any error value has compared nothing and fails.
bool SyncVerdict::ok() const {
  return why.empty() && same_bits.value_or(true) && !errors.empty() && worst() <= limit;
}

// Parameter shards first, then lock-free updates, all-reduce and adjoint tests per transport.
std::vector<std::string> SyncCheckModes() {
  std::vector<std::string> modes;
  for (const std::string_view mode : SyncShardModes()) modes.emplace_back(mode);
  modes.insert(modes.end(), {"hogwild+shard", "hogwild+learner"});
  for (const std::string& wire : SyncWires()) modes.push_back("allreduce+" + wire);
  for (const std::string& wire : SyncWires()) modes.push_back("adjoint+" + wire);
  return modes;
}

// Modes are named KIND+TRANSPORT, except those of parameter shards.
Result<std::vector<SyncVerdict>> CheckSyncMode(std::string_view mode, std::uint64_t seed,
                                               std::size_t stride) {
  const std::vector<std::string> modes = SyncCheckModes();
  if (std::ranges::find(modes, mode) == modes.end()) {
    return NotFound("there is no mode \"{}\"; modes: {}", mode, fmt::join(modes, ", "));
  }
  const std::string wire(mode.substr(mode.rfind('+') + 1));
  if (mode.starts_with("allreduce+")) return CheckAllReduce(wire, mode, seed);
  if (mode.starts_with("hogwild+")) return CheckHogwild(mode, seed);
  if (mode.starts_with("adjoint+")) return CheckAdjoint(wire, mode, seed);
  return CheckShards(mode, seed, stride);
}

namespace {

// Empty for a case that is not compared with one device.
std::string BitsText(const SyncVerdict& v) {
  return !v.same_bits ? "" : *v.same_bits ? ", equals one device" : ", DIFFERS from one device";
}

// Prints one line per mode with its worst error, then the failed cases; `tensors`: all cases, with
// the error of each tensor.
void PrintMode(const std::vector<SyncVerdict>& verdicts, bool tensors) {
  const auto failed = std::ranges::count_if(verdicts, [](const auto& v) { return !v.ok(); });
  const auto worst = std::ranges::max_element(verdicts, {}, &SyncVerdict::worst);
  const auto exact = std::ranges::count_if(
      verdicts, [](const SyncVerdict& v) { return v.same_bits.value_or(false); });
  fmt::print("{:<5} {:<20} {} cases, worst {:.1e}", failed == 0 ? "ok" : "FAIL", worst->mode,
             verdicts.size(), worst->worst());
  if (exact > 0) fmt::print(", {} bit-equal to one device", exact);
  fmt::print("\n");
  for (const SyncVerdict& v : verdicts) {
    if (!tensors && v.ok()) continue;
    fmt::print("  {:<5} {}: {:.1e}{}{}{}\n", v.ok() ? "ok" : "FAIL", v.what, v.worst(), BitsText(v),
               v.why.empty() ? "" : ": ", v.why);
    if (v.errors.size() < 2) continue;
    for (const auto& [name, error] : v.errors) fmt::print("        {:<16} {:.2e}\n", name, error);
  }
  std::fflush(stdout);
}

// One case as a JSON line (`--json`).
std::string ToJson(const SyncVerdict& v) {
  JsonObject errors;
  for (const auto& [name, error] : v.errors) errors.Add(name, error);
  JsonObject object;
  object.Add("mode", v.mode).Add("case", v.what).Add("ok", v.ok()).Add("limit", v.limit);
  object.Add("errors", errors);
  if (v.same_bits) object.Add("same_bits", *v.same_bits);
  if (!v.why.empty()) object.Add("why", v.why);
  return object.str();
}

}  // namespace

// Prints mode by mode, since all modes together take a while.
int RunCheckSync(const CheckSyncCommand& command) {
  std::vector<std::string> modes = SyncCheckModes();
  if (command.list) {
    for (const std::string& mode : modes) fmt::print("{}\n", mode);
    return kExitOk;
  }
  if (!command.mode.empty()) modes = {command.mode};
  // The exit code covers all modes: a failed case does not stop the later ones.
  bool ok = true;
  for (const std::string& mode : modes) {
    const auto verdicts = CheckSyncMode(mode, command.seed);
    if (!verdicts.ok()) {
      fmt::print(stderr, "troop: {}\n", verdicts.status().message());
      return kExitUsage;
    }
    ok &= std::ranges::all_of(*verdicts, &SyncVerdict::ok);
    if (!command.json) {
      PrintMode(*verdicts, !command.mode.empty());
      continue;
    }
    for (const SyncVerdict& v : *verdicts) fmt::print("{}\n", ToJson(v));
  }
  if (!command.json) fmt::print("{}\n", ok ? "all cases passed" : "some cases failed");
  return ok ? kExitOk : kExitFailed;
}

}  // namespace troop
