#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "net/network.h"
#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "replay/service/shard_connection.h"

namespace troop {

// A channel whose answers are given by the test.
class ScriptedChannel final : public Channel {
 public:
  Result<Ticket> Send(Message& message, Time) override {
    sent.push_back(std::move(message));
    return Ticket(sent.size());
  }
  std::optional<Result<Message>> Poll(Ticket ticket) override {
    const auto at = answers.find(ticket);
    if (at == answers.end()) return std::nullopt;
    std::optional<Result<Message>> answer(std::move(at->second));
    answers.erase(at);
    return answer;
  }
  void Forget(Ticket ticket) override { forgotten.insert(ticket); }
  bool CanSend() const override { return true; }
  int in_flight() const override { return 0; }
  PeerState peer() const override { return PeerState::kUp; }

  std::vector<Message> sent;  // ticket k is the k-th
  std::map<Ticket, Result<Message>> answers;
  std::set<Ticket> forgotten;
};

// Shards with the given totals and credits, as if each had reported them.
struct ScriptedShards {
  struct State {
    double total = 0, credit = 0;
  };
  explicit ScriptedShards(const std::vector<State>& states) {
    for (const State& state : states) {
      auto made = std::make_unique<ScriptedChannel>();
      channel.push_back(made.get());
      shards.emplace_back(std::move(made), 0);
      shards.back().Note({.total = state.total, .credit = state.credit});
    }
  }
  // The k-th shard's newest request.
  SampleBody Asked(std::size_t k) const {
    return *DecodeBody<SampleBody>(channel[k]->sent.back().body);
  }
  // Answers the k-th shard's newest request with blocks of these rows.
  void Answer(std::size_t k, SampleReplyBody body) {
    Message message{.type = MessageType::kSampleReply, .body = EncodeBody(body)};
    message.parts.resize(body.rows.size());
    channel[k]->answers.emplace(Ticket(channel[k]->sent.size()), std::move(message));
  }

  std::vector<ScriptedChannel*> channel;  // owned by shards
  std::deque<ShardConnection> shards;
};

}  // namespace troop
