// Implements the registry of own algorithms, and the checks of what their factories return.
#include "learners/external/own_algorithm.h"

#include <fmt/format.h>

#include <utility>

#include "nn/extension.h"
#include "nn/models/model.h"

namespace troop {
namespace {

FactoryRegistry<AlgorithmFactory>& Algorithms() {
  static FactoryRegistry<AlgorithmFactory> algorithms;
  return algorithms;
}

// All names of learner.algorithm: built-in ones, then registered ones.
std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const std::string_view name : EnumNames(AlgorithmKind())) {
    if (name != EnumName(AlgorithmKind::kOwn)) names.emplace_back(name);
  }
  for (std::string& name : Algorithms().names()) names.push_back(std::move(name));
  return names;
}

// Finds the factory, after the library was loaded.
Result<AlgorithmFactory> FindFactory(const LearnerConfig& config) {
  if (!config.library.empty()) TROOP_RETURN_IF_ERROR(LoadExtension(config.library));
  if (auto found = Algorithms().Find(config.own_algorithm)) return *std::move(found);
  return InvalidArgument(
      "learner.algorithm: \"{}\" is unknown; the algorithms are {}; correct it, or name the "
      "library of the algorithm in learner.library",
      config.own_algorithm, fmt::join(AllNames(), ", "));
}

}  // namespace

// The names of AlgorithmKind, "own" included, can't be registered.
Status RegisterAlgorithm(const std::string& name, AlgorithmFactory factory) {
  constexpr auto kBuiltIn = EnumNames(AlgorithmKind());
  return Algorithms().Add("algorithm", name, kBuiltIn, std::move(factory));
}

bool IsRegisteredAlgorithm(const std::string& name) { return Algorithms().Find(name).has_value(); }

Status CheckOwnAlgorithm(const LearnerConfig& config) { return FindFactory(config).status(); }

// Invalid option values explain an error of the factory, so they are reported first.
Result<std::unique_ptr<Algorithm>> MakeOwnAlgorithm(const TrainingConfig& config,
                                                    const EnvSpec& env) {
  TROOP_ASSIGN_OR_RETURN(const AlgorithmFactory factory, FindFactory(config.learner));
  const ModelSetup setup = ModelSetupOf(config);
  EnvSpec seen = env;  // batches hold the network's inputs
  seen.observation = NetworkInput(setup, env);
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> network, MakeNetwork(setup, env));
  const std::string name = fmt::format("learner.algorithm = \"{}\"", config.learner.own_algorithm);
  OptionReader options("learner.options", config.learner.options);
  auto made = CallExtension(name, [&]() -> Result<std::unique_ptr<Algorithm>> {
    auto result = factory({config, seen, std::move(network), options});
    return result.ok() ? std::move(result) : result.status().WithContext(name);
  });
  // Unread options are reported only by a factory that got to its end.
  TROOP_RETURN_IF_ERROR(options.Values());
  if (!made.ok()) return made.status();
  TROOP_RETURN_IF_ERROR(options.Finish());
  if (*made == nullptr) return InvalidArgument("{}: the factory made no algorithm", name);
  if (config.learner.device == DeviceChoice::kCuda && (*made)->device_ordinal() < 0) {
    return InvalidArgument(
        "learner.device is \"cuda\", but {} uses no GPU; set learner.device = \"auto\"", name);
  }
  return made;
}

}  // namespace troop
