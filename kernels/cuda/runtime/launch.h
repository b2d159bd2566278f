#pragma once

#include <cstddef>
#include <string>

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/device_code.h"

// Kernel launches from host code. Only for .cu files.
namespace troop::cuda {

// Grid, block and dynamic shared memory of a launch.
struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic shared memory
};

// Name of a kernel and source location of its launch, for error messages.
struct KernelName {
  KernelName(const char* the_name, const char* the_file = __builtin_FILE(),  // NOLINT: implicit
             int the_line = __builtin_LINE())
      : name(the_name), file(the_file), line(the_line) {}
  const char* name;
  const char* file;
  int line;
};

#ifdef __CUDACC__
// Stores a CUDA error in Device::error(), with its description and a remedy.
void NoteFailure(Device& device, cudaError_t error, const std::string& call, const char* file,
                 int line);
#endif

// ⌈a / b⌉ for a >= 0, b > 0: the number of blocks of b elements.
inline constexpr std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Enqueues a kernel on `stream`. An empty grid is not launched. Errors: Device::error().
template <class... P, class... A>
void Launch(Stream& stream, const KernelName& what, const LaunchShape& shape, void (*kernel)(P...),
            const A&... args) {
  if (!stream.device().ok()) return;
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#ifdef __CUDACC__
  const auto failed = [&](const char* call, cudaError_t error) {
    if (error == cudaSuccess) return false;
    NoteFailure(stream.device(), error, std::string(call) + " of kernel " + what.name, what.file,
                what.line);
    return true;
  };
  // CUDA requires an explicit request for more than 48 KiB of shared memory.
  if (shape.shared_bytes > 48 * 1024 &&
      failed("cudaFuncSetAttribute",
             cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(shape.shared_bytes)))) {
    return;
  }
  // Arguments are converted to the parameter types of the kernel, as in a call.
  kernel<<<shape.grid, shape.block, shape.shared_bytes,
           static_cast<cudaStream_t>(stream.handle())>>>(static_cast<P>(args)...);
  // Reports invalid launch parameters; errors of the kernel itself show later.
  failed("launch", cudaGetLastError());
#else
  // Emulated: arguments are captured by value, as in CUDA.
  emulator::Enqueue(stream, [name = what.name, shape, kernel, ... args = static_cast<P>(args)] {
    emulator::RunGrid(name, shape.grid, shape.block, shape.shared_bytes, [&] { kernel(args...); });
  });
#endif
}

}  // namespace troop::cuda
