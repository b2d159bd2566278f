#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"
#include "core/status.h"
#include "core/trajectory.h"
#include "replay/big_array.h"
#include "replay/frame_log.h"
#include "replay/sum_tree.h"

namespace troop {

// Items over a frame log, drawn in proportion to priority^α; first in, first out.
// Owner: one thread (a server, or a test). Knows nothing of messages, waiting or time.
//
// Item number i (from 0, in the order of insertion) lies in slot i mod slots(), with generation
// i / slots() + first_generation: a key names an item for ever, and whether it still lives is
// arithmetic.
// Invariants: live items are the numbers [head, tail); a slot outside has priority 0; every live
// item has all its frames in the log.
//
// Soft capacity (Horgan et al. 2018, appendix): inserts are taken beyond `capacity_items`, and the
// excess leaves in bulk each time `trim_every_samples` items were drawn. A hard limit of
// capacity * 9/8 bounds memory (the paper's own excess is 1.8 %): beyond it the oldest leave at
// each insert. Items also leave early when the frame log is full, which takes episodes shorter than
// 8 steps: each ends with one more frame.
class Table {
 public:
  struct Options {
    TrajectorySpec trajectory;
    int n_step_max = 3;
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1;  // only sizes the frame log: so many always fit
    double alpha = 0.6;
    double priority_epsilon = 1e-6;
    std::int64_t trim_every_samples = 0;  // 0: trim at every insert, no excess
    std::uint64_t seed = 1;
    std::uint64_t incarnation = 0;       // with the seed, the key of the sampling stream
    std::int64_t frames = 0;             // of the log; 0: derived
    std::uint32_t first_generation = 1;  // a table that follows another begins elsewhere
  };
  struct InsertCounts {
    std::int64_t inserted = 0;
    std::int64_t repeated = 0;  // the call came before: nothing was done
    std::int64_t expired = 0;   // their first frames were gone: the stream had been silent too long
  };
  struct UpdateCounts {
    std::int64_t applied = 0;
    std::int64_t stale = 0;    // the item is gone; its slot may hold another
    std::int64_t refused = 0;  // NaN, infinite or negative
  };
  // Where B drawn items go; n = n_step_max. Every pointer: [B, ...].
  struct Rows {
    std::uint64_t* key;
    double* probability;
    std::uint64_t* policy_version;
    std::int32_t* length;
    float* reward;    // [B, n]
    float* discount;  // [B, n]
    std::byte* action;
    std::byte* observation;
    std::byte* next_observation;
  };

  static Result<Table> Make(const Options& options);  // kInvalidArgument, kResourceExhausted
  // What a full table takes. REQUIRES: capacity_items >= 1.
  static std::size_t PredictBytes(const Options& options);

  // Appends frames, then items that look at them or at earlier frames of their stream. The oldest
  // items leave first where room is needed. All or nothing for items; the frames of a refused call
  // stay, unseen. REQUIRES: chunk parts of the sizes that the spec and `frames` give.
  // A call whose frames all came before is a repeat (a writer that lost the answer sends it again):
  // its items are in already.
  // Errors: kInvalidArgument: frames that came before beside new ones, or never came, an item
  // across an episode's end, a length outside 1 … n, a priority that is NaN, infinite or negative;
  // kResourceExhausted: more at once than the table can hold.
  Result<InsertCounts> Insert(std::span<const Chunk> chunks, std::span<const Item> items);

  // Draws `batch` items, stratified: one from each of `batch` equal parts of the total. The random
  // numbers are those of (seed, kReplaySampling, draw number). REQUIRES: can_draw().
  void Draw(std::int64_t batch, const Rows& rows);
  bool can_draw() const { return tree_.total() > 0; }

  // |TD error| as it is; the exponent is applied here. A later pair wins over an earlier one of the
  // same key. An update of a key that is gone changes nothing.
  UpdateCounts Update(std::span<const std::uint64_t> key, std::span<const float> priority);

  std::int64_t size() const { return std::int64_t(tail_ - head_); }
  std::int64_t slots() const { return std::int64_t(items_.size()); }
  std::int64_t evicted() const { return std::int64_t(head_); }
  double total() const { return tree_.total(); }
  std::uint64_t draws() const { return draws_; }
  bool Alive(std::uint64_t key) const { return NumberOf(key) < tail_; }
  const FrameLog& frames() const { return log_; }
  int n_step_max() const { return options_.n_step_max; }
  std::size_t bytes() const;  // of the arrays; PredictBytes says the same beforehand

 private:
  struct Stored {
    FrameLog::Position first = 0;
    std::uint64_t policy_version = 0;
    std::int32_t length = 0;
  };

  Table(const Options& options, FrameLog log, SumTree tree, BigArray<Stored> items)
      : options_(options), log_(std::move(log)), tree_(std::move(tree)), items_(std::move(items)) {}
  static FrameLog::Options LogOptions(const Options& options);
  static std::int64_t HardLimit(const Options& options);

  std::uint64_t KeyOf(std::uint64_t number) const;
  std::uint64_t NumberOf(std::uint64_t key) const;  // ~0 when the item is gone or never was
  std::uint32_t SlotOf(std::uint64_t number) const { return std::uint32_t(number % items_.size()); }
  Status MakeRoom(std::span<const Chunk> chunks, std::int64_t items);
  Result<bool> Resolve(const Item& item, Stored* stored) const;
  void EvictTo(std::uint64_t head);
  float Transform(float priority) const;
  void FindStrata(std::int64_t batch, double* probability);
  void Gather(const Rows& rows);
  void GatherSteps(const Stored& item, float* reward, float* discount,
                   FrameLog::Position* last) const;

  Options options_;
  FrameLog log_;
  SumTree tree_;
  BigArray<Stored> items_;  // [slots]
  std::uint64_t head_ = 0, tail_ = 0;
  std::uint64_t draws_ = 0;
  std::int64_t samples_since_trim_ = 0;
  // Scratch of one call, kept to save allocations.
  std::vector<Stored> new_items_;
  std::vector<std::uint32_t> slot_;
  std::vector<float> priority_;
  std::vector<double> mass_;
  std::vector<FrameLog::Position> last_;
};

}  // namespace troop
