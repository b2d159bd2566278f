#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log_rate_limit.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/metrics/metrics.h"
#include "fleet/coordinator/member_record.h"
#include "fleet/run/run_state.h"
#include "net/control/heartbeat_request.h"
#include "net/control/peer_info.h"
#include "net/message.h"
#include "net/network.h"

namespace troop {

// The members of a run: which process holds each role, since when it is silent, and why its
// predecessors ended.
//
// Invariants:
// - A role has at most one member. It is the incarnation that was admitted last; all older ones are
//   fenced.
// - The incarnations of a role only grow.
// - Records are replaced, but never erased: pointers to them stay valid.
// Owner: the coordinator, which passes the time. O(log members) per call unless stated otherwise.
class Membership {
 public:
  struct Options {
    Duration silence_max{};  // a member without a heartbeat for a longer time is lost
    // An external member without a connection for a longer time is lost: no supervisor reports its
    // exit here, and an unstable network may reconnect.
    Duration reconnect_max = Seconds(3);
  };
  explicit Membership(const Options& options) : options_(options) {}

  // Admits a process as the newest incarnation of its role. `view` has role, index, incarnation,
  // process and host; `joined`: the process is external. Returns the record that it replaces, whose
  // incarnation is 0 if the role is new. REQUIRES: incarnation > 0.
  MemberRecord Admit(MemberView view, std::string listen, bool joined, Time now);
  // Marks a member absent, because its process ended. Returns its record; nullptr: an older
  // process, which changes nothing.
  MemberRecord* Remove(Role role, std::int32_t index, std::int64_t process);
  // Marks the lost members absent, with a log line and a failure in their history. Returns them.
  // Looks every 200 ms, however often it is called. O(members).
  std::vector<MemberRecord*> RemoveLost(Time now);
  // Excludes a pause of this process, in which heartbeats queued, from the silence of all members.
  void ExtendLeases(Duration pause);

  // The member of this origin; nullptr: the process was replaced, or never registered.
  MemberRecord* FindCurrent(const Origin& origin);
  // The last record of a role, which may be absent; nullptr: it never registered.
  const MemberRecord* Find(Role role, std::int32_t index) const;
  MemberRecord* Find(Role role, std::int32_t index);
  // True if a process holds the role.
  bool Has(Role role, std::int32_t index) const;
  // Fencing: accepts the current incarnation of a role. `next`: the lowest incarnation that was
  // never issued; such callers are logged. Errors: kAborted.
  Status CheckOrigin(const Origin& caller, std::uint64_t next, Time now);

  // Takes over endpoint, epochs, metrics (moved), state and block of a heartbeat.
  void RecordHeartbeat(MemberRecord* member, HeartbeatRequest* beat, Time now);
  // Takes over a change of a connection. Returns the member; nullptr: it was replaced or left.
  const MemberRecord* RecordConnection(const Origin& peer, PeerState state, Time now);
  // Keeps why a role ended or is about to be ended. `failures`: consecutive ones; 0: no restart
  // follows.
  void RecordFailure(Role role, std::int32_t index, std::string_view why, std::int64_t failures,
                     Time now);
  // The history of a role; nullptr: it neither registered nor failed.
  const RoleHistory* HistoryOf(Role role, std::int32_t index) const;

  // All records and all histories, by PeerName.
  const std::map<std::string, MemberRecord>& records() const { return records_; }
  const std::map<std::string, RoleHistory>& histories() const { return histories_; }
  // Indices of the present external actors, sorted.
  const std::vector<std::int32_t>& joined_actors() const { return joined_actors_; }
  // By Role: the newest incarnation (HeartbeatReply::issued). Not empty after the first Admit.
  const std::vector<std::uint64_t>& issued() const { return issued_; }
  // Endpoints of the members that serve, by PeerName. O(members) after a change, else O(1).
  const std::map<std::string, PeerInfo>& Peers();

  // The following are O(members).
  std::int32_t CountPresent(Role role) const;
  // Number of external members whose connection is open.
  int CountConnectedExternal() const;
  // True when each member has received the final phase or, if `stop`, the stop request.
  bool AllInformedOfEnd(bool stop) const;
  // The members, with the ages of their heartbeats at `now`.
  std::vector<MemberView> Views(Time now) const;
  // The newest version of the weights of all learners; -1: none is reported.
  double NewestVersion() const;
  // A metric's value; 0: the role is absent or does not report it.
  double MetricOf(Role role, std::int32_t index, const std::string& name) const;
  // Metrics of all records, to be merged; absent ones contribute counters and, if `keep_ratios`,
  // ratios.
  std::vector<MetricSnapshot> Metrics(bool keep_ratios) const;

 private:
  void MarkAbsent(MemberRecord* member);

  const Options options_;
  std::map<std::string, MemberRecord> records_;
  std::map<std::string, RoleHistory> histories_;
  std::vector<std::int32_t> joined_actors_;
  std::map<std::string, PeerInfo> peers_;  // cache for Peers()
  bool peers_old_ = true;                  // peers_ must be rebuilt
  std::vector<std::uint64_t> issued_;
  LogRateLimit invented_;  // limits warnings about never-issued incarnations
  Time next_look_{};
};

// Cuts a role's message to 400 bytes and replaces control characters by spaces.
std::string OneLineOf(std::string_view text);

}  // namespace troop
