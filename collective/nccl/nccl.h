#pragma once

#include <memory>
#include <string>

#include "collective/collective.h"
#include "core/base/time.h"

namespace troop {

// Options of MakeNcclGroup.
struct NcclOptions {
  std::string library = "libnccl.so.2", driver = "libcuda.so.1";
  int device = 0;                          // of this rank, in the driver's numbering
  Duration connect_timeout = Seconds(60);  // until all ranks have a communicator
  Duration timeout = Seconds(60);          // default for an operation
  Duration abort_within = Seconds(5);      // limit for NCCL to release its resources
};

// Creates a group of device tensors over NCCL, which is loaded at run time. Takes over `host`, a
// group of the same ranks (of GroupEntry): it distributes rank 0's unique id, compares the
// operations that ranks call, and reports a dead rank at once, which NCCL alone does not. Blocks
// for up to connect_timeout: run it as a job of an executor.
//   Start needs the stream that the tensors belong to (CUDA's default stream has the handle 1). The
//   operation runs on the group's own stream, after the work that the given stream holds at that
//   time. When an operation has ended, its result is visible to every stream. Sends and receives
//   that are started before the next Poll run concurrently; between other operations they must be
//   started at the same place on both ranks.
//   A failed communicator is aborted on a separate thread. Operations end when NCCL has released
//   their bytes, or after abort_within: then the process should exit.
// Errors, equal on all ranks: kUnavailable: a rank has no NCCL or no device, or died;
// kFailedPrecondition: another version of NCCL than rank 0's; kDeadlineExceeded; or an error of
// NCCL.
Result<std::unique_ptr<Collective>> MakeNcclGroup(std::unique_ptr<Collective> host,
                                                  const NcclOptions& options);

}  // namespace troop
