#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/storage/storage.h"
#include "nn/io/safetensors.h"
#include "nn/transformer/transformer.h"

// Models in the format of the Python package transformers: a folder with config.json and
// model.safetensors, or several files with an index (nn/io/weight_files.h). All are untrusted input
// and are validated before use.
namespace troop {

// Parses config.json. head: from the class named in `architectures`, else kPooled; classes: the
// number of labels. Dropout rates and constants that it lacks have the package's defaults. Errors:
// kDataLoss: not a valid document, or a value is missing; kInvalidArgument: a model that
// TransformerConfig cannot express (another family, activation, grouping of layers, a decoder), or
// sizes out of bounds.
Result<TransformerOptions> ParseTransformerConfig(std::string_view json);
// Writes config.json; the inverse of ParseTransformerConfig.
std::string TransformerConfigJson(const TransformerOptions& options);

// Report of LoadWeights. `fresh`: head parameters that the file lacks (it was pre-trained for
// another task), which stay unchanged. `unused`: tensors without a counterpart in the model.
struct LoadedWeights {
  std::vector<std::string> fresh, unused;
};
// Copies the file's tensors, F32, F16 or BF16, into value [P]. Names may lack the family prefix
// (saved from the encoder only) and may use gamma and beta for a norm's weight and bias
// (checkpoints of 2018). Errors: kInvalidArgument: an encoder parameter is missing, or has another
// shape or type, or the decoder of a masked-LM head differs from the word embeddings; kDataLoss: a
// value is not finite. After an error `value` is partly overwritten.
Result<LoadedWeights> LoadWeights(const Module& module, const TensorFile& file,
                                  std::span<float> value);
// A warning about unused encoder tensors, for example if config.json has fewer layers than the
// file; empty if there are none. Unused tensors of other heads are normal.
std::string DescribeUnused(const LoadedWeights& loaded);
// All parameters by name, F32. The tensors reference `value`.
TensorFile SaveWeights(const Module& module, std::span<const float> value);

// config.json of a folder. Errors: as ParseTransformerConfig; kNotFound: it is missing.
Result<TransformerOptions> ReadPretrainedConfig(Storage* storage, std::string_view folder);
// Config and weights of a folder. Errors: as above, and those of ReadWeightFiles.
struct Pretrained {
  TransformerOptions options;
  TensorFile weights;  // maps the files: see Storage::Map
};
Result<Pretrained> ReadPretrained(Storage* storage, std::string_view folder);
Status WritePretrained(Storage* storage, std::string_view folder, const TransformerOptions& options,
                       const Module& module, std::span<const float> value);

}  // namespace troop
