#include "kernels/cuda/conv/nchw_to_nhwc.h"

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

template <class T>
void Check(Parity& parity, DType dtype, std::int64_t rows, std::int64_t stack, std::int64_t pixels,
           std::int64_t channels) {
  std::vector<T> from, want(std::size_t(rows * stack * pixels * channels));
  for (std::size_t i = 0; i < want.size(); ++i) from.push_back(T(parity.Below(256)));
  std::size_t at = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < stack; ++k)
      for (std::int64_t p = 0; p < pixels; ++p)
        for (std::int64_t c = 0; c < channels; ++c)
          want[std::size_t(((r * pixels + p) * stack + k) * channels + c)] = from[at++];
  const auto on_device = parity.Upload(from);
  const auto to = parity.Output<T>(std::int64_t(want.size()));
  FrameStackToNhwc(parity.stream(), {.rows = rows,
                                     .stack = stack,
                                     .pixels = pixels,
                                     .channels = channels,
                                     .dtype = dtype,
                                     .from = on_device.data(),
                                     .to = to.data()});
  parity.True("every element is at its place", parity.Download(to) == want);
}

void PicturesOfEveryShape(Parity& parity) {
  const std::int64_t rows = parity.large() ? 512 : 3, side = parity.large() ? 84 : 6;
  Check<std::uint8_t>(parity, DType::kU8, rows, 4, side * side, 1);
  Check<std::uint8_t>(parity, DType::kU8, rows, 4, 15, 1);  // not whole words
  Check<std::uint8_t>(parity, DType::kU8, rows, 3, 35, 2);
  Check<float>(parity, DType::kF32, rows, 4, 36, 3);
}

}  // namespace

std::vector<ParityCase> InterleaveCases() {
  return {{"Interleave.PicturesOfEveryShape", PicturesOfEveryShape}};
}

}  // namespace troop::cuda
