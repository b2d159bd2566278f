#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collective/nccl_library.h"
#include "core/tensor.h"
#include "core/time.h"

namespace troop {

// A communicator and the device that it works on. It ends on a thread of its own, because NCCL may
// take long for that, or for ever. Owner: one thread.
class NcclCommunicator {
 public:
  // Errors: kUnavailable: no such device.
  static Result<std::unique_ptr<NcclCommunicator>> Make(std::shared_ptr<const NcclLibrary> library,
                                                        int device);
  // Waits for the end, at most `abort_within`; then leaves it to itself.
  ~NcclCommunicator();

  // Begins to connect; status() is kNcclInProgress until it has.
  Status Init(int ranks, const NcclUniqueId& id, int rank);
  NcclResult status() const;
  Status Describe(int result, const std::string& what) const;
  Status Use() const;  // makes the device this thread's

  // Once: what is under way is given up, or brought to its end. Nothing else is called afterwards.
  void BeginAbort() { BeginEnd(true); }
  void BeginClose() { BeginEnd(false); }
  bool ending() const { return thread_.joinable(); }
  bool ended() const;
  // Keeps the memory of a launch until NCCL can no longer access it: until the end, and for good
  // where there is none.
  void KeepUntilEnd(ConstTensor in, Tensor out);
  // Destroys an event; while an end is under way that is left to its thread: the driver holds a
  // lock as long as an abort waits for a stream that gets nowhere.
  void Destroy(CudaEvent event);

  const NcclLibrary& library() const { return *library_; }
  NcclComm comm() const { return comm_; }
  CudaStream stream() const { return stream_; }
  void set_abort_within(Duration duration) { abort_within_ = duration; }

 private:
  // What the ending thread and its owner share; the last of them frees it.
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
    std::vector<std::pair<ConstTensor, Tensor>> kept;  // under `mutex`, until done
    std::vector<CudaEvent> events;                     // likewise
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
