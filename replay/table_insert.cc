#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "replay/table_state.h"

namespace troop {
namespace {

// Offsets in a segment are 32 bits; a call is far smaller.
constexpr std::size_t kRecordBytesMax = std::size_t{1} << 30;
// So that no sum of frame numbers leaves 64 bits.
constexpr std::uint64_t kFrameNumberMax = std::uint64_t{1} << 62;
constexpr std::uint64_t kUpdatesMax = std::uint64_t{1} << 31;
// Items that leave at once where frames or bytes are short: one node of the sum tree.
constexpr std::int64_t kAtOnce = 16;

bool PriorityOk(float priority) { return priority >= 0 && priority <= FLT_MAX; }

}  // namespace

Result<Table::InsertCounts> Table::State::Insert(const EncodedInsert& call) {
  ReleaseHeld();
  TROOP_RETURN_IF_ERROR(ViewChunks(call.chunks));
  if (log.HasAll(view)) return InsertCounts{.repeated = std::int64_t(call.items.size())};
  for (const FrameLog::ChunkView& chunk : view) TROOP_RETURN_IF_ERROR(CheckFrames(chunk));
  InsertCounts counts;
  Status status = log.Plan(view);
  if (status.ok()) status = PlanItems(call.items, &counts);
  if (status.ok()) status = MakeRoom(std::int64_t(planned.size()));
  if (!status.ok()) {
    log.Abandon();
    return status;
  }
  if (options.reservoir) ChooseNewcomers(&counts);
  AddItems(call.items);
  counts.inserted = std::int64_t(planned.size());
  // Each byte that comes makes about one die; emptying half-dead segments at twice that pace keeps
  // up.
  Compact((std::size_t{64} << 10) + 2 * record_bytes);
  return counts;
}

// ---- Checks -------------------------------------------------------------------------------------

Status Table::State::ViewChunks(std::span<const EncodedChunk> chunks) {
  view.clear();
  for (const EncodedChunk& chunk : chunks) {
    const std::size_t n = chunk.frames;
    const auto refuse = [&chunk](std::string_view what, std::size_t bytes) {
      return InvalidArgument("stream {:#x}: {} frames with {} bytes of {}", chunk.stream,
                             chunk.frames, bytes, what);
    };
    if (n == 0 || chunk.first_frame > kFrameNumberMax) {
      return InvalidArgument("stream {:#x}: {} frames from number {} on", chunk.stream,
                             chunk.frames, chunk.first_frame);
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

Status Table::State::CheckFrames(const FrameLog::ChunkView& chunk) {
  const auto refuse = [&chunk](std::uint32_t i, std::string_view why) {
    return InvalidArgument("stream {:#x}, frame {}: {}", chunk.stream, chunk.first_frame + i, why);
  };
  const std::byte* frame = chunk.columns.observation;
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    const auto reward = Load<float>(chunk.columns.reward, i);
    const auto discount = Load<float>(chunk.columns.discount, i);
    if (!std::isfinite(reward)) return refuse(i, fmt::format("a reward of {}", reward));
    if (!(discount >= 0 && discount <= 1)) {
      return refuse(i, fmt::format("a discount of {}", discount));
    }
    if (std::uint8_t(chunk.columns.final[i]) > 1) return refuse(i, "an end that is not 0 or 1");
    if (!layout.has_codec) continue;
    const auto bytes = Load<std::uint32_t>(chunk.columns.frame_bytes, i);
    const Status status = coder.Decode({frame, bytes}, decoded.data());
    if (!status.ok()) return refuse(i, status.message());
    frame += bytes;
  }
  return Status::Ok();
}

Status Table::State::CheckItem(const Item& i) const {
  const auto refuse = [&i](const std::string& why) {
    return InvalidArgument("item of stream {:#x} at frame {}, length {}: {}", i.stream,
                           i.first_frame, i.length, why);
  };
  if (i.length < 1 || i.length > std::uint32_t(options.view.length_max)) {
    return refuse(fmt::format("lengths are 1 to {}", options.view.length_max));
  }
  if (i.burn_in > std::uint32_t(options.view.burn_in)) {
    return refuse(
        fmt::format("{} frames of burn-in, this table keeps {}", i.burn_in, options.view.burn_in));
  }
  // The stack's frames before an item would pass for steps of a longer burn-in.
  if (options.view.stack > 1 && i.burn_in != std::uint32_t(options.view.burn_in)) {
    return refuse(fmt::format("{} frames of burn-in, with stacks exactly {} are possible",
                              i.burn_in, options.view.burn_in));
  }
  // What no learner comes to; one such item would make all others too old.
  if (UpdatesOf(i.policy_version) >= kUpdatesMax) {
    return refuse(fmt::format("its policy version {:#x} is none", i.policy_version));
  }
  if (!PriorityOk(i.priority)) {
    return refuse(fmt::format("its priority {} is not finite and at least 0", i.priority));
  }
  if (i.state.size() != layout.state_bytes) {
    return refuse(
        fmt::format("a state of {} bytes, {} are right", i.state.size(), layout.state_bytes));
  }
  return Status::Ok();
}

Status Table::State::PlanItems(std::span<const Item> items, InsertCounts* counts) {
  planned.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    TROOP_RETURN_IF_ERROR(CheckItem(items[i]));
    const int lead = options.view.stack - 1 + int(items[i].burn_in);
    TROOP_ASSIGN_OR_RETURN(const auto located, log.Locate(items[i], lead));
    if (located) {
      planned.push_back({*located, std::uint32_t(i)});
    } else {
      ++counts->expired;
      Tell(HistoryEvent::kDropped, items[i]);
    }
  }
  return Status::Ok();
}

// ---- Room ---------------------------------------------------------------------------------------

Status Table::State::MakeRoom(std::int64_t newcomers) {
  if (newcomers > slots) {
    return ResourceExhausted(
        "replay: an insert of {} items into {} slots; send less or raise the capacity", newcomers,
        slots);
  }
  if (!log.fits_alone()) {
    return ResourceExhausted(
        "replay: an insert whose streams hold more than all {} frames of the log; send items of "
        "fewer streams at once or raise the capacity",
        log.capacity());
  }
  const std::size_t bytes = log.RecordBytes(item_records ? std::uint32_t(newcomers) : 0);
  const std::size_t bytes_max =
      options.bytes_max > 0 ? std::min(options.bytes_max / 2, kRecordBytesMax) : kRecordBytesMax;
  if (bytes > bytes_max) {
    return ResourceExhausted(
        "replay: an insert of {} bytes, {} fit at once; send less or raise bytes_max", bytes,
        bytes_max);
  }
  // What can fail comes before what changes anything, unless that would take the memory of others.
  const std::size_t memory = log.store().memory() + log.store().Needs(bytes);
  if (options.bytes_max == 0 || memory <= options.bytes_max) {
    TROOP_RETURN_IF_ERROR(log.store().Prepare(bytes));
  }
  if (!options.reservoir && size + newcomers > slots) Evict(size + newcomers - slots);
  while (!log.has_room()) {
    const bool keep_items = log.streams_hold_much() || size <= options.min_items;
    if (keep_items && log.ForgetSilentStream()) continue;
    if (size > 0) {
      Evict(std::min(kAtOnce, size));
    } else {
      TROOP_CHECK(log.ForgetSilentStream(), "an empty table pins {} frames", log.frames());
    }
  }
  record_bytes = bytes;
  return options.bytes_max > 0 ? ReduceToBytes() : Status::Ok();
}

// So much is kept free that compaction always has where to go: what it moves at once may be as
// large as a record.
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
    } else if (!log.ForgetSilentStream()) {
      break;  // what is left is the call's own
    }
  }
  return store.Prepare(record_bytes);
}

// ---- Newcomers ----------------------------------------------------------------------------------

// Vitter 1985, algorithm R: the t-th newcomer is taken with chance slots / t.
void Table::State::ChooseNewcomers(InsertCounts* counts) {
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

void Table::State::AddItems(std::span<const Item> items) {
  SegmentStore::Place place;
  const auto count = std::uint32_t(planned.size());
  RecordWriter writer = log.Write(item_records ? count : 0, &place);
  if (options.feed) NoteNewFrames(log.written(place));
  chosen.clear();
  priority.clear();
  const auto add = [&] {
    if (chosen.empty()) return;
    sampler->Add(chosen, priority);
    remover->Add(chosen, priority);
    chosen.clear();
    priority.clear();
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    if (size == slots) {  // a reservoir's newcomer takes the place of one, maybe of this call
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
  log.End();
}

void Table::State::Tell(HistoryEvent::What what, const Item& item) const {
  if (options.history == nullptr) return;
  options.history->Note({what, item.stream, item.first_frame, item.length, 0});
}

Table::State::Slot Table::State::AddItem(const Planned& plan, const Item& newcomer,
                                         std::uint32_t index, const SegmentStore::Place& place,
                                         RecordWriter* writer) {
  const Slot taken = TakeSlot();
  Stored& stored = item[taken];
  Cold& rest = cold[taken];
  stored = {.first = log.Id(plan.at.begin),
            .generation = stored.generation,
            .policy_version = newcomer.policy_version,
            .number = inserted++,
            .length = std::uint16_t(newcomer.length),
            .lead = std::uint16_t(plan.at.lead),
            .priority = Effective(newcomer.priority)};
  rest = {};
  for (std::uint32_t w = 0; w < stored.frames(); ++w) {
    ++log.entry(log.Id(plan.at.begin + w)).references;
  }
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
  Tell(HistoryEvent::kInserted, newcomer);
  if (!version_told) newest_version = std::max(newest_version, newcomer.policy_version);
  if (options.max_policy_age > 0) order.push_back(std::uint64_t{stored.generation} << 32 | taken);
  MarkDirty(taken);
  ++size;
  return taken;
}

}  // namespace troop
