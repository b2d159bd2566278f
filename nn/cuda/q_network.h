#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/conv/conv2d.h"
#include "kernels/cuda/ops/linear.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"

// A Q-network on a GPU, with the parameter layout of the CPU network (nn/models/model.h): both read
// the same flat value [P], and checkpoints are interchangeable.
namespace troop::cuda {

// One layer: a convolution or a linear layer.
struct QLayer {
  bool convolution = false;
  ConvShape conv;      // if `convolution`
  LinearShape linear;  // otherwise
  Activation activation = Activation::kNone;
  std::int64_t weight = 0, bias = 0;  // offsets in the value
  std::int64_t out() const {
    return convolution ? conv.out_height() * conv.out_width() * conv.filters : linear.out;
  }
};

// Description of a Q-network.
struct QNetworkSpec {
  DType input = DType::kU8;  // kU8 or kF32, in the layout of the first layer (images: [h, w, c])
  float input_scale = 1;
  std::int64_t input_elements = 0;  // per observation
  std::vector<QLayer> layers;       // in sequence; at least one
  // The head. Dueling (Wang et al. 2016, eq. 9): q = v + a - mean(a), each stream with a hidden
  // relu layer, or without (hidden out of 0). Otherwise only `advantage`, which is q.
  bool dueling = false;
  QLayer value_hidden, advantage_hidden, value, advantage;
  std::int64_t actions = 0, parameters = 0;
  std::int64_t numbers = 1;  // K outputs per action (nn/models/value_head.h)
  std::int64_t outputs() const { return actions * numbers; }
  bool hidden() const { return dueling && value_hidden.linear.out > 0; }
};

// Weights of a network: f32, and with Precision::kBF16 a rounded copy.
struct QWeights {
  const float* value = nullptr;
  const BF16* bf16 = nullptr;
};

// Outputs of the last layers, f32.
struct QHeads {
  const float* value = nullptr;      // [rows, K] of a dueling network, else nullptr
  const float* advantage = nullptr;  // [rows, actions, K]; q itself without dueling
};
// Their gradients, of ElementType(precision): written by a loss, read by Backward.
struct QHeadGradients {
  void *value = nullptr, *advantage = nullptr;
};

// Precision and capacity of a QNetwork.
struct QNetworkOptions {
  Precision precision = Precision::kF32;
  std::int64_t rows = 0;           // most observations of a forward pass
  std::int64_t backward_rows = 0;  // most of a backward pass, the first of them; 0: no backward
};
// Weights and observations of a pass.
struct QPass {
  QWeights weights;
  std::int64_t rows = 0;
  const void* observation = nullptr;  // [rows, input_elements], on the device
};

// Forward and backward passes of a Q-network on one device.
class QNetwork {
 public:
  // Allocates buffers for passes of the given sizes.
  QNetwork(Device& device, MatMulPlans& plans, const QNetworkSpec& spec,
           const QNetworkOptions& options);

  const QNetworkSpec& spec() const { return spec_; }

  // q: [rows, actions, K] f32. With `keep`, activations for Backward are kept until the next such
  // Forward; without it, other buffers are used.
  void Forward(Stream& stream, const QPass& pass, bool keep, float* q);
  // Forward up to the last layers' outputs, for a loss that combines the streams of a dueling
  // network itself (kernels/cuda/loss/dqn_loss.h). The outputs are valid until the next forward
  // pass with the same `keep`, at a fixed address.
  QHeads ForwardHeads(Stream& stream, const QPass& pass, bool keep);
  // Backward of the first pass.rows of the last kept forward pass; the heads' gradients must be at
  // head_gradients. gradient: [P] f32; overwritten where parameters are (padding is unchanged).
  // ready: called with the start of the range [from, P) that the work on the stream completes;
  // `from` decreases.
  using Ready = std::function<void(std::int64_t from)>;
  void Backward(Stream& stream, const QPass& pass, float* gradient, const Ready& ready = {});
  QHeadGradients head_gradients() const;

 private:
  using Bytes = DeviceArray<std::byte>;
  struct Kept {              // activations of one forward pass, of ElementType(precision)
    Bytes input;             // converted observations, if the first layer cannot take them directly
    std::vector<Bytes> out;  // of each layer
    Bytes value_hidden, advantage_hidden;
    DeviceArray<float> value, advantage;  // the heads
  };
  // Arguments of a step.
  struct Step {
    Stream& stream;
    const QPass& pass;
    float* gradient = nullptr;  // [P]
    bool beside = false;        // gradients of parameters run on the second stream
  };
  // The layer below in backward.
  struct Below {
    const QLayer& layer;
    const void* out = nullptr;  // [rows, layer.out()], its result
    void* dx = nullptr;         // [rows, layer.out()], overwritten
  };
  bool TakesBytes() const;
  ConvInput InputOf(const Kept& kept, const void* observation) const;
  const void* Weight(const QWeights& weights, const QLayer& layer) const;
  void Compute(const Step& step, const Kept& kept, float* advantage);
  void ForwardLayer(const Step& step, const QLayer& layer, const ConvInput& input, void* y,
                    DType y_dtype);
  void BackwardWeights(const Step& step, const QLayer& layer, const ConvInput& input,
                       const void* dz);
  void BackwardInto(const Step& step, const QLayer& layer, const void* dz, const Below& below);
  void BackwardHead(const Step& step);

  // Calls work(stream, plans) for the gradients of parameters, on the step's stream or on a second
  // stream that continues from its current point.
  template <class Work>
  void Beside(const Step& step, const Work& work);

  MatMulPlans& plans_;
  const QNetworkSpec spec_;
  const Precision precision_;
  Kept kept_, passing_;
  std::vector<Bytes> gradient_;  // of each layer's pre-activations
  Bytes hidden_gradient_[2], dvalue_, dadvantage_, scratch_;
  // Gradients of parameters run concurrently with those of activations, which do not depend on
  // them.
  struct Aside {
    explicit Aside(Device& device)
        : plans(device), stream(device), forked(device), joined(device) {}
    MatMulPlans plans;  // with a separate workspace
    Stream stream;
    Event forked, joined;
  };
  std::unique_ptr<Aside> aside_;  // only for backward
};

}  // namespace troop::cuda
