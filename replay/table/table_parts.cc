// TableParts: construction of a table's parts, and the counters of all of them.
#include "replay/table/table_parts.h"

#include <algorithm>
#include <utility>

namespace troop {

Result<std::unique_ptr<TableParts>> TableParts::Make(const TableOptions& options) {
  TROOP_RETURN_IF_ERROR(options.Check());
  // Everything that can run out of memory is allocated here, before any item exists.
  TROOP_ASSIGN_OR_RETURN(FrameLog log, FrameLog::Make(options.LogOptions()));
  TROOP_ASSIGN_OR_RETURN(SelectorPair selectors, SelectorPair::Make(options.SelectorOptions()));
  // Dirty lines are needed only by the journal's snapshots.
  TROOP_ASSIGN_OR_RETURN(ItemSlots slots,
                         ItemSlots::Make({.slots = options.slots(),
                                          .first_generation = options.first_generation,
                                          .tracks_lines = options.checksums}));
  return std::make_unique<TableParts>(options, std::move(log), std::move(slots),
                                      std::move(selectors));
}

// Members refer to each other, so they are constructed in the order of the ladder and never move.
TableParts::TableParts(const TableOptions& o, FrameLog frame_log, ItemSlots item_slots,
                       SelectorPair selector_pair)
    : options(o),
      log(std::move(frame_log)),
      streams(&log, o.view.frames_max()),
      window(&log, &streams),
      slots(std::move(item_slots)),
      selectors(std::move(selector_pair)),
      ages(o.max_policy_age, &slots),
      feed(o.feed, &log, &slots),
      evictor({.capacity_items = o.capacity_items,
               .trim_every_samples = o.trim_every_samples,
               .item_bytes = log.layout().item_bytes()},
              {.log = &log, .slots = &slots, .selectors = &selectors}),
      compactor({.bytes_max = o.bytes_max, .checksums = o.checksums}, &log, &slots),
      inserter(o,
               {.log = &log,
                .window = &window,
                .slots = &slots,
                .selectors = &selectors,
                .ages = &ages,
                .evictor = &evictor,
                .feed = &feed},
               {.log = &log,
                .streams = &streams,
                .window = &window,
                .slots = &slots,
                .evictor = &evictor,
                .compactor = &compactor}),
      sampler(o, {.log = &log,
                  .slots = &slots,
                  .selectors = &selectors,
                  .ages = &ages,
                  .evictor = &evictor}),
      updater(o.priority_epsilon, &slots, &selectors),
      journal_source(this) {}

// The part of a snapshot besides items and frames, so that a restored table continues exactly.
TableCounters TableParts::Counters() const {
  return {.inserted = slots.inserted(),
          .draws = sampler.draws(),
          .seen = inserter.seen(),
          .newest_policy_version = ages.newest(),
          .samples_since_trim = evictor.samples_since_trim(),
          .reserved = {selectors.remover_rng().position(), 0, 0}};
}

// Comes after the items, whose number is a lower bound of one counter.
void TableParts::RestoreCounters(const TableCounters& counters) {
  // Every restored item was offered, also those that came after the snapshot.
  sampler.RestoreDraws(counters.draws);
  inserter.RestoreSeen(std::max(counters.seen, std::uint64_t(slots.size())));
  ages.Raise(counters.newest_policy_version);
  evictor.RestoreSamples(counters.samples_since_trim);
  selectors.remover_rng().Seek(counters.reserved[0]);
}

}  // namespace troop
