// Implements the choice of the updater.

#include "learners/node/updater_factory.h"

#include <algorithm>
#include <optional>
#include <span>

#include "learners/rollback.h"

namespace troop {
namespace {

// Capacity of a rendezvous: the largest number of learners that a run can be scaled to.
constexpr int kLearnersMax = kRanksMax;

// The secret from the coordinator; nullopt if its length is wrong.
std::optional<GroupSecret> SecretOf(const std::string& bytes) {
  GroupSecret secret;
  if (bytes.size() != secret.size()) return std::nullopt;
  std::ranges::copy(std::as_bytes(std::span(bytes)), secret.begin());
  return secret;
}

// Options for all-reduce between GPUs; nullopt: through host memory.
std::optional<NcclOptions> NcclOf(const TrainingConfig& config) {
  if (config.learner.nccl_library.empty()) return std::nullopt;
  NcclOptions options;
  options.library = config.learner.nccl_library;
  options.timeout = Seconds(config.learner.allreduce_timeout_s);
  return options;
}

}  // namespace

ParamserverUpdaterOptions UpdaterFactory::Shards() const {
  return {.config = options_.config,
          .module = options_.model->whole.get(),
          .network = options_.network,
          .member = options_.member,
          .executor = options_.executor,
          .algorithm = options_.model->algorithm.get()};
}

Rendezvous* UpdaterFactory::MeetingPlace() {
  // Learners that are threads of one process share a rendezvous.
  if (options_.rendezvous != nullptr) return options_.rendezvous;
  // Made once: its listener must keep its address over several groups.
  if (rendezvous_ != nullptr) return rendezvous_.get();
  const TrainingConfig& config = *options_.config;
  rendezvous_ = MakeSocketRendezvous({.token = config.group_token,
                                      .secret = SecretOf(options_.group_secret),
                                      .listen = options_.group_listen,
                                      .learners_max = kLearnersMax,
                                      .timeout = Seconds(config.learner.allreduce_timeout_s)});
  return rendezvous_.get();
}

// Tensor parallelism: go_back loads one common state on all ranks.
std::unique_ptr<Updater> UpdaterFactory::MakeAllReduce(int learners) {
  const TrainingConfig& config = *options_.config;
  const LearnerModel& model = *options_.model;
  // Each rank may have made a different number of updates when a group is lost.
  return MakeAllReduceUpdater({.learners = learners,
                               .max_updates = std::uint64_t(config.run.max_updates),
                               .all_have_batches = options_.all_have_batches,
                               .parts = model.place.ranks,
                               .nccl = NcclOf(config),
                               .go_back =
                                   [this] {
                                     return LoadNewestState(options_.model->algorithm.get(),
                                                            options_.run, *options_.config,
                                                            *options_.env, options_.model->place);
                                   },
                               .rendezvous = MeetingPlace(),
                               .member = options_.member,
                               .executor = options_.executor,
                               .algorithm = model.algorithm.get()});
}

Result<std::unique_ptr<Updater>> UpdaterFactory::Make(Topology topology, int learners) {
  const std::uint64_t incarnation = options_.member->options().incarnation;
  LearnerModel& model = *options_.model;
  switch (topology) {
    case Topology::kLocal:
      return MakeLocalUpdater(model.algorithm.get(), options_.executor, incarnation);
    case Topology::kHogwild:
      return MakeHogwildUpdater({.config = options_.config,
                                 .env = options_.env,
                                 .incarnation = incarnation,
                                 .executor = options_.executor,
                                 .algorithm = model.algorithm.get()});
    case Topology::kAllReduce:
      return MakeAllReduce(learners);
    case Topology::kParamServer:
      return MakeParamserverUpdater(Shards());
    case Topology::kTensorParallelParamServer:
      break;
  }
  return MakeTensorParallelUpdater({.shards = Shards(),
                                    .replica = model.replica,
                                    .place = model.place,
                                    .part = model.part.get(),
                                    .nccl = NcclOf(*options_.config),
                                    .rendezvous = MeetingPlace()});
}

}  // namespace troop
