#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

// A GPU as seen from the host: device memory, streams, events and graphs. This header includes no
// CUDA header. kernels/cuda builds with only the compiler and the CUDA toolkit.
//
// One of two implementations is chosen at link time: device_cuda.cu, over CUDA, and
// device_emulated.cc, which runs the same kernels on the CPU for tests (emulator.h).
//
// Errors: most failures on a GPU are reported late, by an unrelated call, and are permanent. So
// calls return no status. The device keeps the first failure, with the call, its file and line and
// a remedy, and all later calls have no effect. Callers check Device::error() when they wait for
// results.
namespace troop::cuda {

// Properties of a GPU.
struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0, l2_bytes = 0, shared_bytes = 0;  // shared: maximum per block
  bool emulated = false;
};

struct DeviceState;

// An open GPU. Thread-compatible: one owner thread at a time.
class Device {
 public:
  // Opens GPU `ordinal`. Returns nullptr on failure; *error is then a one-line message with the
  // reason and a remedy.
  static std::unique_ptr<Device> Open(int ordinal, std::string* error);
  static int Count();  // number of GPUs
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const;
  std::size_t FreeBytes() const;  // free device memory
  const std::string& error() const;
  bool ok() const { return error().empty(); }
  void Fail(std::string why);  // sets error() unless it is set
  void Synchronize();          // waits for all streams

  // Allocates device memory, 256-byte aligned, from a pool that keeps freed memory for later
  // requests of a similar size. Returns nullptr if none is left; error() then names the request
  // (`what`) and its size. REQUIRES: bytes > 0.
  void* Allocate(std::size_t bytes, std::string_view what);
  void Free(void* memory);
  void* AllocatePinned(std::size_t bytes, std::string_view what);  // host memory, for copies
  void FreePinned(void* memory);
  // Number of allocations from the driver. It must not change once training steps have used all
  // sizes.
  std::int64_t driver_allocations() const;

  DeviceState* state() const { return state_.get(); }

 private:
  explicit Device(std::unique_ptr<DeviceState> state);
  std::unique_ptr<DeviceState> state_;
};

// Array of n uninitialized elements of T, in device or pinned host memory. Move-only.
template <class T, void* (Device::*kAllocate)(std::size_t, std::string_view),
          void (Device::*kFree)(void*)>
class BasicArray {
 public:
  BasicArray() = default;
  BasicArray(Device& device, std::int64_t n, std::string_view what)
      : device_(&device),
        data_(n > 0 ? static_cast<T*>((device.*kAllocate)(std::size_t(n) * sizeof(T), what))
                    : nullptr),
        size_(data_ != nullptr ? n : 0) {}
  BasicArray(BasicArray&& other) noexcept { *this = std::move(other); }
  BasicArray& operator=(BasicArray&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~BasicArray() {
    if (data_ != nullptr) (device_->*kFree)(data_);
  }

  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return std::size_t(size_) * sizeof(T); }
  T& operator[](std::int64_t i) const { return data_[i]; }  // pinned arrays only

 private:
  Device* device_ = nullptr;
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};
template <class T>
using DeviceArray = BasicArray<T, &Device::Allocate, &Device::Free>;
template <class T>
using PinnedArray = BasicArray<T, &Device::AllocatePinned, &Device::FreePinned>;

class Event;

// In-order queue of asynchronous work on the device. Streams are independent of each other, except
// through events.
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  void* handle() const { return handle_; }  // cudaStream_t
  // The handle for use by another library, whose work is ordered after the work that is queued now.
  // Emulated: waits for that work and returns 1, the handle of CUDA's default stream.
  void* Share();

  // Copies. The host memory must be pinned, and must not change until the copy is done.
  void CopyToDevice(void* to, const void* from, std::size_t bytes);
  void CopyToHost(void* to, const void* from, std::size_t bytes);
  void CopyOnDevice(void* to, const void* from, std::size_t bytes);
  void Fill(void* to, std::uint8_t byte, std::size_t bytes);
  void Wait(const Event& event);  // for its last Record
  void Synchronize();

 private:
  Device& device_;
  void* handle_ = nullptr;
};

class Event {
 public:
  explicit Event(Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(Stream& stream);
  void Synchronize();
  bool Done() const;  // also true if never recorded
  // Time between two completed records. Emulated: 0.
  float MillisecondsSince(const Event& earlier) const;
  void* handle() const { return handle_; }

 private:
  Device& device_;
  void* handle_ = nullptr;
};

// Captured sequence of work that one call starts (a CUDA graph). Between Begin and End, the work of
// `stream`, and of the streams that wait for its events, is recorded and not executed; those
// streams must have joined `stream` again at End. Kernel arguments are recorded by value, so what
// changes between launches must be in device memory or at fixed addresses of pinned memory.
class Graph {
 public:
  explicit Graph(Device& device);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void Begin(Stream& stream);
  void End(Stream& stream);
  bool ready() const { return handle_ != nullptr; }
  void Launch(Stream& stream);  // REQUIRES: ready()

 private:
  Device& device_;
  void* handle_ = nullptr;
};

}  // namespace troop::cuda
