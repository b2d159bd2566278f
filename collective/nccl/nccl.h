#pragma once

#include <memory>
#include <string>

#include "collective/collective.h"
#include "core/base/time.h"

namespace troop {

// Options of MakeNcclGroup.
struct NcclOptions {
  std::string library = "libnccl.so.2", driver = "libcuda.so.1";
  int device = 0;                          // this rank's GPU, as numbered by the CUDA driver
  Duration connect_timeout = Seconds(60);  // limit until all ranks have a communicator
  Duration timeout = Seconds(60);          // default for an operation
  Duration abort_within = Seconds(5);      // after a failure: limit for NCCL to release resources
};

// Creates a group for device tensors that uses NCCL, which is loaded at run time. Takes ownership
// of `host`, a group of the same ranks (made by GroupEntry), which distributes rank 0's unique id,
// compares the operations that the ranks call, and reports a dead rank at once; NCCL alone does not
// report it. Blocks for up to connect_timeout: run it as a job of an executor.
//   Start needs the stream that the tensors belong to (CUDA's default stream has the handle 1). The
//   operation runs on the group's own stream, after the work that the given stream holds when Start
//   is called. When an operation has ended, its result is visible to every stream. Sends and
//   receives that are started without a Poll between them run concurrently. Both ranks of a pair
//   must start a send and its receive between the same two other operations.
//   After a failure, the communicator is aborted on a separate thread. Open operations end when
//   NCCL has released their bytes, or after abort_within; in the second case the process should
//   exit, because NCCL may still access the bytes.
// The errors are the same on all ranks: kUnavailable: a rank has no NCCL or no device, or died;
// kFailedPrecondition: a rank's version of NCCL differs from rank 0's; kDeadlineExceeded; or an
// error of NCCL.
Result<std::unique_ptr<Collective>> MakeNcclGroup(std::unique_ptr<Collective> host,
                                                  const NcclOptions& options);

}  // namespace troop
