// Implements the coordinator of Sandblaster L-BFGS.

#include "paramserver/sandblaster/sandblaster_coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/check.h"

namespace troop {

SandblasterCoordinator::SandblasterCoordinator(const Options& options)
    : options_(options),
      lbfgs_(options.lbfgs),
      shards_(std::size_t(options.shards), std::vector<Replica>(std::size_t(options.replicas))) {
  TROOP_CHECK(options.shards > 0 && options.replicas > 0, "{} shards, {} replicas", options.shards,
              options.replicas);
}

// Shards without the newest command get it again.
Result<SandblasterCoordinator> SandblasterCoordinator::TakeOver(
    const Options& options, std::span<const SandblasterHead> heads) {
  SandblasterCoordinator next(options);
  if (heads.empty()) return InvalidArgument("no shard is left to take over from");
  const auto number = [](const SandblasterHead& head) { return head.last.number; };
  const SandblasterHead& newest = *std::ranges::max_element(heads, {}, number);
  const SandblasterHead& oldest = *std::ranges::min_element(heads, {}, number);
  if (number(newest) > number(oldest) + 1) {
    return InvalidArgument("shards are at commands {} and {}: they belong to different searches",
                           number(oldest), number(newest));
  }
  // No command yet: the search begins.
  if (number(newest) == 0) return next;
  TROOP_RETURN_IF_ERROR(next.lbfgs_.Restore(newest.last.state));
  next.number_ = number(newest);
  return next;
}

SandblasterCoordinator::Replica& SandblasterCoordinator::At(const Place& place) {
  return shards_[std::size_t(place.shard)][std::size_t(place.replica)];
}
const SandblasterCoordinator::Replica& SandblasterCoordinator::At(const Place& place) const {
  return shards_[std::size_t(place.shard)][std::size_t(place.replica)];
}

// The state is the one before the command, so that a new coordinator derives the same command.
SandblasterCommand SandblasterCoordinator::command() const {
  Lbfgs::Request request = lbfgs_.request();
  return {.term = options_.term,
          .number = number_,
          .vectors = std::move(request.commands),
          .evaluate = request.evaluate,
          .state = lbfgs_.Save()};
}

bool SandblasterCoordinator::Awaits(const Place& place) const {
  return !done() && !gathering() && At(place).alive && !At(place).reply;
}

Status SandblasterCoordinator::TakeReply(const Place& place, const SandblasterReply& reply) {
  if (!Awaits(place) || reply.number != number_) return Status::Ok();
  At(place).reply = reply;
  return Advance();
}

// Continues when all live replicas have answered.
Status SandblasterCoordinator::Advance() {
  if (done() || gathering()) return Status::Ok();
  std::set<std::int32_t> missing;
  for (const std::vector<Replica>& shard : shards_) {
    for (const Replica& replica : shard) {
      if (replica.alive && !replica.reply) return Status::Ok();
      if (replica.alive)
        missing.insert(replica.reply->missing.begin(), replica.reply->missing.end());
    }
  }
  // The evaluation is open until every replica has every portion.
  if (!missing.empty()) {
    Gather({missing.begin(), missing.end()});
    return Status::Ok();
  }
  // Sums are in the order of the shards, whichever replica has answered first.
  const Lbfgs::Request request = lbfgs_.request();
  std::vector<double> results(request.results());
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    const SandblasterReply* first = nullptr;
    for (Replica& replica : shards_[k]) {
      if (!replica.alive) continue;
      if (first == nullptr) first = &*replica.reply;
      if (*replica.reply == *first && first->results.size() == results.size()) continue;
      return DataLoss("replicas of shard {} differ after command {}", k, number_);
    }
    const std::size_t dots = results.size() - request.evaluate;
    for (std::size_t i = 0; i < dots; ++i) results[i] += first->results[i];
    if (!request.evaluate) continue;
    // Every shard has the values of all portions.
    if (k > 0 && first->results.back() != results.back())
      return DataLoss("shards 0 and {} have different values after command {}", k, number_);
    results.back() = first->results.back();
  }
  // The search continues with the next command.
  lbfgs_.Take(results);
  ++number_;
  for (std::vector<Replica>& shard : shards_) {
    for (Replica& replica : shard) replica.reply.reset();
  }
  return Status::Ok();
}

// Portions that all shards have are finished: another coordinator has handed them out.
void SandblasterCoordinator::Gather(const std::vector<std::int32_t>& missing) {
  portions_.emplace(WorkPortions::Options{
      .portions = options_.portions, .workers = options_.workers, .backups = options_.backups});
  for (int i = 0; i < options_.portions; ++i) {
    if (!std::ranges::binary_search(missing, i)) portions_->MarkFinished(i);
  }
}

Status SandblasterCoordinator::ShardDied(const Place& place) {
  // The reply of a dead replica is not waited for.
  Replica& dead = At(place);
  dead.alive = false;
  dead.reply.reset();
  const auto& shard = shards_[std::size_t(place.shard)];
  if (std::ranges::none_of(shard, &Replica::alive)) {
    return Unavailable("shard {} has no live replica left; resume the run from a checkpoint",
                       place.shard);
  }
  return Advance();
}

// Portions that the copy lacks are handed out again at the end of the evaluation.
void SandblasterCoordinator::ShardJoined(const Place& place) { At(place) = Replica{}; }

// Between evaluations there is nothing to compute.
std::optional<int> SandblasterCoordinator::TakePortion(int worker) {
  if (!gathering()) return std::nullopt;
  return portions_->Take(worker);
}

// After the last portion the shards get the command again; they answer with the value.
void SandblasterCoordinator::PortionDone(int worker, std::uint64_t number, int portion) {
  // Late reports concern an earlier evaluation.
  if (!gathering() || number != number_ || portion < 0 || portion >= options_.portions) return;
  portions_->Finish(worker, portion);
  if (!portions_->done()) return;
  backups_ += portions_->backups();
  portions_.reset();
  for (std::vector<Replica>& shard : shards_) {
    for (Replica& replica : shard) replica.reply.reset();
  }
}

void SandblasterCoordinator::WorkerDied(int worker) {
  if (gathering()) portions_->Drop(worker);
}

std::int64_t SandblasterCoordinator::backups() const {
  return backups_ + (portions_ ? portions_->backups() : 0);
}

}  // namespace troop
