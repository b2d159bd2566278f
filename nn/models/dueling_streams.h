#pragma once

#include <cstdint>

#include "core/tensor/tensor.h"
#include "kernels/elementwise/cast.h"

namespace troop {

// The sum of the two streams of a dueling head (Wang et al. 2016, eq. 9), for each of the K outputs
// per action separately (Hessel et al. 2018).
struct DuelingStreams {
  std::int64_t actions = 0;  // A
  std::int64_t numbers = 1;  // K

  std::int64_t outputs() const { return (1 + actions) * numbers; }  // columns of both streams

  // q = v + a - mean(a). streams: [B, 1 + A, K], v first → q: [B, A, K].
  void Combine(std::int64_t batch, const float* streams, float* q) const {
    const std::int64_t all = actions * numbers;
    for (std::int64_t b = 0; b < batch; ++b, streams += outputs(), q += all) {
      const float* const advantage = streams + numbers;
      // Each of the K outputs is combined over the actions separately.
      for (std::int64_t k = 0; k < numbers; ++k) {
        float sum = 0;
        for (std::int64_t i = k; i < all; i += numbers) sum += advantage[i];
        const float base = streams[k] - sum / float(actions);
        for (std::int64_t i = k; i < all; i += numbers) q[i] = base + advantage[i];
      }
    }
  }

  // The inverse: dq [B, A, K] → dstreams [B, 1 + A, K]: dv = Σ dq, da = dq - mean(dq).
  void Spread(std::int64_t batch, const float* dq, DType dtype, void* dstreams) const {
    const auto store = [&](std::int64_t at, float x) {
      if (dtype == DType::kF32)
        static_cast<float*>(dstreams)[at] = x;
      else
        static_cast<BF16*>(dstreams)[at] = ToBF16(x);
    };
    const std::int64_t all = actions * numbers;
    for (std::int64_t b = 0, at = 0; b < batch; ++b, dq += all, at += outputs()) {
      for (std::int64_t k = 0; k < numbers; ++k) {
        float sum = 0;
        for (std::int64_t i = k; i < all; i += numbers) sum += dq[i];
        store(at + k, sum);
        for (std::int64_t i = k; i < all; i += numbers)
          store(at + numbers + i, dq[i] - sum / float(actions));
      }
    }
  }
};

}  // namespace troop
