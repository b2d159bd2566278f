#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"

namespace troop {

// Copies the weights of a state dict of torchvision (model.safetensors of its parameters and
// buffers) into `value`. Convolutions are [out, in, h, w] there and [out, h, w, in] here.
// num_batches_tracked, which counts updates, is ignored. Errors: kInvalidArgument: a tensor is
// missing, unknown, or has another shape or type than f32; kDataLoss: a number is not finite, or a
// variance is negative. The message names the tensor. On an error `value` is unchanged.
Status LoadImageWeights(const TensorFile& file, const Module& module, std::span<float> value);

// The inverse: tensors with the names and layouts of torchvision, without num_batches_tracked.
TensorFile SaveImageWeights(const Module& module, std::span<const float> value);

// Lets a file for another number of classes fit: replaces the last linear layer of `file` by that
// of `value` and returns its names. Empty if the file has the module's classes, or no such layer.
std::vector<std::string> KeepOwnHead(const Module& module, std::span<const float> value,
                                     TensorFile* file);

}  // namespace troop
