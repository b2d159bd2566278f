// Implements the validation of operations that all kinds of groups share.
#include "collective/collective.h"

namespace troop {
namespace {

// Checks that `in` and `out` have one type, and elements in the ratio in_pieces : out_pieces.
Status CheckShapes(const Op& op, const ConstTensor& in, const Tensor& out, std::int64_t in_pieces,
                   std::int64_t out_pieces) {
  if (in.dtype() != out.dtype()) {
    return InvalidArgument("{}: in is {} and out is {}, must have the same type",
                           OpKindName(op.kind), in.spec().ToString(), out.spec().ToString());
  }
  if (in.elements() * out_pieces != out.elements() * in_pieces || in.elements() % in_pieces != 0) {
    return InvalidArgument("{}: in has {} elements and out {}, must have the ratio {} to {}",
                           OpKindName(op.kind), in.elements(), out.elements(), in_pieces,
                           out_pieces);
  }
  return Status::Ok();
}

}  // namespace

// Names for messages.
std::string_view OpKindName(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all-reduce";
    case OpKind::kReduceScatter:
      return "reduce-scatter";
    case OpKind::kAllGather:
      return "all-gather";
    case OpKind::kAllToAll:
      return "all-to-all";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kSend:
      return "send";
    case OpKind::kReceive:
      return "receive";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

// A point-to-point peer must be another rank; a broadcast root may be this rank, and only the
// root's `in` counts.
Status CheckOp(const Op& op, const ConstTensor& in, const Tensor& out, int rank, int size) {
  const bool point = op.kind == OpKind::kSend || op.kind == OpKind::kReceive;
  if (point || op.kind == OpKind::kBroadcast) {
    if (op.peer < 0 || op.peer >= size || (point && op.peer == rank)) {
      return InvalidArgument("{}: peer {} is not another rank of {} ranks", OpKindName(op.kind),
                             op.peer, size);
    }
  }
  switch (op.kind) {
    case OpKind::kAllReduce:
      return CheckShapes(op, in, out, 1, 1);
    case OpKind::kReduceScatter:
      return CheckShapes(op, in, out, size, 1);
    case OpKind::kAllGather:
      return CheckShapes(op, in, out, 1, size);
    case OpKind::kAllToAll:
      return CheckShapes(op, in, out, size, size);
    case OpKind::kBroadcast:
      return rank == op.peer ? CheckShapes(op, in, out, 1, 1) : Status::Ok();
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kBarrier:
      return Status::Ok();
  }
  return InvalidArgument("unknown operation {}", int(op.kind));
}

Status Collective::EnqueueWait(Work, Stream) {
  return FailedPrecondition("a group of host tensors: a stream cannot follow its operations");
}

// Convenience for callers without overlap.
Status RunOp(Collective& group, const Op& op, ConstTensor in, Tensor out) {
  TROOP_ASSIGN_OR_RETURN(const Work work, group.Start(op, std::move(in), std::move(out)));
  return group.Wait(work);
}

}  // namespace troop
