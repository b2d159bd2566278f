#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/op_header.h"
#include "collective/socket/mesh.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Shared memory of the ranks of one host, and their synchronization: each rank writes, posts the
// number of its phase, and reads the others' data once all have posted that phase. The segment is
// anonymous (memfd), so nothing remains however its ranks end. One owner thread per rank.
//
// A rank's staging area has two halves; phase p writes half p % 2. A rank that has posted p - 1 has
// read the data of phase p - 2, so a rank that has seen all others post p - 1 may write for phase
// p.
class Slab {
 public:
  // Bytes of one rank's half; small enough that the data of all ranks stays in a shared cache.
  static constexpr std::size_t kHalfBytes = std::size_t{1} << 20;

  // Creates the segment among the ranks `local` of a mesh, of which `self` is this rank's index:
  // the first rank creates it and the others map it. Blocks. Errors: kUnavailable: no memory, or it
  // cannot be opened (another process namespace or another user); kDeadlineExceeded; or another
  // rank's abort.
  static Result<std::unique_ptr<Slab>> Make(std::span<const int> local, int self,
                                            std::span<const Link> links, Time deadline);
  ~Slab();
  Slab(const Slab&) = delete;

  int self() const { return self_; }
  int count() const { return count_; }
  // Half that rank `place` uses in `phase`.
  std::span<std::byte> Staging(int place, std::uint32_t phase) const;
  std::span<std::byte> Shared() const;  // one more half, for all ranks
  // Header of the operation that rank `place` runs in `phase`.
  OpHeaderBytes& Header(int place, std::uint32_t phase) const;

  // Publishes that this rank has written the data of `phase`, and wakes sleeping ranks.
  void Post(std::uint32_t phase);
  // Returns the first rank that has not posted `phase`; -1 if all have.
  int FirstUnposted(std::uint32_t phase) const {
    return FirstUnposted(phase, std::memory_order_acquire);
  }
  // Blocks until all have posted `phase` (returns true), or for about `most`: spins if each rank
  // may have a core, yields, then sleeps.
  bool Idle(std::uint32_t phase, Duration most);

 private:
  struct Control;
  struct Row;
  Slab(std::byte* bytes, std::size_t size, int count, int self)
      : bytes_(bytes), size_(size), count_(count), self_(self), spins_(SpinsFor(count)) {}
  int FirstUnposted(std::uint32_t phase, std::memory_order order) const;
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
