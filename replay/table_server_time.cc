// What a table's server does between calls, and what it says of itself.
#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "replay/table_server.h"

namespace troop {
namespace {

// A round of snapshots may take a millisecond of a host that has nothing to do, and of two one.
constexpr int kIdlePolls = 64;
constexpr Duration kTickEveryMin = Milliseconds(2);
// Who is gone is noticed, and waits are noted.
constexpr Duration kTickEveryMax = Seconds(1);

}  // namespace

void TableServer::Tick(Time now) {
  now_ = now;
  next_tick_ = now + kTickEveryMax;
  ForgetClients(now);
  if (!ended_) SettleAll();
  NoteWaits();
  PollDictionary();
  if (!journal_) return;
  PollJournal(now);
  NoteBehind();
  called_ = false;
}

// The log in memory is all that a commit can be made of: it must not turn over before.
void TableServer::NoteBehind() {
  const bool was = std::exchange(behind_, journal_->behind());
  if (behind_ && !was) {
    LogWarning("replay: table {} takes no inserts: {} MiB wait for the disk{}{}", name(),
               journal_->lag_bytes() >> 20, journal_->error().ok() ? "" : ": ",
               journal_->error().message());
  }
  if (was && !behind_ && !ended_) SettleAll();
}

void TableServer::PollDictionary() {
  if (!trainer_.busy()) return;
  const Buffer bytes = trainer_.Poll();
  if (bytes.empty()) return;
  if (const auto dictionary = MakeFrameDictionary(bytes)) AddDictionary(dictionary);
}

// A disk that fails is tried again for ever; those who wait for it wait.
void TableServer::PollJournal(Time now) {
  journal_->SetOwner(Counts());
  if (!checkpoints_.empty()) journal_->SnapshotNow();
  Time next = journal_->Poll(now, &journaled_);
  for (int i = 0; i < kIdlePolls && !called_ && next <= now; ++i) {
    next = journal_->Poll(now, &journaled_);
  }
  next_tick_ = std::clamp(next, now + kTickEveryMin, now + kTickEveryMax);
  while (!unacked_.empty() && unacked_.front().position <= journal_->durable()) {
    unacked_.front().reply.Send(
        {.type = MessageType::kInsertReply, .body = std::move(unacked_.front().body)});
    unacked_.pop_front();
  }
  std::erase_if(checkpoints_, [this](ParkedCheckpoint& parked) {
    const Journal::Stats& stats = journal_->stats();
    if (stats.rounds >= parked.rounds) {
      parked.reply.Send({.type = MessageType::kReplayCheckpointReply});
    } else if (stats.snapshot_failures >= parked.failures) {
      parked.reply.Fail(journal_->snapshot_error());
    } else {
      return false;
    }
    return true;
  });
}

void TableServer::Drain() {
  ended_ = true;
  if (journal_) journal_->Drain();
}

TableInfo TableServer::Info() const {
  const Table::Options& table = options_.table;
  TableInfo info{.name = table.name,
                 .observation = ToWire(table.trajectory.observation),
                 .action = ToWire(table.trajectory.action),
                 .view_kind = std::uint8_t(table.view.kind),
                 .length_max = std::uint32_t(table.view.length_max),
                 .stack = std::uint32_t(table.view.stack),
                 .burn_in = std::uint32_t(table.view.burn_in),
                 .codec = std::uint8_t(table.codec),
                 .dictionary = dictionaries_.empty() ? 0 : dictionaries_.back().first,
                 .capacity_items = table.capacity_items,
                 .min_items = table.min_items,
                 .items = table_.size(),
                 .samples_per_insert = options_.samples_per_insert,
                 .durable = ack_on_disk_};
  if (table.trajectory.state) info.state = ToWire(*table.trajectory.state);
  return info;
}

std::string TableServer::Blocked() const {
  if (!insert_error_.ok()) {
    return fmt::format("table {} takes no inserts: {}", name(), insert_error_.message());
  }
  if (journal_ == nullptr) return {};
  const std::string& error = journal_->error().message();
  if (behind_) {
    return fmt::format("table {} takes no inserts: {} MiB wait for the disk{}{}", name(),
                       journal_->lag_bytes() >> 20, error.empty() ? "" : ": ", error);
  }
  if (error.empty() || unacked_.empty()) return {};
  return fmt::format("table {}: {} inserts wait for the disk (replay.ack = \"disk\"): {}", name(),
                     unacked_.size(), error);
}

void TableServer::Report(std::string_view prefix, Metrics* metrics) const {
  const auto put = [&](std::string_view key, double value, MetricKind kind) {
    metrics->Gauge(fmt::format("{}{}", prefix, key), value, kind);
  };
  const auto count = [&](std::string_view key, double value) {
    put(key, value, MetricKind::kCounter);
  };
  const auto level = [&](std::string_view key, double value) {
    put(key, value, MetricKind::kGaugeSum);
  };
  const auto ratio = [&](std::string_view key, double mean, double of) {
    metrics->Ratio(fmt::format("{}{}", prefix, key), mean, of);
  };
  for (const auto& [key, histogram] :
       {std::pair("policy_age", &policy_age_), std::pair("age", &age_)}) {
    if (histogram->count() > 0) {
      metrics->Distribution(fmt::format("{}{}", prefix, key), *histogram);
    }
  }
  const double inserts = double(limiter_.inserts()), samples = double(limiter_.samples());
  level("items", double(table_.size()));
  level("bytes", double(table_.bytes()));
  level("log_bytes", double(table_.used_bytes()));
  level("log_live_bytes", double(table_.live_bytes()));
  level("parked_inserts", double(inserts_.size()));
  level("parked_samples", double(samples_.size()));
  level("limiter_inserts", inserts);  // of all servers that had the table
  level("limiter_samples", samples);
  count("inserts", inserts - double(before_.inserts));
  count("samples", samples - double(before_.samples));
  level("samples_in_flight", double(limiter_.reserved()));
  count("evicted", double(table_.evicted() - before_.evicted));
  count("expired", double(expired_));
  count("repeated", double(repeated_));
  count("rejected", double(rejected_));
  count("updates", double(updates_.applied));
  count("stale_updates", double(updates_.stale));
  count("refused_priorities", double(updates_.refused));
  const double capacity = double(options_.table.capacity_items);
  ratio("fill", double(table_.size()) / capacity, capacity);
  ratio("samples_per_insert", samples / inserts, inserts);
  ratio("policy_version_mean", policy_version_mean_, double(drawn_.size()));
  if (drawn_.size() > 0) put("policy_version_min", policy_version_min_, MetricKind::kGaugeMin);
  limiter_.ReportBlocked(prefix, metrics);
  if (!journal_) return;
  const Journal::Stats& stats = journal_->stats();
  count("commits", double(stats.commits));
  count("commit_bytes", double(stats.commit_bytes));
  count("snapshots", double(stats.rounds));
  count("disk_failures", double(stats.failures));
  level("unacked_inserts", double(unacked_.size()));
  level("unwritten_bytes", double(journal_->lag_bytes()));
}

}  // namespace troop
