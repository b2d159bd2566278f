// Implements the loading of NCCL and the CUDA driver, and the translation of their errors.
#include "collective/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace troop {
namespace {

// Handles are never closed: NCCL and the driver have threads that run code of these libraries.
Result<void*> Open(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Unavailable("cannot load {}: {}", name, dlerror());
  return handle;
}

// Looks up functions and remembers the first that is missing.
class Finder {
 public:
  Finder(void* handle, const std::string& name) : handle_(handle), name_(name) {}
  // A missing symbol is not an error yet: status() names the first one, after all lookups.
  template <class F>
  void operator()(const char* symbol, F** function) {
    *function = reinterpret_cast<F*>(dlsym(handle_, symbol));
    if (*function == nullptr && missing_.empty()) missing_ = symbol;
  }
  Status status() const {
    if (missing_.empty()) return Status::Ok();
    return Unavailable("{} has no {}: it is too old, or a different library", name_, missing_);
  }

 private:
  void* handle_;
  std::string name_, missing_;
};

}  // namespace

#define TROOP_FIND(name) find(#name, &library->name)

// The driver first: without a device NCCL is useless.
Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::Load(const std::string& nccl,
                                                             const std::string& driver) {
  auto library = std::make_shared<NcclLibrary>();
  {
    TROOP_ASSIGN_OR_RETURN(void* handle, Open(driver));
    Finder find(handle, driver);
    TROOP_FIND(cuInit);
    TROOP_FIND(cuDeviceGet);
    TROOP_FIND(cuDevicePrimaryCtxRetain);
    TROOP_FIND(cuDevicePrimaryCtxRelease_v2);
    TROOP_FIND(cuCtxSetCurrent);
    TROOP_FIND(cuStreamCreate);
    TROOP_FIND(cuStreamDestroy_v2);
    TROOP_FIND(cuStreamWaitEvent);
    TROOP_FIND(cuEventCreate);
    TROOP_FIND(cuEventDestroy_v2);
    TROOP_FIND(cuEventRecord);
    TROOP_FIND(cuEventQuery);
    TROOP_RETURN_IF_ERROR(find.status());
  }
  TROOP_ASSIGN_OR_RETURN(void* handle, Open(nccl));
  Finder find(handle, nccl);
  TROOP_FIND(ncclGetVersion);
  TROOP_FIND(ncclGetUniqueId);
  TROOP_FIND(ncclCommInitRankConfig);
  TROOP_FIND(ncclCommGetAsyncError);
  TROOP_FIND(ncclCommFinalize);
  TROOP_FIND(ncclCommDestroy);
  TROOP_FIND(ncclCommAbort);
  TROOP_FIND(ncclGetErrorString);
  TROOP_FIND(ncclGetLastError);
  TROOP_FIND(ncclAllReduce);
  TROOP_FIND(ncclReduceScatter);
  TROOP_FIND(ncclAllGather);
  TROOP_FIND(ncclBroadcast);
  TROOP_FIND(ncclSend);
  TROOP_FIND(ncclRecv);
  TROOP_FIND(ncclGroupStart);
  TROOP_FIND(ncclGroupEnd);
  TROOP_RETURN_IF_ERROR(find.status());
  const int result = library->ncclGetVersion(&library->version);
  TROOP_RETURN_IF_ERROR(NcclStatus(*library, result, nullptr, "query the version of NCCL"));
  if (library->version < kNcclVersionMin) {
    return FailedPrecondition("{} is NCCL {}; {} or newer is required", nccl,
                              NcclVersionText(library->version), NcclVersionText(kNcclVersionMin));
  }
  // Fails on machines with a driver but no device.
  const int init = library->cuInit(0);
  if (init != kCudaSuccess) return Unavailable("{} found no device: CUDA error {}", driver, init);
  return std::shared_ptr<const NcclLibrary>(std::move(library));
}
#undef TROOP_FIND

std::string NcclVersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// NCCL reports lost ranks and links as remote or system errors; both are kUnavailable.
Status NcclStatus(const NcclLibrary& library, int result, NcclComm comm, const std::string& what) {
  // With kNcclInProgress the caller polls ncclCommGetAsyncError for the outcome.
  switch (result) {
    case kNcclSuccess:
    case kNcclInProgress:
      return Status::Ok();
    default:
      break;
  }
  // Either text may be null.
  const char* words = library.ncclGetErrorString(result);
  const char* detail = library.ncclGetLastError(comm);
  const std::string text =
      fmt::format("{}: {}{}{}", what, words == nullptr ? "?" : words,
                  detail == nullptr || *detail == 0 ? "" : ": ", detail == nullptr ? "" : detail);
  if (result == kNcclInvalidArgument || result == kNcclInvalidUsage) {
    return InvalidArgument("{}", text);
  }
  if (result == kNcclRemoteError || result == kNcclSystemError) return Unavailable("{}", text);
  return Internal("{}", text);
}

// Driver errors are not recoverable, so the message suggests a way around.
Status CudaStatus(int result, const std::string& what) {
  if (result == kCudaSuccess) return Status::Ok();
  return Internal(
      "{}: CUDA error {}; check the GPU with nvidia-smi, or set learner.nccl_library = \"\" "
      "to run without NCCL",
      what, result);
}

}  // namespace troop
