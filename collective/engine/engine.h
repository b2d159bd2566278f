#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/collective.h"
#include "collective/op_header.h"
#include "collective/shared_memory/slab_task.h"
#include "collective/transfer_plan.h"
#include "collective/wire.h"

namespace troop {

// Placement of the ranks on hosts, which decides which ranks share memory. Equal on all ranks,
// except for the slab.
struct HostTopology {
  std::vector<std::vector<int>> ranks;  // by host, ascending; hosts in order of first rank
  std::vector<int> host_of;             // by rank
  std::unique_ptr<Slab> slab;           // shared memory of this host; nullptr: only one rank here
};

struct EngineOptions {
  std::string name;                // of the group, for messages
  Duration timeout = Seconds(60);  // default for an operation
  HostTopology hosts;              // empty: no ranks share memory
  // Implementation of Split. Blocks; the calling group has no open operations.
  std::function<Result<std::unique_ptr<Collective>>(Collective&, int color, int key)> split;
};

// A Collective over a Wire, and over a Slab where ranks share memory. On one host everything except
// kSend and kReceive uses the slab. On several hosts, all-reduce sums within each host, then
// between one rank of each host over the wire, and spreads the result within each host; broadcast
// and barrier work likewise; the other operations use the wire between all ranks.
// Operations progress concurrently. The flows of each operation wait in queues, one per peer and
// direction, in the order of Start, which is the same at both ends; so the bytes of one operation
// follow those of the previous one without a pause. Each flow begins with a header that describes
// its operation, and the receiver compares it with its own. O(flows that can move) per Poll; one
// thread.
class Engine final : public Collective {
 public:
  Engine(std::unique_ptr<Wire> wire, EngineOptions options);
  ~Engine() override;  // aborts the group if operations are open

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream) override;
  std::optional<Status> Poll(Work work) override;
  Status Wait(Work work) override;
  Status Progress() override;
  Result<std::unique_ptr<Collective>> Split(int color, int key) override;
  void Abort(const Status& why) override;
  Status status() const override { return failure_ ? failure_->status : Status::Ok(); }
  int suspect() const override { return failure_ ? failure_->suspect : -1; }
  CollectiveCounters counters() const override { return counters_; }

 private:
  // Bytes of an element that was received incompletely.
  static constexpr std::size_t kPartialMax = 8;

  // Progress of one flow.
  struct Cursor {
    std::size_t header = 0;  // header bytes sent or received
    OpHeaderBytes coming{};
    std::size_t segment = 0;
    std::size_t done = 0;  // bytes of the segment
    std::size_t partial = 0;
    std::array<std::byte, kPartialMax> partial_bytes{};
    bool ended = false;
  };
  // An operation that was started and not yet polled to its end.
  struct Running {
    Op op;
    ConstTensor in;
    Tensor out;
    OpHeader header;
    OpHeaderBytes header_bytes{};
    TransferPlan plan;
    std::vector<Cursor> cursors;            // one per flow
    std::optional<SlabTask> before, after;  // shared-memory steps before and after the flows
    bool begun = false;                     // flows may run: `before` has ended
    std::size_t open = 0;                   // flows and tasks that have not ended
    Time deadline{};
  };
  // Queue entry: one flow of one operation.
  struct FlowRef {
    Running* running = nullptr;
    std::size_t flow = 0;
  };

  std::uint64_t NumberOf(const Op& op);
  void MakeSteps(Running* running);
  void MakeHostSteps(Running* running, TransferPlanInput* input);
  void Enqueue(Running* running);
  bool MayBegin(Running* running);
  bool StepSlab();
  void Idle(Time until);
  bool Step();
  bool StepUnlessFailed();
  bool SendTo(int peer);
  bool ReceiveFrom(int peer);
  bool SendSome(const FlowRef& ref, int peer);
  bool ReceiveSome(const FlowRef& ref, int peer);
  std::size_t Available(const Running& running, const Flow& flow, const Cursor& cursor) const;
  void Take(Running* running, const TransferSegment& segment, Cursor* cursor, std::size_t bytes);
  bool CheckHeader(const Running& running, const Cursor& cursor, int peer);
  void Advance(Running* running, std::size_t flow);
  void Refuse(const Running& running, const Result<OpHeader>& theirs, int peer);
  void Fail(const Failure& failure, bool tell);
  int SlabSuspect() const;
  void CheckDeadlines();
  std::optional<Status> Ended(Work work);

  const std::unique_ptr<Wire> wire_;
  EngineOptions options_;
  Slab* const slab_;
  const int rank_;
  const int size_;
  std::vector<int> ranks_;  // 0 … size - 1
  std::map<Work, std::unique_ptr<Running>> works_;
  std::vector<std::deque<FlowRef>> outgoing_, incoming_;  // by peer
  std::deque<std::pair<Running*, SlabTask*>> slab_queue_;
  SlabTask::Phases phases_;
  std::vector<std::uint64_t> sends_, receives_;  // kSend and kReceive, by peer
  std::uint64_t started_ = 0;                    // operations of all other kinds
  Work next_ = 1;
  MutableBuffer staging_;  // received bytes that are to be reduced; fits into a cache
  std::optional<Failure> failure_;
  CollectiveCounters counters_;
};

}  // namespace troop
