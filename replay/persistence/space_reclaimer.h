#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "core/base/time.h"
#include "replay/persistence/journal_lane.h"
#include "replay/persistence/journal_options.h"
#include "replay/persistence/segment_ranges.h"
#include "replay/persistence/segment_writer.h"
#include "replay/storage/snapshot.h"
#include "replay/table/journal_source.h"

namespace troop {

// Frees disk space, by removing files of segments that the table has freed and outdated snapshots;
// and memory, by spilling: a sealed segment's bytes move from memory to its mapped file. Owner: one
// thread (a Journal).
//
// Invariant: a segment's file is removed only when the records moved out of it are durable, and
// also those that took their place in the table, unless the disk is full. The file `removed` lists
// it before it is removed.
class SpaceReclaimer {
 public:
  // A segment file to remove, and the positions that must be durable before.
  struct Removal {
    std::uint64_t segment = 0;
    LogPosition moved;  // end of the records moved out of it
    // End of the log when the segment left: keeps the disk from holding less than a table. Ignored
    // when the disk is full.
    LogPosition left;
  };
  struct Stats {
    std::int64_t removed = 0, spilled = 0;  // segments
    std::int64_t failures = 0;              // failed jobs
  };

  // `removed`: segments without files.
  SpaceReclaimer(JournalOptions options, SegmentRanges removed);

  // Adds a segment file to remove. REQUIRES: positions ascend from call to call.
  void RemoveLater(const Removal& removal) { removals_.push_back(removal); }
  // Starts a job that removes the segment files that are due, and the files `outdated`. False if
  // there are none, or if the executor is full.
  bool StartRemoval(Time now, const LogProgress& log, std::span<const std::string> outdated,
                    JournalLane* lane);
  // Starts a job that maps the file of the next sealed segment, if options.spill is set. False if
  // there is none, or if the executor is full.
  bool StartSpill(Time now, LogPosition written, const JournalSource& table, JournalLane* lane);
  // Takes the result of either job.
  void Finish(JournalJob* job, JournalSource* table);

  const Stats& stats() const { return stats_; }

 private:
  std::string Path(std::uint64_t segment) const;

  JournalOptions options_;
  SegmentRanges removed_;         // removed or to be removed
  std::deque<Removal> removals_;  // positions ascend
  std::uint64_t spilled_to_ = 0;  // segments up to here were considered
  Stats stats_;
};

}  // namespace troop
