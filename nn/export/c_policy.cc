// Implements the interface of a policy in C99 around its layers.
#include "nn/export/c_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

#include "core/base/version.h"
#include "nn/export/c_layers.h"
#include "nn/export/c_policy_text.h"

namespace troop {
namespace {

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

// Sizes and types on which the interface depends.
struct CInterface {
  explicit CInterface(const PolicyDescription& policy)
      : frame(policy.observation.shape.elements()),
        stack(policy.frame_stack),
        discrete(policy.action.discrete()),
        actions(discrete ? policy.action.count : std::int64_t(policy.action.low.size())),
        type(TypeName(policy.observation.dtype)),
        is_float(policy.observation.dtype == DType::kF32) {
    const PolicyLayer& last = policy.layers.back();
    if (last.kind == PolicyLayerKind::kActionMask) mask = last.first;
  }
  const std::int64_t frame, stack;
  const bool discrete;
  const std::int64_t actions;
  const std::string type;
  const bool is_float;
  std::optional<std::int64_t> mask;  // where the action mask begins in an observation
};

// The parts of an observation with their places, for the comment at the top.
std::string PartsText(const std::vector<ObservationPart>& parts) {
  std::string out;
  std::int64_t first = 0;
  for (const ObservationPart& part : parts) {
    out += fmt::format("\n                 [{}] {} {}{}", first, Harmless(part.name),
                       ShapeText(part.shape),
                       part.action_mask ? ", 0 for each action that is forbidden" : "");
    first += part.shape.elements();
  }
  return out;
}

// The comment at the top: origin, names, shapes and memory.
std::string Description(const PolicyDescription& policy, const TensorFile& file,
                        const CLayers& layers) {
  const CInterface c(policy);
  std::string out = fmt::format(
      "/* The greedy policy of a trained agent in C99, written by Troop {} (troop export --format "
      "c).\n   It needs no library, no heap and no start-up code. Its constants take {} bytes, a\n"
      "   @_state takes about {} bytes.\n\n",
      kTroopVersion, 4 * layers.values,
      4 * (std::reduce(layers.sizes.begin(), layers.sizes.end()) + layers.state +
           (c.discrete ? c.actions : 0)) +
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
  out += PartsText(policy.parts);
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
   mask: NULL, or the allowed actions, in addition to a mask in the observation. After an error the
   action is unchanged; an observation that is not finite or an invalid argument leaves the state as
   it was. */
int @_act(@_state* state, const @_observation* observation, const @_mask* mask,
          @_action* action);

/* The q-values of the last @_act; NULL before the first one of an episode, or after its failure.
   Actions that the observation itself forbids have -1e30. */
const @_values* @_q_values(const @_state* state);
)";

// Types and prototypes, which may be included several times.
std::string Declarations(const PolicyDescription& policy, const CLayers& layers) {
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
#define @_INVALID_ARGUMENT 1 /* a null pointer, or masks that forbid every action */
#define @_NOT_FINITE 2       /* an observation or a result is NaN or infinite */

/* The observation; its parts, if it has several, follow each other. */
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
  out += fmt::format("  float a[{}], b[{}];\n", layers.sizes[0], layers.sizes[1]);
  // A branch may need one buffer alone.
  const char* const names[] = {"a", "b", "c", "d"};
  for (const std::size_t i : {2, 3}) {
    if (layers.sizes[i] > 0) out += fmt::format("  float {}[{}];\n", names[i], layers.sizes[i]);
  }
  if (layers.state > 0) out += fmt::format("  float recurrent[{}];\n", layers.state);
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
  // The mask of the caller and that of the observation must have an action in common, unless the
  // latter allows none.
  if (c.mask) {
    out += fmt::format(R"(  if (allowed) {{
    const @@* const seen = observation->observation + {0};
    int any = 0, both = 0;
    for (i = 0; i < {1}; ++i) {{
      any |= seen[i] != 0;
      both |= seen[i] != 0 && allowed[i] != 0;
    }}
    if (any && !both) return @_INVALID_ARGUMENT;
  }}
)",
                       *c.mask, c.actions);
  }
  // Integers are always finite.
  if (c.is_float)
    out += fmt::format("  if (!@_finite(observation->observation, {})) return @_NOT_FINITE;\n",
                       c.frame);
  return out;
}

// Appends the frame to the state's stack; an episode begins with zeros.
std::string Push(const CInterface& c, const CLayers& layers) {
  std::string out;
  // The recurrent state belongs to the policy, whatever the type of observations.
  if (layers.state > 0) {
    out = fmt::format("  for (i = 0; state->begins && i < {}; ++i) state->recurrent[i] = 0.0f;\n",
                      layers.state);
  }
  // Without a stack the layers read the caller's frame.
  if (c.stack == 1) return out + "  in = observation->observation;\n";
  return out + fmt::format(R"(  for (i = 0; i < {0}; ++i)
    state->frames[i] = state->begins ? 0 : state->frames[i + {1}];
  for (i = 0; i < {1}; ++i) state->frames[{0} + i] = observation->observation[i];
  in = state->frames;
)",
                           (c.stack - 1) * c.frame, c.frame);
}

// The two or three functions.
std::string Implementation(const CInterface& c, const CLayers& layers) {
  std::string out = fmt::format(R"(
/* Computes the outputs [{}] from whole stacks. */
static const float* @_forward(@_state* state, const @@* in) {{
{}  return {};
}}

void @_reset(@_state* state) {{
  state->begins = 1;
{}}}
)",
                                c.actions, layers.calls, layers.result,
                                c.discrete ? "  state->has_values = 0;\n" : "");
  // Nothing changes before all checks have passed.
  const std::string body = Checks(c) + Push(c, layers);
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

// Values that the layers read. The size is checked before any text is made.
std::int64_t ValueCount(const std::vector<PolicyLayer>& layers, const TensorFile& file) {
  std::int64_t count = 0;
  for (const PolicyLayer& layer : layers) {
    for (const std::vector<PolicyLayer>& branch : layer.branches) count += ValueCount(branch, file);
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
  if (const std::int64_t values = ValueCount(policy.layers, file); values > kCPolicyValuesMax) {
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
  TROOP_ASSIGN_OR_RETURN(const CLayers layers, TranslateToC(policy, file));
  // The header part may be included without the rest.
  const CInterface interface(policy);
  const std::string text = Description(policy, file, layers) + Declarations(policy, layers) + R"(
#ifdef __cplusplus
}
#endif
#endif /* @_DECLARED */

#ifndef @_DECLARATIONS

)" + layers.constants + layers.functions +
                           Implementation(interface, layers) + "\n#endif /* @_DECLARATIONS */\n";
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
