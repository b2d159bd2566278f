#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"

namespace troop {

// All parameters of a model live in ONE flat f32 buffer [P]; modules hold only where theirs are.
// Target networks, snapshots and optimizer state are just other buffers of the same layout.
struct ParamSpec {
  std::string name;         // "layers.0.weight"; also the tensor's name in checkpoints
  Shape shape;              // linear: [out, in]; conv2d: [out, kh, kw, in] (NHWC); bias: [out]
  std::int64_t offset = 0;  // in elements, a multiple of 16
  enum class Init : std::uint8_t {
    kZeros,
    kUniformFanIn,
    kOnes,
    kNormal,
    kSinusoids
  } init = Init::kZeros;
  std::int64_t fan_in = 0;  // kUniformFanIn: U(±1/sqrt(fan_in)), PyTorch's default
  bool trained = true;      // false: statistics, whose gradient stays 0 (UpdateStatistics)
  float deviation = 0;      // kNormal: N(0, deviation²); kSinusoids: the root of their mean square
  bool decays = true;       // false: weight decay leaves it alone (DecayGroups)
  // What a rank of a tensor-parallel group has of a larger tensor: from `first` on along `axis`,
  // which is `whole` long in all. axis -1: it has all of it (nn/tensor_parallel.h).
  struct Slice {
    int axis = -1;
    std::int64_t first = 0, whole = 0;
  } slice;
};

enum class Precision : std::uint8_t { kF32, kBF16 };

// Parameters in the form kernels like best (blocked, bf16, transposed), packed once per version of
// the value. Made by Module::MakePacked, refreshed by Module::Pack. One owner thread.
class Packed {
 public:
  virtual ~Packed() = default;
};

// Hears how far a backward pass has come, so that finished gradients can travel meanwhile.
class GradientWatch {
 public:
  virtual ~GradientWatch() = default;
  // gradient[from, end of what was told before) has its final values. Called on the thread of
  // Backward, with `from` falling; what is not told is done when Backward returns.
  virtual void GradientReady(std::int64_t from) = 0;
};

class TensorGroup;

// What a step is given; small and copied.
struct StepContext {
  std::span<const float> value;    // [P]
  const Packed* packed = nullptr;  // of the same value and module; nullptr: slow path
  std::span<float> gradient;       // [P], added into; empty: none is wanted
  std::span<std::byte> workspace;  // Plan::workspace_bytes, 64-byte aligned
  bool accumulate = true;          // false: gradient is overwritten (but for its padding)
  GradientWatch* watch = nullptr;  // of the whole model; parts of one don't get it
  TensorGroup* tensor = nullptr;   // of a module that is one rank's part: the ranks' group
};

// What Forward keeps for Backward, in bytes of fixed addresses. Plan::cache_bytes, 64-byte aligned.
using Cache = std::span<std::byte>;

struct Plan {
  std::vector<TensorSpec> out;
  std::size_t cache_bytes = 0;
  std::size_t workspace_bytes = 0;
  bool cache_begins_with_out = false;  // a caller that puts `out` there saves a copy
};

// A differentiable function with explicit backward. Immutable after construction, so one module
// serves many values, batches and threads (with their own cache, workspace and Packed).
class Module {
 public:
  virtual ~Module() = default;
  virtual std::span<const ParamSpec> params() const = 0;
  // Shapes and sizes for these inputs (with the batch dimension), enough for either precision. Out
  // is planned as f32; inside a bf16 network modules also take and give bf16. Errors:
  // kInvalidArgument.
  virtual Result<Plan> MakePlan(std::span<const TensorSpec> in) const = 0;
  // kBF16 where the machine can't: f32 instead, with a line in the log.
  virtual std::unique_ptr<Packed> MakePacked(Precision precision) const = 0;
  virtual void Pack(std::span<const float> value, Packed* packed) const = 0;
  // out: [B, …] as planned. `cache` empty: inference, nothing is kept.
  virtual void Forward(const StepContext& context, std::span<const ConstTensor> in,
                       std::span<const Tensor> out, Cache cache) const = 0;
  // dout → din (an empty Tensor: not wanted) and context.gradient. `in`, `cache`: of the Forward.
  virtual void Backward(const StepContext& context, std::span<const ConstTensor> in,
                        std::span<const ConstTensor> dout, Cache cache,
                        std::span<const Tensor> din) const = 0;
  // Lets the parameters that nothing trains see a batch of inputs: `value` as of the next Pack.
  virtual void UpdateStatistics(ConstTensor in, std::span<float> value) const {
    (void)in, (void)value;
  }
};

}  // namespace troop
