// Implements the rendezvous of a group: options and member lists, the mesh of sockets, shared
// memory on each host, and Split.
#include "collective/group.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "collective/engine/engine.h"
#include "collective/socket/handshake.h"
#include "collective/socket/mesh.h"
#include "collective/socket/socket_wire.h"

namespace troop {
namespace {

// The name is sent in a fixed, zero-terminated field.
Status CheckOptions(const GroupOptions& options) {
  if (options.group.empty() || options.group.size() > kGroupNameMax ||
      options.group.find('\0') != std::string::npos) {
    return InvalidArgument("a group's name must have 1 to {} bytes, none of them 0; it is {:?}",
                           kGroupNameMax, options.group);
  }
  if (options.size < 1 || options.size > kRanksMax) {
    return InvalidArgument("group {:?}: the size is {}, must be 1 to {} ranks", options.group,
                           options.size, kRanksMax);
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("group {:?}: the rank is {}, must be below the size ({})", options.group,
                           options.rank, options.size);
  }
  return Status::Ok();
}

// The list must contain every rank in order, and this one with its own address.
Status CheckMembers(const GroupOptions& options, std::span<const Member> members,
                    const Member& self) {
  if (int(members.size()) != options.size) {
    return InvalidArgument("group {:?}: the list has {} members, must have {}", options.group,
                           members.size(), options.size);
  }
  for (int rank = 0; rank < options.size; ++rank) {
    if (members[std::size_t(rank)].rank != rank) {
      return InvalidArgument(
          "group {:?}: entry {} of the members is rank {}; list all members by rank", options.group,
          rank, members[std::size_t(rank)].rank);
    }
  }
  if (members[std::size_t(options.rank)] != self) {
    return InvalidArgument("group {:?}: the list has {} for rank {}, which listens at {}",
                           options.group, members[std::size_t(options.rank)].address, options.rank,
                           self.address);
  }
  return Status::Ok();
}

// Groups the ranks by host and creates this host's shared memory. Empty if no two ranks share a
// host.
Result<HostTopology> ShareMemory(const GroupOptions& options, std::span<const Member> members,
                                 std::span<const Link> links, Time deadline) {
  HostTopology hosts;
  std::vector<std::string> names;
  for (const Member& member : members) {
    const auto found = std::ranges::find(names, member.host);
    const auto host = std::size_t(found - names.begin());
    if (found == names.end()) {
      names.push_back(member.host);
      hosts.ranks.emplace_back();
    }
    hosts.ranks[host].push_back(member.rank);
    hosts.host_of.push_back(int(host));
  }
  if (options.path == GroupOptions::Path::kShm && names.size() > 1) {
    return InvalidArgument(
        "group {:?}: the hosts {:?} and {:?} cannot share memory; "
        "choose another path",
        options.group, names[0], names[1]);
  }
  // Every rank is on its own host: no shared memory.
  if (names.size() == members.size()) return HostTopology();
  const std::vector<int>& local =
      hosts.ranks[std::size_t(hosts.host_of[std::size_t(options.rank)])];
  if (local.size() == 1) return hosts;
  const int self = int(std::ranges::find(local, options.rank) - local.begin());
  auto slab = Slab::Make(local, self, links, deadline);
  if (!slab.ok()) return slab.status().WithContext(fmt::format("group {:?}", options.group));
  hosts.slab = std::move(*slab);
  return hosts;
}

// A rank's contribution to a split, exchanged by an all-gather; a color below 0 joins no group.
// Fixed size: texts are zero-padded.
struct Offer {
  std::int32_t color = -1, key = 0;
  char host[96] = {};
  char address[96] = {};
};

void SetText(std::string_view text, std::span<char> to) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), to.size() - 1));
}
std::string TextOf(std::span<const char> from) {
  return std::string(from.data(), strnlen(from.data(), from.size()));
}

// Members of the new group, ordered by key, then by rank; sets this rank's number in it.
std::vector<Member> MembersOf(std::span<const Offer> offers, int color, int self, int* rank) {
  std::vector<std::pair<std::int32_t, int>> order;  // by key, then by rank
  for (int i = 0; i < int(offers.size()); ++i) {
    if (offers[std::size_t(i)].color == color) order.push_back({offers[std::size_t(i)].key, i});
  }
  std::ranges::sort(order);
  std::vector<Member> members;
  for (const auto& [key, i] : order) {
    if (i == self) *rank = int(members.size());
    members.push_back({.rank = int(members.size()),
                       .host = TextOf(offers[std::size_t(i)].host),
                       .address = TextOf(offers[std::size_t(i)].address)});
  }
  return members;
}

// The address without its port.
std::string ListenHost(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

// The boot id distinguishes machines, the PID namespace containers: both are needed to open another
// rank's memfd through /proc.
std::string HostId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat view {};
  stat("/proc/self/ns/pid", &view);
  return fmt::format("{}-{}", boot, view.st_ino);
}

// The actual port is part of the member's address.
Result<GroupEntry> GroupEntry::Listen(const GroupOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  // Room for two connections of every other rank at once, and for unknown clients.
  TROOP_ASSIGN_OR_RETURN(Socket listener, ListenOn(options.listen, 2 * options.size + 64));
  Member self{.rank = options.rank,
              .host = options.host.empty() ? HostId() : options.host,
              .address = AddressOf(listener)};
  return GroupEntry(options, std::move(listener), std::move(self));
}

// Steps: 1. check the list; 2. connect the mesh; 3. share memory; 4. build the engine.
Result<std::unique_ptr<Collective>> GroupEntry::Join(std::span<const Member> members) && {
  TROOP_RETURN_IF_ERROR(CheckMembers(options_, members, self_));
  const Time deadline = SystemClock().Now() + options_.connect_timeout;
  TROOP_ASSIGN_OR_RETURN(std::vector<Link> links,
                         MakeMesh(options_, members, std::move(listener_), deadline));
  const std::string name = fmt::format("group {:?} epoch {}", options_.group, options_.epoch);
  HostTopology hosts;
  if (options_.path != GroupOptions::Path::kTcp) {
    TROOP_ASSIGN_OR_RETURN(hosts, ShareMemory(options_, members, links, deadline));
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Wire> wire,
                         MakeSocketWire(name, options_.rank, std::move(links)));
  auto split = [options = options_, host = self_.host, count = 0](Collective& group, int color,
                                                                  int key) mutable {
    return SplitGroup(options, host, ++count, group, color, key);
  };
  return std::unique_ptr<Collective>(
      std::make_unique<Engine>(std::move(wire), EngineOptions{.name = name,
                                                              .timeout = options_.timeout,
                                                              .hosts = std::move(hosts),
                                                              .split = std::move(split)}));
}

// The checks of Listen are repeated with the new values.
Result<std::unique_ptr<Collective>> GroupEntry::JoinAs(int rank, std::uint64_t epoch,
                                                       std::span<const Member> members) && {
  options_.rank = self_.rank = rank;
  options_.size = int(members.size());
  options_.epoch = epoch;
  TROOP_RETURN_IF_ERROR(CheckOptions(options_));
  return std::move(*this).Join(members);
}

// Each rank opens a listener and all-gathers its address, color and key; then each color joins as a
// separate group.
Result<std::unique_ptr<Collective>> GroupEntry::SplitGroup(GroupOptions options,
                                                           const std::string& host, int count,
                                                           Collective& group, int color, int key) {
  Offer mine{.color = color, .key = key};
  options.listen = fmt::format("{}:0", ListenHost(options.listen));
  Result<Socket> listener = ListenOn(options.listen, 2 * options.size + 64);
  if (!listener.ok()) {
    group.Abort(listener.status());
    return listener.status();
  }
  SetText(host, mine.host);
  SetText(AddressOf(*listener), mine.address);
  std::vector<Offer> offers(std::size_t(group.size()));
  const auto bytes = std::as_writable_bytes(std::span(offers));
  // The offers are exchanged as bytes.
  const TensorSpec all{DType::kU8, {std::int64_t(bytes.size())}};
  const TensorSpec one{DType::kU8, {std::int64_t(sizeof(Offer))}};
  const std::shared_ptr<std::byte> borrowed(bytes.data(), [](std::byte*) {});
  TROOP_RETURN_IF_ERROR(RunOp(group, {.kind = OpKind::kAllGather},
                              ConstTensor::Borrow(std::as_bytes(std::span(&mine, 1)), one),
                              Tensor::View(borrowed, bytes, all)));
  if (color < 0) return std::unique_ptr<Collective>();
  const std::vector<Member> members = MembersOf(offers, color, group.rank(), &options.rank);
  options.size = int(members.size());
  // The suffix replaces the end of a long name; the addresses already separate the groups.
  const std::string suffix = fmt::format("/{}.{}", count, color);
  options.group = options.group.substr(0, kGroupNameMax - suffix.size()) + suffix;
  return GroupEntry(options, std::move(*listener), members[std::size_t(options.rank)])
      .Join(members);
}

}  // namespace troop
