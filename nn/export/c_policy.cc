// Implements the translation of a policy to C99: constants, the calls of the layers' functions, and
// the interface around them.
#include "nn/export/c_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/base/version.h"
#include "nn/export/c_policy_text.h"

namespace troop {
namespace {

// 9 digits identify every f32 (IEEE 754-2008, sec. 5.12.2); the point makes it a constant of C.
std::string Literal(float value) {
  std::string text = fmt::format("{:.9g}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text + "f";
}

// "[2, 3]".
std::string ShapeText(const Shape& shape) {
  std::string out;
  for (int i = 0; i < shape.rank(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return "[" + out + "]";
}

// Text of another program for a comment: no end of the comment, no trigraph, no line break.
std::string Harmless(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200))
    out += c >= ' ' && c <= '~' && c != '*' && c != '?' && c != '\\' && c != '@' ? c : '_';
  return out;
}

const char* TypeName(DType dtype) {
  return dtype == DType::kU8 ? "uint8_t" : dtype == DType::kI32 ? "int32_t" : "float";
}

// Translates the layers to calls. Their outputs alternate between two buffers of the state, `a` and
// `b`, whose sizes are counted.
class CTranslator {
 public:
  CTranslator(const PolicyDescription& policy, const TensorFile& file)
      : policy_(policy), file_(file) {}

  // Errors of parameters are recorded, and end the translation after the layer.
  Status Translate() {
    Use(CFunction::kFinite);
    for (const PolicyLayer& layer : policy_.layers) {
      Translate(layer);
      TROOP_RETURN_IF_ERROR(error_);
    }
    return {};
  }

  const std::string& constants() const { return constants_; }
  const std::string& calls() const { return calls_; }
  std::int64_t values() const { return values_; }
  // Elements of the buffers; at least 1, because C has no empty arrays.
  std::int64_t size(int buffer) const { return std::max<std::int64_t>(sizes_[buffer], 1); }
  const char* result() const { return Name(present_); }
  std::string Functions() const {
    std::string out;
    for (int i = 0; i < kCFunctions; ++i) {
      if (used_[std::size_t(i)]) out += TextOf(CFunction(i));
    }
    return out;
  }

 private:
  static const char* Name(int buffer) { return buffer == 0 ? "state->a" : "state->b"; }

  void Use(CFunction function) { used_[std::size_t(function)] = true; }
  // A call of a function, whose name is text after the prefix.
  template <class... Args>
  void Call(CFunction function, fmt::format_string<Args...> format, Args&&... args) {
    Use(function);
    calls_ += "  @_" + fmt::format(format, std::forward<Args>(args)...) + ";\n";
  }
  // The buffer of the next output, with room for this number of elements.
  const char* Next(std::int64_t elements) {
    if (present_ >= 0) present_ = 1 - present_;
    if (present_ < 0) present_ = 0;
    sizes_[present_] = std::max(sizes_[present_], elements);
    return Name(present_);
  }
  // The output of the layer before: the observation for the first layer.
  const char* Present() const { return present_ < 0 ? "in" : Name(present_); }

  void Translate(const PolicyLayer& layer) {
    const std::int64_t in = layer.in.elements(), out = layer.out.elements();
    const char* const from = Present();  // before Next changes it
    switch (layer.kind) {
      case PolicyLayerKind::kClip:
        return Clip(layer);
      case PolicyLayerKind::kScale:
        return Call(CFunction::kScale, "scale({}, {}, {}, {})", Literal(layer.factor), in, from,
                    Next(out));
      case PolicyLayerKind::kNormalize:
        return Normalize(layer);
      case PolicyLayerKind::kOneHot:
        return Call(CFunction::kOneHot, "one_hot({}, {}, {}, {})", layer.classes, in, from,
                    Next(out));
      case PolicyLayerKind::kImages:
        return Call(CFunction::kImages, "images({}, {}, {}, {}, {}, {})", Literal(layer.factor),
                    layer.stack, layer.out[0] * layer.out[1], layer.out[2] / layer.stack, from,
                    Next(out));
      case PolicyLayerKind::kConv2d:
        return Conv2d(layer);
      case PolicyLayerKind::kLinear:
        Linear(layer.tensors, out, in, {Present(), Next(out)});
        return Activate(layer.activation, out);
      case PolicyLayerKind::kLayerNorm:
        return LayerNorm(layer);
      case PolicyLayerKind::kDueling:
        return Dueling(layer);
      case PolicyLayerKind::kCategoricalMean:
        return CategoricalMean(layer);
      case PolicyLayerKind::kQuantileMean:
        return Call(CFunction::kQuantileMean, "quantile_mean({}, {}, {}, {})", out, in / out, from,
                    Next(out));
      case PolicyLayerKind::kActionBounds:
        Use(CFunction::kTanh);
        return ActionBounds(CFunction::kActionBounds, "action_bounds");
      case PolicyLayerKind::kClippedBounds:
        return ActionBounds(CFunction::kClippedBounds, "clipped_bounds");
    }
  }

  // Writes a static constant array, which compilers put into read-only memory, in lines of at most
  // 96 columns. Returns its name.
  std::string Constant(std::string_view what, std::span<const float> values) {
    std::string name = fmt::format("@_{}_{}", what, count_++);
    constants_ += fmt::format("static const float {}[{}] = {{\n", name, values.size());
    std::string line = " ";
    for (const float value : values) {
      const std::string text = " " + Literal(value) + ",";
      if (line.size() + text.size() > 96) constants_ += std::exchange(line, " ") + "\n";
      line += text;
    }
    constants_ += line + "\n};\n";
    values_ += std::int64_t(values.size());
    return name;
  }
  // The values of a parameter; records an error if there is none of that size, or too many values.
  std::span<const float> Values(const std::string& name, std::int64_t elements) {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end() || found->second.elements() != elements) {
      error_ = InvalidArgument("the network has no parameter {} of {} values", name, elements);
      return {};
    }
    return found->second.as<float>();
  }
  std::string Parameter(const std::string& name, std::int64_t elements) {
    return Constant("w", Values(name, elements));
  }

  struct Buffers {
    std::string in, out;
  };
  void Linear(const std::string& tensors, std::int64_t out, std::int64_t in,
              const Buffers& buffers) {
    const std::string weight = Parameter(tensors + ".weight", out * in);
    const std::string bias = Parameter(tensors + ".bias", out);
    Call(CFunction::kLinear, "linear({}, {}, {}, {}, {}, {})", weight, bias, out, in, buffers.in,
         buffers.out);
  }
  // In place, on the output of the last layer.
  void Activate(Activation activation, std::int64_t n) {
    if (activation == Activation::kRelu) Call(CFunction::kRelu, "relu({}, {})", n, Present());
    if (activation != Activation::kTanh) return;
    Use(CFunction::kTanh);
    Call(CFunction::kTanhAll, "tanh_all({}, {})", n, Present());
  }

  // The layers after it read floats, which must then be the observation's own type.
  void Clip(const PolicyLayer& layer) {
    if (policy_.observation.dtype != DType::kF32) {
      error_ = InvalidArgument("format \"c\" has no clipping of {} observations; use another one",
                               DTypeName(policy_.observation.dtype));
      return;
    }
    const char* const from = Present();
    const std::int64_t n = layer.in.elements();
    Call(CFunction::kClip, "clip({}, {}, {}, {}, {})", Literal(layer.low), Literal(layer.high), n,
         from, Next(n));
  }

  // Mean and deviation as in nn/layers/normalize_layer.cc.
  void Normalize(const PolicyLayer& layer) {
    const std::int64_t n = layer.in.elements();
    const auto variance = Values(layer.tensors + ".variance", n);
    const auto count = Values(layer.tensors + ".count", 1);
    if (!error_.ok()) return;
    // The inverse deviation is computed here: the file needs no square root.
    std::vector<float> inverse;
    for (const float v : variance)
      inverse.push_back(count[0] > 0 ? float(1 / std::sqrt(double(v) + 1e-8)) : 1);
    const std::string mean = Parameter(layer.tensors + ".mean", n);
    const char* const from = Present();
    Call(CFunction::kNormalize, "normalize({}, {}, {}, {}, {})", mean, Constant("w", inverse), n,
         from, Next(n));
  }

  void Conv2d(const PolicyLayer& layer) {
    const std::int64_t k = layer.kernel, channels = layer.in[2], filters = layer.out[2];
    const std::string weight = Parameter(layer.tensors + ".weight", filters * k * k * channels);
    const std::string bias = Parameter(layer.tensors + ".bias", filters);
    const std::string size = fmt::format("@_size_{}", count_++);
    constants_ +=
        fmt::format("static const int32_t {}[7] = {{{}, {}, {}, {}, {}, {}, {}}};\n", size, k,
                    layer.stride, layer.in[1], channels, layer.out[0], layer.out[1], filters);
    // The name of the input's buffer is read before Next changes it.
    const char* const from = Present();
    Call(CFunction::kConv2d, "conv2d({}, {}, {}, {}, {})", weight, bias, size, from,
         Next(layer.out.elements()));
    Activate(layer.activation, layer.out.elements());
  }

  // In place on the last output, which exists: each network begins with an input layer.
  void LayerNorm(const PolicyLayer& layer) {
    const std::int64_t n = layer.in[layer.in.rank() - 1], rows = layer.in.elements() / n;
    const std::string weight = Parameter(layer.tensors + ".weight", n);
    const std::string bias = Parameter(layer.tensors + ".bias", n);
    Use(CFunction::kInverseRoot);
    Call(CFunction::kLayerNorm, "layer_norm({}, {}, {}, {}, {})", weight, bias, rows, n, Present());
    Activate(layer.activation, layer.in.elements());
  }

  // The advantages are in the output buffer, followed by the hidden units and the value.
  void Dueling(const PolicyLayer& layer) {
    const std::int64_t in = layer.in.elements(), units = layer.units, out = layer.out[0];
    const std::string from = Present();
    const std::string to = Next(out + units + layer.numbers);
    const std::string hidden = fmt::format("{} + {}", to, out);
    const std::string value = fmt::format("{} + {}", to, out + units);
    const auto stream = [&](const std::string& name, std::int64_t outputs,
                            const std::string& result) {
      if (units > 0) {
        Linear(fmt::format("{}.{}.hidden", layer.tensors, name), units, in, {from, hidden});
        Call(CFunction::kRelu, "relu({}, {})", units, hidden);
      }
      Linear(fmt::format("{}.{}", layer.tensors, name), outputs, units > 0 ? units : in,
             {units > 0 ? hidden : from, result});
    };
    stream("value", layer.numbers, value);
    stream("advantage", out, to);
    Call(CFunction::kDueling, "dueling({}, {}, {}, {})", value, out / layer.numbers, layer.numbers,
         to);
  }

  void CategoricalMean(const PolicyLayer& layer) {
    const std::int64_t actions = layer.out[0], atoms = layer.in[0] / actions;
    const double step = (double(layer.high) - double(layer.low)) / double(atoms - 1);
    // Its function calls the exponential.
    Use(CFunction::kExp);
    const char* const from = Present();
    Call(CFunction::kCategoricalMean, "categorical_mean({}, {}, {}, {}, {}, {})",
         Literal(layer.low), Literal(float(step)), actions, atoms, from, Next(actions));
  }

  // In place: the output has the size of the input.
  void ActionBounds(CFunction function, const char* name) {
    const std::string low = Constant("w", policy_.action.low);
    Call(function, "{}({}, {}, {}, {})", name, low, Constant("w", policy_.action.high),
         policy_.action.low.size(), Present());
  }

  const PolicyDescription& policy_;
  const TensorFile& file_;
  std::string constants_, calls_;
  std::array<bool, kCFunctions> used_{};
  std::int64_t sizes_[2] = {};
  std::int64_t values_ = 0;
  int present_ = -1;  // the buffer with the last output; -1: none yet
  int count_ = 0;     // of constants
  Status error_;
};

// Sizes and types on which the interface depends.
struct CInterface {
  explicit CInterface(const PolicyDescription& policy)
      : frame(policy.observation.shape.elements()),
        stack(policy.frame_stack),
        discrete(policy.action.discrete()),
        actions(discrete ? policy.action.count : std::int64_t(policy.action.low.size())),
        type(TypeName(policy.observation.dtype)),
        is_float(policy.observation.dtype == DType::kF32) {}
  const std::int64_t frame, stack;
  const bool discrete;
  const std::int64_t actions;
  const std::string type;
  const bool is_float;
};

// The comment at the top: origin, names, shapes and memory.
std::string Description(const PolicyDescription& policy, const TensorFile& file,
                        const CTranslator& translator) {
  const CInterface c(policy);
  std::string out = fmt::format(
      "/* The greedy policy of a trained agent in C99, written by Troop {} (troop export --format "
      "c).\n   It needs no library, no heap and no start-up code. Its constants take {} bytes, a\n"
      "   @_state takes about {} bytes.\n\n",
      kTroopVersion, 4 * translator.values(),
      4 * (translator.size(0) + translator.size(1) + (c.discrete ? c.actions : 0)) +
          (c.stack > 1 ? c.stack * policy.observation.bytes() : 0));
  for (const auto& [key, value] : file.metadata)
    out += fmt::format("   {}: {}\n", Harmless(key), Harmless(value));
  out +=
      fmt::format("\n   observation   {} {}, C-contiguous: one frame as the environment gives it",
                  c.type, ShapeText(policy.observation.shape));
  if (c.stack > 1)
    out += fmt::format(
        ";\n                 the state keeps the last {}, and zeros before an episode's first",
        c.stack);
  out += c.discrete ? fmt::format("\n   action        int32_t, 0 to {}\n", c.actions - 1)
                    : fmt::format("\n   action        float [{}], within its bounds\n", c.actions);
  return out + R"(
   Use:
     static @_state state;
     @_reset(&state);                at the first step of every episode
     @_act(&state, ...);             at every step

   This file may be included, or compiled alone; a file that only calls it defines
   @_DECLARATIONS before it includes it. */
)";
}

// The prototypes of a policy with continuous actions.
constexpr std::string_view kContinuousFunctions =
    R"(/* Computes the greedy action for an observation. After an error the
   action is unchanged; an observation that is not finite or an invalid argument leaves the state as
   it was. */
int @_act(@_state* state, const @_observation* observation, @_action* action);
)";

// The prototypes of a policy with discrete actions.
constexpr std::string_view kDiscreteFunctions =
    R"(/* Computes the greedy action for an observation: the lowest index of the largest q.
   mask: NULL, or the allowed actions. After an error the action is unchanged; an observation that
   is not finite or an invalid argument leaves the state as it was. */
int @_act(@_state* state, const @_observation* observation, const @_mask* mask,
          @_action* action);

/* The q-values of the last @_act; NULL before the first one of an episode, or after its failure. */
const @_values* @_q_values(const @_state* state);
)";

// Types and prototypes, which may be included several times.
std::string Declarations(const PolicyDescription& policy, const CTranslator& translator) {
  const CInterface c(policy);
  // 1. Results and observations, which all policies have.
  std::string out = R"(#ifndef @_DECLARED
#define @_DECLARED

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of @_act, as in troop_policy.h. */
#define @_OK 0
#define @_INVALID_ARGUMENT 1 /* a null pointer, or a mask that forbids every action */
#define @_NOT_FINITE 2       /* an observation or a result is NaN or infinite */

/* The parts of an observation. */
typedef struct {
  const @@* observation;
} @_observation;

)";
  // 2. Actions: masks and values exist for discrete ones only.
  if (c.discrete) {
    out += fmt::format(R"(/* The action of each head. */
typedef struct {{
  int32_t action;
}} @_action;

/* For each head NULL, or one byte for each action: 0 forbids it. */
typedef struct {{
  const uint8_t* action; /* [{0}] */
}} @_mask;

/* The q-values of each head's actions. */
typedef struct {{
  float action[{0}];
}} @_values;

)",
                       c.actions);
  } else {
    out += fmt::format(
        "/* The action of each head. */\ntypedef struct {{\n  float action[{}];\n}} @_action;\n\n",
        c.actions);
  }
  // 3. The state, whose buffers are as large as the layers need. 4. The functions.
  out += "/* One sequence of observations; its members are internal. */\ntypedef struct {\n";
  if (c.stack > 1) out += fmt::format("  @@ frames[{}]; /* oldest first */\n", c.stack * c.frame);
  out += fmt::format("  float a[{}], b[{}];\n", translator.size(0), translator.size(1));
  if (c.discrete) out += "  @_values values;\n  uint8_t has_values;\n";
  out += R"(  uint8_t begins;
} @_state;

/* The next observation begins an episode. Must precede the first @_act. */
void @_reset(@_state* state);

)";
  return out.append(c.discrete ? kDiscreteFunctions : kContinuousFunctions);
}

// The checks of @_act, which come before any change.
std::string Checks(const CInterface& c) {
  std::string out =
      "  if (!state || !observation || !observation->observation || !action)\n"
      "    return @_INVALID_ARGUMENT;\n";
  // One action must be allowed, as in troop_policy_act.
  if (c.discrete) {
    out += fmt::format(R"(  allowed = mask ? mask->action : (const uint8_t*)0;
  if (allowed) {{
    int any = 0;
    for (i = 0; i < {}; ++i) any |= allowed[i] != 0;
    if (!any) return @_INVALID_ARGUMENT;
  }}
)",
                       c.actions);
  }
  // Integers are always finite.
  if (c.is_float)
    out += fmt::format("  if (!@_finite(observation->observation, {})) return @_NOT_FINITE;\n",
                       c.frame);
  return out;
}

// Appends the frame to the state's stack.
std::string Push(const CInterface& c) {
  // Without a stack the layers read the caller's frame.
  if (c.stack == 1) return "  in = observation->observation;\n";
  return fmt::format(R"(  for (i = 0; i < {0}; ++i)
    state->frames[i] = state->begins ? 0 : state->frames[i + {1}];
  for (i = 0; i < {1}; ++i) state->frames[{0} + i] = observation->observation[i];
  in = state->frames;
)",
                     (c.stack - 1) * c.frame, c.frame);
}

// The two or three functions.
std::string Implementation(const CInterface& c, const CTranslator& translator) {
  std::string out = fmt::format(R"(
/* Computes the outputs [{}] from whole stacks. */
static const float* @_forward(@_state* state, const @@* in) {{
{}  return {};
}}

void @_reset(@_state* state) {{
  state->begins = 1;
{}}}
)",
                                c.actions, translator.calls(), translator.result(),
                                c.discrete ? "  state->has_values = 0;\n" : "");
  // Nothing changes before all checks have passed.
  const std::string body = Checks(c) + Push(c);
  if (!c.discrete) {
    return out + fmt::format(R"(
int @_act(@_state* state, const @_observation* observation, @_action* action) {{
  const @@* in;
  const float* out;
  int32_t i;
{0}  state->begins = 0;
  out = @_forward(state, in);
  if (!@_finite(out, {1})) return @_NOT_FINITE;
  for (i = 0; i < {1}; ++i) action->action[i] = out[i];
  return @_OK;
}}
)",
                             body, c.actions);
  }
  return out + fmt::format(R"(
int @_act(@_state* state, const @_observation* observation, const @_mask* mask,
          @_action* action) {{
  const @@* in;
  const uint8_t* allowed;
  const float* out;
  int32_t i, best = -1;
{0}  state->begins = 0;
  state->has_values = 0;
  out = @_forward(state, in);
  if (!@_finite(out, {1})) return @_NOT_FINITE;
  for (i = 0; i < {1}; ++i) {{
    state->values.action[i] = out[i];
    if (allowed && !allowed[i]) continue;
    if (best < 0 || out[i] > out[best]) best = i;
  }}
  state->has_values = 1;
  action->action = best;
  return @_OK;
}}

const @_values* @_q_values(const @_state* state) {{
  return state->has_values ? &state->values : (const @_values*)0;
}}
)",
                           body, c.actions);
}

// Values that the policy's layers read. The size is checked before any text is made.
std::int64_t ValueCount(const PolicyDescription& policy, const TensorFile& file) {
  std::int64_t count = 0;
  for (const PolicyLayer& layer : policy.layers) {
    if (layer.tensors.empty()) continue;
    for (const auto& [name, tensor] : file.tensors) {
      if (name.starts_with(layer.tensors + ".")) count += tensor.elements();
    }
  }
  return count;
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
         std::ranges::all_of(name,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace

// Input layers read the observation's own type, so they come first.
Result<std::string> EncodeCPolicy(const PolicyDescription& policy, const TensorFile& file,
                                  std::string_view name) {
  if (!IsIdentifier(name))
    return InvalidArgument("\"{}\" is not a prefix of names in C; use letters, digits and _", name);
  // A compiler needs minutes and gigabytes for larger arrays of text.
  if (const std::int64_t values = ValueCount(policy, file); values > kCPolicyValuesMax) {
    return InvalidArgument(
        "the policy has {} values, must be at most {} for a C file; export it for libtroop_policy "
        "(--format safetensors), or train a smaller network",
        values, kCPolicyValuesMax);
  }
  // Clipped observations come before the input layer.
  const bool clips = !policy.layers.empty() && policy.layers[0].kind == PolicyLayerKind::kClip;
  for (std::size_t i = clips ? 1 : 0; i < policy.layers.size(); ++i) {
    const bool first = i == (clips ? 1 : 0);
    if (first != (policy.layers[i].kind <= PolicyLayerKind::kImages))
      return InvalidArgument("the first layer of a policy, and no other, must be an input layer");
  }
  CTranslator translator(policy, file);
  TROOP_RETURN_IF_ERROR(translator.Translate());
  // The header part may be included without the rest.
  const CInterface interface(policy);
  const std::string text = Description(policy, file, translator) +
                           Declarations(policy, translator) + R"(
#ifdef __cplusplus
}
#endif
#endif /* @_DECLARED */

#ifndef @_DECLARATIONS

)" + translator.constants() +
                           translator.Functions() + Implementation(interface, translator) +
                           "\n#endif /* @_DECLARATIONS */\n";
  return FillPlaceholders(text, name, interface.type);
}

// Other characters become "_"; names that begin with one are reserved in C.
std::string CPolicyName(std::string_view file_name) {
  std::string name;
  for (const char c : file_name.substr(0, file_name.rfind('.'))) {
    const bool valid = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (valid || !name.empty()) name += valid ? c : '_';
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0)
    name = "policy_" + name;
  return name == "policy_" ? "policy" : name;
}

}  // namespace troop
