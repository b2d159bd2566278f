#include "paramserver/shard_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "paramserver/shard_map.h"

namespace troop {
namespace {

constexpr std::string_view kFolder = "paramserver/";
constexpr std::string_view kEpochs = "paramserver/epochs";
constexpr std::string_view kHead = "shards move\n";

std::string FolderOf(std::uint64_t move) {
  return move == 0 ? std::string() : fmt::format("move-{}/", move);
}

// The number at the front, and what stands behind it; false: there is none.
template <class T>
bool TakeNumber(std::string_view* text, char behind, T* number) {
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc() || stop == end || *stop != behind) return false;
  text->remove_prefix(std::size_t(stop + 1 - text->data()));
  return true;
}

// Sorts as the number does.
std::string NameOf(std::uint64_t since) { return fmt::format("{:020}", since); }

bool IsName(const std::string& name) {
  return name.size() == 20 &&
         std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

ShardStore::ShardStore(Storage* run, std::int32_t shard, std::uint64_t move)
    : run_(run), folder_(fmt::format("{}{}shard-{}", kFolder, FolderOf(move), shard)) {}

Status ShardStore::Save(std::uint64_t since, const Buffer& snapshot) {
  const std::string own = NameOf(since);
  TROOP_RETURN_IF_ERROR(run_->WriteAtomic(PathOf(own), snapshot.bytes()));
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, List());
  for (const std::string& name : names) {
    if (name < own) TROOP_RETURN_IF_ERROR(run_->Remove(PathOf(name)));
  }
  return Status::Ok();
}

Result<std::vector<std::string>> ShardStore::List() {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run_->List(folder_));
  std::erase_if(names, [](const std::string& name) { return !IsName(name); });
  std::ranges::reverse(names);
  return names;
}

Result<Buffer> ShardStore::Read(const std::string& name) {
  return run_->Read(PathOf(name), std::numeric_limits<std::size_t>::max());
}

Result<std::vector<ShardEpoch>> ReadShardEpochs(Storage* run) {
  std::vector<ShardEpoch> epochs;
  if (!run->Exists(kEpochs)) return epochs;
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, run->Read(kEpochs, 1 << 20));
  std::string_view text = bytes.text();
  bool whole = text.starts_with(kHead);
  if (whole) text.remove_prefix(kHead.size());
  while (whole && !text.empty()) {
    const std::uint64_t before = epochs.empty() ? 0 : epochs.back().move;
    ShardEpoch& epoch = epochs.emplace_back();
    whole = TakeNumber(&text, ' ', &epoch.shards) && TakeNumber(&text, '\n', &epoch.move) &&
            epoch.shards > 0 && epoch.shards <= kShardsMax &&
            (epochs.size() == 1 ? epoch.move == 0 : epoch.move > before);
  }
  if (whole && !epochs.empty()) return epochs;
  return DataLoss("{} of the run's folder is damaged; it says how the parameters lie on the shards",
                  kEpochs);
}

Status WriteShardEpochs(Storage* run, const std::vector<ShardEpoch>& epochs) {
  std::string text(kHead);
  for (const ShardEpoch& epoch : epochs) text += fmt::format("{} {}\n", epoch.shards, epoch.move);
  return run->WriteAtomic(kEpochs, text);
}

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
