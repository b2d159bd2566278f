// Devices, streams, events and graphs over CUDA. No other file allocates memory from the driver.
// Every call is skipped once the device has failed, and stores the first failure.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/memory_pool.h"

namespace troop::cuda {

// Device memory and pinned host memory have separate pools over the driver.
struct DeviceState {
  int ordinal = 0;
  DeviceInfo info;
  std::string error;
  MemoryPool memory{[](std::size_t bytes) -> void* {
                      void* at = nullptr;
                      if (cudaMalloc(&at, bytes) == cudaSuccess) return at;
                      cudaGetLastError();  // clears the error; the caller reports it
                      return nullptr;
                    },
                    [](void* at) { cudaFree(at); }};
  MemoryPool pinned{[](std::size_t bytes) -> void* {
                      void* at = nullptr;
                      if (cudaMallocHost(&at, bytes) == cudaSuccess) return at;
                      cudaGetLastError();
                      return nullptr;
                    },
                    [](void* at) { cudaFreeHost(at); }};
};

namespace {

// A remedy for a CUDA error, as the last part of an error message.
const char* Remedy(cudaError_t error) {
  switch (error) {
    // Errors of a kernel, which a later call reports.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "an earlier kernel failed; run the program under compute-sanitizer to locate it";
    case cudaErrorNoKernelImageForDevice:
      return "this program was built for other GPUs; build it with CMAKE_CUDA_ARCHITECTURES set to "
             "this GPU's architecture";
    case cudaErrorInsufficientDriver:
      return "update the NVIDIA driver, or build with an older CUDA toolkit";
    case cudaErrorNoDevice:
      return "list the installed GPUs with nvidia-smi, or set device = \"cpu\"";
    case cudaErrorECCUncorrectable:
    case cudaErrorDevicesUnavailable:
      return "the GPU reports a hardware fault; see nvidia-smi -q";
    default:
      return "the GPU's context is lost; restart the role";
  }
}

// One line: call, location, CUDA's message and number, remedy.
std::string Describe(const std::string& call, const char* file, int line, cudaError_t error) {
  return call + " at " + file + ":" + std::to_string(line) + ": " + cudaGetErrorString(error) +
         " (" + std::to_string(int(error)) + "); " + Remedy(error);
}

// Returns true on success; otherwise stores the failure in the device.
bool Note(Device& device, cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return true;
  device.Fail(Describe(call, file, line, error));
  return false;
}
// Runs a CUDA call unless the device has failed before; true on success.
#define TROOP_CUDA(device, call) \
  ((device).ok() && Note((device), (call), #call, __FILE__, __LINE__))

// CUDA handles of our objects.
cudaStream_t Handle(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }
cudaEvent_t Handle(const Event& event) { return static_cast<cudaEvent_t>(event.handle()); }

}  // namespace

void NoteFailure(Device& device, cudaError_t error, const std::string& call, const char* file,
                 int line) {
  device.Fail(Describe(call, file, line, error));
}

int Device::Count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<Device> Device::Open(int ordinal, std::string* error) {
  int count = 0;
  // Without a driver or GPU this already fails, with the reason.
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess) {
    *error = "no usable GPU: " + Describe("cudaGetDeviceCount", __FILE__, __LINE__, e);
    return nullptr;
  }
  if (ordinal < 0 || ordinal >= count) {
    *error = "GPU " + std::to_string(ordinal) + " does not exist: there are " +
             std::to_string(count) + ", numbered from 0";
    return nullptr;
  }
  // Creates the context here, so that its failures are not those of a training step.
  cudaDeviceProp properties;
  e = cudaSetDevice(ordinal);
  if (e == cudaSuccess) e = cudaGetDeviceProperties(&properties, ordinal);
  if (e == cudaSuccess) e = cudaFree(nullptr);  // creates the context, so that failures show here
  if (e != cudaSuccess) {
    *error = "GPU " + std::to_string(ordinal) +
             " cannot be used: " + Describe("cudaSetDevice", __FILE__, __LINE__, e);
    return nullptr;
  }
  auto state = std::make_unique<DeviceState>();
  state->ordinal = ordinal;
  state->info = {properties.name,
                 properties.major,
                 properties.minor,
                 properties.multiProcessorCount,
                 properties.totalGlobalMem,
                 std::size_t(properties.l2CacheSize),
                 properties.sharedMemPerBlockOptin,
                 false};
  return std::unique_ptr<Device>(new Device(std::move(state)));
}
Device::Device(std::unique_ptr<DeviceState> state) : state_(std::move(state)) {}
// Work in flight may still use memory of the pools.
Device::~Device() { cudaDeviceSynchronize(); }

const DeviceInfo& Device::info() const { return state_->info; }
std::size_t Device::FreeBytes() const {
  std::size_t free_bytes = 0, all = 0;
  return cudaMemGetInfo(&free_bytes, &all) == cudaSuccess ? free_bytes : 0;
}
// Only the first failure counts: later ones are usually its consequences.
const std::string& Device::error() const { return state_->error; }
void Device::Fail(std::string why) {
  if (state_->error.empty()) state_->error = std::move(why);
}
void Device::Synchronize() { TROOP_CUDA(*this, cudaDeviceSynchronize()); }

void* Device::Allocate(std::size_t bytes, std::string_view what) {
  if (!ok()) return nullptr;
  void* memory = state_->memory.Allocate(bytes);
  if (memory == nullptr)
    Fail(OutOfMemory("GPU", what, bytes, FreeBytes(), state_->info.memory_bytes));
  return memory;
}
void Device::Free(void* memory) {
  Synchronize();  // work in flight may use it; training steps free nothing
  state_->memory.Free(memory);
}
void* Device::AllocatePinned(std::size_t bytes, std::string_view what) {
  if (!ok()) return nullptr;
  void* memory = state_->pinned.Allocate(bytes);
  if (memory == nullptr) Fail(OutOfMemory("pinned host", what, bytes, 0, 0));
  return memory;
}
void Device::FreePinned(void* memory) {
  Synchronize();
  state_->pinned.Free(memory);
}
std::int64_t Device::driver_allocations() const {
  return state_->memory.taken() + state_->pinned.taken();
}

Stream::Stream(Device& device) : device_(device) {
  cudaStream_t stream = nullptr;
  // Non-blocking: not ordered with the default stream.
  TROOP_CUDA(device, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  handle_ = stream;
}
// The stream must be idle: its work may use objects that the caller destroys next.
Stream::~Stream() {
  if (handle_ == nullptr) return;
  Synchronize();
  cudaStreamDestroy(Handle(*this));
}
void* Stream::Share() { return handle_; }
void Stream::CopyToDevice(void* to, const void* from, std::size_t bytes) {
  TROOP_CUDA(device_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, Handle(*this)));
}
void Stream::CopyToHost(void* to, const void* from, std::size_t bytes) {
  TROOP_CUDA(device_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, Handle(*this)));
}
void Stream::CopyOnDevice(void* to, const void* from, std::size_t bytes) {
  TROOP_CUDA(device_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, Handle(*this)));
}
void Stream::Fill(void* to, std::uint8_t byte, std::size_t bytes) {
  TROOP_CUDA(device_, cudaMemsetAsync(to, byte, bytes, Handle(*this)));
}
void Stream::Wait(const Event& event) {
  TROOP_CUDA(device_, cudaStreamWaitEvent(Handle(*this), Handle(event), 0));
}
void Stream::Synchronize() { TROOP_CUDA(device_, cudaStreamSynchronize(Handle(*this))); }

Event::Event(Device& device) : device_(device) {
  cudaEvent_t event = nullptr;
  TROOP_CUDA(device, cudaEventCreate(&event));
  handle_ = event;
}
Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(Handle(*this));
}
void Event::Record(Stream& stream) {
  TROOP_CUDA(device_, cudaEventRecord(Handle(*this), Handle(stream)));
}
void Event::Synchronize() { TROOP_CUDA(device_, cudaEventSynchronize(Handle(*this))); }
bool Event::Done() const {
  // After a failure no event completes; callers must not wait forever.
  if (!device_.ok()) return true;
  // Does not block.
  const cudaError_t error = cudaEventQuery(Handle(*this));
  // Not a failure.
  if (error == cudaErrorNotReady) return false;
  Note(device_, error, "cudaEventQuery", __FILE__, __LINE__);
  return true;
}
float Event::MillisecondsSince(const Event& earlier) const {
  float ms = 0;
  TROOP_CUDA(device_, cudaEventElapsedTime(&ms, Handle(earlier), Handle(*this)));
  return ms;
}

Graph::Graph(Device& device) : device_(device) {}
Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}
void Graph::Begin(Stream& stream) {
  // Thread-local mode: other threads may use CUDA during the capture.
  TROOP_CUDA(device_, cudaStreamBeginCapture(Handle(stream), cudaStreamCaptureModeThreadLocal));
}
void Graph::End(Stream& stream) {
  cudaGraph_t graph = nullptr;
  if (!TROOP_CUDA(device_, cudaStreamEndCapture(Handle(stream), &graph))) return;
  cudaGraphExec_t exec = nullptr;
  // Instantiation compiles the graph once; launches are then cheap.
  TROOP_CUDA(device_, cudaGraphInstantiate(&exec, graph, 0));
  cudaGraphDestroy(graph);
  // A new capture replaces the old one.
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
  handle_ = exec;
}
void Graph::Launch(Stream& stream) {
  TROOP_CUDA(device_, cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), Handle(stream)));
}

}  // namespace troop::cuda
