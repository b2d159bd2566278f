#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "core/storage.h"

namespace troop {

// Files in memory, for tests and the simulator. Thread safe. It fails as a disk does, when told to:
// calls are refused from a chosen one on, and the power can go.
class MemoryStorage final : public Storage {
 public:
  MemoryStorage();
  ~MemoryStorage() override;

  // Calls that change something, so far: appends and syncs of files, and what writes, renames, cuts
  // or removes.
  std::int64_t changes() const;
  // Change number `change` (the next one is number changes()) and all after it are refused with
  // `status`, as by a disk that is full or gone. If the first is an append, half of it is written.
  void FailFrom(std::int64_t change, Status status);
  void Repair();  // refuses no more
  // What is found when the power comes back after going now. Of what was appended since the last
  // Sync a part is left, of any length, its end perhaps zeros; a file that was never synced may be
  // missing; one removed lately may be back.
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
  const std::shared_ptr<Disk> disk_;  // shared with the files and locks that were handed out
};

}  // namespace troop
