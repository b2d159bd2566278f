// SamplerClients: reservations per client, which end with its incarnation or its absence.
#include "replay/serving/sampler_clients.h"

#include <algorithm>

namespace troop {
namespace {

// A client that is disconnected for this long is removed: longer than a restart or a long pause.
constexpr Duration kForgetAfter = Seconds(60);

}  // namespace

// Samples that a dead incarnation reserved but never took become available to the others.
void SamplerClients::NoteTaken(const Origin& origin, std::uint64_t taken) {
  Client& client = clients_[{origin.role, origin.index}];
  if (origin.incarnation > client.incarnation) {
    limiter_->Release(std::int64_t(client.reserved - client.delivered));
    client = {.incarnation = origin.incarnation};
  }
  if (origin.incarnation < client.incarnation) return;
  client.gone.reset();
  // More than was reserved refers to an earlier incarnation of this shard.
  const std::uint64_t delivered = std::clamp(taken, client.delivered, client.reserved);
  limiter_->Deliver(std::int64_t(delivered - client.delivered));
  client.delivered = delivered;
}

// Counts only increase, so that a repeated message changes nothing.
std::uint64_t SamplerClients::Reserve(const Origin& origin, std::int64_t items) {
  limiter_->Reserve(items);
  return clients_[{origin.role, origin.index}].reserved += std::uint64_t(items);
}

// The first report of a disconnect counts: later ones must not delay the removal.
void SamplerClients::NotePeer(const Origin& origin, PeerState state, std::optional<Time> now) {
  const auto it = clients_.find({origin.role, origin.index});
  if (it == clients_.end()) return;
  std::optional<Time>& gone = it->second.gone;
  gone = state == PeerState::kUp ? std::nullopt : gone ? gone : now;
}

std::vector<SamplerClients::Key> SamplerClients::Forget(Time now) {
  std::vector<Key> forgotten;
  for (auto it = clients_.begin(); it != clients_.end();) {
    const Client& client = it->second;
    if (!client.gone || now - *client.gone <= kForgetAfter) {
      ++it;
      continue;
    }
    limiter_->Release(std::int64_t(client.reserved - client.delivered));
    forgotten.push_back(it->first);
    it = clients_.erase(it);
  }
  return forgotten;
}

// A request of an old incarnation arrives late: its client has been replaced.
bool SamplerClients::Fenced(const Origin& origin) const {
  const auto it = clients_.find({origin.role, origin.index});
  return it != clients_.end() && origin.incarnation < it->second.incarnation;
}

}  // namespace troop
