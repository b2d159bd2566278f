#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/conv.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/precision.h"

// A network of q-values on a GPU, with the parameters where the CPU's network (nn/model.h) has
// them: both read the same flat value [P], and a checkpoint of one is the other's.
namespace troop::cuda {

struct QLayer {
  bool convolution = false;
  ConvShape conv;      // of a convolution
  LinearShape linear;  // else
  Activation activation = Activation::kNone;
  std::int64_t weight = 0, bias = 0;  // where they begin in the value
  std::int64_t out() const {
    return convolution ? conv.out_height() * conv.out_width() * conv.filters : linear.out;
  }
};

struct QNetworkSpec {
  DType input = DType::kU8;  // kU8 or kF32, as the first layer takes them (pictures: [h, w, c])
  float input_scale = 1;
  std::int64_t input_elements = 0;  // of one observation
  std::vector<QLayer> layers;       // one after the other; at least one
  // Behind them. Dueling (Wang et al. 2016, eq. 9): q = v + a - mean(a), each with a hidden layer
  // of relu units, or without (out of hidden 0). Otherwise `advantage` alone, which is q.
  bool dueling = false;
  QLayer value_hidden, advantage_hidden, value, advantage;
  std::int64_t actions = 0, parameters = 0;
  std::int64_t numbers = 1;  // K, to each action's value (nn/value_form.h)
  std::int64_t outputs() const { return actions * numbers; }
  bool hidden() const { return dueling && value_hidden.linear.out > 0; }
};

// The weights of a network: f32, and with Precision::kBF16 the same rounded.
struct QWeights {
  const float* value = nullptr;
  const BF16* bf16 = nullptr;
};

// The last layers' outputs, f32.
struct QHeads {
  const float* value = nullptr;      // [rows, K] of a dueling network, else nullptr
  const float* advantage = nullptr;  // [rows, actions, K]; without dueling q itself
};
// Their gradients, of ElementType(precision): written by a loss, read by Backward.
struct QHeadGradients {
  void *value = nullptr, *advantage = nullptr;
};

class QNetwork {
 public:
  // Buffers for forward passes of up to `rows` observations, and backward ones of up to
  // `backward_rows` of the first of them.
  QNetwork(Device& device, MatMulPlans& plans, const QNetworkSpec& spec, Precision precision,
           std::int64_t rows, std::int64_t backward_rows);

  const QNetworkSpec& spec() const { return spec_; }

  // observation: [rows, input_elements], on the device. q: [rows, actions, K] f32. What Backward
  // needs of it is kept until the next Forward with `keep`; without it other buffers are used.
  void Forward(Stream& stream, const QWeights& weights, std::int64_t rows, const void* observation,
               bool keep, float* q);
  // The same up to the last layers' outputs, for a loss that combines a dueling network's itself
  // (kernels/cuda/dqn_loss.h). They are there until the next forward pass with the same `keep`, and
  // always at the same place.
  QHeads ForwardHeads(Stream& stream, const QWeights& weights, std::int64_t rows,
                      const void* observation, bool keep);
  // Of the first `rows` of the last kept forward pass, whose heads' gradients are at head_gradients
  // by then. gradient: [P] f32, overwritten where parameters are (padding between them is left
  // alone). ready: hears which part of it, [from, P), is made by what the stream has by then; from
  // falls.
  using Ready = std::function<void(std::int64_t from)>;
  void Backward(Stream& stream, const QWeights& weights, std::int64_t rows, const void* observation,
                float* gradient, const Ready& ready = {});
  QHeadGradients head_gradients() const;

 private:
  using Bytes = DeviceArray<std::byte>;
  struct Kept {              // of one forward pass, elements of ElementType(precision)
    Bytes input;             // the observations, where the first layer can't take them as they are
    std::vector<Bytes> out;  // of each layer
    Bytes value_hidden, advantage_hidden;
    DeviceArray<float> value, advantage;  // the heads
  };
  bool TakesBytes() const;
  ConvInput InputOf(const Kept& kept, const void* observation) const;
  const void* Weight(const QWeights& weights, const QLayer& layer) const;
  void Compute(Stream& stream, const QWeights& weights, std::int64_t rows, const void* observation,
               const Kept& kept, float* advantage);
  void ForwardLayer(Stream& stream, const QWeights& weights, const QLayer& layer, std::int64_t rows,
                    const ConvInput& input, void* y, DType y_dtype);
  void BackwardWeights(Stream& stream, bool beside, const QLayer& layer, std::int64_t rows,
                       const ConvInput& input, const void* dz, float* gradient);
  void BackwardInto(Stream& stream, const QWeights& weights, const QLayer& layer, std::int64_t rows,
                    const void* dz, const QLayer& below, const void* below_out, void* dx);
  void BackwardHead(Stream& stream, bool beside, const QWeights& weights, std::int64_t rows,
                    float* gradient);

  // Calls work(a stream that is to make parameters' gradients, its plans): `stream`, or one beside
  // it that goes on from here.
  template <class Work>
  void Beside(Stream& stream, bool beside, const Work& work);

  MatMulPlans& plans_;
  const QNetworkSpec spec_;
  const Precision precision_;
  Kept kept_, passing_;
  std::vector<Bytes> gradient_;  // of each layer's sums
  Bytes hidden_gradient_[2], dvalue_, dadvantage_, scratch_;
  // Parameters' gradients are made beside those of activations, which nothing else waits for.
  struct Aside {
    explicit Aside(Device& device)
        : plans(device), stream(device), forked(device), joined(device) {}
    MatMulPlans plans;  // with a workspace of their own
    Stream stream;
    Event forked, joined;
  };
  std::unique_ptr<Aside> aside_;  // where there is a backward
};

}  // namespace troop::cuda
