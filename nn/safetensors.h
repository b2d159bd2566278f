#pragma once

#include <map>
#include <string>

#include "core/buffer.h"
#include "core/status.h"
#include "core/tensor.h"

namespace troop {

// The safetensors format: u64 header length, JSON header, raw little-endian data; readable by the
// Python package of that name. Metadata: string → string.
struct TensorFile {
  std::map<std::string, ConstTensor> tensors;
  std::map<std::string, std::string> metadata;
};
Buffer EncodeSafetensors(const TensorFile& file);
// Checks every length and offset before use; tensors share the buffer's bytes (copied only where
// misaligned). Errors: kDataLoss, with what is wrong.
Result<TensorFile> DecodeSafetensors(const Buffer& bytes);

}  // namespace troop
