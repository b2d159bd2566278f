#include "paramserver/shard_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace troop {
namespace {

// Sorts as the number does.
std::string NameOf(std::uint64_t since) { return fmt::format("{:020}", since); }

bool IsName(const std::string& name) {
  return name.size() == 20 &&
         std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

ShardStore::ShardStore(Storage* run, std::int32_t shard)
    : run_(run), folder_(fmt::format("paramserver/shard-{}", shard)) {}

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

}  // namespace troop
