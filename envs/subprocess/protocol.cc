// Messages of the worker protocol: JSON in both directions, and the layout of the shared memory.

#include "envs/subprocess/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/utf8.h"
#include "core/config/option_value.h"

namespace troop::worker {
namespace {

constexpr std::size_t kLine = 64;  // cache line: arrays of different workers must not share one

// Rounds up to a multiple of a cache line.
std::size_t Aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Options as one JSON object; the JSON kind of a value carries its type.
JsonObject OptionsJson(const std::vector<EnvOption>& options) {
  JsonObject json;
  for (const EnvOption& option : options) {
    json.Add(option.name, OptionJson(option));
  }
  return json;
}

// Inverse of OptionsJson for native environments.
Result<std::vector<EnvOption>> ParseOptions(const JsonValue* json) {
  std::vector<EnvOption> options;
  if (json == nullptr) return options;
  for (const auto& [name, value] : json->object) {
    // Lists and tables never arrive here: CheckOptions rejects them for native environments.
    EnvOption& option = options.emplace_back(EnvOption{.name = name, .value = value.number});
    // The JSON kind gives the option's type; a number without a fraction is an integer.
    if (value.kind == JsonValue::Kind::kBool) option.value = value.boolean;
    if (value.kind == JsonValue::Kind::kString) option.value = value.string;
    if (value.integer) option.value = *value.integer;
  }
  return options;
}

// Reads a list of bounds; the check is of the f32 value, because a large double becomes infinite.
Result<std::vector<float>> Floats(const JsonValue& json, std::string_view key) {
  std::vector<float> numbers;
  const JsonValue* list = json.Find(key);
  if (list == nullptr || list->kind != JsonValue::Kind::kArray) {
    return InvalidArgument("its action spec has no list \"{}\"", key);
  }
  for (const JsonValue& number : list->array) {
    if (number.kind != JsonValue::Kind::kNumber || !std::isfinite(float(number.number))) {
      return InvalidArgument("{}[{}] of its action spec is not a finite number", key,
                             numbers.size());
    }
    numbers.push_back(float(number.number));
  }
  return numbers;
}

// Parses an action spec; CheckEnvSpec checks counts and bounds later.
Result<ActionSpec> ParseAction(const JsonValue& json) {
  ActionSpec action;
  TROOP_ASSIGN_OR_RETURN(const std::string kind, json.String("kind"));
  if (kind == "discrete") {
    TROOP_ASSIGN_OR_RETURN(action.count, json.Integer("count"));
    return action;
  }
  if (kind != "continuous" && kind != "multi_discrete")
    return InvalidArgument(
        "its action kind is \"{}\", must be discrete, multi_discrete or continuous",
        PrintableLine(kind, kTextBytes));
  action.integers = kind == "multi_discrete";
  action.kind = ActionSpec::Kind::kContinuous;
  TROOP_ASSIGN_OR_RETURN(action.low, Floats(json, "low"));
  TROOP_ASSIGN_OR_RETURN(action.high, Floats(json, "high"));
  return action;
}

// Parses the shape of an observation or of a part of it. The worker is another program, so every
// size is checked here.
Result<Shape> ParseShape(const JsonValue& json, std::string_view what, DType dtype) {
  const JsonValue* shape = json.Find("shape");
  if (shape == nullptr || shape->kind != JsonValue::Kind::kArray ||
      shape->array.size() > std::size_t(kObservationRankMax)) {
    return InvalidArgument("its {} has no shape of at most {} dimensions", what,
                           kObservationRankMax);
  }
  std::vector<std::int64_t> dims;
  // Divide instead of multiplying: the product of the dimensions could overflow.
  std::int64_t room = kObservationBytesMax / std::int64_t(DTypeSize(dtype));
  for (const JsonValue& dim : shape->array) {
    if (dim.integer.value_or(0) < 1 || *dim.integer > room) {
      return InvalidArgument("its {} has a dimension < 1, or more than {} MiB", what,
                             kObservationBytesMax >> 20);
    }
    room /= *dim.integer;
    dims.push_back(*dim.integer);
  }
  return Shape(dims);
}

// Parses an observation spec.
Result<TensorSpec> ParseObservation(const JsonValue& json) {
  TROOP_ASSIGN_OR_RETURN(const std::string dtype, json.String("dtype"));
  TensorSpec spec{DType::kF32, {}};
  if (dtype == "u8")
    spec.dtype = DType::kU8;
  else if (dtype == "i32")
    spec.dtype = DType::kI32;
  else if (dtype != "f32")
    return InvalidArgument("its observation dtype is {}, must be u8, i32 or f32",
                           PrintableLine(dtype, kTextBytes));
  TROOP_ASSIGN_OR_RETURN(spec.shape, ParseShape(json, "observation", spec.dtype));
  return spec;
}

// Parses the parts of an observation; CheckEnvSpec compares them with the rest.
Status ParseParts(const JsonValue* list, EnvSpec* spec) {
  if (list == nullptr) return Status::Ok();
  if (list->kind != JsonValue::Kind::kArray || list->array.size() > kObservationPartsMax)
    return InvalidArgument("its observation has no list of at most {} parts", kObservationPartsMax);
  for (const JsonValue& json : list->array) {
    ObservationPart part;
    TROOP_ASSIGN_OR_RETURN(part.name, json.String("name"));
    part.name = PrintableLine(part.name, kTextBytes);
    TROOP_ASSIGN_OR_RETURN(part.shape,
                           ParseShape(json, "part of an observation", spec->observation.dtype));
    TROOP_ASSIGN_OR_RETURN(const double scale, json.NumberOr("scale", 1));
    part.scale = float(scale);
    TROOP_ASSIGN_OR_RETURN(part.action_mask, json.BooleanOr("action_mask", false));
    spec->parts.push_back(std::move(part));
  }
  return Status::Ok();
}

// Parses a spec. `code` is optional: only environments that can compute it send it.
Result<EnvSpec> ParseSpec(const JsonValue& json, std::string_view id) {
  const JsonValue* observation = json.Find("observation");
  const JsonValue* action = json.Find("action");
  if (observation == nullptr || action == nullptr) {
    return InvalidArgument("its spec lacks an observation or an action");
  }
  EnvSpec spec{.id = std::string(id)};
  TROOP_ASSIGN_OR_RETURN(spec.observation, ParseObservation(*observation));
  TROOP_RETURN_IF_ERROR(ParseParts(observation->Find("parts"), &spec));
  TROOP_ASSIGN_OR_RETURN(spec.action, ParseAction(*action));
  TROOP_ASSIGN_OR_RETURN(const double scale, json.NumberOr("observation_scale", 1));
  spec.observation_scale = float(scale);
  TROOP_ASSIGN_OR_RETURN(spec.max_episode_steps, json.Integer("max_episode_steps"));
  TROOP_ASSIGN_OR_RETURN(const std::string code, json.StringOr("code", ""));
  spec.code = PrintableLine(code, kTextBytes);
  TROOP_RETURN_IF_ERROR(CheckEnvSpec(spec));
  return spec;
}

// Floats as doubles, so that their shortest text converts back to the same float.
JsonArray NumberArray(std::span<const float> numbers) {
  JsonArray array;
  for (const float number : numbers) array.Add(double(number));
  return array;
}

}  // namespace

// Offsets of one worker: its rows are a contiguous part of each array, so batches need no copy.
Layout MemoryPlan::Of(int worker, int first, int rows) const {
  const auto at = std::size_t(first);
  Layout own = all;
  own.rows = rows;
  // One line per worker holds both counters; all other arrays have one element per environment.
  own.progress += std::size_t(worker) * kLine;
  own.spent += std::size_t(worker) * kLine;
  own.reset += at;
  own.seed += at * sizeof(std::uint64_t);
  own.action += at * action_bytes;
  own.observation += at * observation_bytes;
  own.final += at * observation_bytes;
  own.reward += at * sizeof(float);
  own.flags += at;
  own.text += at * kTextBytes;
  return own;
}

// Lays out the arrays one after another. Errors: kResourceExhausted above kMemoryBytesMax.
Result<MemoryPlan> PlanMemory(const EnvSpec& spec, int rows, int workers) {
  MemoryPlan plan{.action_bytes = spec.action.tensor().bytes(),
                  .observation_bytes = spec.observation.bytes()};
  const auto n = std::size_t(rows);
  std::size_t end = 0;
  // Each array starts at a cache line.
  const auto array = [&](std::size_t* at, std::size_t bytes) {
    *at = end;
    end = Aligned(end + bytes);
  };
  array(&plan.all.progress, std::size_t(workers) * kLine);
  // In the line of `progress`: both are written by the same worker.
  plan.all.spent = plan.all.progress + sizeof(std::uint64_t);
  array(&plan.all.reset, n);
  array(&plan.all.seed, n * sizeof(std::uint64_t));
  array(&plan.all.action, n * plan.action_bytes);
  array(&plan.all.observation, n * plan.observation_bytes);
  array(&plan.all.final, n * plan.observation_bytes);
  array(&plan.all.reward, n * sizeof(float));
  array(&plan.all.flags, n);
  array(&plan.all.text, n * kTextBytes);
  plan.all.rows = rows;
  plan.all.total = end;
  // Larger requests are configuration errors, not real use.
  if (end <= std::size_t(kMemoryBytesMax)) return plan;
  return ResourceExhausted(
      "{} environments with observations of {} need {} MiB of shared memory, at most {} MiB", rows,
      spec.observation.ToString(), end >> 20, kMemoryBytesMax >> 20);
}

// Pads a message whose size is a multiple of kPartBytes: only a shorter part ends a message.
std::string InParts(std::string json) {
  if (json.size() % kPartBytes == 0) json += ' ';
  return json;
}

// Appends a part; true if the message is complete.
bool TakePart(std::string_view part, std::string* json) {
  *json += part;
  return part.size() < kPartBytes;
}

// Offsets are bytes from the start of the shared memory.
std::string LayoutMessage(const Layout& l) {
  return JsonObject()
      .Add("rows", l.rows)
      .Add("progress", std::uint64_t(l.progress))
      .Add("spent", std::uint64_t(l.spent))
      .Add("reset", std::uint64_t(l.reset))
      .Add("seed", std::uint64_t(l.seed))
      .Add("action", std::uint64_t(l.action))
      .Add("observation", std::uint64_t(l.observation))
      .Add("final", std::uint64_t(l.final))
      .Add("reward", std::uint64_t(l.reward))
      .Add("flags", std::uint64_t(l.flags))
      .Add("text", std::uint64_t(l.text))
      .Add("text_bytes", std::uint64_t(kTextBytes))
      .Add("total", std::uint64_t(l.total))
      .str();
}

// Parsed by the worker. The owner is trusted, so offsets are not compared with the total.
Result<Layout> ParseLayout(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  Layout layout;
  const auto read = [&](std::string_view key, std::size_t* value) {
    const Result<std::int64_t> number = json.Integer(key);
    if (number.ok()) *value = std::size_t(*number);
    return number.status();
  };
  TROOP_ASSIGN_OR_RETURN(const std::int64_t rows, json.Integer("rows"));
  layout.rows = int(rows);
  TROOP_RETURN_IF_ERROR(read("progress", &layout.progress));
  TROOP_RETURN_IF_ERROR(read("spent", &layout.spent));
  TROOP_RETURN_IF_ERROR(read("reset", &layout.reset));
  TROOP_RETURN_IF_ERROR(read("seed", &layout.seed));
  TROOP_RETURN_IF_ERROR(read("action", &layout.action));
  TROOP_RETURN_IF_ERROR(read("observation", &layout.observation));
  TROOP_RETURN_IF_ERROR(read("final", &layout.final));
  TROOP_RETURN_IF_ERROR(read("reward", &layout.reward));
  TROOP_RETURN_IF_ERROR(read("flags", &layout.flags));
  TROOP_RETURN_IF_ERROR(read("text", &layout.text));
  TROOP_RETURN_IF_ERROR(read("total", &layout.total));
  return layout;
}

// First message of a start. The same request serves the Python worker and the native one.
std::string WorkerRequest(std::string_view id, const EnvOptions& options, int rows) {
  return JsonObject()
      .Add("version", kVersion)
      .Add("id", id)
      .Add("rows", rows)
      .Add("options", OptionsJson(options.options))
      .Add("wrappers", JsonArray::Of(options.wrappers))
      .Add("plugin", options.plugin)
      .Add("max_episode_steps", options.max_episode_steps)
      .Add("sticky_actions", options.sticky_actions)
      .Add("action_repeat", options.action_repeat)
      .Add("noop_max", options.noop_max)
      .Add("difficulty_ramping", options.difficulty_ramping)
      .Add("measure", options.measure)
      .Add("metrics", options.metrics)
      .Add("action_mask", options.action_mask)
      .Add("action_bound", options.action_bound)
      .str();
}

// Parses the request in the native worker, which has no wrappers and no no-op starts.
Result<Request> ParseRequest(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t version, json.Integer("version"));
  // TROOP_PROGRAM may name a program of another version.
  if (version != kVersion) {
    return InvalidArgument("the request has version {}, this worker {}", version, kVersion);
  }
  Request request;
  TROOP_ASSIGN_OR_RETURN(request.id, json.String("id"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t rows, json.Integer("rows"));
  request.rows = int(rows);
  EnvOptions& options = request.options;
  // Within the worker, environments run in its process.
  options.isolation = Isolation::kNone;
  TROOP_ASSIGN_OR_RETURN(options.options, ParseOptions(json.Find("options")));
  TROOP_ASSIGN_OR_RETURN(options.plugin, json.String("plugin"));
  TROOP_ASSIGN_OR_RETURN(options.max_episode_steps, json.Integer("max_episode_steps"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t repeat, json.Integer("action_repeat"));
  options.action_repeat = int(repeat);
  // Optional fields have the defaults of EnvOptions.
  TROOP_ASSIGN_OR_RETURN(options.sticky_actions, json.NumberOr("sticky_actions", -1));
  TROOP_ASSIGN_OR_RETURN(options.difficulty_ramping, json.BooleanOr("difficulty_ramping", true));
  TROOP_ASSIGN_OR_RETURN(options.measure, json.BooleanOr("measure", false));
  TROOP_ASSIGN_OR_RETURN(options.metrics, json.BooleanOr("metrics", false));
  TROOP_ASSIGN_OR_RETURN(options.action_mask, json.BooleanOr("action_mask", false));
  return request;
}

// Names without a value are left out. A problem is short, so that the message has one part.
std::string MetricsMessage(const EnvMetrics& metrics) {
  JsonObject values;
  for (const auto& [name, s] : metrics.summaries()) {
    if (!(s.count > 0)) continue;
    values.Add(name, JsonArray().Add(s.count).Add(s.mean).Add(s.min).Add(s.max));
  }
  return JsonObject().Add("metrics", values).Add("problem", metrics.problem()).str();
}

Status ParseMetricsMessage(std::string_view text, EnvMetrics* into) {
  const Result<JsonValue> json = ParseJson(text);
  if (!json.ok()) return InvalidArgument("invalid JSON: {}", json.status().message());
  const JsonValue* const values = json->Find("metrics");
  const Result<std::string> problem = json->String("problem");
  if (values == nullptr || values->kind != JsonValue::Kind::kObject || !problem.ok()) {
    return InvalidArgument("no metrics and problem");
  }
  EnvMetrics read;
  for (const auto& [name, list] : values->object) {
    const bool numbers =
        list.array.size() == 4 && std::ranges::all_of(list.array, [](const JsonValue& v) {
          return v.kind == JsonValue::Kind::kNumber;
        });
    if (!numbers) return InvalidArgument("a metric without four numbers");
    const auto at = [&](std::size_t i) { return list.array[i].number; };
    read.Merge(name, {.count = at(0), .mean = at(1), .min = at(2), .max = at(3)});
  }
  into->Merge(read);
  if (!problem->empty()) into->Complain(PrintableLine(*problem, kTextBytes));
  return Status::Ok();
}

// Answer to the request; ParseSpecMessage is its inverse.
std::string SpecMessage(const EnvSpec& spec) {
  JsonObject observation, action, whole, message;
  observation.Add("dtype", DTypeName(spec.observation.dtype))
      .Add("shape", JsonArray::Of(spec.observation.shape.dims()));
  // Environments without parts send what they sent before.
  if (!spec.parts.empty()) {
    JsonArray parts;
    for (const ObservationPart& part : spec.parts) {
      parts.Add(JsonObject()
                    .Add("name", part.name)
                    .Add("shape", JsonArray::Of(part.shape.dims()))
                    .Add("scale", double(part.scale))
                    .Add("action_mask", part.action_mask));
    }
    observation.Add("parts", parts);
  }
  if (spec.action.discrete()) {
    action.Add("kind", "discrete").Add("count", spec.action.count);
  } else {
    action.Add("kind", spec.action.integers ? "multi_discrete" : "continuous")
        .Add("low", NumberArray(spec.action.low))
        .Add("high", NumberArray(spec.action.high));
  }
  whole.Add("observation", observation)
      .Add("observation_scale", double(spec.observation_scale))
      .Add("action", action)
      .Add("max_episode_steps", spec.max_episode_steps);
  return message.Add("spec", whole).str();
}

// Parses the answer, which is either a spec or an error of the environment's creation.
Result<EnvSpec> ParseSpecMessage(std::string_view text, std::string_view id) {
  const Result<JsonValue> json = ParseJson(text);
  if (!json.ok()) {
    return InvalidArgument("{}: its process sent invalid JSON: {}", id, json.status().message());
  }
  if (const JsonValue* error = json->Find("error"); error != nullptr) {
    return FailedPrecondition("{}: {}", id, PrintableLine(error->string, 4 * kTextBytes));
  }
  const JsonValue* spec = json->Find("spec");
  if (spec == nullptr) return InvalidArgument("{}: its process sent no spec", id);
  Result<EnvSpec> parsed = ParseSpec(*spec, id);
  if (parsed.ok()) return parsed;
  return Status(Code::kInvalidArgument, fmt::format("{}: {}", id, parsed.status().message()));
}

}  // namespace troop::worker
