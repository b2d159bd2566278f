// A layer that Troop does not have: a gated linear unit (Dauphin et al. 2017, arXiv:1612.08083).
#pragma once

#include "nn/layers/own_layer.h"

// y = (W x + b) · sigmoid(V x + c), elementwise; x flattened. Key: units. No options.
troop::Result<troop::OwnLayer> MakeGatedLinear(const troop::OwnLayerRequest& request);
