// Implements the lobbies: over sockets between processes, and in memory for the simulator.

#include "learners/sync/rendezvous.h"

#include <optional>

#include "collective/group.h"

namespace troop {
namespace {

// Text form of a Member in the coordinator's list: "host|address:port".
std::string ToText(const Member& member) { return member.host + "|" + member.address; }
// Splits at the last bar, in case a host name contains one.
Result<Member> FromText(const std::string& text, int rank) {
  const std::size_t bar = text.rfind('|');
  if (bar == std::string::npos) {
    return InvalidArgument("learner {}: {:?} is not a learner address", rank, text);
  }
  return Member{.rank = rank, .host = text.substr(0, bar), .address = text.substr(bar + 1)};
}

// An address is one GroupEntry: Open listens, Join uses it up.
class SocketRendezvous final : public Rendezvous {
 public:
  explicit SocketRendezvous(const SocketRendezvousOptions& options) : options_(options) {}

  Result<std::string> Open() override {
    entry_.reset();
    TROOP_ASSIGN_OR_RETURN(entry_, GroupEntry::Listen({.group = options_.group,
                                                       .token = options_.token,
                                                       .secret = options_.secret,
                                                       .size = options_.learners_max,
                                                       .listen = options_.listen,
                                                       .connect_timeout = options_.connect_timeout,
                                                       .timeout = options_.timeout}));
    return ToText(entry_->self());
  }

  Result<std::unique_ptr<Collective>> Join(int rank, std::uint64_t epoch,
                                           std::span<const std::string> addresses) override {
    if (!entry_) return FailedPrecondition("the rendezvous has no open address");
    std::vector<Member> members;
    for (const std::string& address : addresses) {
      TROOP_ASSIGN_OR_RETURN(Member member, FromText(address, int(members.size())));
      members.push_back(std::move(member));
    }
    // The address is used up, whatever the result.
    GroupEntry entry = std::move(*entry_);
    entry_.reset();
    return std::move(entry).JoinAs(rank, epoch, members);
  }

  bool waits() const override { return true; }

 private:
  const SocketRendezvousOptions options_;
  std::optional<GroupEntry> entry_;
};

// Learners that pass the same address list get ranks of the same SimGroup.
class SimRendezvous final : public Rendezvous {
 public:
  explicit SimRendezvous(std::shared_ptr<SimRendezvousFactory::Meeting> meeting)
      : meeting_(std::move(meeting)) {}

  Result<std::string> Open() override { return fmt::format("slot {}", ++meeting_->opened); }

  Result<std::unique_ptr<Collective>> Join(int rank, std::uint64_t,
                                           std::span<const std::string> addresses) override {
    auto& group = meeting_->groups[{addresses.begin(), addresses.end()}];
    if (group == nullptr) {
      group = std::make_unique<SimGroup>(SimGroupOptions{.size = int(addresses.size())});
    }
    return group->Rank(rank);
  }

  bool waits() const override { return false; }

 private:
  const std::shared_ptr<SimRendezvousFactory::Meeting> meeting_;
};

}  // namespace

std::unique_ptr<Rendezvous> MakeSocketRendezvous(const SocketRendezvousOptions& options) {
  return std::make_unique<SocketRendezvous>(options);
}

std::unique_ptr<Rendezvous> SimRendezvousFactory::Make() {
  return std::make_unique<SimRendezvous>(meeting_);
}

}  // namespace troop
