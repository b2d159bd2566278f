#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/op_header.h"
#include "collective/shared_memory/slab.h"
#include "core/base/buffer.h"

namespace troop {

// One operation of the ranks that share a slab. Tensors are processed in blocks that fit into a
// half: write the block, post, wait for all, read the others'. An all-reduce above kOneStepBytes
// takes two phases per block: in the second, each rank sums its slice of the block in rank order,
// and then copies the other ranks' slices; below it, each rank sums everything itself. The tasks of
// a slab run sequentially, in the same order on all ranks.
class SlabTask {
 public:
  // Number of the last phase that was begun; one counter per slab, held by its owner.
  struct Phases {
    std::uint32_t last = 0;
  };

  SlabTask(const OpHeader& header, const Op& op, std::span<const std::byte> in,
           std::span<std::byte> out);  // op.peer: an index within the slab

  // Advances without waiting, by at most one block. Returns true on progress.
  bool Step(Slab& slab, Phases* phases);
  bool ended() const { return ended_; }
  // Phase that the task waits for; 0: none.
  std::uint32_t awaited() const { return awaited_; }
  // A rank that runs another operation; nullopt: none.
  struct Mismatch {
    int place;
    Result<OpHeader> theirs;
  };
  const std::optional<Mismatch>& mismatch() const { return mismatch_; }

 private:
  static constexpr std::size_t kOneStepBytes = 16 * 1024;
  static constexpr std::size_t kSliceBytes = 32 * 1024;  // fits into a first-level cache

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
  std::size_t piece_ = 0;   // bytes to process, per rank
  std::size_t block_ = 0;   // bytes per step
  std::size_t offset_ = 0;  // start of the current block
  std::size_t length_ = 0;  // of the current block
  std::uint32_t awaited_ = 0;
  std::uint32_t phase_ = 0;  // in which the block was staged
  bool sliced_ = false;      // two phases per block
  bool adding_ = false;      // the second phase has begun
  bool checked_ = false;
  bool ended_ = false;
  MutableBuffer sum_;  // scratch for a slice
  std::optional<Mismatch> mismatch_;
};

}  // namespace troop
