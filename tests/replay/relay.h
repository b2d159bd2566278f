#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "net/transport/sim_network.h"
#include "replay/service/client.h"
#include "replay/service/server.h"

namespace troop {

// Stands between clients and a server: `ask` sees each call first, and takes it when it returns
// true; `edit` may change each answer.
class Relay final : public Service {
 public:
  std::function<bool(const Message&, Reply*)> ask;
  std::function<void(Message*)> edit;

  explicit Relay(ReplayServer* server) : server_(server) {}
  void Handle(Message message, Reply reply) override {
    if (ask && ask(message, &reply)) return;
    server_->Handle(std::move(message), Reply(std::make_unique<Editor>(this, std::move(reply))));
  }

 private:
  struct Editor final : Reply::Sink {
    Editor(Relay* relay, Reply to) : relay_(relay), to_(std::move(to)) {}
    void Answer(Message message) override {
      if (relay_->edit) relay_->edit(&message);
      to_.Send(std::move(message));
    }
    Relay* relay_;
    Reply to_;
  };
  ReplayServer* server_;
};

// Shards behind a relay each, and channels to them.
class RelayWorld {
 public:
  RelayWorld(const ReplayServer::Options& options, std::size_t shards) {
    for (std::size_t k = 0; k < shards; ++k) {
      auto made = MakeReplayServer(options);
      TROOP_CHECK(made.ok(), "{}", made.status().ToString());
      servers_.push_back(std::move(*made));
      relays_.push_back(std::make_unique<Relay>(servers_.back().get()));
      listeners_.push_back(*there_->Listen(EndpointOf(k), relays_.back().get()));
    }
  }
  Relay& relay(std::size_t k) { return *relays_[k]; }
  std::vector<std::unique_ptr<Channel>> ConnectAll(Role role, int window = 32) {
    std::vector<std::unique_ptr<Channel>> channels;
    for (std::size_t k = 0; k < servers_.size(); ++k) {
      channels.push_back(*here_->Connect(
          EndpointOf(k), {.origin = {.role = role, .incarnation = 1}, .window = window}));
    }
    return channels;
  }
  void Pump() {
    for (bool moved = true; moved;) {
      moved = here_->Pump(now_);
      for (auto& server : servers_) server->Tick(now_);
      moved |= there_->Pump(now_);
    }
  }
  void Advance(Duration d) {
    now_ += d;
    Pump();
  }
  Time now() const { return now_; }

 private:
  static std::string EndpointOf(std::size_t k) { return "inproc://relay-" + std::to_string(k); }

  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::unique_ptr<Network> here_ = hub_->MakeNetwork(), there_ = hub_->MakeNetwork();
  std::vector<std::unique_ptr<ReplayServer>> servers_;
  std::vector<std::unique_ptr<Relay>> relays_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  Time now_{Seconds(1)};
};

}  // namespace troop
