#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/op_header.h"
#include "collective/slab.h"
#include "core/buffer.h"

namespace troop {

// One operation of the ranks that share a slab. Tensors are walked in blocks that fit into a half:
// write it, post, wait for all, read theirs. An all-reduce above kOneStepBytes takes two phases a
// block: in the second each rank adds up its slice of all, in rank order, and then all copy the
// slices of the others; below it each rank adds up everything itself. The tasks of a slab run one
// after the other, in the same order on all ranks.
class SlabTask {
 public:
  // The number of the last phase that was begun; one per slab, of its owner.
  struct Phases {
    std::uint32_t last = 0;
  };

  SlabTask(const OpHeader& header, const Op& op, std::span<const std::byte> in,
           std::span<std::byte> out);  // op.peer: a place in the slab

  // Goes on as far as it can without waiting, for one block at most; whether it moved.
  bool Step(Slab& slab, Phases* phases);
  bool ended() const { return ended_; }
  // The phase that it waits for; 0: none.
  std::uint32_t awaited() const { return awaited_; }
  // What another rank has said that it does: not what we do. nullopt: nothing wrong.
  struct Mismatch {
    int place;
    Result<OpHeader> theirs;
  };
  const std::optional<Mismatch>& mismatch() const { return mismatch_; }

 private:
  static constexpr std::size_t kOneStepBytes = 16 * 1024;
  static constexpr std::size_t kSliceBytes = 32 * 1024;  // what a first-level cache holds

  void Plan(int count);
  void Begin(Slab& slab, Phases* phases);
  void Stage(Slab& slab);
  void Consume(Slab& slab);
  void AddSlice(Slab& slab);
  void CopySlices(Slab& slab);
  void AddAll(std::span<const std::span<const std::byte>> sources, std::byte* shared,
              std::byte* out);
  bool CheckHeaders(Slab& slab);

  const OpHeader header_;
  const Op op_;
  const std::span<const std::byte> in_;
  const std::span<std::byte> out_;
  std::size_t piece_ = 0;   // bytes of what is walked
  std::size_t block_ = 0;   // of each step
  std::size_t offset_ = 0;  // where the present block begins
  std::size_t length_ = 0;  // of the present block
  std::uint32_t awaited_ = 0;
  std::uint32_t phase_ = 0;  // in which the block was staged
  bool sliced_ = false;      // two phases a block
  bool adding_ = false;      // in the second of them
  bool checked_ = false;
  bool ended_ = false;
  MutableBuffer sum_;  // a slice
  std::optional<Mismatch> mismatch_;
};

}  // namespace troop
