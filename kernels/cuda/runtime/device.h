#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

// A GPU seen from the host: its memory, its streams, its graphs. No CUDA header is included here,
// and nothing but the compiler and the CUDA toolkit is needed to build what stands in kernels/cuda.
//
// Two implementations, chosen when a program is linked: device_cuda.cu over CUDA, and
// device_emulated.cc, which runs the same kernels on the CPU for tests (emulator.h).
//
// Errors. What fails on a GPU mostly fails later, elsewhere, and for good. So calls return nothing:
// the device keeps the first failure, with the call, its file and line, and what to do; all calls
// after it do nothing. Whoever waits for results asks Device::error() then.
namespace troop::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0, l2_bytes = 0, shared_bytes = 0;  // shared: of one block, at most
  bool emulated = false;
};

struct DeviceState;

// One owner thread at a time.
class Device {
 public:
  // nullptr: there is none, or it can't be used; *error says in one line why, and what to do.
  static std::unique_ptr<Device> Open(int ordinal, std::string* error);
  static int Count();  // of those that can be asked for
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const;
  std::size_t FreeBytes() const;  // of the device's memory, now
  const std::string& error() const;
  bool ok() const { return error().empty(); }
  void Fail(std::string why);  // only the first one is kept
  void Synchronize();          // waits for all streams

  // Device memory, 256-byte aligned, from a pool: what is freed is kept for the next one of about
  // its size. nullptr: none left, and then error() says what asked for how much. REQUIRES: bytes >
  // 0.
  void* Allocate(std::size_t bytes, std::string_view what);
  void Free(void* memory);
  void* AllocatePinned(std::size_t bytes, std::string_view what);  // of the host, for copies
  void FreePinned(void* memory);
  // How often the driver was asked for memory: steps must not change it once all sizes were seen.
  std::int64_t driver_allocations() const;

  DeviceState* state() const { return state_.get(); }

 private:
  explicit Device(std::unique_ptr<DeviceState> state);
  std::unique_ptr<DeviceState> state_;
};

// n elements of T, uninitialised. Moved, never copied.
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
  T& operator[](std::int64_t i) const { return data_[i]; }  // of pinned ones alone

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

// What is asked of a stream happens in that order, after the call has returned. Streams know
// nothing of each other but through events.
class Stream {
 public:
  explicit Stream(Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }
  void* handle() const { return handle_; }  // a cudaStream_t
  // The same for another library, which puts work of its own behind what is here by now. Emulated:
  // that is done when it returns, and the handle is 1, that of CUDA's default stream.
  void* Share();

  // The host's side must be pinned, and must stay as it is until the copy is done.
  void CopyToDevice(void* to, const void* from, std::size_t bytes);
  void CopyToHost(void* to, const void* from, std::size_t bytes);
  void CopyOnDevice(void* to, const void* from, std::size_t bytes);
  void Fill(void* to, std::uint8_t byte, std::size_t bytes);
  void Wait(const Event& event);  // for what was recorded last
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
  bool Done() const;  // or never recorded
  // Between two records that are done. Emulated: 0.
  float MillisecondsSince(const Event& earlier) const;
  void* handle() const { return handle_; }

 private:
  Device& device_;
  void* handle_ = nullptr;
};

// A step that is put together once and started by one call. Between Begin and End, work of
// `stream`, and of the streams that wait for its events, is written down and not done; those
// streams must have joined it again by End. What changes from start to start must lie in device
// memory or at fixed addresses of pinned memory: arguments of kernels are written down as they are.
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
