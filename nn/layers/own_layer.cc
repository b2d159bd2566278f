// Implements the registry of own layers, and the checks of what their factories return.
#include "nn/layers/own_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "nn/extension.h"

namespace troop {
namespace {

FactoryRegistry<LayerFactory>& Layers() {
  static FactoryRegistry<LayerFactory> layers;
  return layers;
}

// Checks the layout of the parameters: modules share one flat buffer, so an overlap would train two
// parameters as one.
Status CheckParameters(const Module& module) {
  std::vector<const ParamSpec*> params;
  for (const ParamSpec& param : module.params()) params.push_back(&param);
  std::ranges::sort(params, {}, &ParamSpec::offset);
  std::int64_t end = 0;
  for (const ParamSpec* param : params) {
    const auto same = [&](const ParamSpec* other) { return other->name == param->name; };
    if (param->name.empty() || std::ranges::count_if(params, same) > 1)
      return InvalidArgument("parameter \"{}\": the name is empty or taken", param->name);
    if (param->shape.elements() < 1)
      return InvalidArgument("parameter \"{}\": is empty", param->name);
    if (param->offset < end || param->offset % 16 != 0) {
      return InvalidArgument("parameter \"{}\": offset {} must be a multiple of 16, at least {}",
                             param->name, param->offset, end);
    }
    end = param->offset + param->shape.elements();
  }
  return Status::Ok();
}

// Checks the output for two batch sizes, because a batch size that is built in would fail later.
Status CheckOutput(const Module& module, const Shape& in) {
  for (const std::int64_t batch : {1, 2}) {
    const TensorSpec input{DType::kF32, in.Prepend(batch)};
    TROOP_ASSIGN_OR_RETURN(const Plan plan, module.MakePlan({&input, 1}));
    const bool good = plan.out.size() == 1 && plan.out[0].dtype == DType::kF32 &&
                      plan.out[0].shape.rank() >= 2 && plan.out[0].shape[0] == batch &&
                      plan.out[0].shape.elements() > 0;
    if (!good) {
      return InvalidArgument("the output for {} is {}, must be f32[{}, …]", input.ToString(),
                             plan.out.empty() ? "nothing" : plan.out[0].ToString(), batch);
    }
  }
  return Status::Ok();
}

// Finds the factory, after the library was loaded.
Result<LayerFactory> FindFactory(const LayerConfig& layer, const std::string& library,
                                 const std::string& key) {
  if (!library.empty()) TROOP_RETURN_IF_ERROR(LoadExtension(library));
  if (auto found = Layers().Find(layer.own_type)) return *std::move(found);
  // The message lists what this process has registered so far, libraries included.
  const std::vector<std::string> names = Layers().names();
  return InvalidArgument(
      "{}.type = \"{}\" is unknown; the layers are linear, conv2d{}{}; correct it, or name the "
      "library of the layer in learner.library",
      key, layer.own_type, names.empty() ? "" : ", ", fmt::join(names, ", "));
}

}  // namespace

// The names of LayerType, "own" included, can't be registered.
Status RegisterLayer(const std::string& name, LayerFactory factory) {
  constexpr auto kBuiltIn = EnumNames(LayerType());
  return Layers().Add("layer", name, kBuiltIn, std::move(factory));
}

bool IsRegisteredLayer(const std::string& name) { return Layers().Find(name).has_value(); }

// Invalid option values explain an error of the factory, so they are reported first.
Result<OwnLayer> MakeOwnLayer(const LayerConfig& layer, const std::string& library,
                              const std::string& key, const Shape& in) {
  TROOP_ASSIGN_OR_RETURN(const LayerFactory factory, FindFactory(layer, library, key));
  const std::string name = fmt::format("{} (\"{}\")", key, layer.own_type);
  OptionReader options(key + ".options", layer.options);
  auto made = CallExtension(name, [&]() -> Result<OwnLayer> {
    auto result = factory({layer, in, options});
    return result.ok() ? std::move(result) : result.status().WithContext(name);
  });
  TROOP_RETURN_IF_ERROR(options.Values());
  if (!made.ok()) return made.status();
  TROOP_RETURN_IF_ERROR(options.Finish());
  if (made->module == nullptr) return InvalidArgument("{}: the factory made no module", name);
  TROOP_RETURN_IF_ERROR(CheckParameters(*made->module).WithContext(name));
  TROOP_RETURN_IF_ERROR(CheckOutput(*made->module, in).WithContext(name));
  return made;
}

// The plan of one row has the shape: CheckOutput has shown that it grows with the batch.
Shape OutputOf(const OwnLayer& layer, const Shape& in) {
  const TensorSpec input{DType::kF32, in.Prepend(1)};
  const auto plan = layer.module->MakePlan({&input, 1});
  TROOP_CHECK(plan.ok(), "{}", plan.status().ToString());
  return plan->out[0].shape.DropFirst();
}

}  // namespace troop
