// The checks of `troop env check`: each plays episodes with known seeds and actions, and compares
// the recordings.
#include "apps/envtools/env_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/envtools/env_player.h"
#include "fleet/launcher/process_memory.h"

namespace troop {
namespace {

using Episodes = std::vector<RecordedEpisode>;
constexpr int kVector = 8;  // environments of the vector that is compared with a single one
// Seconds that a quick check spends on playing all episodes once.
constexpr double kQuickPlay_s = 1;

// Observation, action and step limit on one line.
std::string Describe(const EnvSpec& spec) {
  const ActionSpec& action = spec.action;
  return fmt::format("observation {}, {}, {}", DescribeObservation(spec),
                     action.discrete() ? fmt::format("{} actions", action.count)
                                       : fmt::format("action {}", action.tensor().ToString()),
                     spec.max_episode_steps == 0
                         ? "no limit of steps"
                         : fmt::format("at most {} steps", spec.max_episode_steps));
}

// The first difference between two recordings of one seed; empty if they are equal.
std::string Difference(const RecordedEpisode& a, const RecordedEpisode& b) {
  if (a.first != b.first) return "their initial observations";
  // The first difference is named, since later ones usually follow from it.
  const std::size_t both = std::min(a.steps.size(), b.steps.size());
  for (std::size_t t = 0; t < both; ++t) {
    const RecordedStep &x = a.steps[t], &y = b.steps[t];
    if (x == y) continue;
    const std::string_view what = x.observation != y.observation ? "observation"
                                  : x.reward != y.reward         ? "reward"
                                                                 : "end";
    return fmt::format("the {} of step {}", what, t + 1);
  }
  return a.steps.size() == b.steps.size() ? "" : "their lengths";
}

// One run of all checks. Later checks use the recordings of earlier ones.
class Check {
 public:
  Check(const EnvCheckOptions& options, const std::function<void(const Verdict&)>& report)
      : options_(options), report_(report) {}
  std::vector<Verdict> Run();

 private:
  using Kind = Verdict::Kind;
  EnvPlayer::Options Options(int size) const {
    return {.id = options_.id, .env = options_.env, .size = size, .steps_max = steps_max_};
  }
  void Tell(Kind kind, std::string_view item, std::string text) {
    verdicts_.push_back({kind, std::string(item), std::move(text)});
    report_(verdicts_.back());
  }
  template <class... Args>
  void Ok(std::string_view item, fmt::format_string<Args...> text, Args&&... args) {
    Tell(Kind::kOk, item, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void Note(std::string_view item, fmt::format_string<Args...> text, Args&&... args) {
    Tell(Kind::kNote, item, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void Fail(std::string_view item, fmt::format_string<Args...> text, Args&&... args) {
    Tell(Kind::kFail, item, fmt::format(text, std::forward<Args>(args)...));
  }

  Result<Episodes> PlayNew(int size, const std::vector<std::uint64_t>& seeds,
                           std::uint64_t stream = 0);
  Status Start();
  // Shortens the checks of a slow environment, by its measured speed.
  Status Hasten(EnvPlayer* player);
  void CheckFinite(const EnvPlayer& player);
  void CheckEquality();
  // Compares `other` with the single environment's episodes, byte for byte. Returns true if they
  // are equal. The last two arguments: the text for equality, and the fix for a difference.
  bool Compare(std::string_view item, const Result<Episodes>& other, std::string_view same,
               std::string_view remedy);
  Status CheckSeeds();
  void CheckEnds();
  Status CheckUnlimited();
  Status CheckLimit();
  void CheckLastObservation();
  Status CheckActions();
  Status CheckEffect();
  Status CheckMemory();
  Status CheckSpeed();
  Status CheckAll();

  const EnvCheckOptions options_;
  const std::function<void(const Verdict&)>& report_;
  const SystemClock clock_;
  std::vector<Verdict> verdicts_;
  EnvSpec spec_;
  std::int64_t steps_max_ = 1000;     // length of a recorded episode
  std::int64_t unlimited_ = 100'000;  // steps within which an episode should end
  bool hastened_ = false;             // true: too slow for the full numbers
  int vector_ = kVector;              // size of the vector
  std::vector<std::uint64_t> seeds_;
  Episodes alone_;  // recorded by a single environment, in the order of seeds_
};

// An error of the environment as a whole becomes the last verdict.
std::vector<Verdict> Check::Run() {
  const Status status = CheckAll();
  if (!status.ok()) Fail("environment", "{}; the other checks were skipped", status.message());
  return std::move(verdicts_);
}

// Errors end the checks: the environment could not be made, or failed as a whole.
Status Check::CheckAll() {
  TROOP_RETURN_IF_ERROR(Start());
  CheckEquality();
  TROOP_RETURN_IF_ERROR(CheckSeeds());
  CheckEnds();
  TROOP_RETURN_IF_ERROR(CheckUnlimited());
  TROOP_RETURN_IF_ERROR(CheckLimit());
  CheckLastObservation();
  TROOP_RETURN_IF_ERROR(CheckActions());
  TROOP_RETURN_IF_ERROR(CheckEffect());
  TROOP_RETURN_IF_ERROR(CheckMemory());
  return CheckSpeed();
}

// Records the episodes of `seeds` with a new vector of `size` environments.
Result<Episodes> Check::PlayNew(int size, const std::vector<std::uint64_t>& seeds,
                                std::uint64_t stream) {
  EnvPlayer::Options options = Options(size);
  options.stream = stream;
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(options));
  return player->Play(seeds);
}

// A quick check of a slow environment plays fewer and shorter episodes. Speed is that of the
// fastest group of steps, so that other load on the machine does not count.
Status Check::Hasten(EnvPlayer* player) {
  constexpr double kProbe_s = 0.5;
  constexpr std::int64_t kStepsMax = 300, kShortest = 24, kFewest = 3, kUnlimited = 10'000;
  constexpr int kTogether = 10;
  TROOP_RETURN_IF_ERROR(player->Restart());
  double per_second = 1;
  const Time begin = clock_.Now();
  for (int i = 0; i < kStepsMax / kTogether && clock_.Now() - begin < Seconds(kProbe_s); ++i) {
    const Time before = clock_.Now();
    for (int t = 0; t < kTogether; ++t) TROOP_RETURN_IF_ERROR(player->Step());
    const double took_s = std::max(1e-6, ToSeconds(clock_.Now() - before));
    per_second = std::max(per_second, kTogether / took_s);
  }
  // Budget: steps within kQuickPlay_s. First shorten the episodes, then reduce their number.
  const auto affordable = std::int64_t(kQuickPlay_s * per_second);
  const auto episodes = std::int64_t(seeds_.size());
  steps_max_ = std::clamp(affordable / episodes, kShortest, kStepsMax);
  hastened_ = steps_max_ < kStepsMax;
  seeds_.resize(std::size_t(std::clamp(affordable / steps_max_, kFewest, episodes)));
  vector_ = std::min<int>(kVector, int(seeds_.size()));
  unlimited_ = hastened_ ? std::clamp(10 * affordable, kStepsMax, kUnlimited) : kUnlimited;
  return Status::Ok();
}

// Creates the environment and records the episodes that all later checks compare with.
Status Check::Start() {
  for (std::uint64_t i = 0; i < (options_.quick ? 16 : 32); ++i) {
    seeds_.push_back(
        DeriveSeed({.run_seed = 1, .purpose = Purpose::kEnvironment, .index = i, .episode = i}));
  }
  if (options_.quick) {
    TROOP_ASSIGN_OR_RETURN(const auto probe, EnvPlayer::Make(Options(1)));
    TROOP_RETURN_IF_ERROR(Hasten(probe.get()));
  }
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(Options(1)));
  spec_ = player->spec();
  Ok("start", "{}", Describe(spec_));
  if (spec_.observation.dtype == DType::kU8 && spec_.observation_scale == 1) {
    Note(
        "scale",
        "networks receive bytes as values from 0 to 255; declare a scale of 1/255 for gray frames");
  }
  TROOP_ASSIGN_OR_RETURN(alone_, player->Play(seeds_));
  if (player->fault()) {
    const EnvFault& fault = *player->fault();
    return MakeStatus(Code::kInternal, "{} at step {} of the episode with seed {}", fault.what,
                      fault.step, fault.seed);
  }
  std::size_t steps = 0;
  for (const RecordedEpisode& episode : alone_) steps += episode.steps.size();
  Ok("steps", "{} episodes, {} steps with random actions, no faults", alone_.size(), steps);
  CheckFinite(*player);
  return Status::Ok();
}

// Rewards and observations must be finite. Rewards that are always 0 are worth a note.
void Check::CheckFinite(const EnvPlayer& player) {
  if (!player.bad_number().empty()) {
    return Fail("numbers", "{}; agents cannot learn from non-finite values: fix their source",
                player.bad_number());
  }
  float low = 0, high = 0;
  for (const RecordedEpisode& episode : alone_) {
    for (const RecordedStep& step : episode.steps) {
      low = std::min(low, step.reward);
      high = std::max(high, step.reward);
    }
  }
  if (low == 0 && high == 0) {
    return Note("numbers",
                "every reward was 0 with random actions; agents learn nothing without rewards");
  }
  Ok("numbers", "observations and rewards are finite; rewards within [{}, {}]", low, high);
}

// Determinism, independence of episodes, independence in a vector. Each assumes the previous ones.
void Check::CheckEquality() {
  std::vector<std::uint64_t> reversed(seeds_.rbegin(), seeds_.rend());
  Compare("determinism", PlayNew(1, seeds_), "two runs of the same seeds and actions are equal",
          "use only randomness from the seed of reset: no clock, no rand(), no global state") &&
      Compare("reset", PlayNew(1, reversed), "an episode does not depend on those before it",
              "reset must reinitialize every member") &&
      Compare("vector", PlayNew(vector_, seeds_),
              fmt::format("{} environments together behave like a single one", vector_),
              "environments must not share state: no globals, no static variables");
}

bool Check::Compare(std::string_view item, const Result<Episodes>& other, std::string_view same,
                    std::string_view remedy) {
  if (!other.ok()) {
    Fail(item, "{}", other.status().message());
    return false;
  }
  // Episodes end in any order in a vector, so they are matched by seed.
  std::map<std::uint64_t, const RecordedEpisode*> by_seed;
  for (const RecordedEpisode& episode : *other) by_seed[episode.seed] = &episode;
  for (const RecordedEpisode& episode : alone_) {
    const auto it = by_seed.find(episode.seed);
    if (it == by_seed.end()) {
      Fail(item, "the episode with seed {} was not played again; {}", episode.seed, remedy);
      return false;
    }
    const std::string what = Difference(episode, *it->second);
    if (what.empty()) continue;
    Fail(item, "two episodes with seed {} differ in {}; {}", episode.seed, what, remedy);
    return false;
  }
  Ok(item, "{}: {} episodes, byte for byte", same, alone_.size());
  return true;
}

// With equal actions, episodes of different seeds should differ.
Status Check::CheckSeeds() {
  EnvPlayer::Options options = Options(1);
  options.same_actions = true;
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(options));
  TROOP_ASSIGN_OR_RETURN(const Episodes played, player->Play(seeds_));
  const bool differ = std::ranges::any_of(
      played, [&](const RecordedEpisode& e) { return !Difference(e, played[0]).empty(); });
  if (differ) {
    Ok("seeds", "with equal actions, different seeds give different episodes");
  } else {
    Note("seeds",
         "with equal actions, {} seeds give the same episode: correct for a deterministic "
         "environment; otherwise use the seed",
         played.size());
  }
  return Status::Ok();
}

// Each episode end must be either a termination or a truncation.
void Check::CheckEnds() {
  std::int64_t terminated = 0, truncated = 0, longest = 0;
  for (const RecordedEpisode& episode : alone_) {
    const auto length = std::int64_t(episode.steps.size());
    longest = std::max(longest, length);
    if (!episode.ended) continue;
    const RecordedStep& last = episode.steps.back();
    terminated += last.terminated;
    truncated += last.truncated && !last.terminated;
    // At the step limit both are valid: the host truncates, whatever the environment reports.
    if (last.terminated && last.truncated && length != spec_.max_episode_steps) {
      return Fail("ends",
                  "step {} of seed {} is both terminated and truncated; set terminated if the task "
                  "ended, truncated if a limit was reached",
                  length, episode.seed);
    }
    if (last.truncated && !last.terminated && length != spec_.max_episode_steps) {
      return Note("ends",
                  "truncated at step {} of seed {} by the environment's own limit; if it is a step "
                  "limit, declare max_episode_steps",
                  length, episode.seed);
    }
  }
  Ok("ends", "{} terminated, {} truncated by the limit, {} cut off by the check; longest {} steps",
     terminated, truncated, std::int64_t(alone_.size()) - terminated - truncated, longest);
}

// An episode must end some time: one that never ends is never evaluated.
Status Check::CheckUnlimited() {
  const bool any = std::ranges::any_of(alone_, &RecordedEpisode::ended);
  if (spec_.max_episode_steps > 0 || any) return Status::Ok();
  EnvPlayer::Options options = Options(1);
  options.steps_max = unlimited_;
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(options));
  TROOP_ASSIGN_OR_RETURN(const Episodes played, player->Play({seeds_[0]}));
  if (!played.empty() && played[0].ended) return Status::Ok();
  if (hastened_) {
    Note("length", "no episode ended within {} steps; the check stopped there, as steps are slow",
         unlimited_);
    return Status::Ok();
  }
  Fail("length", "no episode ended within {} steps; declare max_episode_steps", options.steps_max);
  return Status::Ok();
}

// max_episode_steps from the config must truncate.
Status Check::CheckLimit() {
  constexpr std::size_t kLimit = 3;
  EnvPlayer::Options options = Options(1);
  // Shorter than most natural episodes, so that the limit decides.
  options.env.max_episode_steps = kLimit;
  // Gymnasium has an option of the same name, and both together are rejected.
  if (options.id.starts_with("gymnasium") || options.id.starts_with("envpool:")) {
    std::erase_if(options.env.options,
                  [](const EnvOption& option) { return option.name == "max_episode_steps"; });
  }
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(options));
  TROOP_ASSIGN_OR_RETURN(const Episodes played, player->Play(seeds_));
  for (const RecordedEpisode& episode : played) {
    // An episode that terminates at the limit need not be truncated as well.
    const bool late = episode.steps.size() > kLimit;
    if (!late && episode.ended &&
        (episode.steps.size() < kLimit || episode.steps.back().truncated ||
         episode.steps.back().terminated)) {
      continue;
    }
    Fail("limit", "with max_episode_steps = {} an episode {}", kLimit,
         late ? "is longer" : "ends at the limit without truncation");
    return Status::Ok();
  }
  Ok("limit", "max_episode_steps truncates");
  return Status::Ok();
}

// Detects an environment that resets itself, and so returns an initial observation in place of the
// final one. With few distinct observations a final one can equal an initial one by chance: it
// fails only if that chance is below kSure.
void Check::CheckLastObservation() {
  constexpr double kSure = 1e-6;
  std::set<std::uint32_t> firsts;
  for (const RecordedEpisode& episode : alone_) firsts.insert(episode.first);
  int ends = 0, wrong = 0;
  std::int64_t others = 0, others_first = 0;
  for (const RecordedEpisode& episode : alone_) {
    const auto length = std::int64_t(episode.steps.size());
    for (std::int64_t i = 0; i < length - (episode.ended ? 1 : 0); ++i) {
      ++others;
      others_first += firsts.contains(episode.steps[std::size_t(i)].observation);
    }
    // Episodes that the host truncated do not show how the environment ends one.
    if (!episode.ended || length < 2 || length == spec_.max_episode_steps) continue;
    ++ends;
    wrong += firsts.contains(episode.steps.back().observation);
  }
  if (ends == 0) return Ok("last observation", "the step limit ended all episodes");
  const double share = others == 0 ? 0 : double(others_first) / double(others);
  if (wrong == ends && std::pow(share, ends) < kSure) {
    return Fail("last observation",
                "the final observation of each of {} episodes is an initial one; return the true "
                "final one, and start the next episode only in reset",
                ends);
  }
  if (wrong == ends) {
    return Ok(
        "last observation",
        "the final observation of each of {} episodes is an initial one, as are {:.0f} % of all "
        "observations",
        ends, 100 * share);
  }
  Ok("last observation",
     "of {} episodes that the environment ended, {} have a final observation that is not "
     "an initial one",
     ends, ends - wrong);
}

// Discrete: all actions, or 256 evenly spaced ones, the first and the last included. Continuous:
// the lower corner, the upper corner and the center of the box.
std::vector<Tensor> ActionsToTry(const ActionSpec& spec) {
  std::vector<Tensor> actions;
  const auto add = [&](auto fill) {
    const TensorSpec one = spec.tensor();
    fill(actions.emplace_back(one.dtype, one.shape.Prepend(1)));
  };
  if (spec.discrete()) {
    const std::int64_t tried = std::min<std::int64_t>(spec.count, 256);
    for (std::int64_t i = 0; i < tried; ++i) {
      const std::int64_t action = tried == 1 ? 0 : i * (spec.count - 1) / (tried - 1);
      add([&](Tensor& t) { t.data<std::int32_t>()[0] = std::int32_t(action); });
    }
    return actions;
  }
  for (const float part : {0.0f, 1.0f, 0.5f}) {
    add([&](Tensor& t) {
      for (std::size_t k = 0; k < spec.low.size(); ++k) {
        float value = part == 1 ? spec.high[k] : spec.low[k] + part * (spec.high[k] - spec.low[k]);
        if (spec.integers) value = std::floor(value);
        t.data<float>()[k] = value;
      }
    });
  }
  return actions;
}

// Every declared action must be accepted.
Status Check::CheckActions() {
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(Options(1)));
  const std::vector<Tensor> actions = ActionsToTry(spec_.action);
  for (const Tensor& action : actions) {
    TROOP_RETURN_IF_ERROR(player->Restart());
    const ConstTensor chosen = action;
    // A few steps, since an effect may appear only in the next step. Where the mask forbids the
    // action, any allowed one takes its place.
    for (int t = 0; t < 3; ++t) {
      const ConstTensor seen = player->batch().observation;
      const bool may = !spec_.action.discrete() ||
                       AllowsAction(spec_, seen.bytes(), action.as<std::int32_t>()[0]);
      TROOP_RETURN_IF_ERROR(player->Step(may ? &chosen : nullptr));
    }
    if (!player->fault() && player->bad_number().empty()) continue;
    const std::string why = player->fault() ? player->fault()->what : player->bad_number();
    const std::string name = spec_.action.discrete()
                                 ? fmt::format("{}", action.as<std::int32_t>()[0])
                                 : fmt::format("[{}]", fmt::join(action.as<float>(), ", "));
    Fail("actions", "action {} is declared but was rejected: {}", name, why);
    return Status::Ok();
  }
  Ok("actions", "{} were tried, all accepted", actions.size());
  return Status::Ok();
}

// Observations must change within an episode, and must depend on the actions.
Status Check::CheckEffect() {
  const auto changes = [](const RecordedEpisode& episode) {
    return std::ranges::any_of(
        episode.steps, [&](const RecordedStep& step) { return step.observation != episode.first; });
  };
  if (std::ranges::none_of(alone_, changes) && steps_max_ < unlimited_) {
    steps_max_ = unlimited_;  // some games stay constant at first
    seeds_.resize(1);
    TROOP_ASSIGN_OR_RETURN(alone_, PlayNew(1, seeds_));
  }
  if (std::ranges::none_of(alone_, changes)) {
    Fail("effect", "the observation never changes within an episode; update it in step");
    return Status::Ok();
  }
  if (spec_.action.discrete() && spec_.action.count == 1) {
    Note("effect", "there is only one action");
    return Status::Ok();
  }
  // Another stream gives other random actions for the same seeds.
  TROOP_ASSIGN_OR_RETURN(const Episodes other, PlayNew(1, seeds_, 1));
  for (const RecordedEpisode& a : alone_) {
    for (const RecordedEpisode& b : other) {
      if (a.seed != b.seed || Difference(a, b).empty()) continue;
      Ok("effect", "observations change, and depend on the actions");
      return Status::Ok();
    }
  }
  constexpr std::string_view kNothing =
      "the actions change neither observations nor rewards nor episode ends";
  if (hastened_) {
    Note("effect", "{} within {} steps; the check stopped there, as steps are slow", kNothing,
         steps_max_);
  } else {
    Fail("effect", "{}; use the action", kNothing);
  }
  return Status::Ok();
}

// Looks for memory that grows with the episodes. Episodes are short, as leaks occur per reset or
// per step. Only the second half of the run counts, when caches are full.
Status Check::CheckMemory() {
  // The memory of the whole process family counts, as environments may have their own processes.
  const std::int64_t episodes = options_.quick ? 4'000 : 100'000;
  const Time end = clock_.Now() + Seconds(options_.quick ? 5 : 60);
  constexpr int kParts = 20, kSteps = 8;
  TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(Options(vector_)));
  std::vector<std::int64_t> bytes;
  std::int64_t played = 0;
  for (int part = 0; part < kParts; ++part) {
    for (std::int64_t i = 0; i < episodes / vector_ / kParts && clock_.Now() < end; ++i) {
      TROOP_RETURN_IF_ERROR(player->Restart());
      for (int t = 0; t < kSteps; ++t) TROOP_RETURN_IF_ERROR(player->Step());
      played += vector_;
    }
    bytes.push_back(ResidentBytesOfFamily());
  }
  // Compare a high value early in the second half with a low value at its end: noise then hides a
  // leak rather than suggests one.
  const auto half = bytes.begin() + kParts / 2;
  const std::int64_t before = *std::max_element(half, half + 3);
  const std::int64_t after = *std::min_element(bytes.end() - 3, bytes.end());
  const double per_episode = double(after - before) / double(std::max<std::int64_t>(1, played / 2));
  // Both limits avoid false alarms: allocators grow by large blocks, a leak repeats, and the
  // address sanitizer keeps freed memory, about 270 bytes per episode of the tests.
  if (after - before > (1 << 20) && per_episode > 16) {
    Fail("memory",
         "grew by {:.1f} MiB over {} episodes, {:.0f} bytes each; free what reset and "
         "step allocate",
         double(after - before) / (1 << 20), played / 2, per_episode);
    return Status::Ok();
  }
  Ok("memory", "did not grow over {} episodes{}", played,
     played < episodes / 2 ? " (stopped early, as steps are slow)" : "");
  return Status::Ok();
}

// Steps per second, alone and in a vector. Never fails.
Status Check::CheckSpeed() {
  std::vector<double> per_second;
  const int unwatched = hastened_ ? 1 : 16;  // steps between two reads of the clock
  // A vector amortizes the bridge to another process, so both speeds are of interest.
  for (const int size : {1, vector_}) {
    TROOP_ASSIGN_OR_RETURN(const auto player, EnvPlayer::Make(Options(size)));
    TROOP_RETURN_IF_ERROR(player->Restart());
    const Time begin = clock_.Now();
    // Measured time per speed; only orders of magnitude matter here.
    const Duration wanted = Seconds(options_.quick ? 0.2 : 1);
    std::int64_t steps = 0;
    while (clock_.Now() - begin < wanted) {
      for (int i = 0; i < unwatched; ++i) TROOP_RETURN_IF_ERROR(player->Step());
      steps += std::int64_t{unwatched} * size;
    }
    per_second.push_back(double(steps) / ToSeconds(clock_.Now() - begin));
  }
  Ok("speed", "{:.0f} steps/s alone, {:.0f} in a vector of {}", per_second[0], per_second[1],
     vector_);
  return Status::Ok();
}

}  // namespace

std::vector<Verdict> CheckEnvironment(const EnvCheckOptions& options,
                                      const std::function<void(const Verdict&)>& report) {
  return Check(options, report).Run();
}

}  // namespace troop
