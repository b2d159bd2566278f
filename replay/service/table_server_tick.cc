// TableServer: periodic work between requests, status and metrics.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "replay/service/table_server.h"

namespace troop {
namespace {

// Polls of the journal per Tick while idle: a snapshot round may use up to a millisecond per Tick,
// at most one Tick every two milliseconds.
constexpr int kIdlePolls = 64;
constexpr Duration kTickEveryMin = Milliseconds(2);
// Upper bound, for detecting disconnected clients and for the limiter's waiting times.
constexpr Duration kTickEveryMax = Seconds(1);

}  // namespace

// Clients expire before requests are answered, since their reservations are released.
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

// Blocks inserts while the disk lags: commits read the log in memory, which must not turn over
// before they are written.
void TableServer::NoteBehind() {
  const bool was = std::exchange(behind_, journal_->behind());
  if (behind_ && !was) {
    LogWarning("replay: table {} accepts no inserts: {} MiB wait for the disk{}{}", name(),
               journal_->lag_bytes() >> 20, journal_->error().ok() ? "" : ": ",
               journal_->error().message());
  }
  if (was && !behind_ && !ended_) SettleAll();
}

// Puts a newly trained dictionary into use.
void TableServer::PollDictionary() {
  if (!trainer_.busy()) return;
  const Buffer bytes = trainer_.Poll();
  if (bytes.empty()) return;
  if (const auto dictionary = MakeFrameDictionary(bytes)) AddDictionary(dictionary);
}

// Polls the journal and answers inserts and checkpoints that it has completed. A failing disk is
// retried forever, and dependent requests wait.
void TableServer::PollJournal(Time now) {
  journal_->SetOwner(Counts());
  if (!checkpoints_.empty()) journal_->SnapshotNow();
  Time next = journal_->Poll(now, &journaled_);
  // Without requests since the last Tick, the journal may use the idle time.
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

// Parked requests stay unanswered, so that clients repeat them at the next process.
void TableServer::Drain() {
  ended_ = true;
  if (journal_) journal_->Drain();
}

// Everything that a client without the config needs to push or sample.
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

// Memory first: then the disk, then acknowledgements that wait for it.
std::string TableServer::Blocked() const {
  if (!insert_error_.ok()) {
    return fmt::format("table {} accepts no inserts: {}", name(), insert_error_.message());
  }
  if (journal_ == nullptr) return {};
  const std::string& error = journal_->error().message();
  if (behind_) {
    return fmt::format("table {} accepts no inserts: {} MiB wait for the disk{}{}", name(),
                       journal_->lag_bytes() >> 20, error.empty() ? "" : ": ", error);
  }
  if (error.empty() || unacked_.empty()) return {};
  return fmt::format("table {}: {} inserts wait for the disk (replay.durability = \"disk\"): {}",
                     name(), unacked_.size(), error);
}

void TableServer::Report(std::string_view prefix, Metrics* metrics) const {
  // put: one metric with the table's prefix. Counters add up over shards, ratios are weighted.
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
  // Counters exclude earlier processes, which reported their own; levels include them.
  const double inserts = double(limiter_.inserts()), samples = double(limiter_.samples());
  level("items", double(table_.size()));
  level("bytes", double(table_.bytes()));
  level("log_bytes", double(table_.used_bytes()));
  level("log_live_bytes", double(table_.live_bytes()));
  level("waiting_inserts", double(inserts_.size()));
  level("waiting_samples", double(samples_.size()));
  level("limiter_inserts", inserts);  // including earlier processes of the table
  level("limiter_samples", samples);
  count("inserts", inserts - double(before_.inserts));
  count("samples", samples - double(before_.samples));
  level("samples_in_flight", double(limiter_.reserved()));
  count("evicted", double(table_.evicted() - before_.evicted));
  count("expired", double(expired_));
  count("duplicate_requests", double(repeated_));
  count("rejected_items", double(rejected_));
  count("updates", double(updates_.applied));
  count("stale_updates", double(updates_.stale));
  count("rejected_priorities", double(updates_.refused));
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
