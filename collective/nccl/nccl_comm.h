#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collective/nccl/nccl_library.h"
#include "core/base/time.h"
#include "core/tensor/tensor.h"

namespace troop {

// An NCCL communicator and its device. It is destroyed on a separate thread, because NCCL may take
// very long, or hang. Owner: one thread.
class NcclCommunicator {
 public:
  // Opens the device and creates a stream. Errors: kUnavailable: no such device.
  static Result<std::unique_ptr<NcclCommunicator>> Make(std::shared_ptr<const NcclLibrary> library,
                                                        int device);
  // Waits for the end, at most `abort_within`; after that the thread is detached.
  ~NcclCommunicator();

  // Begins to connect; status() is kNcclInProgress until all ranks have joined.
  Status Init(int ranks, const NcclUniqueId& id, int rank);
  // Asynchronous state of the communicator.
  NcclResult status() const;
  // Translates an NCCL result, with NCCL's own error text.
  Status Describe(int result, const std::string& what) const;
  Status Use() const;  // makes the device current on this thread

  // Ends the communicator, once: aborts the operations in flight, or completes them. Nothing else
  // may be called afterwards.
  void BeginAbort() { BeginEnd(true); }
  void BeginClose() { BeginEnd(false); }
  bool ending() const { return thread_.joinable(); }
  bool ended() const;
  // Keeps the memory of an operation alive until NCCL can no longer access it: until the end, or
  // permanently if NCCL hangs.
  void KeepUntilEnd(ConstTensor in, Tensor out);
  // Destroys an event. During an end this is left to its thread: the driver holds a lock while an
  // abort waits for a stalled stream.
  void Destroy(CudaEvent event);

  const NcclLibrary& library() const { return *library_; }
  NcclComm comm() const { return comm_; }
  CudaStream stream() const { return stream_; }
  void set_abort_within(Duration duration) { abort_within_ = duration; }

 private:
  // State shared by the ending thread and the owner; the last of them frees it.
  struct End {
    std::shared_ptr<const NcclLibrary> library;
    NcclComm comm = nullptr;
    CudaStream stream = nullptr;
    CudaContext context = nullptr;
    int device = 0;
    bool abort = false;
    Duration patience{};
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::vector<std::pair<ConstTensor, Tensor>> kept;  // guarded by `mutex`, until done
    std::vector<CudaEvent> events;                     // guarded by `mutex`, until done
  };
  NcclCommunicator() = default;
  void BeginEnd(bool abort);
  static void RunEnd(const std::shared_ptr<End>& end);

  std::shared_ptr<const NcclLibrary> library_;
  int device_ = 0;
  CudaContext context_ = nullptr;
  CudaStream stream_ = nullptr;
  NcclComm comm_ = nullptr;
  Duration abort_within_ = Seconds(5);
  std::shared_ptr<End> end_ = std::make_shared<End>();
  std::thread thread_;
};

}  // namespace troop
