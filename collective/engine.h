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
#include "collective/slab_task.h"
#include "collective/transfer_plan.h"
#include "collective/wire.h"

namespace troop {

// Which ranks share memory. The same on all ranks, but for the slab.
struct HostsOfRanks {
  std::vector<std::vector<int>> ranks;  // of each host, in order; hosts by their first ranks
  std::vector<int> host_of;             // by rank
  std::unique_ptr<Slab> slab;           // of our host; nullptr: we are alone there
};

struct EngineOptions {
  std::string name;                // of the group, for messages
  Duration timeout = Seconds(60);  // of an operation
  HostsOfRanks hosts;              // empty: nobody shares memory
  // How Split makes a group: blocks; the calling group is without works.
  std::function<Result<std::unique_ptr<Collective>>(Collective&, int color, int key)> split;
};

// A Collective over a Wire, and over a Slab where ranks share memory: with one host everything but
// kSend and kReceive goes through it. With several, all-reduce adds up in each host, then between
// one rank of each host over the wire, and spreads again; broadcast and barrier likewise; the
// others use the wire between all ranks. Works are driven together: each work's flows stand in
// queues, one per peer and direction, in the order of Start, which is the same at both ends; so the
// next work's bytes follow the last one's without a pause. Before its bytes each flow sends what
// operation it is of, and the receiver compares. O(flows that can move) per Poll; one thread.
class Engine final : public Collective {
 public:
  Engine(std::unique_ptr<Wire> wire, EngineOptions options);
  ~Engine() override;  // tells the others if works are open

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream) override;
  std::optional<Status> Poll(Work work) override;
  Status Wait(Work work) override;
  Status Look() override;
  Result<std::unique_ptr<Collective>> Split(int color, int key) override;
  void Abort(const Status& why) override;
  Status status() const override { return failure_ ? failure_->status : Status::Ok(); }
  int suspect() const override { return failure_ ? failure_->suspect : -1; }
  CollectiveCounters counters() const override { return counters_; }

 private:
  static constexpr std::size_t kPartialMax = 8;  // bytes of an element that has come in parts

  struct Cursor {
    std::size_t header = 0;  // bytes of it that have gone or come
    OpHeaderBytes coming{};
    std::size_t segment = 0;
    std::size_t done = 0;  // bytes of the segment
    std::size_t partial = 0;
    std::array<std::byte, kPartialMax> partial_bytes{};
    bool ended = false;
  };
  struct Running {
    Op op;
    ConstTensor in;
    Tensor out;
    OpHeader header;
    OpHeaderBytes header_bytes{};
    TransferPlan plan;
    std::vector<Cursor> cursors;            // of each flow
    std::optional<SlabTask> before, after;  // of the flows
    bool begun = false;                     // the flows: what they wait for has ended
    std::size_t open = 0;                   // flows and tasks that have not ended
    Time deadline{};
  };
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
  std::uint64_t started_ = 0;                    // of all other kinds
  Work next_ = 1;
  MutableBuffer staging_;  // what comes to be reduced; small enough for a cache
  std::optional<Failure> failure_;
  CollectiveCounters counters_;
};

}  // namespace troop
