#pragma once

#include <cstddef>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_code.h"

// How host code starts a kernel. Only for .cu files.
namespace troop::cuda {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic shared memory
};

inline constexpr std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// name: for messages. A grid of no blocks starts nothing.
template <class... P, class... A>
void Launch(Stream& stream, const char* name, const LaunchShape& shape, void (*kernel)(P...),
            const A&... args) {
  if (!stream.device().ok()) return;
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#ifdef __CUDACC__
  const auto failed = [&](const char* call, cudaError_t error) {
    if (error == cudaSuccess) return false;
    stream.device().Fail(std::string(call) + " of kernel " + name + ": " +
                         cudaGetErrorString(error) + "; compute-sanitizer tells where");
    return true;
  };
  // More than 48 KiB must be asked for.
  if (shape.shared_bytes > 48 * 1024 &&
      failed("cudaFuncSetAttribute",
             cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(shape.shared_bytes)))) {
    return;
  }
  kernel<<<shape.grid, shape.block, shape.shared_bytes,
           static_cast<cudaStream_t>(stream.handle())>>>(static_cast<P>(args)...);
  failed("launch", cudaGetLastError());
#else
  emulator::Enqueue(stream, [name, shape, kernel, ... args = static_cast<P>(args)] {
    emulator::RunGrid(name, shape.grid, shape.block, shape.shared_bytes, [&] { kernel(args...); });
  });
#endif
}

}  // namespace troop::cuda
