#pragma once

// Ranks in separate processes, which tests kill and stop. Fork them while this process has one
// thread. A child executes its parent's commands from a socket: Listen, Join, and then rounds of
// all-reduce until one fails.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/group.h"
#include "core/base/check.h"

namespace troop {

struct RankOrder {
  enum What : int { kListen, kJoin, kRun, kLeave } what = kListen;
  int rank = 0, size = 0;
  std::uint64_t epoch = 0;
  GroupOptions::Path path = GroupOptions::Path::kAuto;
  int timeout_ms = 0;
  std::int64_t elements = 0;
  char host[16] = {};
  char addresses[8][32] = {};  // kJoin
  char hosts[8][16] = {};
};
struct RankReport {
  int code = 0;
  int suspect = -1;
  int rounds = 0;  // all-reduces that gave the right sum
  Time when{};
  char text[256] = {};  // an address, or a message
};

class RankProcess {
 public:
  // Wraps the group that a child has joined; nullptr for no wrapper. Set before the fork.
  using Wrap = Result<std::unique_ptr<Collective>> (*)(std::unique_ptr<Collective>);
  inline static Wrap wrap = nullptr;

  RankProcess() {
    int ends[2];
    TROOP_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "no pair");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      Serve(ends[1]);
    }
    close(ends[1]);
    end_ = ends[0];
  }
  RankProcess(const RankProcess&) = delete;
  ~RankProcess() {
    kill(pid_, SIGKILL);
    if (!reaped_) waitpid(pid_, nullptr, 0);
    close(end_);
  }
  void Order(const RankOrder& order) {
    TROOP_CHECK(send(end_, &order, sizeof order, MSG_NOSIGNAL) == sizeof order,
                "the child is gone");
  }
  // Within twenty seconds.
  std::optional<RankReport> Report() {
    pollfd polled{end_, POLLIN, 0};
    RankReport report;
    if (poll(&polled, 1, 20'000) != 1) return std::nullopt;
    if (recv(end_, &report, sizeof report, 0) != sizeof report) return std::nullopt;
    return report;
  }
  pid_t pid() const { return pid_; }
  void Signal(int signal) { kill(pid_, signal); }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  [[noreturn]] static void Serve(int end) {
    std::optional<GroupEntry> entry;
    std::unique_ptr<Collective> group;
    RankOrder order;
    while (recv(end, &order, sizeof order, 0) == sizeof order) {
      RankReport report;
      const Status status = Obey(order, &entry, &group, &report, end);
      report.code = int(status.code());
      report.when = SystemClock().Now();
      if (!status.ok()) std::strncpy(report.text, status.message().c_str(), sizeof report.text - 1);
      if (send(end, &report, sizeof report, MSG_NOSIGNAL) < 0) break;
    }
    group.reset();
    _exit(0);
  }

  static Status Obey(const RankOrder& order, std::optional<GroupEntry>* entry,
                     std::unique_ptr<Collective>* group, RankReport* report, int end) {
    if (order.what == RankOrder::kListen) {
      group->reset();
      auto listening = GroupEntry::Listen({.group = "processes",
                                           .epoch = order.epoch,
                                           .token = 77,
                                           .rank = order.rank,
                                           .size = order.size,
                                           .path = order.path,
                                           .host = order.host,
                                           .timeout = Milliseconds(order.timeout_ms)});
      if (!listening.ok()) return listening.status();
      std::strncpy(report->text, listening->self().address.c_str(), sizeof report->text - 1);
      entry->emplace(std::move(*listening));
      return Status::Ok();
    }
    if (order.what == RankOrder::kJoin) {
      std::vector<Member> members;
      for (int rank = 0; rank < order.size; ++rank) {
        const Member& self = (*entry)->self();
        const std::string host = order.hosts[rank];
        members.push_back({rank, host.empty() ? self.host : host, order.addresses[rank]});
      }
      TROOP_ASSIGN_OR_RETURN(*group, std::move(**entry).Join(members));
      if (wrap != nullptr) {
        TROOP_ASSIGN_OR_RETURN(*group, wrap(std::move(*group)));
      }
      return Status::Ok();
    }
    if (order.what == RankOrder::kLeave) {
      group->reset();
      return Status::Ok();
    }
    return Rounds(order, **group, report, end);
  }

  // Reports the end of the first round, then continues until a round fails.
  static Status Rounds(const RankOrder& order, Collective& group, RankReport* report, int end) {
    const Tensor x(DType::kF32, {order.elements}), sum(DType::kF32, {order.elements});
    std::ranges::fill(x.as<float>(), float(group.rank() + 1));
    for (;;) {
      const Status status = RunOp(group, {.kind = OpKind::kAllReduce}, x, sum);
      report->suspect = group.suspect();
      if (!status.ok()) return status;
      const float want = float(group.size() * (group.size() + 1) / 2);
      for (const float v : sum.as<float>()) {
        if (v != want) return DataLoss("{} instead of {}", v, want);
      }
      if (++report->rounds == 1) send(end, report, sizeof *report, MSG_NOSIGNAL);
    }
  }

  pid_t pid_ = 0;
  int end_ = -1;
  bool reaped_ = false;
};

// A group of processes that have joined, or a failure of the test.
inline void JoinProcesses(const std::vector<RankProcess*>& ranks, RankOrder order,
                          const std::vector<std::string>& hosts) {
  order.size = int(ranks.size());
  RankOrder join = order;
  join.what = RankOrder::kJoin;
  for (int rank = 0; rank < order.size; ++rank) {
    order.what = RankOrder::kListen;
    order.rank = rank;
    std::memset(order.host, 0, sizeof order.host);
    if (!hosts.empty()) std::strncpy(order.host, hosts[std::size_t(rank)].c_str(), 15);
    std::memcpy(join.hosts[rank], order.host, sizeof order.host);
    ranks[std::size_t(rank)]->Order(order);
    const auto report = ranks[std::size_t(rank)]->Report();
    ASSERT_TRUE(report && report->code == 0) << (report ? report->text : "no answer");
    std::memcpy(join.addresses[rank], report->text, sizeof join.addresses[rank]);
  }
  for (RankProcess* rank : ranks) rank->Order(join);
  for (RankProcess* rank : ranks) {
    const auto report = rank->Report();
    ASSERT_TRUE(report && report->code == 0) << (report ? report->text : "no answer");
  }
}

}  // namespace troop
