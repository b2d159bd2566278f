#pragma once

#include <memory>
#include <string>

#include "collective/collective.h"
#include "core/time.h"

namespace troop {

struct NcclOptions {
  std::string library = "libnccl.so.2", driver = "libcuda.so.1";
  int device = 0;                          // of this rank, as the driver counts
  Duration connect_timeout = Seconds(60);  // until all ranks have a communicator
  Duration timeout = Seconds(60);          // of an operation, unless it says its own
  Duration abort_within = Seconds(5);      // what NCCL may take to give up
};

// A group of device tensors over NCCL, loaded at run time. `host`: a group of the same ranks (of
// GroupEntry), which this one takes over: it brings rank 0's unique id to all, compares what
// operations ranks call, and tells at once who died, which NCCL alone does not. Blocks, up to
// connect_timeout: a job for an executor.
//   Start needs the stream that the tensors belong to (CUDA's own default stream: its handle 1): it
//   goes on after what the stream holds then, on a stream of the group's own. When a work has ended
//   its bytes are there for every stream. Sends and receives that are started before the next Poll
//   run at once; between other operations they must stand at the same place on both ranks.
//   A communicator that fails is aborted on a thread beside; works end when NCCL has let go of
//   their bytes, or after abort_within: then the process should end.
// Errors, the same on all ranks: kUnavailable: a rank has no NCCL or no device, or died;
// kFailedPrecondition: another version of NCCL than rank 0's; kDeadlineExceeded; what NCCL says.
Result<std::unique_ptr<Collective>> MakeNcclGroup(std::unique_ptr<Collective> host,
                                                  const NcclOptions& options);

}  // namespace troop
