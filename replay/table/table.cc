// Table: options, memory sizes, eviction, priority updates and accessors. Inserts, sampling, table
// deltas, compaction and recovery are in table_*.cc.
#include "replay/table/table.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "replay/table/table_state.h"

namespace troop {
namespace {

constexpr std::size_t kSegmentBytesMax = ~std::uint32_t{0};  // offsets are 32 bits
// Ids are 32 bits, id 0 means none, and FrameLog allocates one entry more.
constexpr std::int64_t kFramesMax = (std::int64_t{1} << 31) - 2;

// Options that the table could not keep are refused here, so that later code can rely on them.
Status CheckOptions(const Table::Options& options) {
  TROOP_RETURN_IF_ERROR(CheckView(options.view));
  if (options.capacity_items < 1 || options.capacity_items > kItemsMax) {
    return InvalidArgument("replay: capacity_items is {}, must be in [1, {}]",
                           options.capacity_items, kItemsMax);
  }
  if (options.min_items < 1 || options.min_items > options.capacity_items) {
    return InvalidArgument("replay: min_items is {}, must be in [1, capacity_items ({})]",
                           options.min_items, options.capacity_items);
  }
  if (!(options.priority_epsilon >= 0 && std::isfinite(options.priority_epsilon))) {
    return InvalidArgument("replay: priority_epsilon is {}, must be finite and >= 0",
                           options.priority_epsilon);
  }
  if (options.first_generation == 0) {
    return InvalidArgument("replay: first_generation is 0, must be >= 1: key 0 marks no item");
  }
  if (options.trim_every_samples < 0 || options.max_times_sampled < 0 ||
      options.max_times_sampled > std::int64_t{0xFFFFFFFF}) {
    return InvalidArgument(
        "replay: trim_every_samples is {}, must be >= 0; max_times_sampled is {}, must be in [0, "
        "2^32)",
        options.trim_every_samples, options.max_times_sampled);
  }
  if (options.reservoir && options.trim_every_samples > 0) {
    return InvalidArgument(
        "replay: remover reservoir excludes a soft capacity; set trim_every_samples to 0");
  }
  // A replica learns of evictions only through the number of the oldest item.
  if (options.feed && (options.remover.kind != Selector::Kind::kFifo || options.reservoir ||
                       options.max_times_sampled > 0 || options.max_policy_age > 0)) {
    return InvalidArgument(
        "replay: GPU replay supports eviction by age only; set remover to fifo, max_times_sampled "
        "and max_policy_age to 0");
  }
  if (options.frames < 0 || options.frames > kFramesMax) {
    return InvalidArgument("replay: the log has {} frames, must be in [0, {}]", options.frames,
                           kFramesMax);
  }
  if (options.segment_bytes > kSegmentBytesMax) {
    return InvalidArgument("replay: segment_bytes is {}, must be at most {}", options.segment_bytes,
                           kSegmentBytesMax);
  }
  if (options.frames > 0 && options.frames / options.view.frames_max() < options.min_items) {
    return InvalidArgument(
        "replay: the log has {} frames, too few for min_items ({}) of up to {} frames each; raise "
        "it",
        options.frames, options.min_items, options.view.frames_max());
  }
  if (options.trajectory.observation.bytes() == 0) {
    return InvalidArgument("replay: the observation has 0 bytes");
  }
  return Status::Ok();
}

// Compression ratios of Atari frames with a dictionary, rounded down (frame_codec.h).
double UsualRatio(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return 1;
    case Codec::kLz4:
      return 8;
    case Codec::kZstd:
      return 20;
  }
  return 1;
}

// Bytes of one frame in the log, at the codec's usual ratio.
std::size_t UsualFrameBytes(const RecordLayout& layout, Codec codec) {
  return std::size_t(double(layout.observation_bytes) / UsualRatio(codec)) + layout.column_bytes();
}

// Item records are needed to restore a table, and to store recurrent states.
bool HasItemRecords(const Table::Options& options) {
  return options.checksums || options.trajectory.state.has_value();
}

// Segment size: small relative to the log, so that little dead memory waits to be freed, and whole
// huge pages if the log is large enough.
std::size_t SegmentBytes(const Table::Options& options, std::size_t log_bytes) {
  if (options.segment_bytes > 0) return options.segment_bytes;
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  std::size_t bytes = std::clamp<std::size_t>(log_bytes / 64, 64 << 10, 16 << 20);
  if (log_bytes >= 12 * kHuge) bytes = (bytes + kHuge - 1) / kHuge * kHuge;
  if (options.bytes_max > 0) bytes = std::min(bytes, options.bytes_max / 32);
  return RoundToPages(bytes);
}

// Expected bytes of a full log.
std::size_t LogBytes(const Table::Options& options, std::int64_t items, std::int64_t frames) {
  const RecordLayout layout(options.trajectory, options.codec != Codec::kNone);
  return std::size_t(frames) * UsualFrameBytes(layout, options.codec) +
         (HasItemRecords(options) ? std::size_t(items) * layout.item_bytes() : 0);
}

}  // namespace

// ---- Making -------------------------------------------------------------------------------------

// Number of slots: with a soft capacity, 1/8 more than the capacity.
std::int64_t Table::State::HardLimit(const Options& options) {
  if (options.trim_every_samples == 0) return options.capacity_items;
  return options.capacity_items + std::max<std::int64_t>(1, options.capacity_items / 8);
}

FrameLog::Options Table::State::LogOptions(const Options& options) {
  const ViewSpec& view = options.view;
  const RecordLayout layout(options.trajectory, options.codec != Codec::kNone);
  // Transitions: one new frame per item, plus one per 8 items (ends of episodes). Sequences: as if
  // only the burn-in were shared. 1/32 more for the frames that streams keep.
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  const std::int64_t hard = HardLimit(options);
  const std::int64_t full = sequence ? hard * (view.length_max + 1) : hard * 9 / 8;
  // min_items must fit even if they share no frame.
  const std::int64_t least = options.min_items * view.frames_max();
  std::int64_t frames = std::max(full, least) * 33 / 32;
  // Inserts in flight must fit too, however small the capacity: 64 MiB of frames.
  const std::size_t frame_bytes = layout.observation_bytes + layout.column_bytes();
  const auto frames_min =
      std::clamp<std::int64_t>(std::int64_t((std::size_t{64} << 20) / frame_bytes), 4096, 65536);
  frames = std::min(options.frames > 0 ? options.frames : std::max(frames, frames_min), kFramesMax);
  return {.layout = layout,
          .frames = frames,
          .segment_bytes = SegmentBytes(options, LogBytes(options, hard, frames)),
          .checksums = options.checksums};
}

// Counts the arrays exactly and the log at the usual ratio, plus two partly filled segments.
std::size_t Table::PredictBytes(const Options& options) {
  const std::int64_t slots = State::HardLimit(options);
  const FrameLog::Options log = State::LogOptions(options);
  std::size_t segments = LogBytes(options, slots, log.frames) + 2 * log.segment_bytes;
  if (options.bytes_max > 0) segments = std::min(segments, options.bytes_max);
  // Frame ids per segment (SegmentStore::frames).
  const std::size_t ids = std::size_t(log.frames) * sizeof(FrameLog::FrameId);
  return segments + ids + FrameLog::Bytes(log.frames) + Selector::Bytes(options.sampler, slots) +
         Selector::Bytes(options.remover, slots) +
         HugeArray<State::Stored>::Bytes(std::size_t(slots)) +
         HugeArray<State::Cold>::Bytes(std::size_t(slots)) +
         HugeArray<Selector::Slot>::Bytes(std::size_t(slots)) +
         (options.feed ? std::size_t(slots) * sizeof(State::Arrival) +
                             std::size_t(log.frames) * sizeof(State::FrameDeltaState)
                       : 0);
}

Table::State::State(const Options& o, Parts parts)
    : options(o),
      layout(parts.log.layout()),
      item_records(HasItemRecords(o)),
      log(std::move(parts.log)),
      streams(&log, o.view.frames_max()),
      window(&log, &streams),
      sampler(std::move(parts.sampler)),
      remover(std::move(parts.remover)),
      item(std::move(parts.item)),
      cold(std::move(parts.cold)),
      freed(std::move(parts.freed)),
      slots(std::int64_t(item.size())),
      remover_rng({.run_seed = o.seed,
                   .purpose = Purpose::kReplaySampling,
                   .index = o.incarnation,
                   .episode = ~std::uint64_t{0}}),
      coder(o.codec, layout.observation_bytes),
      decoded(layout.observation_bytes) {
  const Selector::Kind kind = o.remover.kind;
  // Updates of other removers would be no-ops.
  remover_reads_priority = kind == Selector::Kind::kPrioritized ||
                           kind == Selector::Kind::kLowest || kind == Selector::Kind::kHighest;
  // Dirty bits are needed only by the journal's snapshots.
  const std::size_t lines = std::size_t(slots + kSlotsPerLine - 1) / kSlotsPerLine;
  if (o.checksums) dirty.resize((lines + 63) / 64);
}

Result<std::unique_ptr<Table::State>> Table::State::Make(const Options& options) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  const std::int64_t slots = HardLimit(options);
  const auto n = std::size_t(slots);
  // Everything that can run out of memory is allocated here, before any item exists.
  TROOP_ASSIGN_OR_RETURN(FrameLog log, FrameLog::Make(LogOptions(options)));
  TROOP_ASSIGN_OR_RETURN(auto sampler, Selector::Make(options.sampler, slots));
  TROOP_ASSIGN_OR_RETURN(auto remover, Selector::Make(options.remover, slots));
  TROOP_ASSIGN_OR_RETURN(HugeArray<Stored> item, HugeArray<Stored>::Make(n));
  TROOP_ASSIGN_OR_RETURN(HugeArray<Cold> cold, HugeArray<Cold>::Make(n));
  TROOP_ASSIGN_OR_RETURN(HugeArray<Slot> freed, HugeArray<Slot>::Make(n));
  return std::make_unique<State>(
      options, Parts{std::move(log), std::move(sampler), std::move(remover), std::move(item),
                     std::move(cold), std::move(freed)});
}

Result<Table> Table::Make(const Options& options) {
  TROOP_ASSIGN_OR_RETURN(auto state, State::Make(options));
  return Table(std::move(state));
}

Table::Table(std::unique_ptr<State> state) : state_(std::move(state)) {}
Table::Table(Table&&) noexcept = default;
Table& Table::operator=(Table&&) noexcept = default;
Table::~Table() = default;

// ---- Eviction -----------------------------------------------------------------------------------

Table::State::Slot Table::State::TakeSlot() {
  // Unused slots first, then the one that was freed longest ago, so that keys repeat as late as
  // possible.
  Slot taken = 0;
  // `fresh` counts the slots that were ever used.
  if (std::int64_t(fresh) < slots) {
    taken = fresh++;
  } else {
    TROOP_CHECK(freed_count > 0, "no room was made for an item");
    taken = freed[freed_head++ % std::uint64_t(slots)];
    --freed_count;
  }
  Stored& stored = item[taken];
  // A recovered slot continues with this process's own generations: keys that the earlier process
  // handed out and lost must not be reused.
  const bool own = stored.generation != 0 && cold[taken].recovered == 0;
  stored.generation = own ? stored.generation + 1 : options.first_generation;
  if (stored.generation == 0) stored.generation = 1;  // wrapped around
  return taken;
}

void Table::State::FreeSlot(Slot leaver) {
  Stored& stored = item[leaver];
  Cold& rest = cold[leaver];
  // The frames lose one reference each; the item's record loses its live bytes.
  log.Release(stored.first, stored.frames());
  if (rest.segment != SegmentStore::kNone) log.store().DropLive(rest.segment, layout.item_bytes());
  rest.segment = SegmentStore::kNone;
  stored.length = 0;
  freed[(freed_head + freed_count++) % std::uint64_t(slots)] = leaver;
  MarkDirty(leaver);
  --size;
  ++evicted;
}

// For items chosen by other rules than the remover's.
void Table::State::RemoveNow(std::span<const Slot> leavers) {
  if (leavers.empty()) return;
  sampler->Remove(leavers);
  remover->Remove(leavers);
  for (const Slot leaver : leavers) FreeSlot(leaver);
}

void Table::State::Evict(std::int64_t count) {
  leaving.clear();
  // The remover must lose each item before the next pick; the sampler is updated once, in a batch.
  for (std::int64_t i = 0; i < count && remover->size() > 0; ++i) {
    const Slot leaver = remover->Pick(&remover_rng);
    remover->Remove({&leaver, 1});
    leaving.push_back(leaver);
  }
  sampler->Remove(leaving);
  for (const Slot leaver : leaving) FreeSlot(leaver);
}

void Table::State::TrimToCapacity() {
  if (size > options.capacity_items) Evict(size - options.capacity_items);
}

void Table::State::ReleaseHeld() {
  for (const Held& h : held) log.Release(h.first, h.count);
  held.clear();
}

// ---- Updates ------------------------------------------------------------------------------------

// The sum is computed in f64 and clamped: |TD error| + ε must stay finite.
float Table::State::Effective(float p) const {
  return float(std::min(double(p) + options.priority_epsilon, double(FLT_MAX)));
}

Table::UpdateCounts Table::State::Update(std::span<const std::uint64_t> key,
                                         std::span<const float> p) {
  TROOP_CHECK(key.size() == p.size(), "{} keys, {} priorities", key.size(), p.size());
  constexpr std::size_t kAhead = 16;  // prefetch distance: covers one memory access
  UpdateCounts counts;
  chosen.clear();
  priority.clear();
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (i + kAhead < key.size()) {
      const auto ahead = std::size_t(key[i + kAhead] & 0xFFFFFFFFu);
      if (ahead < std::size_t(slots)) {
        __builtin_prefetch(&item[ahead], 1);
      }
    }
    const auto s = Slot(key[i]);
    // The negated comparison also refuses NaN.
    if (!(p[i] >= 0 && p[i] <= FLT_MAX)) {
      ++counts.refused;
    } else if (std::int64_t(s) >= slots || item[s].generation != key[i] >> 32 || !IsLive(item[s])) {
      ++counts.stale;
    } else {
      ++counts.applied;
      item[s].priority =
          std::signbit(p[i]) ? 0 : Effective(p[i]);  // -0: never sample again, without ε
      chosen.push_back(s);
      priority.push_back(item[s].priority);
      MarkDirty(s);
    }
  }
  // Selectors are updated in one batch; a remover only if its choice depends on priorities.
  if (chosen.empty()) return counts;
  sampler->Update(chosen, priority);
  if (remover_reads_priority) remover->Update(chosen, priority);
  return counts;
}

Table::UpdateCounts Table::Update(std::span<const std::uint64_t> key,
                                  std::span<const float> priority) {
  return state_->Update(key, priority);
}

void Table::ObservePolicyVersion(std::uint64_t version) {
  // The first call discards what items reported, which an actor could have made up.
  std::uint64_t& newest = state_->newest_version;
  newest = state_->version_told ? std::max(newest, version) : version;
  state_->version_told = true;
}

void Table::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  state_->coder.AddDictionary(std::move(dictionary));
}

Result<Table::InsertCounts> Table::Insert(const EncodedInsert& call) {
  return state_->Insert(call);
}

void Table::Draw(std::int64_t batch, EncodedBatch* out) { state_->Draw(batch, out); }

// ---- Accessors ----------------------------------------------------------------------------------

bool Table::can_draw() const { return state_->sampler->can_draw(); }
std::span<const std::uint64_t> Table::drawn_age() const { return state_->age; }
const Table::Options& Table::options() const { return state_->options; }
std::int64_t Table::size() const { return state_->size; }
std::int64_t Table::slots() const { return state_->slots; }
double Table::total() const { return state_->sampler->total(); }
std::uint64_t Table::newest_policy_version() const { return state_->newest_version; }
std::int64_t Table::evicted() const { return state_->evicted; }
std::int64_t Table::frames() const { return state_->log.frames(); }
std::int64_t Table::frame_capacity() const { return state_->log.capacity(); }
std::int64_t Table::streams() const { return state_->streams.size(); }
std::size_t Table::segment_bytes() const { return state_->log.store().memory(); }
std::size_t Table::used_bytes() const { return state_->log.store().used(); }
std::size_t Table::live_bytes() const { return state_->log.store().live(); }
std::uint64_t Table::compacted_bytes() const { return state_->compacted; }

bool Table::Alive(std::uint64_t key) const {
  const auto s = Selector::Slot(key);
  return std::int64_t(s) < state_->slots && state_->item[s].generation == key >> 32 &&
         state_->IsLive(state_->item[s]);
}

std::size_t Table::bytes() const {
  const State& s = *state_;
  return s.log.array_bytes() + s.log.store().memory() + s.log.store().frame_list_bytes() +
         s.sampler->bytes() + s.remover->bytes() + s.item.bytes() + s.cold.bytes() +
         s.freed.bytes() + s.order.size() * sizeof(std::uint64_t) +
         s.arrivals.size() * sizeof(State::Arrival) + s.fed.size() * sizeof(State::FrameDeltaState);
}

std::vector<std::shared_ptr<const Segment>> Table::segments() const {
  return state_->log.store().All();
}
std::uint64_t Table::appended() const { return state_->log.store().appended(); }
LogPosition Table::position() const { return state_->log.store().position(); }
std::vector<std::uint64_t> Table::TakeFreed() { return state_->log.store().TakeFreed(); }
bool Table::MoveSegment(std::uint64_t id, Buffer bytes) {
  return state_->log.store().MoveSegment(id, std::move(bytes));
}

std::int64_t Table::lines() const { return (state_->slots + kSlotsPerLine - 1) / kSlotsPerLine; }

std::int64_t Table::dirty_lines() const {
  std::int64_t count = 0;
  for (const std::uint64_t word : state_->dirty) count += std::popcount(word);
  return count;
}

std::int64_t Table::TakeDirtyLine() {
  State& s = *state_;
  // Round robin from dirty_cursor, one 64-bit word at a time; the first word is visited twice, for
  // the bits below the cursor.
  const std::size_t words = s.dirty.size();
  for (std::size_t i = 0; i <= words && words > 0; ++i) {
    std::uint64_t& word = s.dirty[s.dirty_cursor / 64];
    const std::uint64_t left = word >> (s.dirty_cursor % 64);
    if (left != 0) {
      s.dirty_cursor += std::uint64_t(std::countr_zero(left));
      const auto line = std::int64_t(s.dirty_cursor);
      word &= ~(std::uint64_t{1} << (s.dirty_cursor % 64));
      s.dirty_cursor = (s.dirty_cursor + 1) % (words * 64);
      return line;
    }
    s.dirty_cursor = (s.dirty_cursor / 64 + 1) % words * 64;
  }
  return -1;
}

// Evicted slots are written as empty, which a restart takes as gone.
void Table::ReadLine(std::int64_t line, SlotLine* out) const {
  *out = {};
  for (std::int64_t i = 0; i < kSlotsPerLine; ++i) {
    const std::int64_t s = line * kSlotsPerLine + i;
    if (s >= state_->slots) return;
    const State::Stored& stored = state_->item[std::size_t(s)];
    if (!state_->IsLive(stored)) continue;  // an all-zero entry: generation 0
    (*out)[std::size_t(i)] = {.generation = stored.generation,
                              .priority = stored.priority,
                              .times_sampled = state_->cold[std::size_t(s)].times_sampled};
  }
}

// reserved[0] is the position of the remover's random numbers.
TableCounters Table::counters() const {
  const State& s = *state_;
  return {.inserted = s.inserted,
          .draws = s.draws,
          .seen = s.seen,
          .newest_policy_version = s.newest_version,
          .samples_since_trim = s.samples_since_trim,
          .reserved = {s.remover_rng.position(), 0, 0}};
}

}  // namespace troop
