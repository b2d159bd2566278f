// Reference convolutions: one loop over all products serves the three passes.
#include "kernels/conv/conv2d_reference.h"

#include <algorithm>

#include "kernels/linear/linear_reference.h"

namespace troop {
namespace {

// Calls visit(index of the weight, of x, of z) for every product of a convolution.
template <class F>
void ForEachProduct(const ConvShape& s, std::int64_t batch, F&& visit) {
  const std::int64_t rows = s.out_height(), columns = s.out_width();
  // Layouts: x [b, height, width, c], weight [o, r, t, c], z [b, p, q, o].
  // b: item; p, q: output position; o: filter; r, t: tap; c: channel within the filter's group.
  const std::int64_t inputs = s.channels / s.groups, outputs = s.filters / s.groups;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t p = 0; p < rows; ++p)
      for (std::int64_t q = 0; q < columns; ++q)
        for (std::int64_t o = 0; o < s.filters; ++o)
          for (std::int64_t r = 0; r < s.kernel; ++r)
            for (std::int64_t t = 0; t < s.kernel; ++t)
              for (std::int64_t c = 0; c < inputs; ++c) {
                // Products with padding are 0.
                const std::int64_t y = p * s.stride + r - s.padding;
                const std::int64_t x = q * s.stride + t - s.padding;
                if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
                visit(((o * s.kernel + r) * s.kernel + t) * inputs + c,
                      ((b * s.height + y) * s.width + x) * s.channels + o / outputs * inputs + c,
                      ((b * rows + p) * columns + q) * s.filters + o);
              }
}

}  // namespace

void ConvForwardReference(const ConvShape& shape, Activation activation, std::int64_t batch,
                          const double* weight, const double* bias, const double* x, double* y) {
  const std::int64_t outputs = batch * shape.out_height() * shape.out_width() * shape.filters;
  for (std::int64_t i = 0; i < outputs; ++i) y[i] = bias[i % shape.filters];
  ForEachProduct(shape, batch, [&](std::int64_t w, std::int64_t in, std::int64_t out) {
    y[out] += weight[w] * x[in];
  });
  for (std::int64_t i = 0; i < outputs; ++i) y[i] = ActivationReference(activation, y[i]);
}

// The transpose of the forward pass with respect to x: each product returns to its input.
void ConvBackwardDataReference(const ConvShape& shape, std::int64_t batch, const double* weight,
                               const double* dz, double* dx) {
  std::fill_n(dx, batch * shape.height * shape.width * shape.channels, 0.0);
  ForEachProduct(shape, batch, [&](std::int64_t w, std::int64_t in, std::int64_t out) {
    dx[in] += weight[w] * dz[out];
  });
}

void ConvBackwardWeightReference(const ConvShape& shape, std::int64_t batch, const double* x,
                                 const double* dz, double* dw, double* db) {
  std::fill_n(dw, shape.filters * shape.fan_in(), 0.0);
  std::fill_n(db, shape.filters, 0.0);
  ForEachProduct(shape, batch, [&](std::int64_t w, std::int64_t in, std::int64_t out) {
    dw[w] += dz[out] * x[in];
  });
  // The bias is added at each output position, so its gradient sums over all of them.
  const std::int64_t outputs = batch * shape.out_height() * shape.out_width() * shape.filters;
  for (std::int64_t i = 0; i < outputs; ++i) db[i % shape.filters] += dz[i];
}

}  // namespace troop
