// A sound little environment, and the same with one of the faults that people make: option `fault`.
// Built by hand on troop/environment.hpp, as a user would.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <troop/environment.hpp>
#include <vector>

namespace {

using namespace troop::plugin;

// Shared by all objects of the process, as a careless author's would be.
int shared_position = 0;

// Takes a page that is never freed. It comes from the kernel: from the heap it might be memory that
// earlier checks of this process have freed, and the process would not grow.
void LeakPage() {
  constexpr std::size_t kBytes = 4096;
  void* const page =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("no memory left to leak");
  std::memset(page, 1, kBytes);
}

// A walk to the right end of a corridor, with wind. Observation: position and a target's colour.
// The walk ends at either end, or after `limit` steps.
class Walk {
 public:
  static constexpr const char* kId = "Walk-v0";
  explicit Walk(Options& options)
      : fault_(options.String("fault", "")),
        at_step_(options.Integer("at_step", 5)),
        length_(options.Integer("length", 12)),
        wind_(options.Number("wind", 0.2)),
        render_(options.Bool("render", true)) {
    if (fault_ == "create") throw std::runtime_error("planted: no licence");
  }
  Spec spec() const { return Spec().Observe({3}).Discrete(3).Limit(endless() ? 0 : 40); }

  void Reset(std::uint64_t seed, Span<float> observation) {
    if (fault_ == "reset_throws" && ++resets_ % 3 == 0) throw std::runtime_error("planted: reset");
    const bool keep = fault_ == "keeps_state" && started_;
    if (fault_ == "ignores_seed") seed = 1;
    if (fault_ == "clock_seed") {
      seed = std::uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
    }
    random_ = Random(seed);
    colour_ = float(random_.Uniform());
    step_ = 0;
    done_ = fault_ == "stays_ended" && done_;
    if (!keep) position() = length_ / 2 + int(random_.Below(3)) - 1;
    started_ = true;
    if (fault_ == "leaks") LeakPage();
    Observe(observation);
  }

  StepResult Step(std::int32_t action, Span<float> observation) {
    ++step_;
    if (step_ == at_step_) Misbehave();
    if (fault_ == "refuses_action" && action == 2) throw std::invalid_argument("planted: action 2");
    if (fault_ == "ignores_action") action = 1;
    const bool blown = random_.Uniform() < wind_;
    position() += action - 1 - (blown ? 1 : 0);
    const bool won = position() >= length_, lost = position() <= 0;
    done_ = done_ || ((won || lost) && !endless());
    StepResult result{won && !endless() ? 1.0f : -0.01f, done_};
    position() = std::clamp(position(), 0, int(length_));
    if (fault_ == "infinite_reward" && step_ == at_step_) {
      result.reward = std::numeric_limits<float>::infinity();
    }
    if (fault_ == "both_ends" && done_) result.truncated = true;
    if (done_ && fault_ == "resets_itself") {
      position() = first_position_;
      step_ = 0;
    }
    Observe(observation);
    if (fault_ == "nan" && step_ == at_step_) {
      observation[1] = std::numeric_limits<float>::quiet_NaN();
    }
    return result;
  }

  void Metrics(const Emit& emit) {
    emit("position", double(position()));
    if (done_) emit("won", position() > 0 ? 1 : 0);
    if (fault_ == "metric_nan") emit("odd", std::numeric_limits<double>::quiet_NaN());
  }
  Picture Render() {
    if (!render_) return {};
    Picture picture{int(length_) + 1, 1, std::vector<std::uint8_t>(3 * (length_ + 1))};
    picture.rgb[3 * std::size_t(position())] = 255;
    return picture;
  }

 private:
  bool endless() const { return fault_ == "endless" || fault_ == "stands_still"; }
  int& position() { return fault_ == "shares_state" ? shared_position : position_; }
  void Misbehave() {
    if (fault_ == "throws") throw std::runtime_error("planted: step 5");
    if (fault_ == "throws_int") throw 5;
    if (fault_ == "segfault") {
      std::signal(SIGSEGV, SIG_DFL);  // also where a sanitizer would make an exit code of it
      std::raise(SIGSEGV);
    }
    while (fault_ == "hangs") std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  void Observe(Span<float> observation) {
    if (step_ == 0) first_position_ = position();
    if (fault_ == "constant") return observation.Write({0, 0, 0});
    // No fault: a game that begins with a picture of itself.
    if (fault_ == "stands_still" && step_ < 2000) return observation.Write({0, 0, 0});
    // No fault: as if it saw the field ahead alone. Most episodes end in what others begin with.
    if (fault_ == "few_views") return observation.Write({float(position() % 2), 0, 0});
    const bool first = done_ && fault_ == "resets_itself";
    observation.Write({float(position()), colour_, first ? 0 : float(step_)});
  }

  const std::string fault_;
  const std::int64_t at_step_, length_;
  const double wind_;
  const bool render_;
  Random random_;
  float colour_ = 0;
  int position_ = 0, first_position_ = 0, resets_ = 0;
  std::int64_t step_ = 0;
  bool done_ = false, started_ = false;
};

// The types that Walk does not have.
class Grey {
 public:
  static constexpr const char* kId = "Grey-v0";
  Spec spec() const {
    return Spec().Observe({4, 5, 1}).Scale(1 / 255.0).Continuous({-2, 0}, {2, 1});
  }
  void Reset(std::uint64_t seed, Span<std::uint8_t> observation) {
    state_ = std::uint8_t(seed);
    std::fill(observation.begin(), observation.end(), state_);
  }
  StepResult Step(Span<const float> action, Span<std::uint8_t> observation) {
    state_ = std::uint8_t(state_ + 1);
    std::fill(observation.begin(), observation.end(), state_);
    return {action[0] * 10 + action[1], false, state_ == 0};
  }

 private:
  std::uint8_t state_ = 0;
};

// Refuses an action that it has declared.
class Corner {
 public:
  static constexpr const char* kId = "Corner-v0";
  Spec spec() const { return Spec().Observe({2}).Continuous({-1, -1}, {1, 1}).Limit(20); }
  void Reset(std::uint64_t seed, Span<float> observation) {
    Random random(seed);
    x_ = random.Uniform(), y_ = random.Uniform();
    observation.Write({float(x_), float(y_)});
  }
  StepResult Step(Span<const float> action, Span<float> observation) {
    if (action[0] == 1) throw std::invalid_argument("planted: corner");
    x_ += double(action[0]), y_ += double(action[1]);
    observation.Write({float(x_), float(y_)});
    return {float(x_ * y_)};
  }

 private:
  double x_ = 0, y_ = 0;
};

// Three dials, to be set to the values of the observation. The reward is 1 less the mean distance.
class Dials {
 public:
  static constexpr const char* kId = "Dials-v0";
  Spec spec() const { return Spec().Observe({3}).MultiDiscrete({5, 7, 200}).Limit(10); }
  void Reset(std::uint64_t seed, Span<float> observation) {
    random_ = Random(seed);
    Choose(observation);
  }
  StepResult Step(Span<const float> action, Span<float> observation) {
    float reward = 1;
    for (std::size_t k = 0; k < 3; ++k) {
      if (action[k] != std::floor(action[k])) throw std::invalid_argument("not an integer");
      reward -= std::abs(action[k] / kLast[k] - wanted_[k]) / 3;
    }
    Choose(observation);
    return {reward};
  }

 private:
  static constexpr float kLast[] = {4, 6, 199};
  void Choose(Span<float> observation) {
    for (std::size_t k = 0; k < 3; ++k) observation[k] = wanted_[k] = float(random_.Uniform());
  }
  float wanted_[3] = {};
  Random random_;
};

}  // namespace

TROOP_ENVIRONMENT(Walk, Grey, Corner, Dials)
