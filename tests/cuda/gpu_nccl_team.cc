#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/cuda/gpu_nccl.h"

namespace troop::cuda {

bool Trial::Ok(const std::string& what, const Status& status) {
  return True(what + ": " + status.ToString(), status.ok());
}

bool Trial::True(const std::string& what, bool condition) {
  const std::lock_guard lock(mutex_);
  if (!condition && failure_.empty()) failure_ = what;
  return condition;
}

void Trial::Skip(const std::string& why) {
  const std::lock_guard lock(mutex_);
  skipped_ = why;
}

void Trial::Say(const std::string& detail) {
  const std::lock_guard lock(mutex_);
  seen_ = detail;
}

Outcome Trial::End(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {name, "failed", failure_};
  if (!skipped_.empty()) return {name, "skipped", skipped_};
  return {name, "passed", seen_};
}

Team::Team(Trial& trial, std::vector<int> gpus)
    : trial_(trial),
      gpus_(std::move(gpus)),
      hosts_({.size = int(gpus_.size()), .timeout = Seconds(3600)}) {}

bool Team::Make() {
  for (const int gpu : gpus_) {
    std::string error;
    devices_.push_back(Device::Open(gpu, &error));
    if (!trial_.True(error, devices_.back() != nullptr)) return false;
    streams_.push_back(std::make_unique<cuda::Stream>(*devices_.back()));
  }
  groups_.resize(gpus_.size());
  std::vector<Status> made(gpus_.size());
  Run([&](int rank) {
    const auto r = std::size_t(rank);
    NcclOptions options = trial_.nccl();
    options.device = gpus_[r];
    auto group = MakeNcclGroup(hosts_.Rank(rank), options);
    made[r] = group.status();
    if (group.ok()) groups_[r] = std::move(*group);
  });
  const bool share = size() > 1 && gpus_[0] == gpus_[1];
  for (const Status& status : made) {
    if (status.ok()) continue;
    groups_.clear();
    // Newer versions: "invalid usage ... Duplicate GPU detected".
    if (share && status.code() == Code::kInvalidArgument) {
      trial_.Skip("this NCCL does not support two ranks on one GPU: " + status.message());
      return false;
    }
    return trial_.Ok("make a group", status);
  }
  return true;
}

void Team::Run(const std::function<void(int rank)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
}

DeviceArray<std::byte> Team::Upload(int rank, const std::vector<std::byte>& from) {
  Device& to = device(rank);
  const auto size = std::int64_t(from.size());
  DeviceArray<std::byte> array(to, size, "a case's array");
  const PinnedArray<std::byte> host(to, size, "a case's array");
  if (array.data() == nullptr || host.data() == nullptr) return array;
  std::ranges::copy(from, host.data());
  stream(rank).CopyToDevice(array.data(), host.data(), array.bytes());
  stream(rank).Synchronize();
  return array;
}

std::vector<std::byte> Team::Download(int rank, const DeviceArray<std::byte>& from) {
  Device& device = this->device(rank);
  std::vector<std::byte> bytes(from.bytes());
  const PinnedArray<std::byte> host(device, from.size(), "a case's array");
  if (host.data() != nullptr) {
    stream(rank).CopyToHost(host.data(), from.data(), from.bytes());
    stream(rank).Synchronize();
    if (device.ok()) std::copy_n(host.data(), bytes.size(), bytes.data());
  }
  trial_.True(device.error(), device.ok());
  return bytes;
}

}  // namespace troop::cuda
