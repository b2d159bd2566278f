#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "core/node.h"
#include "core/storage.h"
#include "net/network.h"
#include "replay/journal.h"
#include "replay/table.h"

namespace troop {

// One table of a server. Its seed is its own; incarnation and first generation are the server's
// matter.
struct ReplayTableOptions {
  Table::Options table;
  double samples_per_insert = 8;  // of items, after the first table.min_items; 0: no limit
  double ratio_error = 0.1;       // band: ± this share of samples_per_insert * min_items
  // Dictionaries that are there from the start; then none is trained. Frames may need any, and are
  // best encoded with the last.
  std::vector<Buffer> dictionaries{};
};

// One replay shard behind a Service: tables, each with its limiter. Owner: the node's thread.
// Requests that must wait for the limiter are parked, and answered in the order of arrival. Samples
// are reserved when they are answered, and count when they are taken. Bytes from peers are checked
// before use; the messages are those of docs/protocol.md. Parked inserts are bounded by the windows
// of the writers.
// Where tables are on disk, inserts also wait while more than journal.lag_bytes are not written: a
// disk that is full or broken stops them until it is repaired.
// A sampler that drains gets kOutOfRange where it would wait; from then on, until some sampler asks
// without draining, inserts are taken at once: the last experience has nobody to wait for.
class ReplayServer : public Service {
 public:
  struct Options {
    std::vector<ReplayTableOptions> tables;  // at least one; names differ
    std::int64_t batch_size_max = 1 << 16;
    // Its keys are no other's of the same place: an update that was on its way when a replay died
    // does not hit an item of its successor. Distances between the first 1000 are above half a
    // million generations, each a whole table of inserts. Its draws are its own likewise.
    std::uint64_t incarnation = 0;
    // Trains dictionaries, writes to the disk. Outlives the server; null: neither.
    Executor* executor = nullptr;
    // Where tables are kept, each in a folder of its own below `journal.folder`; null: nowhere.
    // Outlives the server.
    Storage* storage = nullptr;
    Journal::Options journal{};
    // True if the coordinator has issued what a policy's version has in its upper half, or a newer
    // number: ages are counted from the newest version. Empty: all are taken.
    std::function<bool(std::uint64_t)> version_is_issued{};
    bool ack_on_disk = false;  // an insert is acknowledged when a restart would find it
  };
  // Takes the results of jobs, starts new ones, keeps the time. After each Pump, and at the latest
  // at the time that is returned.
  virtual Time Tick(Time now) = 0;
  // Nothing is taken any more, what waits stays unanswered; the tables are brought to the disk
  // whole. Then drained(), some Ticks later.
  virtual void Drain() = 0;
  virtual bool drained() const = 0;
  // Of the first table as replay/…, of others as replay/<name>/…: items, fill, bytes; inserts,
  // samples, samples_per_insert, evicted, expired, repeated, rejected; updates, stale_updates,
  // refused_priorities, refused_requests; parked_inserts, parked_samples, insert_blocked_s,
  // sample_blocked_s, each also by reason; policy_version_mean and _min of the last draw; of drawn
  // items the histograms policy_age (updates) and age (items inserted since). Of tables on disk:
  // commits, commit_bytes, snapshots, disk_failures, unacked_inserts, unwritten_bytes.
  virtual void Report(Metrics* metrics) const = 0;
  // Why inserts of a table are not taken or not acknowledged: a disk that is full, memory that is
  // refused. Empty: they are.
  virtual std::string Blocked() const = 0;
};

// Errors: kInvalidArgument: options that cannot work; kResourceExhausted: memory is refused.
Result<std::unique_ptr<ReplayServer>> MakeReplayServer(const ReplayServer::Options& options);

// Bytes that a replay of these options will take when full; for --dry-run and the memory check.
// REQUIRES: capacity_items >= 1.
std::size_t PredictReplayBytes(const ReplayServer::Options& options);

}  // namespace troop
