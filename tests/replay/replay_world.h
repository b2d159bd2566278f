#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/transport/sim_network.h"
#include "replay/service/client.h"
#include "replay/service/server.h"

namespace troop {

// Utilities of most replay tests: a small spec, and frames whose content identifies them.
inline TrajectorySpec SmallSpec() {
  return {.observation = {DType::kF32, {2}}, .action = {DType::kI32, {}}};
}

// Frame t of stream s: observation (s, t), action 10 s + t, reward t + 1/2, discount 1.
inline Chunk MakeChunk(StreamId stream, std::uint64_t first_frame, std::uint32_t frames) {
  MutableBuffer observation(frames * 8), action(frames * 4), reward(frames * 4),
      discount(frames * 4);
  for (std::uint32_t i = 0; i < frames; ++i) {
    const std::uint64_t t = first_frame + i;
    observation.as<float>()[2 * i] = float(stream);
    observation.as<float>()[2 * i + 1] = float(t);
    action.as<std::int32_t>()[i] = std::int32_t(10 * stream + t);
    reward.as<float>()[i] = float(t) + 0.5f;
    discount.as<float>()[i] = 1;
  }
  return {stream,
          first_frame,
          frames,
          std::move(observation).Freeze(),
          std::move(action).Freeze(),
          std::move(reward).Freeze(),
          std::move(discount).Freeze(),
          MutableBuffer::Zeros(frames).Freeze()};
}

// A chunk whose last frame closes an episode: terminated if `discount` of its last step is 0,
// truncated if it is 1.
inline Chunk MakeEpisodeEnd(StreamId stream, std::uint64_t first_frame, std::uint32_t frames,
                            float last_discount) {
  Chunk chunk = MakeChunk(stream, first_frame, frames);
  MutableBuffer discount(frames * 4), final = MutableBuffer::Zeros(frames), reward(frames * 4),
                                      action(frames * 4);
  std::ranges::copy(chunk.discount.as<float>(), discount.as<float>().begin());
  std::ranges::copy(chunk.reward.as<float>(), reward.as<float>().begin());
  std::ranges::copy(chunk.action.as<std::int32_t>(), action.as<std::int32_t>().begin());
  final.as<std::uint8_t>()[frames - 1] = 1;
  discount.as<float>()[frames - 1] = 0;
  reward.as<float>()[frames - 1] = 0;
  action.as<std::int32_t>()[frames - 1] = 0;
  if (frames >= 2) discount.as<float>()[frames - 2] = last_discount;
  chunk.discount = std::move(discount).Freeze();
  chunk.final = std::move(final).Freeze();
  chunk.reward = std::move(reward).Freeze();
  chunk.action = std::move(action).Freeze();
  return chunk;
}

// One-step items for frames [first, first + count).
inline std::vector<Item> MakeItems(StreamId stream, std::uint64_t first, std::uint64_t count,
                                   float priority = 1, std::uint32_t length = 1) {
  std::vector<Item> items;
  for (std::uint64_t t = first; t < first + count; ++t) {
    items.push_back({.stream = stream,
                     .first_frame = t,
                     .length = length,
                     .priority = priority,
                     .policy_version = t});
  }
  return items;
}

inline ReplayServer::Options SmallOptions() {
  return {.tables = {{.table = {.trajectory = SmallSpec(),
                                .view = {.length_max = 3},
                                .capacity_items = 1000,
                                .min_items = 10,
                                .seed = 7},
                      .samples_per_insert = 0}}};
}
inline ReplayServer::Options Limited() {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].samples_per_insert = 2;  // band: 20 ± 2 samples
  return options;
}

// Replay servers, the shards of one replay, and their clients over the simulated network.
class ReplayWorld {
 public:
  explicit ReplayWorld(const ReplayServer::Options& options, std::size_t shards = 1)
      : options_(options) {
    client_network_ = hub_->MakeNetwork();
    for (std::size_t k = 0; k < shards; ++k) {
      servers_.emplace_back();
      StartServer(k);
    }
  }
  // A new process with nothing in it.
  void RestartServer(std::size_t k = 0) {
    StopServer(k);
    StartServer(k);
  }
  void StopServer(std::size_t k = 0) { servers_[k] = {}; }
  void StartServer(std::size_t k = 0) {
    auto made = MakeReplayServer(options_);
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    servers_[k].server = std::move(*made);
    servers_[k].network = hub_->MakeNetwork();
    servers_[k].listener = *servers_[k].network->Listen(EndpointOf(k), servers_[k].server.get());
  }
  // A hung process: it holds its connections and does nothing.
  void Hang(std::size_t k, bool hangs) { servers_[k].hangs = hangs; }

  std::unique_ptr<Channel> Connect(Role role, std::int32_t index = 0, std::uint64_t incarnation = 1,
                                   int window = 32, std::size_t k = 0) {
    return *client_network_->Connect(
        EndpointOf(k),
        {.origin = {.role = role, .index = index, .incarnation = incarnation}, .window = window});
  }
  std::vector<std::unique_ptr<Channel>> ConnectAll(Role role, std::int32_t index = 0,
                                                   std::uint64_t incarnation = 1) {
    std::vector<std::unique_ptr<Channel>> channels;
    for (std::size_t k = 0; k < servers_.size(); ++k) {
      channels.push_back(Connect(role, index, incarnation, 32, k));
    }
    return channels;
  }
  std::unique_ptr<ReplayWriter> Writer(std::int32_t index = 0, int window = 4) {
    return MakeReplayWriter(ConnectAll(Role::kActor, index), spec(),
                            {.window = window, .codec = options_.tables[0].table.codec});
  }
  std::unique_ptr<ReplaySampler> Sampler(ReplaySampler::Options options, std::int32_t index = 0,
                                         std::uint64_t incarnation = 1) {
    options.view = options_.tables[0].table.view;
    options.codec = options_.tables[0].table.codec;
    return MakeReplaySampler(ConnectAll(Role::kLearner, index, incarnation), spec(), options);
  }

  // Moves all messages, there and back, until nothing moves.
  void Pump() {
    for (bool moved = true; moved;) {
      moved = client_network_->Pump(now_);
      for (Shard& shard : servers_) {
        if (!shard.server || shard.hangs) continue;
        shard.server->Tick(now_);
        moved |= shard.network->Pump(now_);
      }
    }
  }
  void Advance(Duration d) {
    now_ += d;
    Pump();
  }
  Time now() const { return now_; }
  const TrajectorySpec& spec() const { return options_.tables[0].table.trajectory; }
  ReplayServer& server(std::size_t k = 0) { return *servers_[k].server; }
  ReplayServer::Options& options() { return options_; }  // of the next StartServer
  double Metric(std::string_view name, std::size_t k = 0) const {
    Metrics metrics;
    servers_[k].server->Report(&metrics);
    return metrics.Get(name);
  }
  // Drawn in all: taken by samplers' owners, or on their way to them.
  double Samples(std::size_t k = 0) const {
    return Metric("replay/samples", k) + Metric("replay/samples_in_flight", k);
  }
  // One call on a bare channel; REQUIRES: the server answers at once.
  Result<Message> Call(Channel* channel, Message message) {
    const auto ticket = channel->Send(message, kForever);
    if (!ticket.ok()) return ticket.status();
    Pump();
    auto answer = channel->Poll(*ticket);
    TROOP_CHECK(answer.has_value(), "no answer");
    return std::move(*answer);
  }

 private:
  struct Shard {
    std::unique_ptr<ReplayServer> server;
    std::unique_ptr<Network> network;
    std::unique_ptr<Listener> listener;  // goes first
    bool hangs = false;
  };
  static std::string EndpointOf(std::size_t k) { return "inproc://replay-" + std::to_string(k); }

  ReplayServer::Options options_;
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::vector<Shard> servers_;
  std::unique_ptr<Network> client_network_;
  Time now_{Seconds(1)};
};

// Pushes `items` one-step items of one stream, starting at frame `first`.
inline void Push(ReplayWorld* world, ReplayWriter* writer, StreamId stream, std::uint64_t first,
                 std::uint32_t items) {
  ASSERT_TRUE(writer->CanPush());
  ASSERT_TRUE(
      writer->Push({MakeChunk(stream, first, items + 1)}, MakeItems(stream, first, items)).ok());
  world->Pump();
  writer->Poll(world->now());
}

// The next batch, when it is there after one exchange.
inline Result<std::optional<SampleBatch>> Take(ReplayWorld* world, ReplaySampler* sampler) {
  sampler->Poll(world->now());
  world->Pump();
  sampler->Poll(world->now());
  return sampler->Next();
}

inline bool Took(const Result<std::optional<SampleBatch>>& batch) {
  return batch.ok() && batch->has_value();
}

}  // namespace troop
