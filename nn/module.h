#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/tensor/tensor.h"
#include "kernels/transformer/dropout.h"

namespace troop {

// Description of one parameter tensor. All parameters of a model share one flat f32 buffer [P];
// modules hold only offsets into it. Target networks, snapshots and optimizer state are other
// buffers of the same layout.
struct ParamSpec {
  std::string name;         // "layers.0.weight"; also the tensor's name in checkpoints
  Shape shape;              // linear: [out, in]; conv2d: [out, kh, kw, in] (NHWC); bias: [out]
  std::int64_t offset = 0;  // in elements, a multiple of 16
  enum class Init : std::uint8_t {
    kZeros,
    kUniformFanIn,
    kOnes,
    kNormal,
    kSinusoids,
    kConstant
  } init = Init::kZeros;
  std::int64_t fan_in = 0;  // kUniformFanIn: U(±1/sqrt(fan_in)), PyTorch's default
  bool trained = true;      // false: statistics, whose gradient stays 0 (UpdateStatistics)
  float deviation = 0;      // kNormal: N(0, deviation²); kSinusoids: their root mean square
  float constant = 0;       // kConstant: each element
  bool decays = true;       // false: excluded from weight decay (DecayGroups)
  // A rank's slice of a tensor-parallel tensor: begins at `first` along `axis`, whose full length
  // is `whole`. axis -1: the rank holds the whole tensor (nn/parallel/tensor_parallel.h).
  struct Slice {
    int axis = -1;
    std::int64_t first = 0, whole = 0;
  } slice;
};

enum class Precision : std::uint8_t { kF32, kBF16 };

// Parameters in a kernel-friendly form (blocked, bf16, transposed), packed once per version of the
// value. Created by Module::MakePacked, refreshed by Module::Pack. One owner thread.
class Packed {
 public:
  virtual ~Packed() = default;
};

// Observer of a backward pass, so that completed gradients can be sent while it continues.
class GradientWatch {
 public:
  virtual ~GradientWatch() = default;
  // gradient[from, end of the previous call's range) is final. Called on Backward's thread with
  // decreasing `from`; the remainder is final when Backward returns.
  virtual void GradientReady(std::int64_t from) = 0;
};

// Selects the noise of noisy layers in a pass (MakeNoisyLinear). Equal keys give equal noise, so
// Backward gets the key of its Forward.
struct NoiseKey {
  std::uint64_t seed = 0;  // from DeriveSeed: an update of a learner, or an episode of an actor
  std::uint64_t draw = 0;  // counts the independent passes under this seed
  bool operator==(const NoiseKey&) const = default;
};

class TensorGroup;

// Time steps of a batch for recurrent layers: its rows are the steps of the first sequence, then
// those of the second, and so on. Every layer takes its own columns of the states.
struct Sequences {
  std::span<const std::int32_t> length;  // [N], at least 1; their sum is the batch's rows
  std::span<const float> state;          // [N, width]: before the first step of each
  std::span<float> state_out;            // [N, width]: after its last step; empty: not wanted
  std::int64_t width = 0;                // columns of all recurrent layers
};

// Arguments of a forward or backward pass; small and copied.
struct StepContext {
  std::span<const float> value;          // [P]
  const Packed* packed = nullptr;        // `value` of this module, packed; nullptr: slow path
  std::span<float> gradient;             // [P], accumulated into; empty: not wanted
  std::span<std::byte> workspace;        // Plan::workspace_bytes, 64-byte aligned
  bool accumulate = true;                // false: the gradient is overwritten (except its padding)
  GradientWatch* watch = nullptr;        // for the whole model; its parts do not get it
  TensorGroup* tensor = nullptr;         // for a tensor-parallel module: the group of its ranks
  TensorGroup* replicas = nullptr;       // the batch's other parts (MakeBatchNorm)
  const Sequences* sequences = nullptr;  // for recurrent layers, which need them in both passes
  std::optional<NoiseKey> noise = {};    // for noisy layers; nullopt: their means alone
  std::span<float> statistics = {};      // [P], of the batch, written by Forward (MakeBatchNorm)
  // [B], for dropout layers (MakeDropout); empty: nothing is dropped. Both passes need them.
  std::span<const DropoutKey> dropout = {};
};

// Activations that Forward keeps for Backward, at fixed addresses. Plan::cache_bytes, 64-byte
// aligned.
using Cache = std::span<std::byte>;

// Output specs and memory sizes of a module for given inputs.
struct Plan {
  std::vector<TensorSpec> out;
  std::size_t cache_bytes = 0;
  std::size_t workspace_bytes = 0;
  bool cache_begins_with_out = false;  // placing `out` there saves a copy
};

// A differentiable function with an explicit backward pass. Immutable after construction, so one
// module serves many values, batches and threads (each with its own cache, workspace and Packed).
class Module {
 public:
  virtual ~Module() = default;
  virtual std::span<const ParamSpec> params() const = 0;
  // Shapes and sizes for these inputs (batch dimension included), sufficient for either precision.
  // The output is planned as f32; within a bf16 network modules also accept and produce bf16.
  // Errors: kInvalidArgument.
  virtual Result<Plan> MakePlan(std::span<const TensorSpec> in) const = 0;
  // Allocates the packed form. kBF16 falls back to f32, with a log line, if the machine lacks it.
  virtual std::unique_ptr<Packed> MakePacked(Precision precision) const = 0;
  virtual void Pack(std::span<const float> value, Packed* packed) const = 0;
  // Computes `out`, [B, …] as planned. An empty `cache` means inference: nothing is kept.
  virtual void Forward(const StepContext& context, std::span<const ConstTensor> in,
                       std::span<const Tensor> out, Cache cache) const = 0;
  // Computes din from dout (an empty Tensor: not wanted) and accumulates context.gradient. `in` and
  // `cache` are those of the Forward.
  virtual void Backward(const StepContext& context, std::span<const ConstTensor> in,
                        std::span<const ConstTensor> dout, Cache cache,
                        std::span<const Tensor> din) const = 0;
  // Updates the untrained parameters from a batch of inputs; `value` takes effect at the next Pack.
  virtual void UpdateStatistics(ConstTensor in, std::span<float> value) const {
    (void)in, (void)value;
  }
};

}  // namespace troop
