#pragma once

#include <map>
#include <string>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

namespace troop {

// Contents of a file in the safetensors format: u64 header length, JSON header, raw little-endian
// data; readable by the Python package of that name. Metadata: string → string.
struct TensorFile {
  std::map<std::string, ConstTensor> tensors;
  std::map<std::string, std::string> metadata;
};
Buffer EncodeSafetensors(const TensorFile& file);
// Decodes untrusted bytes: every length and offset is checked before use. Tensors share the buffer
// (copied only if misaligned); F16 becomes F32, exactly, in new memory. Errors: kDataLoss, with the
// reason.
Result<TensorFile> DecodeSafetensors(const Buffer& bytes);

}  // namespace troop
