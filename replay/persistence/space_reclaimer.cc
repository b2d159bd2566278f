// SpaceReclaimer: removal of files, and spilling.
#include "replay/persistence/space_reclaimer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "core/base/log.h"
#include "replay/persistence/journal_names.h"

namespace troop {
namespace {

constexpr std::size_t kRemovalsPerJob = 256;  // keeps a job about as short as a sync

}  // namespace

SpaceReclaimer::SpaceReclaimer(JournalOptions options, SegmentRanges removed)
    : options_(std::move(options)), removed_(std::move(removed)) {}

std::string SpaceReclaimer::Path(std::uint64_t segment) const {
  return options_.folder + "/" + JournalSegmentName(segment);
}

bool SpaceReclaimer::StartRemoval(Time now, const LogProgress& log,
                                  std::span<const std::string> outdated, JournalLane* lane) {
  auto job = std::make_shared<JournalJob>();
  // A segment that the running commit may still write is not removed. A full disk relaxes the
  // order: removing files makes room for the moved records.
  const auto due = [&log](const Removal& removal) {
    const bool may_be_written = log.committing && removal.segment >= log.written.segment;
    return (log.disk_full ? removal.moved : removal.left) <= log.durable && !may_be_written;
  };
  std::size_t count = 0;
  for (; count < std::min(removals_.size(), kRemovalsPerJob) && due(removals_[count]); ++count) {
    job->removals.push_back(Path(removals_[count].segment));
    removed_.Add(removals_[count].segment);
  }
  if (count > 0) {
    job->note = {options_.folder + "/" + std::string(kJournalRemoved), removed_.Encode()};
  }
  std::ranges::copy(outdated, std::back_inserter(job->removals));
  if (job->removals.empty() || !lane->Start("replay removal", std::move(job), now)) return false;
  stats_.removed += std::int64_t(count);
  removals_.erase(removals_.begin(), removals_.begin() + std::ptrdiff_t(count));
  return true;
}

// One segment per job. The open segment, and those that are not written yet, stay in memory.
bool SpaceReclaimer::StartSpill(Time now, LogPosition written, const JournalSource& table,
                                JournalLane* lane) {
  if (!options_.spill || spilled_to_ + 1 >= written.segment) return false;
  for (const std::shared_ptr<const Segment>& segment : table.segments()) {
    if (segment->id() <= spilled_to_ || segment->id() >= written.segment) continue;
    auto job = std::make_shared<JournalJob>();
    job->map = Path(segment->id());
    job->segment = segment->id();
    if (!lane->Start("replay spill", std::move(job), now)) return false;
    spilled_to_ = segment->id();
    return true;
  }
  spilled_to_ = written.segment - 1;
  return false;
}

void SpaceReclaimer::Finish(JournalJob* job, JournalSource* table) {
  if (!job->status.ok()) {
    // The cost is a superfluous file, or memory that is not released; a restart corrects both.
    ++stats_.failures;
    LogWarning("replay: {}", job->status.ToString());
  } else if (job->segment != 0) {
    stats_.spilled += table->MoveSegment(job->segment, std::move(job->mapped));
  }
}

}  // namespace troop
