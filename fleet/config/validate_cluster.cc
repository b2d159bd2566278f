// Checks the keys of Slurm and Kubernetes against the formats that sbatch and the API server
// accept.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "fleet/config/validate.h"

namespace troop {
namespace {

// At most `size_max` bytes of letters, digits and `also`, with a letter or a digit at both ends.
bool IsWord(std::string_view text, std::string_view also, std::size_t size_max) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && text.size() <= size_max && plain(text.front()) && plain(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return plain(c) || also.find(c) != also.npos; });
}

// At most `digits_max` digits, without a sign.
bool IsNumber(std::string_view text, std::size_t digits_max) {
  return !text.empty() && text.size() <= digits_max &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// The formats of sbatch(1): [days-]hours[:minutes[:seconds]], minutes[:seconds], or
// hours:minutes:seconds.
bool IsTimeLimit(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash != text.npos && !IsNumber(text.substr(0, dash), 4)) return false;
  if (dash != text.npos) text.remove_prefix(dash + 1);
  std::size_t digits_max = dash == text.npos ? 6 : 2;
  // Up to three colon-separated parts; only the first may have more than two digits.
  for (int parts = 1; parts <= 3; ++parts, digits_max = 2) {
    const std::size_t colon = text.find(':');
    if (!IsNumber(text.substr(0, colon), digits_max)) return false;
    if (colon == text.npos) return true;
    text.remove_prefix(colon + 1);
  }
  return false;
}

// Checks values that go into the sbatch script, where a stray character would be a directive.
void CheckSlurm(const Config& c, Conflicts* out) {
  const auto& s = c.slurm;
  for (const auto& [key, value] : {std::pair("slurm.partition", &s.partition),
                                   {"slurm.account", &s.account},
                                   {"slurm.memory", &s.memory}}) {
    const bool word = std::ranges::all_of(*value, [](unsigned char x) {
      return std::isalnum(x) || x == '_' || x == '-' || x == '.' || x == ',';
    });
    out->If(!word, {key},
            "{} is not a valid value for sbatch; use letters, digits, '-', '_' and '.'",
            TomlString(*value));
  }
  out->If(!s.time_limit.empty() && !IsTimeLimit(s.time_limit), {"slurm.time_limit"},
          "{} is not a time limit; use minutes, HH:MM:SS or D-HH:MM:SS", TomlString(s.time_limit));
  for (const std::string& option : s.options) {
    out->If(!option.starts_with("-") || option.find('\n') != std::string::npos, {"slurm.options"},
            "{} is not an sbatch option; begin it with \"-\", and give one option per string",
            TomlString(option));
  }
  for (const auto& [key, node] :
       {std::pair("slurm.learner_node", s.learner_node), {"slurm.replay_node", s.replay_node}}) {
    out->If(node >= s.nodes, {key, "slurm.nodes"},
            "{} is not a node of slurm.nodes = {}; nodes are counted from 0", node, s.nodes);
  }
}

// Serial mode has no processes that an engine could start.
void CheckEngine(const Config& c, Conflicts* out) {
  const std::string engine = TomlString(EnumName(c.fleet.engine));
  out->If(c.fleet.engine != LaunchEngine::kLocal && c.fleet.mode == FleetMode::kSerial,
          {"fleet.engine", "fleet.mode"},
          "{} starts processes, but the mode is serial; omit it, or set fleet.mode = \"processes\"",
          engine);
}

// Kubernetes names are lower case.
bool HasCapitals(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return c >= 'A' && c <= 'Z'; });
}

// A DNS label (RFC 1123), which Kubernetes requires for names that are resolved by DNS.
bool IsLabel(std::string_view text, std::size_t size_max) {
  return IsWord(text, "-", size_max) && !HasCapitals(text);
}

// A Kubernetes quantity with a binary unit, such as "4Gi".
bool IsQuantity(std::string_view text) {
  constexpr std::string_view kUnits[] = {"Ki", "Mi", "Gi", "Ti"};
  return text.size() > 2 && text.front() != '0' && IsNumber(text.substr(0, text.size() - 2), 12) &&
         std::ranges::find(kUnits, text.substr(text.size() - 2)) != std::end(kUnits);
}

// Checks values that go into the manifests, and rules that apply only with this engine.
void CheckKubernetes(const Config& c, Conflicts* out) {
  const auto& k = c.kubernetes;
  for (const auto& [key, value] : {std::pair("kubernetes.storage", &k.storage),
                                   {"kubernetes.shared_memory", &k.shared_memory},
                                   {"kubernetes.coordinator_memory", &k.coordinator_memory},
                                   {"kubernetes.replay_memory", &k.replay_memory},
                                   {"kubernetes.paramserver_memory", &k.paramserver_memory},
                                   {"kubernetes.learner_memory", &k.learner_memory},
                                   {"kubernetes.actor_memory", &k.actor_memory},
                                   {"kubernetes.evaluator_memory", &k.evaluator_memory},
                                   {"kubernetes.inference_memory", &k.inference_memory}}) {
    out->If(!IsQuantity(*value), {key},
            "{} is not a quantity; use a whole number with Ki, Mi, Gi or Ti, such as \"4Gi\"",
            TomlString(*value));
  }
  out->If(!IsLabel(k.name_space, 63), {"kubernetes.namespace"},
          "{} is not a valid namespace; use lowercase letters, digits and '-'",
          TomlString(k.name_space));
  for (const auto& [key, value] : {std::pair("kubernetes.claim", &k.claim),
                                   {"kubernetes.data_claim", &k.data_claim},
                                   {"kubernetes.storage_class", &k.storage_class}}) {
    out->If(!value->empty() && (!IsWord(*value, "-.", 253) || HasCapitals(*value)), {key},
            "{} is not a valid Kubernetes name; use lowercase letters, digits, '-' and '.'",
            TomlString(*value));
  }
  out->If(!IsWord(k.image, "-._/:@", 512), {"kubernetes.image"},
          "{} is not a valid image name; use [REGISTRY/]NAME[:TAG]", TomlString(k.image));
  // The rules above concern formats, so they apply to every engine.
  if (c.fleet.engine != LaunchEngine::kKubernetes) return;
  out->If(!c.fleet.listen.empty(), {"fleet.listen", "fleet.engine"},
          "the coordinator listens on its pod's address; omit it");
  out->If(c.fleet.actors % k.actors_per_pod != 0, {"kubernetes.actors_per_pod", "fleet.actors"},
          "{} does not divide fleet.actors = {}, but all actor pods are equal; use a divisor",
          k.actors_per_pod, c.fleet.actors);
}

}  // namespace

void CheckCluster(const Config& c, Conflicts* out) {
  CheckEngine(c, out);
  CheckSlurm(c, out);
  CheckKubernetes(c, out);
}

}  // namespace troop
