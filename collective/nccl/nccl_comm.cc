// Implements the life of an NCCL communicator. Its end runs on a thread that shares only the End
// struct with the owner.
#include "collective/nccl/nccl_comm.h"

#include <chrono>
#include <utility>

#include "core/base/log.h"

namespace troop {

// Uses the device's primary context, which CUDA's runtime uses, too.
Result<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Make(
    std::shared_ptr<const NcclLibrary> library, int device) {
  auto made = std::unique_ptr<NcclCommunicator>(new NcclCommunicator());
  made->library_ = std::move(library);
  const NcclLibrary& cuda = *made->library_;
  int handle = 0;
  if (const int result = cuda.cuDeviceGet(&handle, device); result != kCudaSuccess) {
    return Unavailable("there is no device {}: CUDA error {}", device, result);
  }
  if (const int result = cuda.cuDevicePrimaryCtxRetain(&made->context_, handle);
      result != kCudaSuccess) {
    made->context_ = nullptr;
    return Unavailable("device {} cannot be used: CUDA error {}", device, result);
  }
  made->device_ = handle;
  TROOP_RETURN_IF_ERROR(made->Use());
  TROOP_RETURN_IF_ERROR(
      CudaStatus(cuda.cuStreamCreate(&made->stream_, kCudaNonBlockingStream), "create a stream"));
  return made;
}

Status NcclCommunicator::Use() const {
  return CudaStatus(library_->cuCtxSetCurrent(context_), "use the device");
}

// Non-blocking: NcclConfig::blocking is 0.
Status NcclCommunicator::Init(int ranks, const NcclUniqueId& id, int rank) {
  TROOP_RETURN_IF_ERROR(Use());
  NcclConfig config;
  const int result = library_->ncclCommInitRankConfig(&comm_, ranks, id, rank, &config);
  return NcclStatus(*library_, result, nullptr, "create a communicator");
}

// A failed query counts as a failed communicator.
NcclResult NcclCommunicator::status() const {
  int state = kNcclInternalError;
  const int result = library_->ncclCommGetAsyncError(comm_, &state);
  return NcclResult(result == kNcclSuccess ? state : result);
}

Status NcclCommunicator::Describe(int result, const std::string& what) const {
  return NcclStatus(*library_, result, comm_, what);
}

// The thread owns copies of everything it needs, so it may outlive this object.
void NcclCommunicator::BeginEnd(bool abort) {
  if (ending()) return;
  end_->library = library_;
  end_->comm = comm_;
  end_->stream = stream_;
  end_->context = context_;
  end_->device = device_;
  end_->abort = abort;
  end_->patience = abort_within_ / 2;
  thread_ = std::thread([end = end_] { RunEnd(end); });
}

// Runs on the ending thread.
void NcclCommunicator::RunEnd(const std::shared_ptr<End>& end) {
  const NcclLibrary& library = *end->library;
  static_cast<void>(library.cuCtxSetCurrent(end->context));
  // 1. Finalize within half of the time limit, or abort.
  if (end->comm != nullptr) {
    int state = end->abort ? int{kNcclInternalError} : library.ncclCommFinalize(end->comm);
    const Time deadline = SystemClock().Now() + end->patience;
    while (state == kNcclInProgress && SystemClock().Now() < deadline) {
      std::this_thread::sleep_for(Milliseconds(1));
      if (library.ncclCommGetAsyncError(end->comm, &state) != kNcclSuccess) {
        state = kNcclInternalError;
      }
    }
    static_cast<void>(state == kNcclSuccess ? library.ncclCommDestroy(end->comm)
                                            : library.ncclCommAbort(end->comm));
  }
  // 2. Release the stream, the events and the kept memory.
  if (end->stream != nullptr) static_cast<void>(library.cuStreamDestroy_v2(end->stream));
  std::unique_lock lock(end->mutex);
  while (!end->events.empty()) {
    const std::vector<CudaEvent> events = std::exchange(end->events, {});
    lock.unlock();  // the owner must not wait for the driver
    for (CudaEvent event : events) static_cast<void>(library.cuEventDestroy_v2(event));
    lock.lock();
  }
  end->kept.clear();
  end->done = true;
  end->changed.notify_all();
  lock.unlock();
  static_cast<void>(library.cuDevicePrimaryCtxRelease_v2(end->device));
}

// After the end NCCL no longer accesses the memory, so it can be freed.
void NcclCommunicator::KeepUntilEnd(ConstTensor in, Tensor out) {
  const std::lock_guard lock(end_->mutex);
  if (!end_->done) end_->kept.emplace_back(std::move(in), std::move(out));
}

// Before an end the event is destroyed here; later the ending thread does it.
void NcclCommunicator::Destroy(CudaEvent event) {
  if (ending()) {
    const std::lock_guard lock(end_->mutex);
    if (!end_->done) return end_->events.push_back(event);
  }
  static_cast<void>(library_->cuEventDestroy_v2(event));
}

bool NcclCommunicator::ended() const {
  const std::lock_guard lock(end_->mutex);
  return end_->done;
}

// A thread that does not end in time is detached: blocking here would hang the process.
NcclCommunicator::~NcclCommunicator() {
  if (context_ == nullptr) return;
  BeginClose();
  {
    std::unique_lock lock(end_->mutex);
    end_->changed.wait_for(lock, abort_within_, [this] { return end_->done; });
  }
  if (ended()) {
    thread_.join();
    return;
  }
  LogError("NCCL has not released a communicator within {} s; restart this process",
           ToSeconds(abort_within_));
  thread_.detach();
}

}  // namespace troop
