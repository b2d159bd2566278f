#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/philox.h"
#include "core/storage/storage.h"

namespace troop {

// Files in memory, for tests and the simulator. Thread safe. It can simulate disk failures from a
// chosen call on, and a power loss.
class MemoryStorage final : public Storage {
 public:
  MemoryStorage();
  ~MemoryStorage() override;

  // Number of modifying calls so far: appends and syncs of files; writes, renames, truncations and
  // removals.
  std::int64_t changes() const;
  // Makes modifying call number `change` (the next one has number changes()) and all later ones
  // fail with `status`, like a full or broken disk. If the first of them is an append, half of it
  // is written.
  void FailFrom(std::int64_t change, Status status);
  void Repair();  // ends the failures
  // Returns the state after a power loss at this moment. Of data appended since the last Sync a
  // prefix of random length remains, whose end may be zeros. A file that was never synced may be
  // missing, and a recently removed one may reappear.
  std::unique_ptr<MemoryStorage> AfterPowerLoss(Rng* rng) const;

  using Storage::WriteAtomic;
  Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override;
  Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override;
  Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override;
  Status Truncate(std::string_view path, std::size_t bytes) override;
  Result<std::vector<std::string>> List(std::string_view folder) override;
  bool Exists(std::string_view path) override;
  Status Rename(std::string_view from, std::string_view to) override;
  Status Remove(std::string_view path) override;
  Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                            std::string_view holder) override;

 private:
  struct Disk;
  class File;
  class Held;
  void EraseLocked(std::string_view path);
  const std::shared_ptr<Disk> disk_;  // shared with open files and locks
};

}  // namespace troop
