// BatchDecoder: copies columns, decodes and stacks frames on several threads, and weighs items.
#include "replay/codec/batch_decoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "replay/codec/decode_pool.h"
#include "replay/selectors/priority_kernels.h"
#include "replay/storage/nontemporal_copy.h"

namespace troop {
namespace {

// Batches of at least this size are written with non-temporal stores: plain ones would evict other
// data from the cache.
constexpr std::size_t kStreamedBytesMin = 8 << 20;
// Batches below this size are decoded by one thread: it finishes before another has woken.
constexpr std::size_t kSharedBytesMin = 256 << 10;
constexpr std::size_t kClaimedBytes = 128 << 10;  // unit of work of a thread

// Recycles the memory of destroyed batches: fresh pages cost more than decoding into them. Thread
// safe. Shared by its blocks, so that it lives as long as the last of them.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Returns a block of at least `bytes`; releasing it returns it to the pool.
  std::shared_ptr<std::byte> Take(std::size_t bytes) {
    MutableBuffer block;
    {
      const std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        block = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (block.size() < bytes) block = MutableBuffer(bytes);
    auto* const data = block.data();
    auto held = std::make_shared<MutableBuffer>(std::move(block));
    return {data,
            [pool = shared_from_this(), held](std::byte*) { pool->Return(std::move(*held)); }};
  }

 private:
  static constexpr std::size_t kFreeMax = 8;  // blocks kept for reuse
  void Return(MutableBuffer block) {
    const std::scoped_lock lock(mutex_);
    if (free_.size() < kFreeMax) free_.push_back(std::move(block));
  }
  std::mutex mutex_;
  std::vector<MutableBuffer> free_;
};

// Shapes of a batch's tensors. A spec without elements leaves its tensor empty.
struct BatchSpecs {
  TensorSpec observation, next_observation, action, reward, state;
};

// Shapes follow from the trajectory, the view and the number of rows.
BatchSpecs SpecsOf(const TrajectorySpec& spec, const ViewSpec& view, std::int64_t rows) {
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  const TensorSpec none{DType::kF32, {0}};
  const bool one = !sequence && view.stack == 1;
  const TensorSpec& frame = spec.observation;
  const TensorSpec row{frame.dtype, one ? frame.shape : frame.shape.Prepend(view.row_frames())};
  const auto batch = [rows](const TensorSpec& s) {
    return TensorSpec{s.dtype, s.shape.Prepend(rows)};
  };
  return {.observation = batch(row),
          .next_observation = sequence ? none : batch(row),
          .action = batch(
              sequence ? TensorSpec{spec.action.dtype, spec.action.shape.Prepend(view.steps())}
                       : spec.action),
          .reward = {DType::kF32, {rows, view.steps()}},
          .state = spec.state ? batch(*spec.state) : none};
}

// Source of a row of the batch.
struct Row {
  const EncodedBatch* part = nullptr;
  std::uint32_t item = 0;
  std::uint32_t frame = 0;  // first frame, as an index in part->frame
};

template <class T>
void AppendColumn(std::span<const T> from, std::byte** to) {
  if (from.empty()) return;
  std::memcpy(*to, from.data(), from.size_bytes());
  *to += from.size_bytes();
}

}  // namespace

// Decode runs these functions in order; the last one is parallel over rows.
struct BatchDecoder::State {
  explicit State(const Options& options);

  Status CountRows(std::span<const EncodedBatch> parts);
  void Allocate(std::int64_t batch_rows, SampleBatch* batch);
  void CopyColumns(std::span<const EncodedBatch> parts, SampleBatch* batch) const;
  void Weigh(std::span<const EncodedBatch> parts, double beta, SampleBatch* batch) const;
  Status DecodeFrames(SampleBatch* batch);
  void DecodeRows(std::size_t first, std::size_t last, int worker);
  void DecodeTransition(std::size_t row, int worker);
  void DecodeSequence(std::size_t row, int worker);
  bool Place(const EncodedBatch::Frame& frame, std::byte* first, std::byte* second, std::size_t row,
             int worker);
  void Prefetch(const Row& row) const;
  void Touch(std::size_t first, std::size_t last) const;
  void NoteError(std::size_t row, const Status& status);

  const Options options;
  const std::size_t frame_bytes;
  const std::size_t row_bytes;  // one of the two observations
  const bool sequence;
  std::shared_ptr<BlockPool> memory = std::make_shared<BlockPool>();
  std::vector<FrameCoder> coder;              // per thread
  std::vector<std::vector<std::byte>> frame;  // per thread: buffer of one frame, stays in its cache
  DecodePool pool;

  // State of the current call. Workers share it read-only, except for the error.
  std::vector<Row> rows;
  bool streamed = false;
  std::byte* observation = nullptr;
  std::byte* next_observation = nullptr;
  std::mutex error_mutex;  // protects error_row and error
  std::size_t error_row = 0;
  Status error;  // that of the lowest row, so that it is deterministic
};

BatchDecoder::State::State(const Options& o)
    : options(o),
      frame_bytes(o.trajectory.observation.bytes()),
      row_bytes(frame_bytes * std::size_t(o.view.row_frames())),
      sequence(o.view.kind == ViewSpec::Kind::kSequence),
      pool(o.threads) {
  TROOP_CHECK(CheckView(options.view).ok(), "{}", CheckView(options.view).ToString());
  // Worker 0 is the owner. Coders are not thread safe, so each worker has its own.
  for (int i = 0; i <= options.threads; ++i) {
    coder.emplace_back(options.codec, frame_bytes);
    frame.emplace_back(options.codec == Codec::kNone ? 0 : frame_bytes);
  }
}

BatchDecoder::BatchDecoder(const Options& options) : state_(std::make_unique<State>(options)) {}
BatchDecoder::~BatchDecoder() = default;

// Called between Decodes, when the workers are idle.
void BatchDecoder::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  for (FrameCoder& coder : state_->coder) coder.AddDictionary(dictionary);
}

Status BatchDecoder::Decode(std::span<const EncodedBatch> parts, double beta, SampleBatch* batch) {
  State& state = *state_;
  // Only the frames are decoded in parallel: the columns are small.
  TROOP_RETURN_IF_ERROR(state.CountRows(parts));
  state.Allocate(std::int64_t(state.rows.size()), batch);
  state.CopyColumns(parts, batch);
  state.Weigh(parts, beta, batch);
  return state.DecodeFrames(batch);
}

// Lists the rows of all parts, each with its first frame.
Status BatchDecoder::State::CountRows(std::span<const EncodedBatch> parts) {
  rows.clear();
  for (const EncodedBatch& part : parts) {
    std::size_t frames = 0;
    for (std::size_t i = 0; i < part.key.size(); ++i) {
      rows.push_back({&part, std::uint32_t(i), std::uint32_t(frames)});
      frames += std::size_t(FramesOf(options.view, part.lead[i], part.length[i]).count());
    }
    TROOP_CHECK(frames == part.frame.size(), "{} frames for items that need {}", part.frame.size(),
                frames);
  }
  if (rows.empty()) return DataLoss("a batch without items");
  return Status::Ok();
}

// Places all tensors of a batch in one block, unless those passed in have the right shapes.
void BatchDecoder::State::Allocate(std::int64_t batch_rows, SampleBatch* batch) {
  const BatchSpecs specs = SpecsOf(options.trajectory, options.view, batch_rows);
  const std::pair<Tensor*, const TensorSpec*> tensors[] = {
      {&batch->observation, &specs.observation},
      {&batch->next_observation, &specs.next_observation},
      {&batch->action, &specs.action},
      {&batch->reward, &specs.reward},
      {&batch->discount, &specs.reward},
      {&batch->state, &specs.state}};
  std::size_t bytes = 0;
  bool fits = true;
  for (const auto& [tensor, spec] : tensors) {
    // A tensor is reused if its shape and type are those of this batch.
    fits &= spec->bytes() == 0 ? tensor->empty() : !tensor->empty() && tensor->spec() == *spec;
    bytes += (spec->bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (fits) return;
  for (const auto& [tensor, spec] : tensors) *tensor = Tensor();  // releases their memory for reuse
  const std::shared_ptr<std::byte> block = memory->Take(bytes);
  std::byte* at = block.get();
  for (const auto& [tensor, spec] : tensors) {
    if (spec->bytes() == 0) continue;
    *tensor = Tensor::View(block, {at, spec->bytes()}, *spec);
    at += (spec->bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
}

// Concatenates the parts' columns. The layout is the same, so most are copied as a whole.
void BatchDecoder::State::CopyColumns(std::span<const EncodedBatch> parts,
                                      SampleBatch* batch) const {
  batch->key.resize(rows.size());
  batch->burn_in.resize(rows.size());
  batch->probability.clear();
  batch->length.clear();
  batch->policy_version.clear();
  std::byte* action = batch->action.bytes().data();
  std::byte* reward = batch->reward.bytes().data();
  std::byte* discount = batch->discount.bytes().data();
  std::byte* state = batch->state.empty() ? nullptr : batch->state.bytes().data();
  const std::size_t per_row = batch->action.bytes().size() / rows.size();
  std::size_t row = 0;
  for (const EncodedBatch& part : parts) {
    const std::size_t items = part.key.size();
    TROOP_CHECK(part.action.size() == items * per_row &&
                    part.reward.size() == items * std::size_t(options.view.steps()) &&
                    part.discount.size() == part.reward.size() &&
                    part.state.size() * rows.size() == items * batch->state.bytes().size(),
                "{} items with {} bytes of actions, {} rewards, {} discounts, {} bytes of states",
                items, part.action.size(), part.reward.size(), part.discount.size(),
                part.state.size());
    for (std::size_t i = 0; i < items; ++i, ++row) {
      batch->key[row] = {std::uint32_t(part.key[i]), std::uint32_t(part.key[i] >> 32)};
      batch->burn_in[row] = std::min(part.lead[i], options.view.burn_in);
    }
    const auto append = [](const auto& from, auto* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(part.probability, &batch->probability);
    append(part.length, &batch->length);
    append(part.policy_version, &batch->policy_version);
    AppendColumn<std::byte>(part.action, &action);
    AppendColumn<float>(part.reward, &reward);
    AppendColumn<float>(part.discount, &discount);
    AppendColumn<std::byte>(part.state, &state);
  }
}

// Importance weights: (N P(i))^-beta divided by the largest is (P_min / P(i))^beta, without N.
void BatchDecoder::State::Weigh(std::span<const EncodedBatch> parts, double beta,
                                SampleBatch* batch) const {
  // The minimum probability gives the largest weight.
  double least = *std::ranges::min_element(batch->probability);
  if (options.weight_by_table) {
    double of_tables = least;
    bool known = true;
    for (const EncodedBatch& part : parts) {
      if (part.key.empty()) continue;
      known &= std::isnormal(part.probability_min) && part.probability_min > 0;
      of_tables = std::min(of_tables, part.probability_min);
    }
    if (known) least = of_tables;
  }
  batch->beta = beta;
  batch->weight.resize(rows.size());
  ImportanceWeights(batch->probability, least, beta, batch->weight);
}

// Decodes all rows, on several threads if that pays off.
Status BatchDecoder::State::DecodeFrames(SampleBatch* batch) {
  observation = batch->observation.bytes().data();
  next_observation = sequence ? nullptr : batch->next_observation.bytes().data();
  const std::size_t bytes = rows.size() * row_bytes * (sequence ? 1 : 2);
  streamed = bytes >= kStreamedBytesMin;
  error = Status::Ok();
  if (bytes < kSharedBytesMin || options.threads == 0) {
    DecodeRows(0, rows.size(), 0);
    return error;
  }
  // Workers claim rows dynamically: encoded frames differ in decoding time.
  const std::size_t claim = std::max<std::size_t>(kClaimedBytes * rows.size() / bytes, 1);
  std::atomic<std::size_t> next{0};  // first unclaimed row
  pool.Run([&](int worker) {
    while (true) {
      const std::size_t first = next.fetch_add(claim);
      if (first >= rows.size()) return;
      DecodeRows(first, std::min(first + claim, rows.size()), worker);
    }
  });
  return error;
}

// Decodes rows [first, last) on one worker.
void BatchDecoder::State::DecodeRows(std::size_t first, std::size_t last, int worker) {
  // Items are scattered over the table: prefetch the next one, or touch a block of small ones.
  constexpr std::size_t kBlock = 512;
  const bool small = frame_bytes <= 256;  // a few cache lines
  for (std::size_t row = first; row < last; ++row) {
    if (!small && row + 1 < last) Prefetch(rows[row + 1]);
    if (small && (row - first) % kBlock == 0) Touch(row, std::min(row + kBlock, last));
    if (sequence) {
      DecodeSequence(row, worker);
    } else {
      DecodeTransition(row, worker);
    }
  }
  if (streamed) NontemporalFence();
}

// Workers continue after an error, so the lowest failing row is always found.
void BatchDecoder::State::NoteError(std::size_t row, const Status& status) {
  const std::scoped_lock lock(error_mutex);
  if (!error.ok() && error_row < row) return;
  error_row = row;
  error = status.WithContext(
      fmt::format("item {} of the batch, key {:#x}", row, rows[row].part->key[rows[row].item]));
}

// Loads the beginning of the next row's frames, as far as they are few.
void BatchDecoder::State::Prefetch(const Row& row) const {
  const EncodedBatch& part = *row.part;
  const int count = FramesOf(options.view, part.lead[row.item], part.length[row.item]).count();
  for (int f = 0; f < std::min(count, 8); ++f) {
    const EncodedBatch::Frame& next = part.frame[row.frame + std::size_t(f)];
    const std::size_t bytes =
        std::min<std::size_t>(next.bytes, 256);  // the hardware prefetches the rest
    for (std::size_t at = 0; at < bytes; at += kAlignment) __builtin_prefetch(next.data + at);
  }
}

// Reads the first and last byte of each frame of these rows and nothing else, which keeps as many
// cache misses in flight as possible. Prefetches would be dropped on TLB misses.
void BatchDecoder::State::Touch(std::size_t first, std::size_t last) const {
  unsigned sum = 0;
  while (first < last) {
    const EncodedBatch& part = *rows[first].part;
    const std::size_t of_part = std::min(last - first, part.key.size() - rows[first].item);
    const std::size_t next = first + of_part;
    const bool whole = next == rows.size() || rows[next].part != &part;
    const EncodedBatch::Frame* const end =
        part.frame.data() + (whole ? part.frame.size() : rows[next].frame);
    for (const EncodedBatch::Frame* f = part.frame.data() + rows[first].frame; f < end; ++f) {
      if (f->bytes > 0) sum += unsigned(f->data[0]) + unsigned(f->data[f->bytes - 1]);
    }
    first = next;
  }
  // Keeps the loads from being optimized away.
  asm volatile("" : : "r"(sum));
}

// Decodes a transition: the frame at position p goes to column p - base of each stack that has
// one.
void BatchDecoder::State::DecodeTransition(std::size_t row, int worker) {
  const auto [part, item, first_frame] = rows[row];
  std::byte* const current = observation + row * row_bytes;
  std::byte* const next = next_observation + row * row_bytes;
  const EncodedBatch::Frame* from = part->frame.data() + first_frame;
  const int stack = options.view.stack;
  if (stack == 1) {  // the first frame and the last
    if (Place(from[0], current, nullptr, row, worker)) Place(from[1], next, nullptr, row, worker);
    return;
  }
  const int lead = part->lead[item];
  const FrameRanges ranges = FramesOf(options.view, lead, part->length[item]);
  // Position of each stack's first column; negative at an episode's start, where zeros fill the
  // gap.
  const int current_base = lead + 1 - stack, next_base = ranges.end - stack;
  const auto column = [&](std::byte* stacked, int base, int p) -> std::byte* {
    if (p < base || p >= base + stack) return nullptr;
    return stacked + std::size_t(p - base) * frame_bytes;
  };
  if (current_base < 0) std::memset(current, 0, std::size_t(-current_base) * frame_bytes);
  if (next_base < 0) std::memset(next, 0, std::size_t(-next_base) * frame_bytes);
  for (int p = 0; p < ranges.end; ++p) {
    // Skip the frames that neither stack contains.
    if (p == ranges.first) p = ranges.second;
    std::byte* first = column(current, current_base, p);
    std::byte* second = column(next, next_base, p);
    if (first == nullptr) std::swap(first, second);
    if (!Place(*from++, first, second, row, worker)) return;
  }
}

// Decodes a sequence into its window, with zeros before and after.
void BatchDecoder::State::DecodeSequence(std::size_t row, int worker) {
  const auto [part, item, first_frame] = rows[row];
  // Zero frames before and after the item's own.
  const int before = options.view.lead_max() - part->lead[item];
  const int count = FramesOf(options.view, part->lead[item], part->length[item]).count();
  const int behind = options.view.frames_max() - before - count;
  std::byte* to = observation + row * row_bytes;
  std::memset(to, 0, std::size_t(before) * frame_bytes);
  to += std::size_t(before) * frame_bytes;
  const EncodedBatch::Frame* const from = part->frame.data() + first_frame;
  for (int f = 0; f < count; ++f, to += frame_bytes) {
    if (!Place(from[f], to, nullptr, row, worker)) return;
  }
  std::memset(to, 0, std::size_t(behind) * frame_bytes);
}

// Decodes a frame to `first`, and to `second` unless it is nullptr. False: an error of the row was
// noted.
bool BatchDecoder::State::Place(const EncodedBatch::Frame& encoded, std::byte* first,
                                std::byte* second, std::size_t row, int worker) {
  const std::byte* from = encoded.data;
  if (options.codec != Codec::kNone) {
    // Streamed frames are decoded into a cached buffer first: decoders read back what they wrote.
    std::byte* const to = streamed ? frame[std::size_t(worker)].data() : first;
    const Status status = coder[std::size_t(worker)].Decode({encoded.data, encoded.bytes}, to);
    if (!status.ok()) NoteError(row, status);
    if (!status.ok()) return false;
    from = to;
  } else if (encoded.bytes != frame_bytes) [[unlikely]] {
    NoteError(row, DataLoss("frame has {} bytes, must have {}", encoded.bytes, frame_bytes));
    return false;
  }
  if (streamed) {
    NontemporalCopy(from, frame_bytes, first, second);
    return true;
  }
  if (from != first) std::memcpy(first, from, frame_bytes);
  if (second != nullptr) std::memcpy(second, first, frame_bytes);
  return true;
}

}  // namespace troop
