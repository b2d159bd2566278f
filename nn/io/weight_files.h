#pragma once

#include <string_view>

#include "core/storage/storage.h"
#include "nn/io/safetensors.h"

// The files of weights in a folder of the Python package transformers, which are untrusted input.
namespace troop {

// Reads model.safetensors, or without it the files that model.safetensors.index.json names; these
// must be in the same folder. Files are mapped (Storage::Map). Errors: kNotFound: no weights, or a
// file of the index is missing; kInvalidArgument: a git-lfs pointer, only the pickle file
// pytorch_model.bin (with the command that converts it), or an index with the name of a file
// elsewhere; kDataLoss: a damaged file, or the index and its files contradict each other.
Result<TensorFile> ReadWeightFiles(Storage* storage, std::string_view folder);

// Path of a file in a folder; folder may be empty.
std::string PathIn(std::string_view folder, std::string_view name);
// Errors: kInvalidArgument: `bytes` are a git-lfs pointer, as in a repository that was cloned
// without git-lfs.
Status CheckNoPointer(const std::string& path, const Buffer& bytes);

inline constexpr char kWeightsName[] = "model.safetensors";

}  // namespace troop
