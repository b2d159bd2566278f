#pragma once

// Synchronous training over sockets: K shards and W workers, each in a separate thread or process.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/network.h"
#include "nn/optimizer_config.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_server.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

struct BspRun {
  ShardMap map;
  OptimizerConfig optimizer;
  int workers = 1;
  NetworkOptions network;
  Duration patience = Seconds(60);  // of each wait for the others
};

// Returns the part of the whole arena that `shard` owns.
inline std::vector<float> CutFor(const ShardMap& map, std::int32_t shard,
                                 std::span<const float> whole) {
  std::vector<float> part;
  for (const ParamRange& range : map.RangesOf(shard)) {
    part.insert(part.end(), whole.begin() + range.begin, whole.begin() + range.end);
  }
  return part;
}

// Serves one shard until `stop`. `ready` gets the endpoint with its real port.
inline Status ServeShard(const BspRun& run, std::int32_t shard, std::span<const float> first_value,
                         std::string_view endpoint, const std::atomic<bool>& stop,
                         const std::function<void(const std::string&)>& ready) {
  const ParameterShard::Options options{.optimizer = run.optimizer,
                                        .ranges = run.map.RangesOf(shard),
                                        .epoch = run.map.epoch(),
                                        .sync = {.learners = run.workers}};
  TROOP_ASSIGN_OR_RETURN(auto parameters,
                         ParameterShard::Make(options, CutFor(run.map, shard, first_value)));
  ShardServer server(std::move(parameters), {.join_within = run.patience});
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeZmqNetwork(run.network));
  TROOP_ASSIGN_OR_RETURN(const auto listener, network->Listen(endpoint, &server));
  ready(listener->endpoint());
  const SystemClock clock;
  while (!stop) {
    network->Pump(clock.Now());
    server.Tick(clock.Now());
    const Time now = clock.Now();
    network->Wait(now, std::min<Time>(server.next_tick(), now + Milliseconds(20)));
  }
  return Status::Ok();
}

struct BspWorker {
  std::int32_t index = 0;
  std::uint64_t steps = 0;
  float learning_rate = 0;
  Duration compute{};  // minimum time of a step before its push
  // Writes the gradient at `value` and gives the loss.
  std::function<float(std::uint64_t step, std::span<const float> value, std::span<float> gradient)>
      gradient;
};
struct BspOutcome {
  std::vector<float> value;    // after the last step
  std::vector<double> step_s;  // from one pulled value to the next
};

inline Result<BspOutcome> RunBspWorker(const BspRun& run, const BspWorker& worker,
                                       std::span<const std::string> endpoints) {
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeZmqNetwork(run.network));
  std::vector<std::unique_ptr<Channel>> channels;
  const Origin origin{.role = Role::kLearner, .index = worker.index, .incarnation = 1};
  for (const std::string& endpoint : endpoints) {
    TROOP_ASSIGN_OR_RETURN(auto channel, network->Connect(endpoint, {.origin = origin}));
    channels.push_back(std::move(channel));
  }
  ShardClient client(run.map, std::move(channels), {.answer_within = run.patience});
  const SystemClock clock;
  const auto pump_until = [&](Time until, const std::function<bool()>& done) {
    for (Time now = clock.Now(); !done() && now < until && client.error().ok(); now = clock.Now()) {
      network->Wait(now, std::min<Time>(until, now + Milliseconds(50)));
      network->Pump(clock.Now());
      client.Poll(clock.Now());
    }
  };
  ShardClient::Pulled pulled;
  const auto pull = [&]() -> Status {
    TROOP_RETURN_IF_ERROR(client.RequestPull(clock.Now()));
    bool done = false;
    pump_until(clock.Now() + run.patience, [&] {
      if (auto taken = client.TakePull()) pulled = *taken, done = true;
      return done;
    });
    TROOP_RETURN_IF_ERROR(client.error());
    return done ? Status::Ok() : DeadlineExceeded("worker {}: no answer", worker.index);
  };

  BspOutcome outcome;
  std::vector<float> gradient(std::size_t(run.map.parameters()), 0.0f);
  TROOP_RETURN_IF_ERROR(pull());
  for (std::uint64_t step = 0; step < worker.steps; ++step) {
    const Time begin = clock.Now();
    const float loss = worker.gradient(step, pulled.value, gradient);
    pump_until(begin + worker.compute, [] { return false; });
    TROOP_RETURN_IF_ERROR(client.Push(clock.Now(), gradient, worker.learning_rate, loss));
    TROOP_RETURN_IF_ERROR(pull());
    if (pulled.version != step + 2) {
      return Internal("worker {}: version {} after step {}", worker.index, pulled.version, step);
    }
    outcome.step_s.push_back(ToSeconds(clock.Now() - begin));
  }
  outcome.value.assign(pulled.value.begin(), pulled.value.end());
  return outcome;
}

}  // namespace troop
