// Times all-reduces of two sizes between two ranks and fits latency and bandwidth.
#include "apps/planner/link_benchmark.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "collective/group.h"

namespace troop {
namespace {

// Floats of an all-reduce. kLargeFar is smaller because links between machines may be slow.
constexpr std::int64_t kSmall = 1024, kLarge = 1 << 22, kLargeFar = 1 << 20;
constexpr int kSmallTries = 200, kLargeTries = 6;
constexpr Duration kReopens = Seconds(2);  // a serving peer reopens its port within this time

// A group of two ranks over TCP.
GroupOptions OptionsOf(int rank, std::string listen, Duration patience) {
  return {.group = "plan",
          .rank = rank,
          .size = 2,
          .path = GroupOptions::Path::kTcp,
          .listen = std::move(listen),
          .connect_timeout = patience};
}

// Seconds of each all-reduce as this rank sees it.
Result<std::vector<double>> TimeAllReduces(Collective* rank, std::int64_t floats, int tries) {
  Tensor tensor(DType::kF32, {floats});
  const SystemClock clock;
  std::vector<double> seconds;
  for (int i = 0; i < tries; ++i) {
    const Time begin = clock.Now();
    TROOP_RETURN_IF_ERROR(RunOp(*rank, {.kind = OpKind::kAllReduce}, tensor, tensor));
    seconds.push_back(ToSeconds(clock.Now() - begin));
  }
  return seconds;
}

// Runs the same all-reduces on both ranks: both must call it.
Result<LinkSpeed> Measure(Collective* rank, std::int64_t floats) {
  TROOP_ASSIGN_OR_RETURN(auto small, TimeAllReduces(rank, kSmall, kSmallTries));
  TROOP_ASSIGN_OR_RETURN(auto large, TimeAllReduces(rank, floats, kLargeTries));
  const double sent = SentShare(2) * double(floats * std::int64_t(sizeof(float)));
  return LinkOf(std::move(small), std::move(large), sent);
}

// Joins the group. Rank 1 connects to rank 0 at `first`; rank 0 does not need its address.
Result<std::unique_ptr<Collective>> Join(GroupEntry entry, const std::string& first) {
  std::vector<Member> members{{.rank = 0, .host = "", .address = first},
                              {.rank = 1, .host = "", .address = ""}};
  members[std::size_t(entry.self().rank)] = entry.self();
  return std::move(entry).Join(members);
}

}  // namespace

LinkSpeed LinkOf(std::vector<double> small, std::vector<double> large, double sent) {
  std::ranges::sort(small);
  std::ranges::sort(large);
  // Slope from the medians; else from the minima; else the latency is lost in noise.
  const double median = small[small.size() / 2], median_large = large[large.size() / 2];
  if (median_large > median) return {median, (median_large - median) / sent};
  if (large[0] > small[0]) return {small[0], (large[0] - small[0]) / sent};
  return {0, large[0] / sent};
}

double SentShare(std::int64_t ranks) { return 2.0 * double(ranks - 1) / double(ranks); }

// Two threads act as the ranks. Auto-selection picks the transport that learners would use.
Result<LinkSpeed> MeasureLinkHere() {
  GroupOptions options = OptionsOf(0, "127.0.0.1:0", Seconds(10));
  options.path = GroupOptions::Path::kAuto;
  TROOP_ASSIGN_OR_RETURN(GroupEntry first, GroupEntry::Listen(options));
  options.rank = 1;
  TROOP_ASSIGN_OR_RETURN(GroupEntry second, GroupEntry::Listen(options));
  const std::vector<Member> members{first.self(), second.self()};
  Result<LinkSpeed> theirs = LinkSpeed(), ours = LinkSpeed();
  const auto measure = [&members](GroupEntry entry, Result<LinkSpeed>* speed) {
    auto joined = std::move(entry).Join(members);
    *speed = joined.ok() ? Measure(joined->get(), kLarge) : joined.status();
  };
  std::thread other(measure, std::move(second), &theirs);
  measure(std::move(first), &ours);
  other.join();
  TROOP_RETURN_IF_ERROR(theirs.status());
  return ours;
}

// Retries for kReopens, as the serving side reopens its port between two measurements.
Result<LinkSpeed> MeasureLinkTo(const std::string& address) {
  const SystemClock clock;
  const Time patience = clock.Now() + kReopens;
  for (;;) {
    // Any local address will do: this rank connects, and is never connected to.
    TROOP_ASSIGN_OR_RETURN(GroupEntry entry,
                           GroupEntry::Listen(OptionsOf(1, "0.0.0.0:0", Seconds(10))));
    auto group = Join(std::move(entry), address);
    if (group.ok()) return Measure(group->get(), kLargeFar);
    if (group.status().code() != Code::kUnavailable || clock.Now() > patience)
      return group.status();
    std::this_thread::sleep_for(Milliseconds(50));
  }
}

Result<bool> AnswerLink(const std::string& address, Duration patience) {
  TROOP_ASSIGN_OR_RETURN(GroupEntry entry, GroupEntry::Listen(OptionsOf(0, address, patience)));
  const auto group = Join(std::move(entry), address);
  if (group.status().code() == Code::kDeadlineExceeded) return group.status();
  return group.ok() && Measure(group->get(), kLargeFar).ok();
}

}  // namespace troop
