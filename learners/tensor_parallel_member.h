#pragma once

#include <span>

#include "collective/collective.h"
#include "core/base/status.h"
#include "nn/io/safetensors.h"

namespace troop {

class Algorithm;

// The rank of a tensor-parallel model (nn/parallel/tensor_parallel.h), or a stage of a pipeline: an
// optional interface of an Algorithm (Algorithm::tensor_parallel), whose value() and State() are
// those of its part. Owner thread: the algorithm's. A model of one part is supported.
class TensorParallelMember {
 public:
  virtual ~TensorParallelMember() = default;
  // Sets the group of the ranks that hold the other parts, which must outlive its use here;
  // nullptr: no group yet. devices: the same group for device tensors, if all ranks compute on
  // devices; nullptr: exchanges go through the host.
  virtual void SetTensorGroup(Collective* group, Collective* devices) = 0;
  // The error that ended that group within ComputeGradient or GradientNorm.
  virtual Status tensor_status() const = 0;
  // Gathers the values of all parts, and with `state` all of State(), on each rank, or with a
  // pipeline on rank 0 alone; WholeValue() and WholeState() return the result there. All ranks must
  // call it. Errors: the one that ended the group.
  virtual Status Gather(bool state) = 0;
  // The whole model, as of the last Gather; empty before the first. With one part: the current one.
  virtual std::span<const float> WholeValue() const = 0;
  virtual TensorFile WholeState() const = 0;
};

// The whole model of any algorithm: WholeValue() and WholeState() if it has tensor-parallel parts,
// otherwise value() and State().
std::span<const float> WholeValueOf(Algorithm& algorithm);
TensorFile WholeStateOf(Algorithm& algorithm);

}  // namespace troop
