#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/algorithm.h"
#include "nn/module.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {

// The text model of a config, or one tensor-parallel part of it, with the whole model as of the
// last TensorParallelMember::Gather. Used by the CPU and the GPU algorithm.
class ModelShard {
 public:
  // Errors: as MakeTextModel.
  static Result<ModelShard> Make(const TrainingConfig& config, const TensorParallelRank& place);

  const Module& module() const { return *module_; }  // this part
  const Module& whole() const { return whole_ != nullptr ? *whole_ : *module_; }
  const TensorParallelRank& place() const { return place_; }
  bool cut() const { return place_.ranks > 1; }

  // Slices a state of the whole model to this part; a state of the part is returned unchanged.
  TensorFile Cut(const TensorFile& state) const;
  // Cut for a state to resume from, such as a checkpoint's. A state of the whole model also
  // becomes the gathered one, so a run that ends before its first update still has it.
  TensorFile Begin(const TensorFile& state);
  // ‖gradient‖ over all parts, from this part's gradient. group: nullptr: over this part alone. An
  // error ends the group, and is reported by it.
  double Norm(TensorGroup* group, std::span<const float> gradient) const;
  // TensorParallelMember::Gather for `part`'s value and state. Errors: group is nullptr, or the one
  // that ended it.
  Status Gather(Collective* group, const Algorithm& part, bool state);
  // The whole value and state, as gathered last or passed to Begin.
  std::span<const float> value() const { return value_; }
  const TensorFile& state() const { return state_; }

 private:
  Status GatherInto(Collective& group, std::span<const float> part, std::vector<float>* whole);

  TensorParallelRank place_;
  std::unique_ptr<Module> module_, whole_;  // whole_: nullptr if module_ is the whole
  std::vector<float> value_;
  TensorFile state_;
};

}  // namespace troop
