#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/base/status.h"

// The used parts of NCCL and of the CUDA driver, declared here so that Troop builds without either.
// Constants are those of nccl.h since 2.14 and of cuda.h since 4.0; both libraries keep them
// stable.
namespace troop {

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};
enum NcclType : int {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};
enum NcclReduction : int { kNcclSum = 0, kNcclMax = 2, kNcclMin = 3 };

struct NcclUniqueId {
  char bytes[128];
};
// ncclConfig_t of 2.14; newer libraries recognize it by its size and version.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
inline constexpr int kNcclVersionMin = 21400;  // the first with non-blocking communicators

using NcclComm = void*;
using CudaStream = void*;
using CudaEvent = void*;
using CudaContext = void*;
inline constexpr int kCudaSuccess = 0, kCudaNotReady = 600;
inline constexpr unsigned kCudaNonBlockingStream = 1, kCudaEventWithoutTiming = 2;

// Function tables of the two libraries, under their names there.
struct NcclLibrary {
  int (*ncclGetVersion)(int* version);
  int (*ncclGetUniqueId)(NcclUniqueId* id);
  int (*ncclCommInitRankConfig)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                NcclConfig* config);
  int (*ncclCommGetAsyncError)(NcclComm comm, int* result);
  int (*ncclCommFinalize)(NcclComm comm);
  int (*ncclCommDestroy)(NcclComm comm);
  int (*ncclCommAbort)(NcclComm comm);
  const char* (*ncclGetErrorString)(int result);
  const char* (*ncclGetLastError)(NcclComm comm);
  int (*ncclAllReduce)(const void* in, void* out, std::size_t count, int type, int reduction,
                       NcclComm comm, CudaStream stream);
  int (*ncclReduceScatter)(const void* in, void* out, std::size_t out_count, int type,
                           int reduction, NcclComm comm, CudaStream stream);
  int (*ncclAllGather)(const void* in, void* out, std::size_t in_count, int type, NcclComm comm,
                       CudaStream stream);
  int (*ncclBroadcast)(const void* in, void* out, std::size_t count, int type, int root,
                       NcclComm comm, CudaStream stream);
  int (*ncclSend)(const void* in, std::size_t count, int type, int peer, NcclComm comm,
                  CudaStream stream);
  int (*ncclRecv)(void* out, std::size_t count, int type, int peer, NcclComm comm,
                  CudaStream stream);
  int (*ncclGroupStart)();
  int (*ncclGroupEnd)();

  int (*cuInit)(unsigned flags);
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDevicePrimaryCtxRetain)(CudaContext* context, int device);
  int (*cuDevicePrimaryCtxRelease_v2)(int device);
  int (*cuCtxSetCurrent)(CudaContext context);
  int (*cuStreamCreate)(CudaStream* stream, unsigned flags);
  int (*cuStreamDestroy_v2)(CudaStream stream);
  int (*cuStreamWaitEvent)(CudaStream stream, CudaEvent event, unsigned flags);
  int (*cuEventCreate)(CudaEvent* event, unsigned flags);
  int (*cuEventDestroy_v2)(CudaEvent event);
  int (*cuEventRecord)(CudaEvent event, CudaStream stream);
  int (*cuEventQuery)(CudaEvent event);

  int version = 0;  // 22105: 2.21.5

  // Loads both libraries for the life of the process: neither may be unloaded. Errors:
  // kUnavailable: a library or a function is missing, or the driver finds no device;
  // kFailedPrecondition: an NCCL older than kNcclVersionMin.
  static Result<std::shared_ptr<const NcclLibrary>> Load(const std::string& nccl,
                                                         const std::string& driver);
};

std::string NcclVersionText(int version);  // "2.21.5"
// Translates an NCCL result: kInvalidArgument, kUnavailable (a rank or a link was lost), or
// kInternal. `comm` may be nullptr.
Status NcclStatus(const NcclLibrary& library, int result, NcclComm comm, const std::string& what);
// Translates a result of the CUDA driver.
Status CudaStatus(int result, const std::string& what);

}  // namespace troop
