// Implements the snapshot files of parameter shards and the file of the run's shard map epochs.
#include "paramserver/replication/shard_snapshots.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/storage/path.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"

namespace troop {
namespace {

constexpr std::string_view kFolder = "paramserver/";
constexpr std::string_view kEpochs = "paramserver/epochs";
// First line of the epochs file; a line "<shards> <move>" follows per epoch.
constexpr std::string_view kHead = "shards move\n";

std::string FolderOf(std::uint64_t move) {
  return move == 0 ? std::string() : fmt::format("move-{}/", move);
}

// Parses the number at the front and the character after it; false if they are not there.
template <class T>
bool TakeNumber(std::string_view* text, char delimiter, T* number) {
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc() || stop == end || *stop != delimiter) return false;
  text->remove_prefix(std::size_t(stop + 1 - text->data()));
  return true;
}

// Zero-padded, so that names sort like their numbers.
std::string NameOf(std::uint64_t since) { return fmt::format("{:020}", since); }

constexpr std::size_t kDigits = 20;
constexpr std::string_view kBefore = ".before";

bool IsBefore(std::string_view name) { return name.ends_with(kBefore); }

// True for snapshot files: 20 digits, perhaps with kBefore.
bool IsName(std::string_view name) {
  if (IsBefore(name)) name.remove_suffix(kBefore.size());
  return name.size() == kDigits &&
         std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

// Orders by term; a predecessor is older than the snapshot of the same term.
bool IsNewer(const std::string& a, const std::string& b) {
  const int order = a.compare(0, kDigits, b, 0, kDigits);
  return order != 0 ? order > 0 : IsBefore(b) && !IsBefore(a);
}

// Adds a line for each damaged snapshot below `folder`.
Status FindDamaged(Storage* run, const std::string& folder, std::vector<std::string>* damaged) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List(folder));
  for (const std::string& name : names) {
    const std::string path = folder + "/" + std::string(StripTrailingSlash(name));
    if (name.ends_with('/')) {
      TROOP_RETURN_IF_ERROR(FindDamaged(run, path, damaged));
    } else if (IsName(name)) {
      const auto bytes = run->Read(path, std::numeric_limits<std::size_t>::max());
      const Status whole =
          bytes.ok() ? ParameterShard::CheckSnapshot(*bytes) : Status(bytes.status());
      if (whole.code() == Code::kDataLoss || !bytes.ok()) {
        damaged->push_back(fmt::format("{}: {}", path, whole.message()));
      }
    }
  }
  return Status::Ok();
}

}  // namespace

ShardSnapshots::ShardSnapshots(Storage* run, std::int32_t shard, std::uint64_t move)
    : run_(run), folder_(fmt::format("{}{}shard-{}", kFolder, FolderOf(move), shard)) {}

// The link keeps the previous snapshot until the new one is in place; then older ones are removed.
Status ShardSnapshots::Save(std::uint64_t since, const Buffer& snapshot) {
  const std::string own = NameOf(since);
  if (run_->Exists(PathOf(own))) {
    TROOP_RETURN_IF_ERROR(run_->Link(PathOf(own), PathOf(own + std::string(kBefore))));
  }
  TROOP_RETURN_IF_ERROR(run_->WriteAtomic(PathOf(own), snapshot.bytes()));
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, List());
  constexpr std::ptrdiff_t kKept = 2;  // the newest and its predecessor
  std::ptrdiff_t older = 0;
  for (const std::string& name : names) {
    const bool excess = IsNewer(own, name) && ++older >= kKept;
    if (excess) TROOP_RETURN_IF_ERROR(run_->Remove(PathOf(name)));
  }
  return Status::Ok();
}

// Ignores other files, such as temporary ones.
Result<std::vector<std::string>> ShardSnapshots::List() {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run_->List(folder_));
  std::erase_if(names, [](const std::string& name) { return !IsName(name); });
  std::ranges::sort(names, IsNewer);
  return names;
}

Result<Buffer> ShardSnapshots::Read(const std::string& name) {
  return run_->Read(PathOf(name), std::numeric_limits<std::size_t>::max());
}

// Move numbers grow; only the first epoch has number 0.
Result<std::vector<ShardEpoch>> ReadShardEpochs(Storage* run) {
  std::vector<ShardEpoch> epochs;
  if (!run->Exists(kEpochs)) return epochs;
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, run->Read(kEpochs, 1 << 20));
  std::string_view text = bytes.text();
  bool whole = text.starts_with(kHead);
  if (whole) text.remove_prefix(kHead.size());
  while (whole && !text.empty()) {
    // Every line must be complete and follow the previous one.
    const std::uint64_t before = epochs.empty() ? 0 : epochs.back().move;
    ShardEpoch& epoch = epochs.emplace_back();
    whole = TakeNumber(&text, ' ', &epoch.shards) && TakeNumber(&text, '\n', &epoch.move) &&
            epoch.shards > 0 && epoch.shards <= kShardsMax &&
            (epochs.size() == 1 ? epoch.move == 0 : epoch.move > before);
  }
  if (whole && !epochs.empty()) return epochs;
  return DataLoss(
      "{} in the run folder is damaged; it holds the assignment of parameters to shards", kEpochs);
}

// Atomic: this write is the commit point of a resharding.
Status WriteShardEpochs(Storage* run, const std::vector<ShardEpoch>& epochs) {
  std::string text(kHead);
  for (const ShardEpoch& epoch : epochs) text += fmt::format("{} {}\n", epoch.shards, epoch.move);
  return run->WriteAtomic(kEpochs, text);
}

Result<std::vector<std::string>> DamagedShardStates(Storage* run) {
  std::vector<std::string> damaged;
  TROOP_RETURN_IF_ERROR(FindDamaged(run, std::string(StripTrailingSlash(kFolder)), &damaged));
  return damaged;
}

// Without a resharding (move 0) only the folders move-* are removed.
Status RemoveOtherShardStates(Storage* run, std::uint64_t move) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, run->List("paramserver"));
  for (const std::string& name : names) {
    const bool of_others =
        move == 0 ? name.starts_with("move-") : name.ends_with('/') && name != FolderOf(move);
    if (of_others) TROOP_RETURN_IF_ERROR(run->Remove(std::string(kFolder) + name));
  }
  return Status::Ok();
}

}  // namespace troop
