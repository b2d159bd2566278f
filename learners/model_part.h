#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/algorithm.h"
#include "nn/module.h"
#include "nn/tensor_parallel.h"

namespace troop {

// The text model of a config, or one rank's part of it, and what came together of the whole
// (Algorithm::Gather): alike whatever computes.
class ModelPart {
 public:
  // Errors: those of MakeTextModel.
  static Result<ModelPart> Make(const Config& config, const TensorPlace& place);

  const Module& module() const { return *module_; }  // the part
  const Module& whole() const { return whole_ != nullptr ? *whole_ : *module_; }
  const TensorPlace& place() const { return place_; }
  bool cut() const { return place_.ranks > 1; }

  // A state of the whole model becomes this part's; one of the part stays as it is.
  TensorFile Cut(const TensorFile& state) const;
  // What to go on from, such as a checkpoint's state: cut, and where it is of the whole model, what
  // came together by now: an end without an update before it has it all the same.
  TensorFile Begin(const TensorFile& state);
  // ‖gradient‖ over all parts, of this one's gradient; group: nullptr: over this part alone. What
  // ends the group is told by it.
  double Norm(TensorGroup* group, std::span<const float> gradient) const;
  // Algorithm::Gather, of `part`'s value and state. group: nullptr: refused.
  Status Gather(Collective* group, const Algorithm& part, bool state);
  // As they were gathered last, or begun with.
  std::span<const float> value() const { return value_; }
  const TensorFile& state() const { return state_; }

 private:
  Status GatherInto(Collective& group, std::span<const float> part, std::vector<float>* whole);

  TensorPlace place_;
  std::unique_ptr<Module> module_, whole_;  // whole_: nullptr: module_ is
  std::vector<float> value_;
  TensorFile state_;
};

}  // namespace troop
