// Table::Insert: checks a call completely, makes room for it, then appends its frames and items.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "replay/table/table_state.h"

namespace troop {
namespace {

// Limit of one record: offsets in a segment are 32 bits, and real calls are far smaller.
constexpr std::size_t kRecordBytesMax = std::size_t{1} << 30;
// Limit that keeps sums of frame numbers within 64 bits.
constexpr std::uint64_t kFrameNumberMax = std::uint64_t{1} << 62;
// Limit of updates in a policy version (see CheckItem).
constexpr std::uint64_t kUpdatesMax = std::uint64_t{1} << 31;
// Items evicted at a time when frames or bytes run short: one node of the sum tree.
constexpr std::int64_t kAtOnce = 16;

bool PriorityOk(float priority) { return priority >= 0 && priority <= FLT_MAX; }

}  // namespace

Result<Table::InsertCounts> Table::State::Insert(const EncodedInsert& call) {
  ReleaseHeld();  // frame pointers of the last draw expire here
  // 1. Check sizes, recognize repeats, check the content. Nothing changes so far.
  TROOP_RETURN_IF_ERROR(ViewChunks(call.chunks));
  if (window.HasAll(view)) return InsertCounts{.repeated = std::int64_t(call.items.size())};
  for (const InsertWindow::ChunkView& chunk : view) TROOP_RETURN_IF_ERROR(CheckFrames(chunk));
  // 2. Plan the frames, then the items over them, and make room. The last step may evict items.
  InsertCounts counts;
  Status status = window.Plan(view);
  if (status.ok()) status = PlanItems(call.items, &counts);
  if (status.ok()) status = MakeRoom(std::int64_t(planned.size()));
  if (!status.ok()) {
    window.Abandon();
    return status;
  }
  // 3. Nothing can fail from here on.
  if (options.reservoir) SampleReservoir(&counts);
  AddItems(call.items);
  counts.inserted = std::int64_t(planned.size());
  // Each received byte makes about one byte dead; compacting half-dead segments at twice that rate
  // keeps up.
  Compact((std::size_t{64} << 10) + 2 * record_bytes);
  return counts;
}

// ---- Checks -------------------------------------------------------------------------------------

// Checks that each column has the size of its chunk's frames.
Status Table::State::ViewChunks(std::span<const EncodedChunk> chunks) {
  view.clear();
  for (const EncodedChunk& chunk : chunks) {
    const std::size_t n = chunk.frames;
    const auto refuse = [&chunk](std::string_view what, std::size_t bytes) {
      return InvalidArgument("stream {:#x}: {} frames with {} bytes of {}, which is a wrong size",
                             chunk.stream, chunk.frames, bytes, what);
    };
    if (n == 0 || chunk.first_frame > kFrameNumberMax) {
      return InvalidArgument(
          "stream {:#x}: {} frames from number {}, must be >= 1 frame below number 2^62",
          chunk.stream, chunk.frames, chunk.first_frame);
    }
    if (chunk.action.size() != n * layout.action_bytes) {
      return refuse("actions", chunk.action.size());
    }
    if (chunk.reward.size() != n * 4) return refuse("rewards", chunk.reward.size());
    if (chunk.discount.size() != n * 4) return refuse("discounts", chunk.discount.size());
    if (chunk.final.size() != n) return refuse("ends", chunk.final.size());
    if (chunk.frame_bytes.size() != (layout.has_codec ? n * 4 : 0)) {
      return refuse("frame sizes", chunk.frame_bytes.size());
    }
    // 64-bit sum: the sizes are 32-bit values from a peer.
    std::uint64_t encoded = n * layout.observation_bytes;
    if (layout.has_codec) {
      encoded = 0;
      for (std::size_t i = 0; i < n; ++i) {
        encoded += Load<std::uint32_t>(chunk.frame_bytes.data(), i);
      }
    }
    if (chunk.observation.size() != encoded || encoded > kRecordBytesMax) {
      return refuse("observations", chunk.observation.size());
    }
    view.push_back({chunk.stream,
                    chunk.first_frame,
                    chunk.frames,
                    std::uint32_t(encoded),
                    {chunk.action.data(), chunk.reward.data(), chunk.discount.data(),
                     chunk.final.data(), chunk.frame_bytes.data(), chunk.observation.data()}});
  }
  return Status::Ok();
}

// Checks the values of each frame, and decodes its observation to detect damage.
Status Table::State::CheckFrames(const InsertWindow::ChunkView& chunk) {
  const auto refuse = [&chunk](std::uint32_t i, std::string_view why) {
    return InvalidArgument("stream {:#x}, frame {}: {}", chunk.stream, chunk.first_frame + i, why);
  };
  const std::byte* frame = chunk.columns.observation;
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    const auto reward = Load<float>(chunk.columns.reward, i);
    const auto discount = Load<float>(chunk.columns.discount, i);
    if (!std::isfinite(reward)) return refuse(i, fmt::format("reward {} is not finite", reward));
    if (!(discount >= 0 && discount <= 1)) {
      return refuse(i, fmt::format("discount {} is not in [0, 1]", discount));
    }
    if (std::uint8_t(chunk.columns.final[i]) > 1) return refuse(i, "final mark is not 0 or 1");
    if (!layout.has_codec) continue;
    const auto bytes = Load<std::uint32_t>(chunk.columns.frame_bytes, i);
    const Status status = coder.Decode({frame, bytes}, decoded.data());
    if (!status.ok()) return refuse(i, status.message());
    frame += bytes;
  }
  return Status::Ok();
}

// Checks all properties of an item that do not depend on frames.
Status Table::State::CheckItem(const Item& i) const {
  const auto refuse = [&i](const std::string& why) {
    return InvalidArgument("item of stream {:#x} at frame {}, length {}: {}", i.stream,
                           i.first_frame, i.length, why);
  };
  if (i.length < 1 || i.length > std::uint32_t(options.view.length_max)) {
    return refuse(fmt::format("length must be in [1, {}]", options.view.length_max));
  }
  if (i.burn_in > std::uint32_t(options.view.burn_in)) {
    return refuse(
        fmt::format("burn_in is {}, must be at most {}", i.burn_in, options.view.burn_in));
  }
  // With stacks, lead frames of the stack would be taken for steps of a longer burn-in.
  if (options.view.stack > 1 && i.burn_in != std::uint32_t(options.view.burn_in)) {
    return refuse(fmt::format("burn_in is {}, must be {} with stacked observations", i.burn_in,
                              options.view.burn_in));
  }
  // No learner reaches this many updates; one such item would make all others too old.
  if (UpdatesOf(i.policy_version) >= kUpdatesMax) {
    return refuse(fmt::format("policy version {:#x} is invalid", i.policy_version));
  }
  if (!PriorityOk(i.priority)) {
    return refuse(fmt::format("priority {} must be finite and >= 0", i.priority));
  }
  if (i.state.size() != layout.state_bytes) {
    return refuse(
        fmt::format("state has {} bytes, must have {}", i.state.size(), layout.state_bytes));
  }
  return Status::Ok();
}

// Locates the frames of each item. An invalid item fails the call; one whose frames left is only
// counted as expired.
Status Table::State::PlanItems(std::span<const Item> items, InsertCounts* counts) {
  planned.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    TROOP_RETURN_IF_ERROR(CheckItem(items[i]));
    const int lead = options.view.stack - 1 + int(items[i].burn_in);
    TROOP_ASSIGN_OR_RETURN(const auto located, window.Locate(items[i], lead));
    if (located) {
      planned.push_back({*located, std::uint32_t(i)});
    } else {
      ++counts->expired;
      RecordEvent(HistoryEvent::kDropped, items[i]);
    }
  }
  return Status::Ok();
}

// ---- Room ---------------------------------------------------------------------------------------

// Evicts items and drops silent streams until the call fits. A call that can never fit is refused
// before the first eviction. Errors leave the table unchanged, with one exception: at bytes_max the
// allocation must follow the evictions that pay for it, and may fail if the machine lacks memory.
Status Table::State::MakeRoom(std::int64_t newcomers) {
  if (newcomers > slots) {
    return ResourceExhausted(
        "replay: insert of {} items exceeds {} slots; send fewer or raise capacity_items",
        newcomers, slots);
  }
  if (!window.fits_alone()) {
    return ResourceExhausted(
        "replay: the streams of one insert hold more than all {} frames of the log; send items of "
        "fewer streams at once or raise capacity_items",
        log.capacity());
  }
  const std::size_t bytes = window.RecordBytes(item_records ? std::uint32_t(newcomers) : 0);
  const std::size_t bytes_max =
      options.bytes_max > 0 ? std::min(options.bytes_max / 2, kRecordBytesMax) : kRecordBytesMax;
  if (bytes > bytes_max) {
    return ResourceExhausted(
        "replay: insert of {} bytes exceeds the limit of {}; send less or raise bytes_max", bytes,
        bytes_max);
  }
  // Allocate before any change, since it can fail, unless that would exceed bytes_max: then
  // ReduceToBytes must free memory first.
  const std::size_t memory = log.store().memory() + log.store().Needs(bytes);
  if (options.bytes_max == 0 || memory <= options.bytes_max) {
    TROOP_RETURN_IF_ERROR(log.store().Prepare(bytes));
  }
  if (!options.reservoir && size + newcomers > slots) Evict(size + newcomers - slots);
  // Frames run short. Silent streams go first if they hold most of the log, or if few items are
  // left; else items go.
  while (!window.has_room()) {
    const bool keep_items = streams.tails_hold_much() || size <= options.min_items;
    if (keep_items && streams.EvictSilent()) continue;
    if (size > 0) {
      Evict(std::min(kAtOnce, size));
    } else {
      TROOP_CHECK(streams.EvictSilent(), "an empty table pins {} frames", log.frames());
    }
  }
  record_bytes = bytes;
  return options.bytes_max > 0 ? ReduceToBytes() : Status::Ok();
}

// Frees memory until the record fits into bytes_max: by compaction, then by eviction. A reserve
// keeps compaction possible: what it moves at once may be as large as a record.
Status Table::State::ReduceToBytes() {
  SegmentStore& store = log.store();
  const std::size_t largest = std::max(store.segment_bytes(), store.largest_record());
  const std::size_t reserve = std::min(RoundToPages(largest), options.bytes_max / 8);
  while (store.memory() + store.Needs(record_bytes) + reserve > options.bytes_max) {
    const std::uint64_t before = compacted;
    Compact(store.segment_bytes(), true);
    if (compacted != before) continue;
    if (size > 0) {
      Evict(std::min(kAtOnce, size));
    } else if (!streams.EvictSilent()) {
      break;  // only the call's own streams are left
    }
  }
  return store.Prepare(record_bytes);
}

// ---- New items ----------------------------------------------------------------------------------

// Vitter 1985, algorithm R: the t-th item offered is accepted with probability slots / t.
void Table::State::SampleReservoir(InsertCounts* counts) {
  std::int64_t after = size;
  std::erase_if(planned, [&](const Planned&) {
    ++seen;
    if (after < slots) {
      ++after;
      return false;
    }
    const bool taken = remover_rng.Uniform() * double(seen) < double(slots);
    if (!taken) ++counts->rejected;
    return !taken;
  });
}

// Appends the record, then adds the items to slots and, in batches, to the selectors.
void Table::State::AddItems(std::span<const Item> items) {
  SegmentStore::Place place;
  const auto count = std::uint32_t(planned.size());
  RecordWriter writer = window.Write(item_records ? count : 0, &place);
  if (options.feed) NoteNewFrames(window.written(place));
  chosen.clear();
  priority.clear();
  // Adds the collected slots to both selectors. Must run before Evict, which may choose one of
  // them.
  const auto add = [&] {
    if (chosen.empty()) return;
    sampler->Add(chosen, priority);
    remover->Add(chosen, priority);
    chosen.clear();
    priority.clear();
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    if (size == slots) {  // reservoir: replaces one item, possibly of this call
      add();
      Evict(1);
    }
    const Item& newcomer = items[planned[i].item];
    chosen.push_back(AddItem(planned[i], newcomer, i, place, &writer));
    priority.push_back(item[chosen.back()].priority);
  }
  add();
  TrimOrder();
  writer.Finish(options.checksums);
  window.End();
}

void Table::State::RecordEvent(HistoryEvent::What what, const Item& item) const {
  if (options.history == nullptr) return;
  options.history->Note({what, item.stream, item.first_frame, item.length, 0});
}

// Stores one item: its slot, references to its frames, and its record if records hold items.
Table::State::Slot Table::State::AddItem(const Planned& plan, const Item& newcomer,
                                         std::uint32_t index, const SegmentStore::Place& place,
                                         RecordWriter* writer) {
  const Slot taken = TakeSlot();
  Stored& stored = item[taken];
  Cold& rest = cold[taken];
  stored = {.first = window.Id(plan.at.begin),
            .generation = stored.generation,
            .policy_version = newcomer.policy_version,
            .number = inserted++,
            .length = std::uint16_t(newcomer.length),
            .lead = std::uint16_t(plan.at.lead),
            .priority = Effective(newcomer.priority)};
  rest = {};
  for (std::uint32_t w = 0; w < stored.frames(); ++w) log.Refer(window.Id(plan.at.begin + w));
  if (options.feed) NoteArrival(taken);
  if (item_records) {
    const ItemRecord written{.stream = newcomer.stream,
                             .first_frame = newcomer.first_frame,
                             .policy_version = newcomer.policy_version,
                             .number = stored.number,
                             .length = stored.length,
                             .lead = stored.lead,
                             .priority = stored.priority,
                             .slot = taken,
                             .generation = stored.generation};
    std::memcpy(writer->item + index * sizeof(written), &written, sizeof(written));
    if (layout.state_bytes > 0) {
      std::byte* const at = writer->state + index * layout.state_bytes;
      std::memcpy(at, newcomer.state.data(), layout.state_bytes);
      rest.state = std::uint32_t(at - place.at) + place.offset;
    }
    rest.segment = place.segment;
    log.store().AddLive(place.segment, layout.item_bytes());
  }
  RecordEvent(HistoryEvent::kInserted, newcomer);
  if (!version_told) newest_version = std::max(newest_version, newcomer.policy_version);
  if (options.max_policy_age > 0) order.push_back(std::uint64_t{stored.generation} << 32 | taken);
  MarkDirty(taken);
  ++size;
  return taken;
}

}  // namespace troop
