// Turns a class into an environment in a shared library. C++17, header-only; implements the C
// interface of troop_env.h. Tutorial: docs/guide/environments.md.
//
//   class Corridor {
//    public:
//     static constexpr const char* kId = "Corridor-v0";
//     explicit Corridor(troop::plugin::Options& options) : length_(options.Integer("length", 10))
//     {} troop::plugin::Spec spec() const { return troop::plugin::Spec().Observe({1}).Discrete(2);
//     } void Reset(std::uint64_t seed, troop::plugin::Span<float> observation);
//     troop::plugin::StepResult Step(std::int32_t action, troop::plugin::Span<float> observation);
//   };
//   TROOP_ENVIRONMENT(Corridor)  // or several: TROOP_ENVIRONMENT(Corridor, Maze)
//
// The observation type is deduced from the signatures of Reset and Step: Span of float,
// std::int32_t or std::uint8_t. A Step with a Span<const float> has continuous actions. The
// constructor may also take no options. `Picture Render()` and `void Metrics(const Emit& emit)`
// are optional; the latter reports numbers of the last step: emit("distance", distance_).
//
// Exceptions are caught and their text becomes the reason: of the rejection if the constructor
// throws, otherwise of the lost episode. One thread at a time calls one object; different objects
// may run in different threads.
#pragma once

#include <troop_env.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troop::plugin {

// A view of contiguous values that the host owns.
template <class T>
class Span {
 public:
  Span(T* data, std::size_t size) : data_(data), size_(size) {}
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  // Writes all elements. REQUIRES: as many values as the span has.
  void Write(std::initializer_list<std::common_type_t<T>> values) const {
    if (values.size() != size_)
      throw std::length_error("the observation has another size than the span");
    std::copy(values.begin(), values.end(), data_);
  }

 private:
  T* data_;
  std::size_t size_;
};

// Result of one step.
struct StepResult {
  float reward = 0;
  bool terminated = false;  // ended by the environment's rules
  bool truncated = false;   // ended by your own limit; with Spec::Limit the host truncates
};

// Human-readable picture: RGB, the top row first.
struct Picture {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]
};

// Receives the numbers of one step (TroopEnvApi::metrics).
class Emit {
 public:
  Emit(void (*emit)(void*, const char*, double), void* sink) : emit_(emit), sink_(sink) {}
  void operator()(const std::string& name, double value) const {
    emit_(sink_, name.c_str(), value);
  }

 private:
  void (*emit_)(void*, const char*, double);
  void* sink_;
};

// Observations and actions of an environment.
class Spec {
 public:
  // Shape of an observation; {}: a scalar.
  Spec& Observe(std::vector<std::int64_t> shape) {
    shape_ = std::move(shape);
    return *this;
  }
  // One part of an observation, instead of Observe: the parts follow each other in the span. Images
  // [height, width, channels] pass the network's conv2d layers separately from other parts.
  Spec& Part(std::string name, std::vector<std::int64_t> shape, double scale = 1) {
    parts_.push_back({std::move(name), std::move(shape), scale, false});
    return *this;
  }
  // The part with 1 for each discrete action that may be chosen next, and 0 for the others. It has
  // as many elements as there are actions.
  Spec& ActionMask() {
    parts_.push_back({"action_mask", {}, 1, true});
    return *this;
  }
  // Factor that networks apply to observations first: 1 / 255.0 for gray frames.
  Spec& Scale(double scale) {
    scale_ = scale;
    return *this;
  }
  // Actions 0, …, count - 1.
  Spec& Discrete(std::int64_t count) {
    count_ = count;
    return *this;
  }
  // Continuous actions with one value per pair of bounds.
  Spec& Continuous(std::vector<float> low, std::vector<float> high) {
    if (low.size() != high.size())
      throw std::length_error("Continuous: low and high differ in size");
    low_ = std::move(low);
    high_ = std::move(high);
    return *this;
  }
  // Actions with several discrete components, of which number i has the values 0, …, counts[i] - 1.
  // Step gets them as a Span<const float>.
  Spec& MultiDiscrete(const std::vector<std::int64_t>& counts) {
    low_.assign(counts.size(), 0);
    high_.clear();
    for (const std::int64_t count : counts) high_.push_back(float(count - 1));
    integers_ = true;
    return *this;
  }
  // Step limit after which the host truncates an episode.
  Spec& Limit(std::int64_t steps) {
    limit_ = steps;
    return *this;
  }

 private:
  template <class E>
  friend class Bridge;
  struct ObservationPart {
    std::string name;
    std::vector<std::int64_t> shape;
    double scale;
    bool action_mask;
  };
  std::vector<std::int64_t> shape_;
  std::vector<ObservationPart> parts_;
  std::vector<float> low_, high_;
  std::int64_t count_ = 0, limit_ = 0;
  double scale_ = 1;
  bool integers_ = false;
};

// The table [env.options] of the config. Reading a name makes it known; an option that was never
// read is an error that names it and the known ones. A value of another type throws.
class Options {
 public:
  Options(const TroopEnvOption* options, std::size_t count) : given_(options, count) {}
  // Getters: the value of an option, or `fallback` if it is not given.
  bool Bool(const std::string& name, bool fallback) {
    const TroopEnvOption* o = Find(name, fallback ? "true" : "false");
    if (o == nullptr) return fallback;
    if (o->type != TROOP_ENV_BOOL) Refuse(*o, "true or false");
    return o->value.integer != 0;
  }
  std::int64_t Integer(const std::string& name, std::int64_t fallback) {
    const TroopEnvOption* o = Find(name, std::to_string(fallback));
    if (o == nullptr) return fallback;
    if (o->type != TROOP_ENV_INTEGER) Refuse(*o, "an integer");
    return o->value.integer;
  }
  double Number(const std::string& name, double fallback) {
    const TroopEnvOption* o = Find(name, Text(fallback));
    if (o == nullptr) return fallback;
    if (o->type == TROOP_ENV_INTEGER) return double(o->value.integer);
    if (o->type != TROOP_ENV_NUMBER) Refuse(*o, "a number");
    return o->value.number;
  }
  std::string String(const std::string& name, const std::string& fallback) {
    const TroopEnvOption* o = Find(name, '"' + fallback + '"');
    if (o == nullptr) return fallback;
    if (o->type != TROOP_ENV_STRING) Refuse(*o, "a string");
    return o->value.string;
  }

  // Throws if an option was given that the environment never read.
  void CheckAllKnown() const {
    for (const TroopEnvOption& option : given_) {
      if (std::find(asked_.begin(), asked_.end(), option.name) != asked_.end()) continue;
      throw std::invalid_argument(std::string("unknown option ") + option.name +
                                  (known_.empty() ? "; there are none" : "; known: " + known_));
    }
  }

 private:
  const TroopEnvOption* Find(const std::string& name, const std::string& fallback) {
    asked_.push_back(name);
    known_ += (known_.empty() ? "" : ", ") + name + " = " + fallback;
    for (const TroopEnvOption& option : given_) {
      if (name == option.name) return &option;
    }
    return nullptr;
  }
  [[noreturn]] static void Refuse(const TroopEnvOption& option, const std::string& want) {
    throw std::invalid_argument(std::string("option ") + option.name + " must be " + want);
  }
  static std::string Text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
  }

  Span<const TroopEnvOption> given_;
  std::vector<std::string> asked_;
  std::string known_;
};

// Random numbers from an episode's seed: equal on every machine and with every compiler, which the
// distributions of <random> do not guarantee. SplitMix64 (Steele et al. 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double Uniform() { return double(Next() >> 11) * 0x1p-53; }  // in [0, 1)
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  std::int64_t Below(std::int64_t count) { return std::int64_t(Uniform() * double(count)); }

 private:
  std::uint64_t state_;
};

// Implementation of TROOP_ENVIRONMENT: adapts a class to the C interface.
template <class T>
struct ElementType;
template <>
struct ElementType<std::uint8_t> {
  static constexpr std::int32_t kType = TROOP_ENV_U8;
};
template <>
struct ElementType<std::int32_t> {
  static constexpr std::int32_t kType = TROOP_ENV_I32;
};
template <>
struct ElementType<float> {
  static constexpr std::int32_t kType = TROOP_ENV_F32;
};

template <class T>
struct StepSignature;  // undefined: Step has a signature that this header does not support
template <class E, class A, class T>
struct StepSignature<StepResult (E::*)(A, Span<T>)> {
  using Element = T;
  static constexpr bool kContinuous = std::is_same_v<A, Span<const float>>;
  static_assert(kContinuous || std::is_same_v<A, std::int32_t>,
                "Step takes std::int32_t or Span<const float> for its action");
};
template <class E, class A, class T>
struct StepSignature<StepResult (E::*)(A, Span<T>) noexcept>
    : StepSignature<StepResult (E::*)(A, Span<T>)> {};

template <class E, class = void>
inline constexpr bool kHasRender = false;
template <class E>
inline constexpr bool kHasRender<E, std::void_t<decltype(std::declval<E&>().Render())>> = true;

template <class E, class = void>
inline constexpr bool kHasMetrics = false;
template <class E>
inline constexpr bool
    kHasMetrics<E, std::void_t<decltype(std::declval<E&>().Metrics(std::declval<const Emit&>()))>> =
        true;

// Type-erased environment; what a TroopEnv* points to.
class Handle {
 public:
  virtual ~Handle() = default;
  virtual void Describe(TroopEnvSpec* spec) const = 0;
  virtual void Reset(std::uint64_t seed, void* observation) = 0;
  virtual StepResult Step(const void* action, void* observation) = 0;
  // Steps handles of this object's class. The arguments are those of TroopEnvApi::step_many.
  virtual void StepMany(TroopEnv* const* envs, std::int32_t count, const void* actions,
                        void* observations, float* rewards, std::uint8_t* terminated,
                        std::uint8_t* truncated, std::int32_t* results) = 0;
  virtual bool Render(TroopEnvPicture* picture) = 0;  // false: there are no pictures
  virtual void Metrics(const Emit& emit) = 0;         // none: the class has no Metrics
  std::string error;
};

inline Handle* HandleOf(TroopEnv* env) { return reinterpret_cast<Handle*>(env); }

// Runs `call` and converts an exception to an error: its text goes to `error`.
template <class Call>
std::int32_t Guard(std::string* error, const Call& call) noexcept {
  try {
    call();
    return 0;
  } catch (const std::exception& exception) {
    *error = exception.what();
  } catch (...) {
    *error = "it threw something other than a std::exception";
  }
  return -1;
}

// Implements Handle for the class E.
template <class E>
class Bridge final : public Handle {
 public:
  explicit Bridge(Options& options) : environment_(Make(options)), spec_(environment_.spec()) {
    options.CheckAllKnown();
    if (!spec_.parts_.empty()) MakeParts();
    if (spec_.shape_.size() > TROOP_ENV_RANK_MAX) throw std::length_error("too many dimensions");
    for (const std::int64_t dim : spec_.shape_) elements_ *= std::size_t(dim);
  }
  void Describe(TroopEnvSpec* said) const override {
    said->observation_type = ElementType<Element>::kType;
    said->observation_rank = std::int32_t(spec_.shape_.size());
    std::copy(spec_.shape_.begin(), spec_.shape_.end(), said->observation_shape);
    said->observation_scale = spec_.scale_;
    said->action_kind = !Signature::kContinuous ? TROOP_ENV_DISCRETE
                        : spec_.integers_       ? TROOP_ENV_MULTI_DISCRETE
                                                : TROOP_ENV_CONTINUOUS;
    said->action_count = spec_.count_;
    said->action_size = std::int32_t(spec_.low_.size());
    said->action_low = spec_.low_.data();
    said->action_high = spec_.high_.data();
    said->max_episode_steps = spec_.limit_;
    if (parts_.empty()) return;
    // A host of version 1.2 would read the observation as one tensor.
    if (said->struct_size < sizeof(TroopEnvSpec))
      throw std::runtime_error("parts of an observation need a newer Troop (interface 1.3)");
    said->part_count = std::int32_t(parts_.size());
    said->parts = parts_.data();
  }
  void Reset(std::uint64_t seed, void* observation) override {
    environment_.Reset(seed, Span<Element>(static_cast<Element*>(observation), elements_));
  }
  StepResult Step(const void* action, void* observation) override {
    const Span<Element> room(static_cast<Element*>(observation), elements_);
    if constexpr (Signature::kContinuous) {
      return environment_.Step({static_cast<const float*>(action), spec_.low_.size()}, room);
    } else {
      return environment_.Step(*static_cast<const std::int32_t*>(action), room);
    }
  }
  void StepMany(TroopEnv* const* envs, std::int32_t count, const void* actions, void* observations,
                float* rewards, std::uint8_t* terminated, std::uint8_t* truncated,
                std::int32_t* results) override {
    const std::size_t width = Signature::kContinuous ? spec_.low_.size() : 1;
    auto* const observation = static_cast<Element*>(observations);
    for (std::int32_t i = 0; i < count; ++i) {
      auto& one = static_cast<Bridge&>(*HandleOf(envs[i]));
      const void* const action = static_cast<const Number*>(actions) + std::size_t(i) * width;
      results[i] = Guard(&one.error, [&] {
        const StepResult step = one.Step(action, observation + std::size_t(i) * elements_);
        rewards[i] = step.reward;
        terminated[i] = step.terminated;
        truncated[i] = step.truncated;
      });
    }
  }
  bool Render(TroopEnvPicture* picture) override {
    if constexpr (kHasRender<E>) {
      picture_ = environment_.Render();
      if (picture_.rgb.size() != std::size_t(3) * picture_.width * picture_.height) {
        throw std::length_error("a picture has width * height * 3 bytes");
      }
      picture->width = picture_.width;
      picture->height = picture_.height;
      picture->rgb = picture_.rgb.data();
      return true;
    } else {
      (void)picture;
      return false;
    }
  }
  void Metrics(const Emit& emit) override {
    if constexpr (kHasMetrics<E>) environment_.Metrics(emit);
  }

 private:
  using Signature = StepSignature<decltype(&E::Step)>;
  using Element = typename Signature::Element;
  using Number = std::conditional_t<Signature::kContinuous, float, std::int32_t>;
  static E Make(Options& options) {
    if constexpr (std::is_constructible_v<E, Options&>) {
      return E(options);
    } else {
      (void)options;
      return E();
    }
  }

  // The parts for the host, and the shape of the observation that they make up.
  void MakeParts() {
    if (!spec_.shape_.empty()) throw std::logic_error("Observe and Part exclude each other");
    std::int64_t sum = 0;
    for (auto& part : spec_.parts_) {
      if (part.action_mask) part.shape = {spec_.count_};
      if (part.shape.size() > TROOP_ENV_RANK_MAX) throw std::length_error("too many dimensions");
      TroopEnvPart said{};
      said.name = part.name.c_str();
      said.rank = std::int32_t(part.shape.size());
      std::copy(part.shape.begin(), part.shape.end(), said.shape);
      said.scale = part.scale;
      said.action_mask = part.action_mask ? 1 : 0;
      parts_.push_back(said);
      std::int64_t elements = 1;
      for (const std::int64_t dim : part.shape) elements *= dim;
      sum += elements;
    }
    spec_.shape_ = {sum};
  }

  E environment_;
  Spec spec_;
  std::vector<TroopEnvPart> parts_;
  std::size_t elements_ = 1;
  Picture picture_;
};

// Builds the table of a library with these classes.
template <class... E>
class Library {
 public:
  static const TroopEnvApi* Api() {
    static constexpr const char* kIds[] = {E::kId..., nullptr};
    static constexpr TroopEnvApi kApi = {sizeof(TroopEnvApi),
                                         TROOP_ENV_ABI_MAJOR,
                                         TROOP_ENV_ABI_MINOR,
                                         kIds,
                                         &Create,
                                         &Destroy,
                                         &Describe,
                                         &Reset,
                                         &Step,
                                         &Render,
                                         &LastError,
                                         &StepMany,
                                         (kHasMetrics<E> || ...) ? &Metrics : nullptr};
    return &kApi;
  }

 private:
  static Handle* Of(TroopEnv* env) { return HandleOf(env); }

  template <class One>
  static void MakeIf(const char* id, Options& options, std::unique_ptr<Handle>* handle) {
    if (*handle == nullptr && std::strcmp(id, One::kId) == 0) {
      *handle = std::make_unique<Bridge<One>>(options);
    }
  }
  static TroopEnv* Create(const char* id, const TroopEnvOption* options, std::size_t count,
                          char* error, std::size_t error_size) {
    std::unique_ptr<Handle> handle;
    std::string why = "no environment has this id";
    Guard(&why, [&] {
      Options given(options, count);
      (MakeIf<E>(id, given, &handle), ...);
    });
    if (handle == nullptr && error_size > 0) {
      const std::size_t length = std::min(why.size(), error_size - 1);
      std::memcpy(error, why.data(), length);
      error[length] = 0;
    }
    return reinterpret_cast<TroopEnv*>(handle.release());
  }
  static void Destroy(TroopEnv* env) { delete Of(env); }
  static std::int32_t Describe(TroopEnv* env, TroopEnvSpec* spec) {
    return Guard(&Of(env)->error, [&] { Of(env)->Describe(spec); });
  }
  static std::int32_t Reset(TroopEnv* env, std::uint64_t seed, void* observation) {
    return Guard(&Of(env)->error, [&] { Of(env)->Reset(seed, observation); });
  }
  static std::int32_t Step(TroopEnv* env, const void* action, void* observation, float* reward,
                           std::int32_t* terminated, std::int32_t* truncated) {
    return Guard(&Of(env)->error, [&] {
      const StepResult step = Of(env)->Step(action, observation);
      *reward = step.reward;
      *terminated = step.terminated;
      *truncated = step.truncated;
    });
  }
  static void StepMany(TroopEnv* const* envs, std::int32_t count, const void* actions,
                       void* observations, float* rewards, std::uint8_t* terminated,
                       std::uint8_t* truncated, std::int32_t* results) {
    if (count < 1) return;
    Of(envs[0])->StepMany(envs, count, actions, observations, rewards, terminated, truncated,
                          results);
  }
  static std::int32_t Render(TroopEnv* env, TroopEnvPicture* picture) {
    return Guard(&Of(env)->error, [&] { Of(env)->Render(picture); });
  }
  // An exception only loses the numbers of this step.
  static void Metrics(TroopEnv* env, void (*emit)(void*, const char*, double), void* sink) {
    Guard(&Of(env)->error, [&] { Of(env)->Metrics(Emit(emit, sink)); });
  }
  static const char* LastError(TroopEnv* env) { return Of(env)->error.c_str(); }
};

}  // namespace troop::plugin

// Exports these classes. Use once per library.
#define TROOP_ENVIRONMENT(...)                                                                 \
  extern "C" TROOP_ENV_EXPORT const TroopEnvApi* troop_env_api(std::uint32_t host_abi_major) { \
    (void)host_abi_major;                                                                      \
    return ::troop::plugin::Library<__VA_ARGS__>::Api();                                       \
  }
