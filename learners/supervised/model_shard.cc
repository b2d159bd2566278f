// Implements a tensor-parallel part of the text model: slicing, norms and gathering.

#include "learners/supervised/model_shard.h"

#include <cmath>
#include <utility>

#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {

// The whole model's module is needed for its parameter layout.
Result<ModelShard> ModelShard::Make(const TrainingConfig& config, const TensorParallelRank& place) {
  ModelShard part;
  part.place_ = place;
  TROOP_ASSIGN_OR_RETURN(part.module_, MakeTextModel(ModelSetupOf(config), place));
  if (place.ranks > 1) {
    TROOP_ASSIGN_OR_RETURN(part.whole_, MakeTextModel(ModelSetupOf(config)));
  }
  return part;
}

// Tensors of the whole model's size are sliced; others, such as counters, are copied.
TensorFile ModelShard::Cut(const TensorFile& state) const {
  if (!cut()) return state;
  TensorFile part;
  part.metadata = state.metadata;
  const auto all = ParameterCount(*whole_), mine = ParameterCount(*module_);
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.spec() != TensorSpec{DType::kF32, {all}}) {
      part.tensors[name] = tensor;
      continue;
    }
    Tensor slice(DType::kF32, {mine});
    TakeSlice(*whole_, *module_, tensor.as<float>(), slice.as<float>());
    part.tensors[name] = slice;
  }
  return part;
}

// A whole state is recognized by the size of its value.
TensorFile ModelShard::Begin(const TensorFile& state) {
  const auto value = state.tensors.find("value");
  const bool whole = cut() && value != state.tensors.end() &&
                     value->second.spec() == TensorSpec{DType::kF32, {ParameterCount(*whole_)}};
  if (whole) {
    const auto numbers = value->second.as<float>();
    value_.assign(numbers.begin(), numbers.end());
    state_ = state;
  }
  return Cut(state);
}

double ModelShard::Norm(TensorGroup* group, std::span<const float> gradient) const {
  // The sum of two floats, so that the sum of squares has double precision after the all-reduce.
  const double squares = SliceNormSquared(*module_, place_, gradient);
  float words[2] = {float(squares), 0};
  words[1] = float(squares - double(words[0]));
  if (group != nullptr) group->Sum(words);
  return std::sqrt(double(words[0]) + double(words[1]));
}

Status ModelShard::GatherInto(Collective& group, std::span<const float> part,
                              std::vector<float>* whole) {
  whole->resize(std::size_t(ParameterCount(*whole_)));
  return GatherSlices(group, *whole_, *module_, part, *whole);
}

// Tensors are gathered in the order of their names, which is equal on all ranks.
Status ModelShard::Gather(Collective* group, const Algorithm& part, bool state) {
  if (!cut()) return Status::Ok();
  if (group == nullptr) return FailedPrecondition("no group of the tensor-parallel ranks");
  TROOP_RETURN_IF_ERROR(GatherInto(*group, part.value(), &value_));
  if (!state) return Status::Ok();
  TensorFile gathered = part.State();
  for (auto& [name, tensor] : gathered.tensors) {
    std::vector<float> whole;
    TROOP_RETURN_IF_ERROR(GatherInto(*group, tensor.as<float>(), &whole));
    tensor = ConstTensor(Buffer::Copy(std::as_bytes(std::span(whole))),
                         {DType::kF32, {std::int64_t(whole.size())}});
  }
  state_ = std::move(gathered);
  return Status::Ok();
}

}  // namespace troop
