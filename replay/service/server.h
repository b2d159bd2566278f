#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/node.h"
#include "core/metrics/metrics.h"
#include "core/storage/storage.h"
#include "net/network.h"
#include "replay/persistence/journal.h"
#include "replay/table/table.h"

namespace troop {

// Options of one table. The server sets the incarnation and the first generation, and derives the
// table's seed from its name.
struct ReplayTableOptions {
  Table::Options table;
  double samples_per_insert = 8;  // in items, after the first table.min_items; 0: no limit
  double samples_per_insert_tolerance_rate =
      0.1;  // error buffer: ± this share of samples_per_insert * min_items
  // Initial dictionaries; if there are any, none is trained. Frames may need any of them, and are
  // best encoded with the last.
  std::vector<Buffer> dictionaries{};
};

// One replay shard: a set of tables, each with its own rate limiter. Owner: the node's thread.
//
// Requests that must wait for the limiter are parked and answered in order of arrival. Samples are
// reserved when they are answered, and count when the sampler's owner takes them. The messages are
// those of docs/design/protocol.md; bytes from peers are checked before use. The writers' windows
// bound the number of parked inserts.
//
// For tables on disk, inserts also wait while more than journal.lag_bytes are unwritten: a full or
// broken disk blocks them until it is repaired.
//
// A draining sampler gets kOutOfRange instead of waiting. From then on, until a sampler requests
// without draining, inserts are accepted at once, since no samples will follow the last
// experience.
class ReplayServer : public Service {
 public:
  struct Options {
    std::vector<ReplayTableOptions> tables;  // at least one; distinct names
    std::int64_t batch_size_max = 1 << 16;
    // Process incarnation. It makes keys unique across restarts, so that an update that was in
    // flight when a replay process died cannot hit an item of its successor: the first generations
    // of any two of the first 1000 incarnations differ by more than half a million, where each
    // generation is a whole table of inserts. It also keys the random numbers of sampling.
    std::uint64_t incarnation = 0;
    // Runs dictionary training and disk writes. Outlives the server; null: neither happens.
    Executor* executor = nullptr;
    // Storage for persistent tables, each in its own folder below `journal.folder`; null: tables
    // are kept in memory only. Outlives the server.
    Storage* storage = nullptr;
    Journal::Options journal{};
    // True if the coordinator has issued this number (the upper half of a policy version) or a
    // newer one. Versions that fail are ignored, since ages count from the newest version. Empty:
    // all are accepted.
    std::function<bool(std::uint64_t)> version_is_issued{};
    bool ack_on_disk = false;  // acknowledge an insert only when it is durable
  };
  // Takes results of jobs, starts new ones and keeps time. Call after each Pump, and at the latest
  // at the returned time.
  virtual Time Tick(Time now) = 0;
  // Stops serving: new and parked requests stay unanswered, and the tables are written to disk
  // completely. drained() becomes true some Ticks later.
  virtual void Drain() = 0;
  virtual bool drained() const = 0;
  // Reports metrics as replay/… for the first table and replay/<name>/… for the others: items,
  // fill, bytes; inserts, samples, samples_per_insert, evicted, expired, repeated, rejected;
  // updates, stale_updates, rejected_priorities, rejected_requests; waiting_inserts,
  // waiting_samples, insert_blocked_s, sample_blocked_s, each also by reason; policy_version_mean
  // and _min of the last sample; for sampled items the histograms policy_age (updates) and age
  // (items inserted since). For tables on disk also: commits, commit_bytes, snapshots,
  // disk_failures, unacked_inserts, unwritten_bytes.
  virtual void Report(Metrics* metrics) const = 0;
  // Reason why inserts of a table are blocked or unacknowledged, such as a full disk or exhausted
  // memory; empty if there is none.
  virtual std::string Blocked() const = 0;
};

// Creates a server and restores its persistent tables. Errors: kInvalidArgument: unusable options;
// kResourceExhausted: out of memory; those of RestoreTable.
Result<std::unique_ptr<ReplayServer>> MakeReplayServer(const ReplayServer::Options& options);

// Memory of a full replay with these options; for --dry-run and the memory check. REQUIRES:
// capacity_items >= 1.
std::size_t PredictReplayBytes(const ReplayServer::Options& options);

}  // namespace troop
