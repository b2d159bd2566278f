#pragma once

#include <cstdint>
#include <span>

namespace troop {

// The gradient in device memory, for all-reduces without the host: an optional interface of an
// Algorithm (Algorithm::device_gradient). Owner thread: the algorithm's.
class DeviceGradient {
 public:
  virtual ~DeviceGradient() = default;
  // [P] in device memory, valid before the first batch. Empty: the device has failed.
  virtual std::span<float> device_values() = 0;
  // Selects device memory (true) or Algorithm::gradient() (false, the initial choice) for the
  // all-reduce. With true, gradient() is not used, and ComputeGradient notifies its watch of parts
  // that are still being computed on gradient_stream().
  virtual void ReduceOnDevice(bool there) = 0;
  virtual void* gradient_stream() = 0;  // a cudaStream_t
  // Sets the first `count` values to 0. Asynchronous on gradient_stream(), like the next one.
  virtual void ClearOnDevice(std::int64_t count) = 0;
  // Divides the gradient by `given`, the number of learners that contributed to it.
  virtual void DivideOnDevice(float given) = 0;
};

}  // namespace troop
