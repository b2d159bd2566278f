// Implements the communication algorithms as plans of copies and flows.
#include "collective/transfer_plan.h"

#include <bit>

namespace troop {
namespace {

// Builds the plan of one rank. Positions wrap around the ring of participants.
class Planner {
 public:
  explicit Planner(const TransferPlanInput& input)
      : input_(input), count_(int(input.ranks.size())), self_(input.self) {}

  // Builds the plan of the operation.
  TransferPlan Make() {
    switch (input_.op.kind) {
      case OpKind::kAllReduce:
        AllReduce();
        break;
      case OpKind::kReduceScatter:
        ReduceScatter();
        break;
      case OpKind::kAllGather:
        AllGather();
        break;
      case OpKind::kAllToAll:
        AllToAll();
        break;
      case OpKind::kBroadcast:
        Broadcast();
        break;
      case OpKind::kSend:
        Add(input_.op.peer, true, {Whole(FromIn())});
        break;
      case OpKind::kReceive:
        Add(input_.op.peer, false, {Whole(input_.out)});
        break;
      case OpKind::kBarrier:
        Barrier();
        break;
    }
    return std::move(plan_);
  }

 private:
  // The cast is safe: outgoing segments are only read.
  std::span<std::byte> FromIn() const {
    return {const_cast<std::byte*>(input_.in.data()), input_.in.size()};
  }
  static TransferSegment Whole(std::span<std::byte> bytes) { return {bytes.data(), bytes.size()}; }
  int Wrap(int position) const { return ((position % count_) + count_) % count_; }
  // Adds a flow to or from a position, and returns its index.
  int Add(int position, bool outgoing, std::vector<TransferSegment> segments) {
    plan_.flows.push_back({.peer = input_.ranks[std::size_t(Wrap(position))],
                           .outgoing = outgoing,
                           .segments = std::move(segments)});
    return int(plan_.flows.size()) - 1;
  }
  std::byte* Scratch(std::size_t bytes) {
    plan_.scratch.emplace_back(bytes);
    return plan_.scratch.back().data();
  }
  // Adds a local copy, unless source and destination are equal.
  void Copy(std::span<std::byte> to, std::span<const std::byte> from) {
    if (from.empty() || to.data() == from.data()) return;
    plan_.copies.push_back({to.data(), from.data(), from.size()});
  }

  // Start of chunk c of `bytes` bytes, on cache lines, so that no two ranks' chunks share one.
  std::size_t ChunkBegin(std::size_t bytes, int chunk) const {
    if (chunk == count_) return bytes;
    return bytes / std::size_t(count_) * std::size_t(chunk) / kAlignment * kAlignment;
  }
  std::size_t ChunkBytes(std::size_t bytes, int chunk) const {
    return ChunkBegin(bytes, chunk + 1) - ChunkBegin(bytes, chunk);
  }

  // Adds the two flows of a ring: from the previous position, and to the next one, one segment
  // behind.
  void AddRing(std::vector<TransferSegment> outgoing, std::vector<TransferSegment> incoming) {
    const int source = Add(self_ - 1, false, std::move(incoming));
    const int flow = Add(self_ + 1, true, std::move(outgoing));
    plan_.flows[std::size_t(flow)].source = source;
    plan_.flows[std::size_t(flow)].lead = 1;
  }

  // Small: recursive doubling. Large: a ring in two halves.
  void AllReduce() {
    if (count_ == 1) return Copy(input_.out, input_.in);
    if (input_.in.size() <= kSmallBytes) return RecursiveDoubling();
    const std::size_t bytes = input_.in.size();
    std::vector<TransferSegment> outgoing, incoming;
    // 1. Reduce-scatter: the partial sum of a chunk travels until it is complete at its own rank.
    for (int step = 0; step < count_ - 1; ++step) {
      const int sent = Wrap(self_ - 1 - step), come = Wrap(self_ - 2 - step);
      const auto from = step == 0 ? FromIn() : input_.out;
      outgoing.push_back({from.data() + ChunkBegin(bytes, sent), ChunkBytes(bytes, sent)});
      incoming.push_back({input_.out.data() + ChunkBegin(bytes, come), ChunkBytes(bytes, come),
                          input_.in.data() + ChunkBegin(bytes, come)});
    }
    // 2. All-gather of the complete chunks. In place is safe: a byte received here was computed
    // from the one that it replaces, which has therefore been sent.
    for (int step = 0; step < count_ - 1; ++step) {
      const int sent = Wrap(self_ - step), come = Wrap(self_ - 1 - step);
      outgoing.push_back({input_.out.data() + ChunkBegin(bytes, sent), ChunkBytes(bytes, sent)});
      incoming.push_back({input_.out.data() + ChunkBegin(bytes, come), ChunkBytes(bytes, come)});
    }
    AddRing(std::move(outgoing), std::move(incoming));
  }

  // Recursive doubling (Thakur, Rabenseifner & Gropp 2005, sec. 4.1): if N is not a power of two,
  // the first 2 (N - 2^k) ranks first add in pairs. The left operand is always the lower rank's, so
  // both ranks of a pair compute the same bits.
  void RecursiveDoubling() {
    const std::size_t bytes = input_.in.size();
    const int power = int(std::bit_floor(unsigned(count_)));
    const int extra = count_ - power;
    // Works on a copy, because `in` must not change.
    std::byte* value = Scratch(bytes);
    Copy({value, bytes}, input_.in);
    int last = -1;
    const bool paired = self_ < 2 * extra;
    if (paired && self_ % 2 == 0) {
      Add(self_ + 1, true, {{value, bytes}});
      Add(self_ + 1, false, {Whole(input_.out)});
      return;
    }
    if (paired) value = Exchange(self_ - 1, false, value, false, &last);
    const int position = paired ? self_ / 2 : self_ - extra;
    for (int mask = 1; mask < power; mask *= 2) {
      const int other = position ^ mask;
      const int peer = other < extra ? 2 * other + 1 : other + extra;
      value = Exchange(peer, true, value, 2 * mask == power, &last);
    }
    if (paired) AddAfter(self_ - 1, value, last);
  }
  // Adds the value of `peer` to `value`, and sends `value` if `both`. Returns the place of the sum.
  std::byte* Exchange(int peer, bool both, std::byte* value, bool final, int* last) {
    const std::size_t bytes = input_.in.size();
    if (both) AddAfter(peer, value, *last);
    std::byte* sum = final ? input_.out.data() : Scratch(bytes);
    const int flow = Add(peer, false, {{sum, bytes, value, self_ < peer}});
    plan_.flows[std::size_t(flow)].after = *last;  // `value` must be complete
    *last = flow;
    return sum;
  }
  // Sends `value` once the flow `source` has produced it. Empty values have no bytes to wait for,
  // so the whole flow is ordered instead.
  void AddAfter(int peer, std::byte* value, int source) {
    const int flow = Add(peer, true, {{value, input_.in.size()}});
    plan_.flows[std::size_t(flow)].source = source;
    plan_.flows[std::size_t(flow)].after = input_.in.empty() ? source : -1;
  }

  // A ring: the partial sum of each piece travels until it is complete at its own rank.
  void ReduceScatter() {
    if (count_ == 1) return Copy(input_.out, input_.in);
    const std::size_t piece = input_.out.size();
    std::byte* partial = count_ > 2 ? Scratch(piece * std::size_t(count_ - 2)) : nullptr;
    std::vector<TransferSegment> outgoing, incoming;
    std::byte* from = FromIn().data() + piece * std::size_t(Wrap(self_ - 1));
    for (int step = 0; step < count_ - 1; ++step) {
      outgoing.push_back({from, piece});
      from = step == count_ - 2 ? input_.out.data() : partial + piece * std::size_t(step);
      incoming.push_back(
          {from, piece, input_.in.data() + piece * std::size_t(Wrap(self_ - 2 - step))});
    }
    AddRing(std::move(outgoing), std::move(incoming));
  }

  // A ring: each piece is forwarded N - 1 times.
  void AllGather() {
    const std::size_t piece = input_.in.size();
    Copy(input_.out.subspan(piece * std::size_t(self_), piece), input_.in);
    if (count_ == 1) return;
    std::vector<TransferSegment> outgoing, incoming;
    for (int step = 0; step < count_ - 1; ++step) {
      outgoing.push_back({input_.out.data() + piece * std::size_t(Wrap(self_ - step)), piece});
      incoming.push_back({input_.out.data() + piece * std::size_t(Wrap(self_ - 1 - step)), piece});
    }
    AddRing(std::move(outgoing), std::move(incoming));
  }

  // Direct messages; in step s every rank sends to the s-th next one, which spreads the load.
  void AllToAll() {
    const std::size_t piece = input_.in.size() / std::size_t(count_);
    const auto piece_of = [piece](auto bytes, int position) {
      return bytes.subspan(piece * std::size_t(position), piece);
    };
    Copy(piece_of(input_.out, self_), piece_of(input_.in, self_));
    for (int step = 1; step < count_; ++step) {
      Add(self_ + step, true, {Whole(piece_of(FromIn(), Wrap(self_ + step)))});
      Add(self_ - step, false, {Whole(piece_of(input_.out, Wrap(self_ - step)))});
    }
  }

  // Small: a binomial tree of log2 N rounds. Large: a chain, in which each rank forwards while it
  // receives.
  void Broadcast() {
    const int root = input_.op.peer;
    const int place = Wrap(self_ - root);
    if (place == 0) Copy(input_.out, input_.in);
    const bool small = input_.out.size() <= kSmallBytes;
    int source = -1;
    if (place > 0) {
      const int parent = small ? place - int(std::bit_floor(unsigned(place))) : place - 1;
      source = Add(root + parent, false, {Whole(input_.out)});
    }
    for (int step = small ? int(std::bit_ceil(unsigned(place + 1))) : 1; place + step < count_;
         step *= 2) {
      const int flow = Add(root + place + step, true, {Whole(input_.out)});
      plan_.flows[std::size_t(flow)].source = source;
      plan_.flows[std::size_t(flow)].after = input_.out.empty() ? source : -1;
      if (!small) break;
    }
  }

  // Dissemination (Hensgen, Finkel & Manber 1988): ceil(log2 N) rounds.
  void Barrier() {
    int last = -1;
    for (int step = 1; step < count_; step *= 2) {
      const int flow = Add(self_ + step, true, {});
      plan_.flows[std::size_t(flow)].after = last;
      last = Add(self_ - step, false, {});
    }
  }

  const TransferPlanInput& input_;
  const int count_;
  const int self_;
  TransferPlan plan_;
};

}  // namespace

TransferPlan MakeTransferPlan(const TransferPlanInput& input) { return Planner(input).Make(); }

}  // namespace troop
