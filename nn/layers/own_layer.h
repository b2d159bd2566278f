#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/option_reader.h"
#include "core/tensor/spec.h"
#include "nn/module.h"
#include "nn/network_config.h"

namespace troop {

// A layer of network.layers that an extension (nn/extension.h) makes.
struct OwnLayer {
  // One input and one output: [B, ...in] f32 → [B, ...out] f32. Parameters begin at multiples of 16
  // elements and do not overlap. The module must be deterministic, and use no memory but that of
  // its plan and its Packed.
  std::unique_ptr<Module> module;
  // One of the built-in layers that compute the same as the module does in inference, one after
  // another. Its parameters are those of the module called `tensors`.weight and `tensors`.bias; a
  // residual block has two convolutions, `tensors`.conv0 and `tensors`.conv1.
  struct Part {
    LayerConfig layer;
    std::string tensors;
  };
  // By them a policy leaves Troop (nn/export/policy_description.h). Empty: there are none, so that
  // a policy with this layer can't be exported.
  std::vector<Part> equals;
};

// Arguments of a factory: the keys of the layer, the shape of its input without the batch, and the
// layer's options. The factory decides which of units, filters, kernel, stride and activation its
// layer has.
struct OwnLayerRequest {
  const LayerConfig& layer;
  Shape in;
  OptionReader& options;
};
using LayerFactory = std::function<Result<OwnLayer>(const OwnLayerRequest&)>;

// Registers a layer, so that {type = "name"} in network.layers makes it. Call it before the first
// network is made, in TROOP_EXTENSION or in main. Thread safe. Errors: FactoryRegistry::Add.
Status RegisterLayer(const std::string& name, LayerFactory factory);
// True for a registered name.
bool IsRegisteredLayer(const std::string& name);

// Makes a layer of type kOwn. library: learner.library, loaded first. key: of the layer in the
// config, for messages. Errors: those of LoadExtension and of the factory; kInvalidArgument: an
// unknown type, with the known ones; an option that the factory did not read; or a module that
// breaks the contract above.
Result<OwnLayer> MakeOwnLayer(const LayerConfig& layer, const std::string& library,
                              const std::string& key, const Shape& in);
// The shape of its output without the batch. REQUIRES: MakeOwnLayer returned it for this input.
Shape OutputOf(const OwnLayer& layer, const Shape& in);

}  // namespace troop
