#pragma once

#include <cstddef>
#include <string>

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/device_code.h"

// How host code starts a kernel. Only for .cu files.
namespace troop::cuda {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic shared memory
};

// For messages: a kernel's name, and where it is launched.
struct KernelName {
  KernelName(const char* the_name, const char* the_file = __builtin_FILE(),  // NOLINT: implicit
             int the_line = __builtin_LINE())
      : name(the_name), file(the_file), line(the_line) {}
  const char* name;
  const char* file;
  int line;
};

#ifdef __CUDACC__
// The device says so from now on, with CUDA's words and what to do.
void NoteFailure(Device& device, cudaError_t error, const std::string& call, const char* file,
                 int line);
#endif

inline constexpr std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A grid of no blocks starts nothing.
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
  emulator::Enqueue(stream, [name = what.name, shape, kernel, ... args = static_cast<P>(args)] {
    emulator::RunGrid(name, shape.grid, shape.block, shape.shared_bytes, [&] { kernel(args...); });
  });
#endif
}

}  // namespace troop::cuda
