#include "collective/transfer_plan.h"

#include <bit>

namespace troop {
namespace {

class Planner {
 public:
  explicit Planner(const TransferPlanInput& input)
      : input_(input), count_(int(input.ranks.size())), self_(input.self) {}

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
  // Nothing writes through it: outgoing segments are only read.
  std::span<std::byte> FromIn() const {
    return {const_cast<std::byte*>(input_.in.data()), input_.in.size()};
  }
  static TransferSegment Whole(std::span<std::byte> bytes) { return {bytes.data(), bytes.size()}; }
  int Wrap(int position) const { return ((position % count_) + count_) % count_; }
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
  void Copy(std::span<std::byte> to, std::span<const std::byte> from) {
    if (from.empty() || to.data() == from.data()) return;
    plan_.copies.push_back({to.data(), from.data(), from.size()});
  }

  // Where chunk c of `bytes` bytes begins; on cache lines, so that no two ranks' chunks share one.
  std::size_t ChunkBegin(std::size_t bytes, int chunk) const {
    if (chunk == count_) return bytes;
    return bytes / std::size_t(count_) * std::size_t(chunk) / kAlignment * kAlignment;
  }
  std::size_t ChunkBytes(std::size_t bytes, int chunk) const {
    return ChunkBegin(bytes, chunk + 1) - ChunkBegin(bytes, chunk);
  }

  void AddRing(std::vector<TransferSegment> outgoing, std::vector<TransferSegment> incoming) {
    const int source = Add(self_ - 1, false, std::move(incoming));
    const int flow = Add(self_ + 1, true, std::move(outgoing));
    plan_.flows[std::size_t(flow)].source = source;
    plan_.flows[std::size_t(flow)].lead = 1;
  }

  void AllReduce() {
    if (count_ == 1) return Copy(input_.out, input_.in);
    if (input_.in.size() <= kSmallBytes) return RecursiveDoubling();
    const std::size_t bytes = input_.in.size();
    std::vector<TransferSegment> outgoing, incoming;
    // The partial sum of a chunk goes around until it is complete at the rank of its number ...
    for (int step = 0; step < count_ - 1; ++step) {
      const int sent = Wrap(self_ - 1 - step), come = Wrap(self_ - 2 - step);
      const auto from = step == 0 ? FromIn() : input_.out;
      outgoing.push_back({from.data() + ChunkBegin(bytes, sent), ChunkBytes(bytes, sent)});
      incoming.push_back({input_.out.data() + ChunkBegin(bytes, come), ChunkBytes(bytes, come),
                          input_.in.data() + ChunkBegin(bytes, come)});
    }
    // ... and then the complete ones. In place is safe: a byte that comes in this half was made of
    // the one that it replaces, which has therefore been sent.
    for (int step = 0; step < count_ - 1; ++step) {
      const int sent = Wrap(self_ - step), come = Wrap(self_ - 1 - step);
      outgoing.push_back({input_.out.data() + ChunkBegin(bytes, sent), ChunkBytes(bytes, sent)});
      incoming.push_back({input_.out.data() + ChunkBegin(bytes, come), ChunkBytes(bytes, come)});
    }
    AddRing(std::move(outgoing), std::move(incoming));
  }

  // Thakur, Rabenseifner & Gropp 2005, sec. 4.1: with N no power of two, the first 2 (N - 2^k)
  // ranks first add up in pairs. The left operand is always the lower rank's, so both of a pair
  // compute the same bits.
  void RecursiveDoubling() {
    const std::size_t bytes = input_.in.size();
    const int power = int(std::bit_floor(unsigned(count_)));
    const int extra = count_ - power;
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
  // Adds what `peer` sends to `value`, and where `both` sends `value`; the sum's place.
  std::byte* Exchange(int peer, bool both, std::byte* value, bool final, int* last) {
    const std::size_t bytes = input_.in.size();
    if (both) AddAfter(peer, value, *last);
    std::byte* sum = final ? input_.out.data() : Scratch(bytes);
    const int flow = Add(peer, false, {{sum, bytes, value, self_ < peer}});
    plan_.flows[std::size_t(flow)].after = *last;  // `value` must be complete
    *last = flow;
    return sum;
  }
  void AddAfter(int peer, std::byte* value, int source) {
    const int flow = Add(peer, true, {{value, input_.in.size()}});
    plan_.flows[std::size_t(flow)].source = source;
    plan_.flows[std::size_t(flow)].after = input_.in.empty() ? source : -1;
  }

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
