#pragma once

#include <cstdint>
#include <memory>

#include "nn/layers/layers.h"
#include "nn/module.h"

// Layers of image classifiers, besides convolutions and maximum pooling (layers.h). Images have
// their channels last, [B, h, w, c].
namespace troop {

// Mean over windows: [B, h, w, c] → [B, h', w', c], h' = (h + 2 padding - kernel) / stride + 1.
// Equal to PyTorch's nn.AvgPool2d: padding counts as zeros. REQUIRES: as MakeMaxPool.
std::unique_ptr<Module> MakeAveragePool(const MaxPoolOptions& options);

// Mean over areas that cover the image: [B, h, w, c] → [B, out_height, out_width, c]. Equal to
// PyTorch's nn.AdaptiveAvgPool2d: output i has the rows from floor(i h / out) to ceil((i + 1) h /
// out). REQUIRES: positive sizes.
struct AdaptivePoolOptions {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t out_height = 1;
  std::int64_t out_width = 1;
};
std::unique_ptr<Module> MakeAdaptiveAveragePool(const AdaptivePoolOptions& options);

// PyTorch's nn.Flatten of an image: [B, h, w, c] → [B, c h w], channels first, so that a linear
// layer behind it has the weights of PyTorch's.
std::unique_ptr<Module> MakeFlatten(std::int64_t height, std::int64_t width, std::int64_t channels);

// Dropout (Srivastava et al. 2014) of the elements of each row: [B, …] → the same shape. An element
// is 0 with probability `rate`, else divided by 1 - rate (DropoutFactors), by the row's key in
// StepContext::dropout; without keys, as in inference, y = x. REQUIRES: 0 <= rate < 1.
struct DropoutOptions {
  std::int64_t elements = 0;  // of a row
  float rate = 0.5f;
  std::uint32_t site = 0;  // in the network; layers with different sites have independent masks
};
std::unique_ptr<Module> MakeDropout(const DropoutOptions& options);

// Batch normalization (Ioffe & Szegedy 2015, arXiv:1502.03167) of each channel, the last axis: [B,
// …, c] → the same shape, y = activation(weight (x - mean) / sqrt(variance + epsilon) + bias).
// Equal to PyTorch's nn.BatchNorm2d. With a cache (training) mean and variance are those of the
// batch; without one (inference) they are the running ones. Parameters: weight [c], bias [c], and
// running_mean [c] and running_var [c], which are not trained.
//
// In training Forward writes the mean and the unbiased variance of the batch to
// StepContext::statistics, if it is given, at the running ones' places. UpdateRunningStatistics
// moves the running ones there. Sums are f64.
//
// With StepContext::replicas the ranks of that group, each with a part of the batch, normalize it
// as a whole, as PyTorch's nn.SyncBatchNorm: Forward sums 2 c + 1 numbers over the ranks, Backward
// 2 c, in f32. All ranks must make the same passes.
struct BatchNormOptions {
  std::int64_t channels = 0;
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;
};
std::unique_ptr<Module> MakeBatchNorm(const BatchNormOptions& options);

// running += momentum (batch - running) for every parameter of `module` that is not trained.
// statistics: those of a Forward, or their mean over replicas. PyTorch's momentum is 0.1.
void UpdateRunningStatistics(const Module& module, std::span<const float> statistics,
                             float momentum, std::span<float> value);

// Local response normalization (Krizhevsky et al. 2012, sec. 3.3) across channels: [B, …, c] → the
// same shape, y_i = x_i / (k + alpha Σ x_j²)^beta over the `size` channels j around i, those that
// exist. PyTorch's nn.LocalResponseNorm divides its alpha by the size: its 1e-4 is 2e-5 here for a
// size of 5. REQUIRES: size >= 1, k > 0.
struct LocalResponseNormOptions {
  std::int64_t channels = 0;
  std::int64_t size = 5;
  float alpha = 1e-4f;
  float beta = 0.75f;
  float k = 2;
};
std::unique_ptr<Module> MakeLocalResponseNorm(const LocalResponseNormOptions& options);

// Residual connection (He et al. 2016, arXiv:1512.03385): y = activation(branch(x) + shortcut(x)).
// shortcut: nullptr is the identity. Both have the same output. Parameters: those of the branch,
// then those of the shortcut, under their own names. A pass has the workspace of both.
std::unique_ptr<Module> MakeShortcut(std::unique_ptr<Module> branch,
                                     std::unique_ptr<Module> shortcut, Activation activation);

}  // namespace troop
