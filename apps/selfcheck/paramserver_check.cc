// Runs the product's parameter shards for `troop selftest sync`, and records the arrival order that
// the reference replays.
#include "apps/selfcheck/paramserver_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"
#include "nn/optimizer.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_server.h"

namespace troop {
namespace {

constexpr Duration kRunWithin = Seconds(30);  // over sockets
constexpr int kTurnsMax = 200'000;            // simulated; detects a deadlock

// Messages in arrival order over all shards. The mutex protects the list in threaded runs.
struct ArrivalLog {
  std::mutex mutex;
  std::vector<SyncArrival> arrivals;
};

// Logs each message, then passes it to the server.
class ArrivalTap final : public Service {
 public:
  ArrivalTap(int shard, Service* inner, ArrivalLog* log)
      : shard_(shard), inner_(inner), log_(log) {}
  void Handle(Message message, Reply reply) override {
    SyncArrival arrival{.shard = shard_, .learner = message.origin.index};
    if (message.type == MessageType::kShardPush) {
      arrival.push = true;
      auto body = DecodeBody<ShardPushBody>(message.body);
      // An undecodable push is logged without parts: the reference then reports it.
      if (body.ok()) {
        arrival.sequence = body->sequence;
        arrival.parts = std::move(body->parts);
      }
      for (std::size_t i = 0; i < std::min(arrival.parts.size(), message.parts.size()); ++i) {
        arrival.parts[i].payload = message.parts[i];
      }
    }
    {
      // Logged before the server acts, so that the order is that in which the shard sees messages.
      const std::lock_guard lock(log_->mutex);
      log_->arrivals.push_back(std::move(arrival));
    }
    inner_->Handle(std::move(message), std::move(reply));
  }
  void PeerChanged(const Origin& peer, PeerState state) override {
    inner_->PeerChanged(peer, state);
  }
  // Records the backup's acknowledgement. Simulated runs only, hence without the lock.
  void NoteBackup() { log_->arrivals.push_back({.shard = shard_, .backed_up = true}); }

 private:
  const int shard_;
  Service* inner_;
  ArrivalLog* log_;
};

// A shard's backup: receives the state, then each update, like ShardNode.
class Backup final : public Service {
 public:
  explicit Backup(ParameterShard::Options options) : options_(std::move(options)) {}
  void Handle(Message message, Reply reply) override {
    const bool state = message.type == MessageType::kShardState;
    const Status status = state ? TakeState(message) : TakeUpdate(message);
    if (!status.ok()) return reply.Fail(status);
    reply.Send({.type = state ? MessageType::kShardStateReply : MessageType::kShardUpdateReply});
  }
  void PeerChanged(const Origin&, PeerState) override {}
  const ParameterShard* shard() const { return shard_.get(); }

 private:
  Status TakeState(const Message& message) {
    if (message.parts.size() != 1) return DataLoss("{} parts, not 1", message.parts.size());
    TROOP_ASSIGN_OR_RETURN(shard_, ParameterShard::Restore(options_, message.parts));
    return Status::Ok();
  }
  // An update without a part had no gradient (all pushes were dropped).
  Status TakeUpdate(const Message& message) {
    TROOP_ASSIGN_OR_RETURN(auto body, DecodeBody<ShardUpdateBody>(message.body));
    if (!shard_ || message.parts.size() > 1) return FailedPrecondition("no state yet");
    if (!message.parts.empty()) body.update.sum = message.parts[0];
    return shard_->Follow(body.update);
  }

  // Like the primary's options: a backup must compute the same bits from the same sums.
  const ParameterShard::Options options_;
  std::unique_ptr<ParameterShard> shard_;
};

// A shard server with its network, and optionally its backup.
struct Server {
  std::unique_ptr<ShardServer> server;
  std::unique_ptr<ArrivalTap> tap;
  std::unique_ptr<Network> network;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Backup> backup;  // with sync_case.backup; has its own network
  std::unique_ptr<Network> backup_network;
  std::unique_ptr<Listener> backup_listener;
  // One turn of the primary. The backup pumps first, so that its acknowledgements arrive in this
  // turn.
  void Turn(Time now) {
    if (backup) backup_network->Pump(now);
    network->Pump(now);
    const bool waits = backup && !server->backup()->has_all();
    const std::uint64_t before = version();
    server->Tick(now);
    // The server may have started another update in the same tick.
    if (waits && (server->backup()->has_all() || version() > before)) tap->NoteBackup();
  }
  std::uint64_t version() const { return server->shard().version(); }
};

// A learner like that of LearnerNode; a turn never blocks.
class Learner {
 public:
  Learner(const SyncCase& sync_case, std::int32_t index, const ShardMap& map,
          std::unique_ptr<Network> network, std::vector<std::unique_ptr<Channel>> channels)
      : case_(sync_case),
        index_(index),
        network_(std::move(network)),
        problem_(sync_case.seed),
        client_(map, std::move(channels), {.codec = sync_case.codec, .answer_within = kRunWithin}),
        replica_(sync_case.replica, problem_.parameters()),
        gradient_(std::size_t(problem_.parameters())) {}

  // One step of the learner's cycle: wait for a pull, push if due, pull if due, else compute.
  Status Turn(Time now) {
    network_->Pump(now);
    client_.Poll(now);
    if (const auto pulled = client_.TakePull()) replica_.Pulled(pulled->version, pulled->value);
    if (!client_.error().ok() || client_.pulling()) return client_.error();
    if (replica_.WantsPush()) {
      // Too many pushes are unanswered: try again in a later turn.
      if (!client_.CanPush()) return Status::Ok();
      TROOP_RETURN_IF_ERROR(client_.Push(now, replica_.Payload(), case_.learning_rate, loss_));
      replica_.Pushed();
      return Status::Ok();
    }
    if (replica_.WantsPull()) return client_.RequestPull(now);
    // Batches of the learners interleave, so no two learners use the same samples.
    const auto batch = std::uint64_t(replica_.steps()) * std::uint64_t(case_.sync.learners) +
                       std::uint64_t(index_);
    loss_ = problem_.Gradient(replica_.value(), batch, gradient_);
    replica_.Step(gradient_, case_.learning_rate);
    return Status::Ok();
  }
  Network& network() { return *network_; }
  // True if only a message can make progress, so that a thread may sleep on the network.
  bool waiting() const { return client_.pulling() || !client_.CanPush(); }

 private:
  const SyncCase& case_;
  const std::int32_t index_;
  std::unique_ptr<Network> network_;
  ToyModel problem_;
  ShardClient client_;
  LocalReplica replica_;
  std::vector<float> gradient_;
  float loss_ = 0;
};

// The log outlives the servers and learners that write to it.
struct Fleet {
  ArrivalLog log;
  std::vector<Server> servers;
  std::vector<std::unique_ptr<Learner>> learners;
};

// Simulated, or over sockets; each participant has its own network.
using MakeANetwork = std::function<Result<std::unique_ptr<Network>>()>;

// Adds a backup with its own network; it takes its turns together with the primary.
Status AddBackup(const ParameterShard::Options& options, const MakeANetwork& make,
                 const std::string& name, Server* server) {
  server->backup = std::make_unique<Backup>(options);
  TROOP_ASSIGN_OR_RETURN(server->backup_network, make());
  TROOP_ASSIGN_OR_RETURN(server->backup_listener,
                         server->backup_network->Listen(name, server->backup.get()));
  TROOP_ASSIGN_OR_RETURN(
      auto channel, server->network->Connect(
                        server->backup_listener->endpoint(),
                        {.origin = {.role = Role::kParamServer, .index = 0, .incarnation = 1}}));
  server->server->SetBackup(std::make_unique<BackupClient>(std::move(channel), 1, 0));
  return Status::Ok();
}

// Makes one server per shard, each with its ranges of the initial parameters.
Status AddServers(const SyncCase& sync_case, const ToyModel& problem, const ShardMap& map,
                  const MakeANetwork& make, Fleet* fleet) {
  const std::vector<float> first = problem.FirstValue();
  for (const std::int32_t id : map.shards()) {
    ParameterShard::Options options{.optimizer = sync_case.config.optimizer,
                                    .ranges = map.RangesOf(id),
                                    .undecayed = problem.Biases(),
                                    .epoch = map.epoch(),
                                    .sync = sync_case.sync,
                                    .guards = sync_case.guards,
                                    .keep_sums = sync_case.backup};
    std::vector<float> part;
    for (const ParamRange& range : options.ranges) {
      part.insert(part.end(), first.begin() + range.begin, first.begin() + range.end);
    }
    TROOP_ASSIGN_OR_RETURN(auto shard, ParameterShard::Make(options, part));
    Server& server = fleet->servers.emplace_back();
    server.server = std::make_unique<ShardServer>(std::move(shard), ShardServer::Options{});
    server.tap = std::make_unique<ArrivalTap>(id, server.server.get(), &fleet->log);
    TROOP_ASSIGN_OR_RETURN(server.network, make());
    // Port 0: the system chooses; learners use the listener's actual endpoint.
    const std::string name =
        sync_case.sockets ? "tcp://127.0.0.1:0" : fmt::format("inproc://{}", id);
    TROOP_ASSIGN_OR_RETURN(server.listener, server.network->Listen(name, server.tap.get()));
    if (sync_case.backup) {
      TROOP_RETURN_IF_ERROR(AddBackup(options, make, name + "-backup", &server));
    }
  }
  return Status::Ok();
}

// Makes the learners, each with one channel per shard in map order.
Status AddLearners(const SyncCase& sync_case, const ShardMap& map, const MakeANetwork& make,
                   Fleet* fleet) {
  for (int i = 0; i < sync_case.sync.learners; ++i) {
    TROOP_ASSIGN_OR_RETURN(auto network, make());
    std::vector<std::unique_ptr<Channel>> channels;
    for (const Server& server : fleet->servers) {
      const ChannelOptions options{
          .origin = {.role = Role::kLearner, .index = i, .incarnation = 1}};
      TROOP_ASSIGN_OR_RETURN(auto channel, network->Connect(server.listener->endpoint(), options));
      channels.push_back(std::move(channel));
    }
    fleet->learners.push_back(
        std::make_unique<Learner>(sync_case, i, map, std::move(network), std::move(channels)));
  }
  return Status::Ok();
}

// True if the shard has made its updates and its backup has them all.
// Version 1 is the initial state, so `updates` updates give version `updates` + 1.
bool Finished(const SyncCase& sync_case, const Server& server) {
  const bool backed_up = !server.backup || server.server->backup()->has_all();
  return backed_up && server.version() > sync_case.updates;
}

// Gives turns to random participants, chosen by the seed, until all shards are finished.
Status PlaySimulated(const SyncCase& sync_case, Fleet* fleet) {
  Rng rng({.run_seed = sync_case.seed, .index = 77});
  Time now(Seconds(1));
  const std::size_t servers = fleet->servers.size();
  const auto participants = std::uint32_t(servers + fleet->learners.size());
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    const bool done = std::ranges::all_of(
        fleet->servers, [&](const Server& server) { return Finished(sync_case, server); });
    if (done) return Status::Ok();
    // Virtual time advances with each turn; the steps are too short for any deadline.
    now += std::chrono::microseconds(1);
    const std::size_t chosen = rng.Below(participants);
    if (chosen < servers) {
      fleet->servers[chosen].Turn(now);
    } else {
      TROOP_RETURN_IF_ERROR(fleet->learners[chosen - servers]->Turn(now));
    }
  }
  return DeadlineExceeded("after {} turns: shard 0 is at version {}: learners wait for each other",
                          kTurnsMax, fleet->servers[0].version());
}

// Runs each server and learner in its own thread over TCP; the first failure stops all.
Status PlayThreads(const SyncCase& sync_case, Fleet* fleet) {
  // `stop` and `finished` are shared by all threads; the mutex protects `failure`.
  const SystemClock clock;
  const Time deadline = clock.Now() + kRunWithin;
  std::atomic<int> finished = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex;
  Status failure;
  // Servers continue to serve when they are finished: others may still need answers.
  const auto goes_on = [&] { return !stop.load() && clock.Now() < deadline; };
  const auto serve = [&](Server* server) {
    for (bool counted = false; goes_on();) {
      server->Turn(clock.Now());
      // Each server is counted once; the last one stops all threads.
      if (!counted && Finished(sync_case, *server)) {
        counted = true;
        if (++finished == int(fleet->servers.size())) stop = true;
      }
      server->network->Wait(clock.Now(), clock.Now() + Milliseconds(2));
    }
  };
  const auto learn = [&](Learner* learner) {
    while (goes_on()) {
      const Status status = learner->Turn(clock.Now());
      if (!status.ok()) {
        const std::lock_guard lock(mutex);
        failure = status;
        stop = true;
      }
      if (learner->waiting()) learner->network().Wait(clock.Now(), clock.Now() + Milliseconds(2));
    }
  };
  std::vector<std::thread> threads;
  for (Server& server : fleet->servers) threads.emplace_back(serve, &server);
  for (const auto& learner : fleet->learners) threads.emplace_back(learn, learner.get());
  for (std::thread& thread : threads) thread.join();
  TROOP_RETURN_IF_ERROR(failure);
  // Neither a failure nor all servers: the deadline passed.
  if (finished == int(fleet->servers.size())) return Status::Ok();
  return DeadlineExceeded("after {} s: shard 0 is at version {}", ToSeconds(kRunWithin),
                          fleet->servers[0].version());
}

}  // namespace

Result<ShardMap> MapOf(const SyncCase& sync_case, const ToyModel& problem) {
  return ShardMap::Make(sync_case.sharding, problem.params(), problem.parameters(),
                        sync_case.shards);
}

// Step 1: check the options as the product does; step 2: make servers and learners; step 3: run;
// step 4: collect parameters, versions and arrivals.
Result<SyncTrace> RunSync(const SyncCase& sync_case, const ToyModel& problem) {
  TROOP_RETURN_IF_ERROR(CheckSyncOptions(sync_case.sync));
  TROOP_RETURN_IF_ERROR(CheckReplicaOptions(sync_case.replica));
  TROOP_RETURN_IF_ERROR(CheckCodecOptions(sync_case.codec));
  TROOP_ASSIGN_OR_RETURN(const ShardMap map, MapOf(sync_case, problem));
  const std::unique_ptr<SimHub> hub = MakeSimHub();
  const MakeANetwork make = [&]() -> Result<std::unique_ptr<Network>> {
    if (sync_case.sockets) return MakeZmqNetwork();
    return std::unique_ptr<Network>(hub->MakeNetwork());
  };
  Fleet fleet;
  TROOP_RETURN_IF_ERROR(AddServers(sync_case, problem, map, make, &fleet));
  TROOP_RETURN_IF_ERROR(AddLearners(sync_case, map, make, &fleet));
  TROOP_RETURN_IF_ERROR(sync_case.sockets ? PlayThreads(sync_case, &fleet)
                                          : PlaySimulated(sync_case, &fleet));
  SyncTrace trace{.value = std::vector<float>(std::size_t(problem.parameters()))};
  if (sync_case.backup) trace.backups = trace.value;
  // Copies a shard's values to their places in the parameters.
  const auto put = [&](std::size_t s, const ParameterShard& shard, std::vector<float>* to) {
    std::size_t at = 0;
    for (const ParamRange& range : map.RangesOf(map.shards()[s])) {
      const auto part = shard.value().subspan(at, std::size_t(range.size()));
      std::ranges::copy(part, to->begin() + range.begin);
      at += part.size();
    }
  };
  for (std::size_t s = 0; s < fleet.servers.size(); ++s) {
    const ParameterShard& shard = fleet.servers[s].server->shard();
    trace.versions.push_back(shard.version());
    put(s, shard, &trace.value);
    if (sync_case.backup) put(s, *fleet.servers[s].backup->shard(), &trace.backups);
  }
  // Ends the learners before the log is moved.
  fleet.learners.clear();
  trace.arrivals = std::move(fleet.log.arrivals);
  return trace;
}

// The summation order (learner 0 first) is that of the shards.
std::vector<float> RunOneDevice(const SyncCase& sync_case, const ToyModel& problem,
                                std::uint64_t updates) {
  auto optimizer = MakeOptimizer(sync_case.config.optimizer, problem.parameters());
  TROOP_CHECK(optimizer.ok(), "{}", optimizer.status().ToString());
  ToyModel device(sync_case.seed);
  std::vector<float> value = problem.FirstValue();
  std::vector<float> sum(value.size()), gradient(value.size());
  // Update t uses the batches t * learners to t * learners + learners - 1, one per learner.
  const int learners = sync_case.sync.learners;
  const std::vector<Optimizer::Group> groups = problem.Groups(sync_case.learning_rate);
  for (std::uint64_t t = 0; t < updates; ++t) {
    device.Gradient(value, t * std::uint64_t(learners), sum);
    for (int learner = 1; learner < learners; ++learner) {
      device.Gradient(value, t * std::uint64_t(learners) + std::uint64_t(learner), gradient);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    (*optimizer)->StepGroups(sum, 1 / float(learners), groups, value);
  }
  return value;
}

// Lossless codecs, pull and push in each step, and no guards; then each mode that waits for all
// learners before an update.
bool IsInStep(const SyncCase& c) {
  const bool exact = c.codec.codec == GradientCodec::kNone ||
                     (c.codec.codec == GradientCodec::kTopK && c.codec.keep == 1);
  if (!exact || c.replica.pull_every != 1 || c.replica.push_every != 1) return false;
  if (c.guards.loss_deviations > 0 || c.guards.norm_deviations > 0) return false;
  if (c.sync.learners == 1) return c.sync.mode != SyncMode::kKOfN || c.sync.k == 1;
  switch (c.sync.mode) {
    case SyncMode::kBsp:
      return true;
    case SyncMode::kKOfN:
      return c.sync.k == c.sync.learners && !c.sync.per_batch;
    case SyncMode::kSsp:
      return c.sync.staleness == 0;
    default:
      return false;
  }
}

}  // namespace troop
