// All-reduce cases and adjoint tests of `troop selftest sync`.
#include "apps/selfcheck/allreduce_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>
#include <utility>

#include "collective/group.h"
#include "collective/sim/sim_group.h"
#include "core/base/philox.h"
#include "nn/optimizer.h"

namespace troop {
namespace {

using Ranks = std::vector<std::unique_ptr<Collective>>;

// Runs `f` in one thread per rank; returns the first failure.
Status OnRanks(int size, const std::function<Status(int)>& f) {
  std::mutex mutex;
  Status failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const Status status = f(rank);
      const std::lock_guard lock(mutex);
      if (failure.ok()) failure = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure;
}

// Forms a group over real transports. "hosts" alternates two host names, so that both shared memory
// and sockets are used.
Result<Ranks> JoinRanks(std::string_view wire, int size) {
  std::vector<GroupEntry> entries;
  std::vector<Member> members;
  for (int rank = 0; rank < size; ++rank) {
    GroupOptions options{.group = "check", .rank = rank, .size = size};
    options.path = wire == "tcp"   ? GroupOptions::Path::kTcp
                   : wire == "shm" ? GroupOptions::Path::kShm
                                   : GroupOptions::Path::kAuto;
    if (wire == "hosts") options.host = rank % 2 == 0 ? "even" : "odd";
    TROOP_ASSIGN_OR_RETURN(GroupEntry entry, GroupEntry::Listen(options));
    members.push_back(entry.self());
    entries.push_back(std::move(entry));
  }
  Ranks ranks(static_cast<std::size_t>(size));
  TROOP_RETURN_IF_ERROR(OnRanks(size, [&](int rank) -> Status {
    TROOP_ASSIGN_OR_RETURN(ranks[std::size_t(rank)],
                           std::move(entries[std::size_t(rank)]).Join(members));
    return Status::Ok();
  }));
  return ranks;
}

// All-reduces the gradient in buckets; starts all before it waits for any, like a learner during
// backward.
Status Average(Collective& group, const Tensor& gradient) {
  // Three buckets, the last one at most as long, so that operations overlap.
  const std::int64_t bucket = (gradient.elements() + 2) / 3;
  std::vector<Work> works;
  for (std::int64_t at = 0; at < gradient.elements(); at += bucket) {
    const Tensor part = gradient.Range(at, {std::min(bucket, gradient.elements() - at)});
    TROOP_ASSIGN_OR_RETURN(const Work work, group.Start({.kind = OpKind::kAllReduce}, part, part));
    works.push_back(work);
  }
  for (const Work work : works) TROOP_RETURN_IF_ERROR(group.Wait(work));
  return Status::Ok();
}

// One rank's training loop: gradient of its batch, all-reduce, step with the mean.
Result<std::vector<float>> TrainRank(const RanksCase& c, Collective& group) {
  ToyModel problem(c.seed);
  std::vector<float> value = problem.FirstValue();
  const Tensor gradient(DType::kF32, {problem.parameters()});
  TROOP_ASSIGN_OR_RETURN(auto optimizer, MakeOptimizer(c.config.optimizer, problem.parameters()));
  for (int t = 0; t < c.steps; ++t) {
    problem.Gradient(value, std::uint64_t(t * c.ranks + group.rank()), gradient.as<float>());
    TROOP_RETURN_IF_ERROR(Average(group, gradient));
    optimizer->Step(gradient.as<float>(), 1 / float(c.ranks), c.learning_rate, value);
  }
  return value;
}

// An operation and its adjoint (transpose), as pairs of collectives.
struct Adjoint {
  OpKind kind, adjoint;
  const char* name;
};
constexpr Adjoint kAdjoints[] = {
    {OpKind::kAllReduce, OpKind::kAllReduce, "all-reduce / all-reduce"},
    {OpKind::kReduceScatter, OpKind::kAllGather, "reduce-scatter / all-gather"},
    {OpKind::kAllGather, OpKind::kReduceScatter, "all-gather / reduce-scatter"},
    {OpKind::kAllToAll, OpKind::kAllToAll, "all-to-all / all-to-all"},
    {OpKind::kBroadcast, OpKind::kAllReduce, "broadcast / sum at the root"},
    {OpKind::kSend, OpKind::kReceive, "send on / send back"},
};
constexpr std::int64_t kPiece = 700;  // elements; 12 times as many use the long-message algorithm

// One rank's terms of the two inner products and of the two squared norms.
struct Products {
  double left = 0, right = 0, fx = 0, y = 0;
  void Add(const Products& other) {
    left += other.left, right += other.right, fx += other.fx, y += other.y;
  }
};

// f64 values, so that rounding stays far below the limit of the test.
Tensor DrawNormal(std::int64_t count, std::uint64_t seed, int stream) {
  Tensor tensor(DType::kF64, {count});
  Rng rng({.run_seed = seed, .index = std::uint64_t(stream)});
  for (double& x : tensor.as<double>()) x = rng.Normal();
  return tensor;
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

// Sends to rank + by and receives from rank - by (modulo size) at the same time.
Status Shift(Collective& group, int by, const Tensor& in, const Tensor& out) {
  const int size = group.size(), to = (group.rank() + by + size) % size;
  const int from = (group.rank() - by + size) % size;
  TROOP_ASSIGN_OR_RETURN(const Work send, group.Start({.kind = OpKind::kSend, .peer = to}, in, {}));
  TROOP_ASSIGN_OR_RETURN(const Work receive,
                         group.Start({.kind = OpKind::kReceive, .peer = from}, {}, out));
  TROOP_RETURN_IF_ERROR(group.Wait(send));
  return group.Wait(receive);
}

// Applies F to a random x and F* to a random y, and returns the inner products.
Result<Products> Multiply(Collective& group, const Adjoint& a, std::int64_t piece,
                          std::uint64_t seed) {
  const int size = group.size(), root = size - 1;
  // Shapes: reduce-scatter and all-to-all read `piece` elements per rank, all-gather and
  // all-to-all write as many.
  const bool wide_in = a.kind == OpKind::kReduceScatter || a.kind == OpKind::kAllToAll;
  const bool wide_out = a.kind == OpKind::kAllGather || a.kind == OpKind::kAllToAll;
  const std::int64_t in = wide_in ? piece * size : piece, out = wide_out ? piece * size : piece;
  // Streams from 100 upward keep y independent of x.
  const Tensor x = DrawNormal(in, seed, group.rank());
  const Tensor y = DrawNormal(out, seed, 100 + group.rank());
  const Tensor fx(DType::kF64, {out}), fy(DType::kF64, {in});
  if (a.kind == OpKind::kSend) {
    TROOP_RETURN_IF_ERROR(Shift(group, 1, x, fx));
    TROOP_RETURN_IF_ERROR(Shift(group, -1, y, fy));
  } else {
    TROOP_RETURN_IF_ERROR(RunOp(group, {.kind = a.kind, .peer = root}, x, fx));
    TROOP_RETURN_IF_ERROR(RunOp(group, {.kind = a.adjoint}, y, fy));
  }
  // A broadcast reads only the root's x.
  const bool counts = a.kind != OpKind::kBroadcast || group.rank() == root;
  return Products{
      .left = Dot(fx, y), .right = counts ? Dot(x, fy) : 0, .fx = Dot(fx, fx), .y = Dot(y, y)};
}

}  // namespace

std::vector<std::string> SyncWires() { return {"sim", "shm", "tcp", "hosts"}; }

// "sim" delays messages and cuts them into odd pieces, which real transports rarely do.
Result<Ranks> MakeSyncRanks(std::string_view wire, int size) {
  const std::vector<std::string> wires = SyncWires();
  if (std::ranges::find(wires, wire) == wires.end()) {
    return InvalidArgument("unknown transport \"{}\"; must be sim, shm, tcp or hosts", wire);
  }
  if (wire != "sim") return JoinRanks(wire, size);
  SimGroup group({.size = size,
                  .seed = 1,
                  .delay_min = Milliseconds(0),
                  .delay_max = Milliseconds(3),
                  .piece_bytes_max = 10'007});
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(group.Rank(rank));
  return ranks;
}

// Each thread writes its own element of `values`, so no lock is needed.
Result<std::vector<std::vector<float>>> RunRanksCase(const RanksCase& c) {
  TROOP_ASSIGN_OR_RETURN(const Ranks ranks, MakeSyncRanks(c.wire, c.ranks));
  std::vector<std::vector<float>> values(ranks.size());
  TROOP_RETURN_IF_ERROR(OnRanks(c.ranks, [&](int rank) -> Status {
    TROOP_ASSIGN_OR_RETURN(values[std::size_t(rank)], TrainRank(c, *ranks[std::size_t(rank)]));
    return Status::Ok();
  }));
  return values;
}

// Data parallelism in fp64: the mean gradient over the ranks' batches, then one step.
Doubles ReplayRanks(const RanksCase& c, const ToyModel& problem) {
  const std::vector<float> first = problem.FirstValue();
  Doubles value(first.begin(), first.end());
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < value.size(); ++i) all.push_back(i);
  ReferenceOptimizer optimizer(c.config, problem);
  for (int t = 0; t < c.steps; ++t) {
    Doubles mean(value.size());
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Doubles g = ReferenceGradient(problem, value, std::uint64_t(t * c.ranks + rank));
      for (std::size_t i = 0; i < g.size(); ++i) mean[i] += g[i] / c.ranks;
    }
    optimizer.Step(all, mean, 1, double(c.learning_rate), t + 1, &value);
  }
  return value;
}

// Each operation with short and long messages, which use different algorithms.
Result<std::vector<AdjointResult>> CheckAdjoints(std::string_view wire, std::uint64_t seed) {
  std::vector<AdjointResult> results;
  for (const int size : {1, 2, 3, 4}) {
    TROOP_ASSIGN_OR_RETURN(const Ranks ranks, MakeSyncRanks(wire, size));
    for (const Adjoint& adjoint : kAdjoints) {
      if (adjoint.kind == OpKind::kSend && size == 1) continue;
      for (const std::int64_t piece : {kPiece, 12 * kPiece}) {
        std::mutex mutex;
        Products sum;
        TROOP_RETURN_IF_ERROR(OnRanks(size, [&](int rank) -> Status {
          TROOP_ASSIGN_OR_RETURN(const Products products,
                                 Multiply(*ranks[std::size_t(rank)], adjoint, piece, seed));
          const std::lock_guard lock(mutex);
          sum.Add(products);
          return Status::Ok();
        }));
        // Relative to |Fx| |y|, the bound of Cauchy and Schwarz, which does not depend on the
        // size.
        const double error = std::abs(sum.left - sum.right) / std::sqrt(sum.fx * sum.y);
        results.push_back({fmt::format("{}, {} elements", adjoint.name, piece), size, error});
      }
    }
  }
  return results;
}

}  // namespace troop
