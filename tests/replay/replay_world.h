#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "net/sim_network.h"
#include "replay/client.h"
#include "replay/server.h"

namespace troop {

// What most replay tests share: a small spec, and frames whose content says where they come from.
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

// The same with the last frame closing an episode: terminated when `discount` of its last step is
// 0, truncated when it is 1.
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

// A replay server and its clients over the simulated network.
class ReplayWorld {
 public:
  explicit ReplayWorld(const ReplayServer::Options& options) : options_(options) {
    client_network_ = hub_->MakeNetwork();
    StartServer();
  }
  // A new process with nothing in it.
  void RestartServer() {
    StopServer();
    StartServer();
  }
  void StopServer() {
    listener_.reset();
    server_network_.reset();
    server_.reset();
  }
  void StartServer() {
    auto made = MakeReplayServer(options_);
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    server_ = std::move(*made);
    server_network_ = hub_->MakeNetwork();
    listener_ = *server_network_->Listen("inproc://replay", server_.get());
  }

  std::unique_ptr<Channel> Connect(Role role, std::int32_t index = 0, std::uint64_t incarnation = 1,
                                   int window = 16) {
    return *client_network_->Connect(
        "inproc://replay",
        {.origin = {.role = role, .index = index, .incarnation = incarnation}, .window = window});
  }
  std::unique_ptr<ReplayWriter> Writer(std::int32_t index = 0, int window = 4) {
    return MakeReplayWriter(Connect(Role::kActor, index), options_.trajectory, {.window = window});
  }
  std::unique_ptr<ReplaySampler> Sampler(const ReplaySampler::Options& options,
                                         std::int32_t index = 0) {
    return MakeReplaySampler(Connect(Role::kLearner, index), options_.trajectory, options);
  }

  // Moves all messages, there and back, until nothing moves.
  void Pump() {
    for (bool moved = true; moved;) {
      server_->Tick(now_);
      moved = client_network_->Pump(now_);
      moved |= server_network_->Pump(now_);
    }
  }
  void Advance(Duration d) {
    now_ += d;
    Pump();
  }
  Time now() const { return now_; }
  ReplayServer& server() { return *server_; }
  ReplayServer::Options& options() { return options_; }  // of the next StartServer
  double Metric(std::string_view name) const {
    Metrics metrics;
    server_->Report(&metrics);
    return metrics.Get(name);
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
  ReplayServer::Options options_;
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::unique_ptr<ReplayServer> server_;
  std::unique_ptr<Network> server_network_, client_network_;
  std::unique_ptr<Listener> listener_;
  Time now_{Seconds(1)};
};

}  // namespace troop
