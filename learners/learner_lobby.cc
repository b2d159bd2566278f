#include "learners/learner_lobby.h"

#include <optional>

#include "collective/group.h"

namespace troop {
namespace {

// "host|address:port" of a Member.
std::string ToText(const Member& member) { return member.host + "|" + member.address; }
Result<Member> FromText(const std::string& text, int rank) {
  const std::size_t bar = text.rfind('|');
  if (bar == std::string::npos) {
    return InvalidArgument("learner {}: {:?} is no address of a learner", rank, text);
  }
  return Member{.rank = rank, .host = text.substr(0, bar), .address = text.substr(bar + 1)};
}

class SocketLobby final : public LearnerLobby {
 public:
  explicit SocketLobby(const SocketLobbyOptions& options) : options_(options) {}

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
    if (!entry_) return FailedPrecondition("a lobby that was not opened");
    std::vector<Member> members;
    for (const std::string& address : addresses) {
      TROOP_ASSIGN_OR_RETURN(Member member, FromText(address, int(members.size())));
      members.push_back(std::move(member));
    }
    GroupEntry entry = std::move(*entry_);
    entry_.reset();
    return std::move(entry).JoinAs(rank, epoch, members);
  }

  bool waits() const override { return true; }

 private:
  const SocketLobbyOptions options_;
  std::optional<GroupEntry> entry_;
};

class SimLobby final : public LearnerLobby {
 public:
  explicit SimLobby(std::shared_ptr<SimLobbies::Meeting> meeting) : meeting_(std::move(meeting)) {}

  Result<std::string> Open() override { return fmt::format("seat {}", ++meeting_->opened); }

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
  const std::shared_ptr<SimLobbies::Meeting> meeting_;
};

}  // namespace

std::unique_ptr<LearnerLobby> MakeSocketLobby(const SocketLobbyOptions& options) {
  return std::make_unique<SocketLobby>(options);
}

std::unique_ptr<LearnerLobby> SimLobbies::Make() { return std::make_unique<SimLobby>(meeting_); }

}  // namespace troop
