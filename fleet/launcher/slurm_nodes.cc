// Placement of roles on Slurm nodes by free CPUs.
#include "fleet/launcher/slurm_nodes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace troop {
namespace {

constexpr Duration kDoubtFirst = Seconds(15);
constexpr int kDoublingsMax = 4;  // at most 4 minutes of suspicion

}  // namespace

SlurmNodes::SlurmNodes(const Config& config, std::vector<Node> nodes)
    : config_(config), nodes_(std::move(nodes)), actors_(nodes_.size()) {
  for (const FleetRole& role : RolesOf(config)) {
    if (role.role == Role::kLearner) NodeOf(role);  // learners are placed first
  }
  for (const FleetRole& role : RolesOf(config)) {
    if (role.role != Role::kActor) NodeOf(role);
  }
  ShareActors();
}

// CPUs that a role occupies; 0 for roles whose load is negligible.
std::int64_t SlurmNodes::CpusOf(FleetRole role) const {
  if (role.role == Role::kLearner) return config_.slurm.learner_cpus;
  if (role.role == Role::kReplay) return config_.slurm.replay_cpus;
  if (role.role == Role::kInference) return 1;
  return role.role == Role::kParamServer && config_.learner.sync == LearnerSync::kParamServer ? 1
                                                                                              : 0;
}

// CPUs that are still free; negative if the roles need more than the node has.
double SlurmNodes::LeftOn(int node) const {
  double left = double(nodes_[std::size_t(node)].cpus) - (node == 0 ? 1 : 0);  // 1: launcher
  for (const auto& [role, place] : places_) {
    if (place == node) left -= double(CpusOf({role.first, role.second}));
  }
  return left;
}

// The node with the most free CPUs, without `avoid` and suspected nodes; -1: none.
int SlurmNodes::Best(int avoid, Time now) const {
  int best = -1;
  for (int i = 0; i < count(); ++i) {
    if (i == avoid || IsSuspect(i, now)) continue;
    // Node 0 is chosen only when no other node has free CPUs, to keep the launcher's node free.
    const bool better =
        best < 0 || (best == 0 ? LeftOn(i) > 0 || LeftOn(i) > LeftOn(0) : LeftOn(i) > LeftOn(best));
    if (better) best = i;
  }
  return best;
}

// Initial placement: cheap roles on node 0, others on the configured node or the best one.
int SlurmNodes::FirstNode(FleetRole role) const {
  if (CpusOf(role) == 0) return 0;
  const std::int64_t wish = role.role == Role::kLearner  ? config_.slurm.learner_node
                            : role.role == Role::kReplay ? config_.slurm.replay_node
                                                         : -1;
  if (wish >= 0) return int((wish + role.index) % count());
  return Best(-1, Time{});
}

// Placement is sticky: a role keeps its node until Move.
int SlurmNodes::NodeOf(FleetRole role) {
  const std::pair key{role.role, role.index};
  const auto it = places_.find(key);
  if (it != places_.end()) return it->second;
  const int node = FirstNode(role);
  places_[key] = node;
  return node;
}

// Distributes the actors in proportion to the free CPUs (largest remainder method); evenly if no
// CPU is free.
void SlurmNodes::ShareActors() {
  const std::int64_t actors = HasActors(config_) ? config_.fleet.actors : 0;
  std::vector<double> shares;
  for (int i = 0; i < count(); ++i) shares.push_back(std::max(0.0, LeftOn(i)));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::pair<double, std::size_t>> rests;
  std::int64_t dealt = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double exact =
        sum > 0 ? double(actors) * shares[i] / sum : double(actors) / double(shares.size());
    actors_[i] = std::int32_t(exact);
    dealt += actors_[i];
    rests.emplace_back(actors_[i] - exact, i);
  }
  // Entries are negative remainders: the largest remainder comes first, and equal ones by node.
  std::ranges::sort(rests);
  for (std::size_t i = 0; dealt < actors; ++i, ++dealt) ++actors_[rests[i % rests.size()].second];
}

// 15 s, then doubled with each further suspicion that no ClearSuspect has reset.
void SlurmNodes::MarkSuspect(int node, Time now) {
  if (node == 0 || IsSuspect(node, now)) return;  // several roles report the same loss
  Mark& mark = doubts_[node];
  const int doublings = std::min(mark.times++, kDoublingsMax);
  mark.until = now + kDoubtFirst * (1 << doublings);
}

// The count is erased too, so the next suspicion is short again.
void SlurmNodes::ClearSuspect(int node) { doubts_.erase(node); }

bool SlurmNodes::IsSuspect(int node, Time now) const {
  const auto it = doubts_.find(node);
  return it != doubts_.end() && now < it->second.until;
}

// Never back to the same node, unless there is no other one.
int SlurmNodes::Move(FleetRole role, Time now) {
  const int from = NodeOf(role);
  places_.erase({role.role, role.index});  // its own CPUs do not count against it
  const int to = Best(from, now);
  return places_[{role.role, role.index}] = to < 0 ? from : to;
}

// Form of Slurm's variable: "4,2(x3)" is four CPUs, then three nodes with two CPUs each.
Result<std::vector<std::int64_t>> ParseCpusPerNode(const std::string& text, std::size_t nodes) {
  std::vector<std::int64_t> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  // Each entry is COUNT or COUNT(xTIMES), separated by commas.
  bool good = at != end;
  // Both limits on the size end the loops early for huge numbers of entries or repetitions.
  while (good && at != end && cpus.size() <= nodes) {
    std::int64_t count = 0, times = 1;
    auto [stop, error] = std::from_chars(at, end, count);
    good = error == std::errc() && count > 0;
    if (good && end - stop > 2 && stop[0] == '(' && stop[1] == 'x') {
      const auto [close, bad] = std::from_chars(stop + 2, end, times);
      good = bad == std::errc() && times > 0 && close != end && *close == ')';
      stop = good ? close + 1 : close;
    }
    good = good && (stop == end || (*stop == ',' && stop + 1 != end));
    at = stop == end ? stop : stop + 1;
    for (; good && times > 0 && cpus.size() <= nodes; --times) cpus.push_back(count);
  }
  if (good && cpus.size() == nodes) return cpus;
  return InvalidArgument(
      "SLURM_JOB_CPUS_PER_NODE is {:?}, must list the CPUs of {} nodes; is this a Slurm job?", text,
      nodes);
}

}  // namespace troop
