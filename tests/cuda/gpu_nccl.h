#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective/nccl/nccl.h"
#include "collective/nccl/nccl_library.h"
#include "collective/sim/sim_group.h"
#include "kernels/cuda/runtime/device.h"
#include "tests/cuda/outcome.h"

// Cases of gpu_nccl: collective/nccl over a real NCCL, on any number of GPUs. Ranks are threads;
// they exchange control messages over the simulated group, whose pipes are in this process.
namespace troop::cuda {

// A measured speed, in the format of the rows of gpu_bench.
struct Measured {
  std::string name, metric, unit;
  std::vector<double> values;
};

// A running case. Thread-safe, except `measured`.
class Trial {
 public:
  explicit Trial(NcclOptions nccl) : nccl_(std::move(nccl)) {}
  const NcclOptions& nccl() const { return nccl_; }

  bool Ok(const std::string& what, const Status& status);
  bool True(const std::string& what, bool condition);
  void Skip(const std::string& why);
  void Say(const std::string& detail);  // a detail of a passed case
  Outcome End(const std::string& name) const;

  std::vector<Measured> measured;

 private:
  const NcclOptions nccl_;
  mutable std::mutex mutex_;
  std::string failure_, skipped_, seen_;
};

// Ranks in this process, rank r on GPU gpus[r]. Only the thread that made the team allocates device
// memory; copies and fills on a rank's stream may come from the rank's thread.
class Team {
 public:
  Team(Trial& trial, std::vector<int> gpus);
  // Creates communicators for all ranks. If that fails, the trial is skipped when the library does
  // not support two ranks on a GPU, else it has failed.
  bool Make();
  void Run(const std::function<void(int rank)>& work);  // one thread per rank
  void Part() { groups_.clear(); }                      // all ranks leave

  Trial& trial() { return trial_; }
  int size() const { return int(gpus_.size()); }
  Device& device(int rank) { return *devices_[std::size_t(rank)]; }
  cuda::Stream& stream(int rank) { return *streams_[std::size_t(rank)]; }
  Collective& group(int rank) { return *groups_[std::size_t(rank)]; }
  SimGroup& hosts() { return hosts_; }
  // Copies bytes to the device of a rank, and back. Call it on the thread that made the team.
  DeviceArray<std::byte> Upload(int rank, const std::vector<std::byte>& from);
  std::vector<std::byte> Download(int rank, const DeviceArray<std::byte>& from);

 private:
  Trial& trial_;
  const std::vector<int> gpus_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<cuda::Stream>> streams_;
  SimGroup hosts_;
  std::vector<std::unique_ptr<Collective>> groups_;
};

struct NcclCase {
  std::string name;
  std::function<void(Trial&)> run;
};
// gpus: the number of GPUs.
std::vector<NcclCase> AllNcclCases(int gpus);

}  // namespace troop::cuda
