#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/mesh.h"
#include "collective/op_header.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// Memory that the ranks of one host share, and how they keep step: each rank writes, posts the
// number of its phase, and reads what others wrote once all have posted it. The segment has no name
// (memfd), so that nothing is left behind however its ranks end. One owner thread per rank.
//
// A rank's staging room has two halves. Phase p writes half p % 2: whoever has posted p - 1 has
// read what was written in phase p - 2, so a rank that has seen all post p - 1 may write for phase
// p.
class Slab {
 public:
  // Bytes of one rank's half; small enough that what all ranks write stays in a shared cache.
  static constexpr std::size_t kHalfBytes = std::size_t{1} << 20;

  // Among the ranks `local` of a mesh, of which `self` (a place in it) is ours: the first makes the
  // segment and the others map it. Blocks. Errors: kUnavailable: no memory, or it can't be opened
  // (another view of processes or another user); kDeadlineExceeded; what another rank's abort says.
  static Result<std::unique_ptr<Slab>> Make(std::span<const int> local, int self,
                                            std::span<const Link> links, Time deadline);
  ~Slab();
  Slab(const Slab&) = delete;

  int self() const { return self_; }
  int count() const { return count_; }
  std::span<std::byte> Staging(int place, std::uint32_t phase) const;
  std::span<std::byte> Shared() const;  // one more half, of all
  OpHeaderBytes& Header(int place, std::uint32_t phase) const;

  void Post(std::uint32_t phase);
  // The first place that has not posted `phase`; -1: all have.
  int Behind(std::uint32_t phase) const;
  // Blocks until all have posted `phase` (true), or for about `most`: spins where each rank may
  // have a core, yields, then sleeps.
  bool Idle(std::uint32_t phase, Duration most);

 private:
  struct Control;
  struct Row;
  Slab(std::byte* bytes, std::size_t size, int count, int self)
      : bytes_(bytes), size_(size), count_(count), self_(self), spins_(SpinsFor(count)) {}
  static int SpinsFor(int count);
  static std::size_t SizeFor(int count);
  static Result<std::unique_ptr<Slab>> Map(int fd, std::size_t size, int count, int self);
  Control& control() const;
  Row& row(int place) const;

  std::byte* const bytes_;
  const std::size_t size_;
  const int count_;
  const int self_;
  const int spins_;
};

}  // namespace troop
