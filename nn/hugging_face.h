#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/storage.h"
#include "nn/safetensors.h"
#include "nn/transformer.h"

// Models as the Python package transformers keeps them: a folder with config.json and
// model.safetensors. Both come from outside, and everything in them is checked before it is used.
namespace troop {

// config.json. head: of the class that `architectures` names, else kPooled; classes: the labels'.
// Errors: kDataLoss: no such document, or a number is missing; kInvalidArgument: a model that
// differs from TransformerConfig (another family, activation, grouping of layers, a decoder), or
// sizes out of bounds.
Result<TransformerOptions> ParseTransformerConfig(std::string_view json);
std::string TransformerConfigJson(const TransformerOptions& options);

// What became of a file's tensors. `fresh`: parameters of the head that the file lacks (one that
// was pretrained for something else), left as they are. `unused`: tensors that the model has no
// place for.
struct LoadedWeights {
  std::vector<std::string> fresh, unused;
};
// Writes the file's tensors, F32 or BF16, into value [P]. Names may lack the family in front (saved
// from the encoder alone) and have gamma and beta for a norm's weight and bias (checkpoints of
// 2018). Errors: kInvalidArgument: a parameter of the encoder is missing, or has another shape or
// type; kDataLoss: a number isn't finite. Then value has changed in part.
Result<LoadedWeights> LoadWeights(const Module& module, const TensorFile& file,
                                  std::span<float> value);
// A warning about unused tensors of the encoder, as where config.json has fewer layers than the
// file; empty: there are none. Those of other heads are usual.
std::string DescribeUnused(const LoadedWeights& loaded);
// Every parameter under its name, F32. The tensors borrow `value`.
TensorFile SaveWeights(const Module& module, std::span<const float> value);

// Both files of a folder. Errors: as above; kNotFound: a file is missing.
struct Pretrained {
  TransformerOptions options;
  TensorFile weights;  // maps the file: see Storage::Map
};
Result<Pretrained> ReadPretrained(Storage* storage, std::string_view folder);
Status WritePretrained(Storage* storage, std::string_view folder, const TransformerOptions& options,
                       const Module& module, std::span<const float> value);

}  // namespace troop
