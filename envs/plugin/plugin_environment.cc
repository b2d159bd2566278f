// Environments of plug-ins: loading, version and option checks, and calls through the C interface.

#include "envs/plugin/plugin_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "core/base/edit_distance.h"
#include "core/base/utf8.h"
#include "core/base/version.h"
#include "core/storage/shared_library.h"
#include "envs/observation_io.h"
#include "envs/plugin/plugin_spec.h"

namespace troop {
namespace {

static_assert(TROOP_ENV_ABI_MAJOR == kAbiVersion);

// Limits for data from the library: a faulty one must not exhaust memory or flood the log.
constexpr std::size_t kIdsMax = 1000, kIdBytesMax = 200, kMessageBytesMax = 1000;
constexpr std::int32_t kPictureSideMax = 4096;

// Text from the library as one printable line of bounded length.
std::string OneLine(const char* text) {
  if (text == nullptr) return {};
  return PrintableLine({text, strnlen(text, kMessageBytesMax)}, kMessageBytesMax);
}

// Ids of the library; reading stops at kIdsMax if the list lacks its NULL.
std::vector<std::string> IdsOf(const TroopEnvApi* api) {
  std::vector<std::string> ids;
  for (const char* const* id = api->ids; *id != nullptr && ids.size() < kIdsMax; ++id) {
    ids.emplace_back(*id, strnlen(*id, kIdBytesMax));
  }
  return ids;
}

// Converts options to the C interface. The result points into `options`.
std::vector<TroopEnvOption> OptionsFor(const std::vector<EnvOption>& options) {
  std::vector<TroopEnvOption> out;
  for (const EnvOption& option : options) {
    TroopEnvOption& o = out.emplace_back();
    o.name = option.name.c_str();
    if (const auto* boolean = std::get_if<bool>(&option.value)) {
      o.type = TROOP_ENV_BOOL;
      o.value.integer = *boolean ? 1 : 0;
    } else if (const auto* integer = std::get_if<std::int64_t>(&option.value)) {
      o.type = TROOP_ENV_INTEGER;
      o.value.integer = *integer;
    } else if (const auto* number = std::get_if<double>(&option.value)) {
      o.type = TROOP_ENV_NUMBER;
      o.value.number = *number;
    } else {
      o.type = TROOP_ENV_STRING;
      o.value.string = std::get<std::string>(option.value).c_str();
    }
  }
  return out;
}

// Deleter of a handle. The table outlives all handles, because libraries are never closed.
struct Destroy {
  const TroopEnvApi* api;
  void operator()(TroopEnv* env) const { api->destroy(env); }
};
using Handle = std::unique_ptr<TroopEnv, Destroy>;

// Reason of the last failed call with this handle.
std::string LastError(const TroopEnvApi* api, TroopEnv* env) {
  const std::string said =
      api->last_error == nullptr ? std::string() : OneLine(api->last_error(env));
  return said.empty() ? "no reason given" : said;
}

// Copies actions and observations through aligned buffers if the caller's are not aligned for their
// type.
class PluginEnvironment final : public Environment {
 public:
  PluginEnvironment(const TroopEnvApi* api, Handle handle, EnvSpec spec, bool metrics)
      : handle_(std::move(handle)),
        collects_(metrics),
        api_(api),
        spec_(std::move(spec)),
        masks_(ActionMaskOffset(spec_).has_value()),
        alignment_(DTypeSize(spec_.observation.dtype)),
        action_(spec_.action.tensor().dtype, spec_.action.tensor().shape),
        unaligned_(spec_.observation.dtype, {}) {}

  const EnvSpec& spec() const override { return spec_; }
  std::string_view fault() const override { return fault_; }
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override;
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override;
  Many StepMany(std::span<const std::unique_ptr<Environment>> envs, const Rows& rows) override;
  Picture Render() const override;
  void TakeMetrics(EnvMetrics* into) override { metrics_.MoveTo(into); }

 private:
  void Collect();
  // Calls `call` with an aligned buffer for one observation.
  template <class Call>
  std::int32_t Into(std::span<std::byte> observation, const Call& call);
  void Fail(std::string_view what, std::int32_t code);
  void CheckActions(std::span<const std::byte> actions) const;
  void CheckMask(std::span<const std::byte> observation);

  // Members that StepMany touches are adjacent, to share cache lines.
  const Handle handle_;
  std::int64_t steps_ = 0;
  bool under_way_ = false;  // an episode has begun and not ended
  const bool collects_;     // calls TroopEnvApi::metrics after each step

  const TroopEnvApi* const api_;
  const EnvSpec spec_;
  const bool masks_;  // observations have an action mask
  const std::size_t alignment_;
  const Tensor action_;
  Tensor unaligned_;  // allocated on first use
  std::string fault_;
  std::vector<TroopEnv*> handles_;  // arguments of step_many, reused
  std::vector<std::int32_t> results_;
  EnvMetrics metrics_;
};

template <class Call>
std::int32_t PluginEnvironment::Into(std::span<std::byte> observation, const Call& call) {
  TROOP_CHECK(observation.size() == spec_.observation.bytes(),
              "{}: an observation has {} bytes, not {}", spec_.id, spec_.observation.bytes(),
              observation.size());
  if (reinterpret_cast<std::uintptr_t>(observation.data()) % alignment_ == 0) {
    return call(observation.data());
  }
  if (unaligned_.spec() != spec_.observation) {
    // Only callers with unaligned rows need the buffer.
    unaligned_ = Tensor(spec_.observation.dtype, spec_.observation.shape);
  }
  const std::int32_t code = call(unaligned_.bytes().data());
  std::memcpy(observation.data(), unaligned_.bytes().data(), observation.size());
  return code;
}

// Records a fault; the episode is over and the next call must be Reset.
void PluginEnvironment::Fail(std::string_view what, std::int32_t code) {
  under_way_ = false;
  fault_ = fmt::format("{} failed ({}): {}", what, code, LastError(api_, handle_.get()));
}

void PluginEnvironment::Reset(std::uint64_t seed, std::span<std::byte> observation) {
  // A reset is also the way to recover from a fault.
  fault_.clear();
  steps_ = 0;
  under_way_ = true;
  const std::int32_t code =
      Into(observation, [&](void* room) { return api_->reset(handle_.get(), seed, room); });
  if (code < 0) return Fail("reset", code);
  CheckMask(observation);
}

// Checks the mask of the next action. A wrong one ends the episode.
void PluginEnvironment::CheckMask(std::span<const std::byte> observation) {
  if (!masks_ || !under_way_) return;
  const Status status = CheckActionMask(spec_, observation);
  if (status.ok()) return;
  under_way_ = false;
  fault_ = status.message();
}

// The action is copied to an aligned buffer, since the C interface promises alignment.
StepResult PluginEnvironment::Step(std::span<const std::byte> action,
                                   std::span<std::byte> observation) {
  TROOP_CHECK(under_way_, "{}: no episode is under way: Reset", spec_.id);
  if (spec_.action.discrete()) ReadDiscrete(action, std::int32_t(spec_.action.count));
  TROOP_CHECK(action.size() == action_.bytes().size(), "{}: an action has {} bytes, not {}",
              spec_.id, action_.bytes().size(), action.size());
  std::memcpy(action_.bytes().data(), action.data(), action.size());
  float reward = 0;
  std::int32_t terminated = 0, truncated = 0;
  const std::int32_t code = Into(observation, [&](void* room) {
    return api_->step(handle_.get(), action_.bytes().data(), room, &reward, &terminated,
                      &truncated);
  });
  if (code < 0) {
    Fail("step", code);
    return {};
  }
  // The host enforces max_episode_steps, so that plug-ins need not count.
  const bool clock = ++steps_ == spec_.max_episode_steps;
  under_way_ = terminated == 0 && truncated == 0 && !clock;
  if (collects_) Collect();
  CheckMask(observation);
  return {.reward = reward, .terminated = terminated != 0, .truncated = truncated != 0 || clock};
}

// Members that later minor versions added exist only if the library's table is long enough.
bool HasStepMany(const TroopEnvApi* api) {
  return api->struct_size >= offsetof(TroopEnvApi, step_many) + sizeof(api->step_many) &&
         api->step_many != nullptr;
}
bool HasMetrics(const TroopEnvApi* api) {
  return api->struct_size >= offsetof(TroopEnvApi, metrics) + sizeof(api->metrics) &&
         api->metrics != nullptr;
}

// REQUIRES: HasMetrics.
void PluginEnvironment::Collect() {
  const auto emit = [](void* sink, const char* name, double value) {
    static_cast<EnvMetrics*>(sink)->Add(name == nullptr ? "" : name, value);
  };
  api_->metrics(handle_.get(), emit, &metrics_);
}

// Checks all actions with one comparison at the end, since a check with a message per action is
// slow.
void PluginEnvironment::CheckActions(std::span<const std::byte> actions) const {
  const auto limit = std::uint32_t(spec_.action.count);
  std::uint32_t largest = 0;  // negative actions are the largest as unsigned
  for (std::size_t at = 0; at < actions.size(); at += sizeof(limit)) {
    std::uint32_t action = 0;
    std::memcpy(&action, actions.data() + at, sizeof(action));
    largest = std::max(largest, action);
  }
  TROOP_CHECK(largest < limit, "action {} is outside [0, {})", std::int32_t(largest), limit);
}

// One call for all environments. kCannot leaves everything unchanged, so the caller can step
// singly.
Environment::Many PluginEnvironment::StepMany(std::span<const std::unique_ptr<Environment>> envs,
                                              const Rows& rows) {
  const auto aligned = [](const void* at, std::size_t to) {
    return reinterpret_cast<std::uintptr_t>(at) % to == 0;
  };
  if (!HasStepMany(api_) || !aligned(rows.observation, alignment_) ||
      !aligned(rows.action, DTypeSize(action_.dtype()))) {
    return Many::kCannot;
  }
  const std::size_t count = envs.size();
  if (spec_.action.discrete()) CheckActions({rows.action, count * sizeof(std::int32_t)});
  // REQUIRES of Environment::StepMany: all are of this class.
  const auto own = [&](std::size_t i) -> PluginEnvironment& {
    return static_cast<PluginEnvironment&>(*envs[i]);
  };
  handles_.resize(count);
  results_.assign(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    TROOP_CHECK(own(i).under_way_, "{}: no episode is under way: Reset", spec_.id);
    handles_[i] = own(i).handle_.get();
  }
  // The C interface promises outputs that are 0 before the call.
  std::memset(rows.reward, 0, count * sizeof(float));
  std::memset(rows.terminated, 0, count);
  std::memset(rows.truncated, 0, count);
  api_->step_many(handles_.data(), std::int32_t(count), rows.action, rows.observation, rows.reward,
                  rows.terminated, rows.truncated, results_.data());
  Many all = Many::kGood;
  for (std::size_t i = 0; i < count; ++i) {
    PluginEnvironment& env = own(i);
    if (results_[i] < 0) {
      env.Fail("step", results_[i]);
      all = Many::kSomeFailed;
      continue;
    }
    const bool clock = ++env.steps_ == spec_.max_episode_steps;
    // Normalizes other nonzero values to 1.
    rows.terminated[i] = rows.terminated[i] != 0;
    rows.truncated[i] = rows.truncated[i] != 0 || clock;
    env.under_way_ = rows.terminated[i] == 0 && rows.truncated[i] == 0;
    if (env.collects_) env.Collect();
    const std::size_t bytes = spec_.observation.bytes();
    // The library wrote all rows in one call; each has its own mask.
    env.CheckMask({rows.observation + i * bytes, bytes});
    if (!env.fault_.empty()) all = Many::kSomeFailed;
  }
  return all;
}

// A picture is copied, because the library may reuse its memory at the next call.
Environment::Picture PluginEnvironment::Render() const {
  if (api_->render == nullptr) return {};
  TroopEnvPicture drawn{.struct_size = sizeof(TroopEnvPicture)};
  if (api_->render(handle_.get(), &drawn) < 0 || drawn.rgb == nullptr) return {};
  const auto fits = [](std::int32_t side) { return side >= 1 && side <= kPictureSideMax; };
  if (!fits(drawn.width) || !fits(drawn.height)) return {};
  const std::size_t bytes = std::size_t(3) * std::size_t(drawn.width) * std::size_t(drawn.height);
  return {.width = drawn.width, .height = drawn.height, .rgb = {drawn.rgb, drawn.rgb + bytes}};
}

// Checks the step limit of the options.
Status CheckLimit(std::string_view id, std::int64_t max_episode_steps) {
  if (max_episode_steps >= -1) return Status::Ok();
  return InvalidArgument(
      "{}: max_episode_steps is {}; give >= 1, 0 for no limit or -1 for the environment's default",
      id, max_episode_steps);
}

// Opens a library, finds its table and checks the version.
Result<const TroopEnvApi*> LoadApi(const std::string& path) {
  auto library = SharedLibrary::Open(path);
  if (!library.ok()) return library.status().WithContext("plug-in " + path);
  const auto entry = reinterpret_cast<decltype(&troop_env_api)>(library->Find("troop_env_api"));
  if (entry == nullptr) {
    library->Close();
    return InvalidArgument(
        "plug-in {}: does not export troop_env_api; build it with troop_env.h or "
        "TROOP_ENVIRONMENT (docs/guide/environments.md)",
        path);
  }
  const TroopEnvApi* api = entry(TROOP_ENV_ABI_MAJOR);
  TROOP_RETURN_IF_ERROR(CheckPluginApi(api, path));
  return api;
}

}  // namespace

// The major version changes incompatibly; minor versions only append members to the table.
Status CheckPluginApi(const TroopEnvApi* api, const std::string& name) {
  if (api == nullptr) {
    return InvalidArgument("plug-in {}: does not support version {} of the interface; rebuild it",
                           name, TROOP_ENV_ABI_MAJOR);
  }
  if (api->abi_major != TROOP_ENV_ABI_MAJOR) {
    const bool older = api->abi_major < TROOP_ENV_ABI_MAJOR;
    return InvalidArgument(
        "plug-in {}: too {}: it has version {}.{} of the interface, this program {}.{}; {}", name,
        older ? "old" : "new", api->abi_major, api->abi_minor, TROOP_ENV_ABI_MAJOR,
        TROOP_ENV_ABI_MINOR,
        older ? "rebuild it with this troop_env.h" : "use a newer Troop, or an older troop_env.h");
  }
  // Size of the table in version 1.0; later members are checked by their own offset.
  constexpr std::size_t kFirstSize = offsetof(TroopEnvApi, step_many);
  if (api->struct_size < kFirstSize) {
    return InvalidArgument("plug-in {}: its table has {} bytes, must have at least {}", name,
                           api->struct_size, kFirstSize);
  }
  if (api->ids == nullptr || api->create == nullptr || api->destroy == nullptr ||
      api->spec == nullptr || api->reset == nullptr || api->step == nullptr) {
    return InvalidArgument(
        "plug-in {}: its table lacks one of ids, create, destroy, spec, reset and step", name);
  }
  if (IdsOf(api).empty()) return InvalidArgument("plug-in {}: its list of ids is empty", name);
  return Status::Ok();
}

namespace {

// Checks that the environment rejects an unknown option: one that accepts everything would silently
// ignore a mistyped option.
Status CheckOptionsAreRead(const TroopEnvApi* api, const std::string& name, std::string_view id,
                           std::vector<TroopEnvOption> options) {
  if (options.empty()) return Status::Ok();
  options.push_back({.name = "no_such_option", .type = TROOP_ENV_INTEGER});
  std::array<char, kMessageBytesMax> error{};
  const Handle handle(api->create(std::string(id).c_str(), options.data(), options.size(),
                                  error.data(), error.size()),
                      Destroy{api});
  if (handle == nullptr) return Status::Ok();
  return InvalidArgument(
      "plug-in {}: {}: accepts unknown options, so env.options may have no effect; remove them, or "
      "make its `create` reject unknown options (troop_env.h)",
      name, id);
}

}  // namespace

// Steps: check the id and the options, create, read and check the spec.
Result<std::unique_ptr<Environment>> MakePluginEnvironment(const TroopEnvApi* api,
                                                           const std::string& name,
                                                           std::string_view id,
                                                           const EnvOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckPluginApi(api, name));
  TROOP_RETURN_IF_ERROR(CheckLimit(id, options.max_episode_steps));
  // Check the id first for a better error than the library's.
  const std::vector<std::string> ids = IdsOf(api);
  if (std::ranges::find(ids, id) == ids.end()) {
    const std::string nearest = Nearest(id, ids);
    return NotFound("plug-in {}: no environment \"{}\"{} Available: {}", name, id,
                    nearest.empty() ? "." : fmt::format("; did you mean \"{}\"?", nearest),
                    fmt::join(ids, ", "));
  }
  if (options.metrics && !HasMetrics(api)) {
    return InvalidArgument(
        "plug-in {}: {}: reports no metrics: its table has no `metrics` (version 1.2 of "
        "troop_env.h); remove env.metrics, or add it",
        name, id);
  }
  const std::vector<TroopEnvOption> said = OptionsFor(options.options);
  TROOP_RETURN_IF_ERROR(CheckOptionsAreRead(api, name, id, said));
  std::array<char, kMessageBytesMax> error{};
  Handle handle(
      api->create(std::string(id).c_str(), said.data(), said.size(), error.data(), error.size()),
      Destroy{api});
  // A library may fill the buffer without the terminating 0.
  error.back() = 0;
  if (handle == nullptr) {
    const std::string reason = OneLine(error.data());
    return InvalidArgument("plug-in {}: {}: {}", name, id,
                           reason.empty() ? "create failed without a reason" : reason);
  }
  TroopEnvSpec spec{.struct_size = sizeof(TroopEnvSpec)};
  if (const std::int32_t code = api->spec(handle.get(), &spec); code < 0) {
    return InvalidArgument("plug-in {}: {}: spec failed ({}): {}", name, id, code,
                           LastError(api, handle.get()));
  }
  Result<EnvSpec> checked = SpecOfPlugin(id, spec);
  if (!checked.ok()) return checked.status().WithContext(fmt::format("plug-in {}: {}", name, id));
  if (options.max_episode_steps >= 0) checked->max_episode_steps = options.max_episode_steps;
  std::unique_ptr<Environment> env = std::make_unique<PluginEnvironment>(
      api, std::move(handle), std::move(*checked), options.metrics);
  return env;
}

Result<std::unique_ptr<Environment>> LoadPluginEnvironment(const std::string& path,
                                                           std::string_view id,
                                                           const EnvOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const TroopEnvApi* api, LoadApi(path));
  return MakePluginEnvironment(api, path, id, options);
}

// Creates no environment.
Result<std::vector<std::string>> PluginEnvironmentIds(const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(const TroopEnvApi* api, LoadApi(path));
  return IdsOf(api);
}

}  // namespace troop
