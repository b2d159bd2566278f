// Implements snapshots of a ParameterShard. Format: 64 bytes of prefix, a body, then the floats of
// the value and of each optimizer slot, each array at a multiple of 64 bytes.
//   0 u32 magic   4 u32 CRC-32C of all that follows   8 u32 format   12 u32 bytes of the body
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/storage/crc32c.h"
#include "kernels/elementwise/is_finite.h"
#include "net/wire/codec.h"
#include "nn/arena.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {
namespace {

constexpr std::uint32_t kMagic = 0x53505424;  // "$TPS"
constexpr std::uint32_t kFormat = 2;
constexpr std::uint32_t kFormatOfLosses = 1;  // without the statistics of the norm guard
constexpr std::size_t kPrefixBytes = 64;

// Everything except the floats. begin[i], end[i]: the ranges, in arena order.
struct SnapshotBody {
  std::string optimizer;
  std::vector<std::string> slots;
  std::int64_t steps = 0;
  std::uint64_t version = 0;
  std::vector<std::int64_t> begin, end;
  std::vector<SyncPolicy::Member> members;
  std::vector<PushDedup::Entry> pushes;
  std::vector<OutlierFilter::Entry> losses, norms;
  template <class A>
  void SerializeFirst(A& a) {
    a(optimizer, slots, steps, version, begin, end, members, pushes, losses);
  }
  template <class A>
  void serialize(A& a) {
    SerializeFirst(a);
    a(norms);
  }
};
// Body of kFormatOfLosses, still readable.
struct FirstSnapshotBody {
  SnapshotBody body;
  template <class A>
  void serialize(A& a) {
    body.SerializeFirst(a);
  }
};
// A body of the old format leaves the norm statistics empty.
Result<SnapshotBody> DecodeSnapshotBody(std::uint32_t format, std::string_view bytes) {
  if (format == kFormat) return DecodeBody<SnapshotBody>(bytes);
  TROOP_ASSIGN_OR_RETURN(FirstSnapshotBody first, DecodeBody<FirstSnapshotBody>(bytes));
  return std::move(first.body);
}

template <class T>
std::vector<T> Copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

template <class T>
T ReadAt(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Number of elements in the body's ranges; -1 if the ranges are invalid.
std::int64_t SizeOf(const SnapshotBody& body) {
  if (body.begin.size() != body.end.size()) return -1;
  std::int64_t size = 0, last = 0;
  for (std::size_t i = 0; i < body.begin.size(); ++i) {
    if (body.begin[i] < last || body.end[i] <= body.begin[i]) return -1;
    size += body.end[i] - body.begin[i];
    last = body.end[i];
  }
  return size;
}

// True if two ranges share an element.
bool Overlap(std::vector<ParamRange> ranges) {
  std::ranges::sort(ranges, {}, &ParamRange::begin);
  return std::ranges::adjacent_find(ranges, [](const ParamRange& a, const ParamRange& b) {
           return b.begin < a.end;
         }) != ranges.end();
}

}  // namespace

// A decoded snapshot. `columns` reference `bytes`.
struct ParameterShard::Source {
  Buffer bytes;
  SnapshotBody body;
  std::int64_t size = 0;                        // elements
  std::vector<std::span<const float>> columns;  // the value, then each slot
};

// A snapshot of all ranges.
Buffer ParameterShard::Snapshot() { return Snapshot(options_.ranges); }

// Positions of the sorted ranges among this shard's concatenated elements.
std::vector<ParamRange> ParameterShard::PlacesOf(std::span<const ParamRange> ranges) const {
  std::vector<ParamRange> places;
  std::int64_t offset = 0;
  for (const ParamRange& own : options_.ranges) {
    while (places.size() < ranges.size() && ranges[places.size()].end <= own.end) {
      const ParamRange& range = ranges[places.size()];
      TROOP_CHECK(range.begin >= own.begin, "[{}, {}) is not within this shard", range.begin,
                  range.end);
      const std::int64_t begin = offset + range.begin - own.begin;
      places.push_back({begin, begin + range.size()});
    }
    offset += own.size();
  }
  TROOP_CHECK(places.size() == ranges.size(), "only {} of {} ranges are within this shard",
              places.size(), ranges.size());
  return places;
}

// Writes the body, then one column per array, then the checksum over all of it.
Buffer ParameterShard::Snapshot(std::span<const ParamRange> ranges) {
  SnapshotBody body{.optimizer = std::string(EnumName(options_.optimizer.type)),
                    .steps = optimizer_->steps(),
                    .version = version(),
                    .members = Copy(policy_.members()),
                    .pushes = Copy(dedup_.entries()),
                    .losses = Copy(losses_.entries()),
                    .norms = Copy(norms_.entries())};
  for (const ParamRange& range : ranges) {
    body.begin.push_back(range.begin);
    body.end.push_back(range.end);
  }
  const std::vector<Optimizer::Slot> slots = optimizer_->slots();
  for (const Optimizer::Slot& slot : slots) body.slots.push_back(slot.name);
  const std::string encoded = EncodeBody(body);
  const std::vector<ParamRange> places = PlacesOf(ranges);
  const std::size_t column = AlignBytes(std::size_t(SizeOf(body)) * sizeof(float));
  const std::size_t begin = kPrefixBytes + AlignBytes(encoded.size());
  MutableBuffer out = MutableBuffer::Zeros(begin + column * (1 + slots.size()));
  std::memcpy(out.data() + kPrefixBytes, encoded.data(), encoded.size());
  // Writes column i: the values at the positions of the ranges.
  const auto put = [&](std::size_t i, std::span<const float> values) {
    std::byte* to = out.data() + begin + i * column;
    for (const ParamRange& place : places) {
      const auto piece = values.subspan(std::size_t(place.begin), std::size_t(place.size()));
      to = std::ranges::copy(std::as_bytes(piece), to).out;
    }
  };
  put(0, value());
  for (std::size_t i = 0; i < slots.size(); ++i) put(i + 1, slots[i].values);
  // The checksum covers everything after itself, padding included.
  const std::uint32_t prefix[4] = {kMagic, 0, kFormat, std::uint32_t(encoded.size())};
  std::memcpy(out.data(), prefix, sizeof prefix);
  const std::uint32_t crc = Crc32c(out.bytes().subspan(8));
  std::memcpy(out.data() + 4, &crc, sizeof crc);
  return std::move(out).Freeze();
}

// Validates every field before use: the bytes come from disk or the network.
Result<ParameterShard::Source> ParameterShard::ReadSnapshot(const Buffer& snapshot) {
  const std::span<const std::byte> bytes = snapshot.bytes();
  // 1. Prefix, checksum and format.
  if (bytes.size() < kPrefixBytes || ReadAt<std::uint32_t>(bytes, 0) != kMagic) {
    return DataLoss("{} bytes that are not a snapshot of a parameter shard", bytes.size());
  }
  if (ReadAt<std::uint32_t>(bytes, 4) != Crc32c(bytes.subspan(8))) {
    return DataLoss("a snapshot of a parameter shard is damaged: wrong checksum");
  }
  const auto format = ReadAt<std::uint32_t>(bytes, 8);
  if (format != kFormat && format != kFormatOfLosses) {
    return FailedPrecondition("a snapshot has format {}, this version reads {}", format, kFormat);
  }
  const std::size_t body_bytes = ReadAt<std::uint32_t>(bytes, 12);
  if (body_bytes > bytes.size() - kPrefixBytes)
    return DataLoss("a snapshot is truncated within its body");
  TROOP_ASSIGN_OR_RETURN(SnapshotBody body,
                         DecodeSnapshotBody(format, std::string_view(snapshot.text().substr(
                                                        kPrefixBytes, body_bytes))));
  // 2. The body must describe exactly the bytes that follow.
  Source source{.bytes = snapshot, .body = std::move(body)};
  source.size = SizeOf(source.body);
  const std::size_t begin = kPrefixBytes + AlignBytes(body_bytes);
  const std::size_t columns = 1 + source.body.slots.size();
  const std::size_t left = bytes.size() - std::min(begin, bytes.size());
  if (source.size < 0 || std::size_t(source.size) > left / sizeof(float) ||
      left != columns * AlignBytes(std::size_t(source.size) * sizeof(float)) ||
      !SyncPolicy::AreSorted(source.body.members) || source.body.steps < 0 ||
      source.body.version == 0) {
    return DataLoss("a snapshot of a parameter shard is inconsistent");
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) != 0) {
    source.bytes = Buffer::Copy(bytes);
  }
  // 3. Columns, with finite values.
  const std::size_t column = std::size_t(source.size) * sizeof(float);
  for (std::size_t i = 0; i < columns; ++i) {
    source.columns.push_back(
        source.bytes.Slice(begin + i * AlignBytes(column), column).as<float>());
  }
  if (!AllFinite(source.columns[0])) return DataLoss("a snapshot holds a non-finite value");
  return source;
}

Status ParameterShard::CheckSnapshot(const Buffer& snapshot) {
  return ReadSnapshot(snapshot).status();
}

// Restores the state that does not belong to a range. Synchronous shards have equal state, except
// that the step count may differ where guards dropped different pushes; the largest is used.
Status ParameterShard::TakeState(std::span<const Source> sources) {
  const SnapshotBody* newest = &sources[0].body;
  std::int64_t steps = 0;
  std::vector<ParamRange> ranges;
  for (const Source& source : sources) {
    const SnapshotBody& body = source.body;
    for (std::size_t i = 0; i < body.begin.size(); ++i) {
      ranges.push_back({body.begin[i], body.end[i]});
    }
    // Optimizer state is only meaningful for the same optimizer.
    std::vector<std::string> names;
    for (const Optimizer::Slot& slot : optimizer_->slots()) names.push_back(slot.name);
    if (body.optimizer != EnumName(options_.optimizer.type) || body.slots != names) {
      return FailedPrecondition("a snapshot has optimizer \"{}\" with {} slots, this shard uses {}",
                                body.optimizer, body.slots.size(),
                                EnumName(options_.optimizer.type));
    }
    TROOP_ASSIGN_OR_RETURN(const PushDedup theirs, PushDedup::FromEntries(body.pushes));
    TROOP_RETURN_IF_ERROR(dedup_.Merge(theirs));
    steps = std::max(steps, body.steps);
    if (body.version > newest->version) newest = &body;
  }
  if (Overlap(std::move(ranges))) {
    return FailedPrecondition("two snapshots overlap; use snapshots of one epoch");
  }
  TROOP_RETURN_IF_ERROR(losses_.Restore(newest->losses));
  TROOP_RETURN_IF_ERROR(norms_.Restore(newest->norms));
  policy_.Restore(newest->version, newest->members);
  optimizer_->set_steps(steps);
  return Status::Ok();
}

// Copies a range's value and optimizer slots from all sources that hold a part of it. `at`:
// position of the range in this shard.
Status ParameterShard::TakeRange(const ParamRange& range, std::size_t at,
                                 std::span<const Source> sources) {
  const std::vector<Optimizer::Slot> slots = optimizer_->slots();
  // Counts the copied elements; TakeState has excluded overlaps.
  std::int64_t found = 0;
  for (const Source& source : sources) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < source.body.begin.size(); ++i) {
      const ParamRange theirs{source.body.begin[i], source.body.end[i]};
      const std::int64_t begin = std::max(range.begin, theirs.begin);
      const std::int64_t size = std::min(range.end, theirs.end) - begin;
      if (size > 0) {
        const auto from = std::size_t(offset + begin - theirs.begin);
        const std::size_t to = at + std::size_t(begin - range.begin);
        std::ranges::copy(source.columns[0].subspan(from, std::size_t(size)),
                          value_.Mutable().begin() + std::ptrdiff_t(to));
        for (std::size_t s = 0; s < slots.size(); ++s) {
          std::ranges::copy(source.columns[s + 1].subspan(from, std::size_t(size)),
                            &slots[s].values[to]);
        }
        found += size;
      }
      offset += theirs.size();
    }
  }
  if (found == range.size()) return Status::Ok();
  return FailedPrecondition("the snapshots hold only {} of the {} elements of [{}, {})", found,
                            range.size(), range.begin, range.end);
}

// Reads all sources before anything is copied: a damaged one changes nothing.
Result<std::unique_ptr<ParameterShard>> ParameterShard::Restore(const Options& options,
                                                                std::span<const Buffer> snapshots) {
  TROOP_ASSIGN_OR_RETURN(auto shard, MakeEmpty(options));
  if (snapshots.empty()) return InvalidArgument("no snapshot to restore a parameter shard from");
  std::vector<Source> sources;
  for (const Buffer& snapshot : snapshots) {
    TROOP_ASSIGN_OR_RETURN(Source source, ReadSnapshot(snapshot));
    sources.push_back(std::move(source));
  }
  TROOP_RETURN_IF_ERROR(shard->TakeState(sources));
  std::size_t at = 0;
  for (const ParamRange& range : options.ranges) {
    TROOP_RETURN_IF_ERROR(shard->TakeRange(range, at, sources));
    at += std::size_t(range.size());
  }
  return shard;
}

}  // namespace troop
