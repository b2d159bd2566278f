#pragma once

// Ranks over the simulated NCCL of nccl_sim/.
#include <dlfcn.h>

#include <memory>
#include <utility>

#include "collective/nccl/nccl.h"
#include "collective/nccl/nccl_library.h"
#include "core/base/check.h"
#include "tests/collective/nccl_sim/nccl_sim.h"
#include "tests/collective/ranks.h"

namespace troop {

inline NcclOptions SimulatedNccl() {
  return {.library = TROOP_NCCL_SIM,
          .driver = TROOP_NCCL_SIM,
          .connect_timeout = Seconds(20),
          .timeout = Seconds(60)};
}

template <class F>
F* FindInSim(const char* name) {
  void* handle = dlopen(TROOP_NCCL_SIM, RTLD_NOW | RTLD_LOCAL);
  TROOP_CHECK(handle != nullptr, "{}", dlerror());
  return reinterpret_cast<F*>(dlsym(handle, name));
}
// Until the end of a test.
class SimOrder {
 public:
  SimOrder(const char* what, int value, int before = 0) : what_(what), before_(before) {
    FindInSim<decltype(NcclSimOrder)>("NcclSimOrder")(what, value);
  }
  SimOrder(const SimOrder&) = delete;
  ~SimOrder() { FindInSim<decltype(NcclSimOrder)>("NcclSimOrder")(what_, before_); }

 private:
  const char* what_;
  const int before_;
};

class DeviceStream {
 public:
  DeviceStream() {
    auto loaded = NcclLibrary::Load(TROOP_NCCL_SIM, TROOP_NCCL_SIM);
    TROOP_CHECK(loaded.ok(), "{}", loaded.status().ToString());
    library_ = *loaded;
    TROOP_CHECK(library_->cuStreamCreate(&stream_, 0) == kCudaSuccess, "no stream");
  }
  DeviceStream(const DeviceStream&) = delete;
  ~DeviceStream() { static_cast<void>(library_->cuStreamDestroy_v2(stream_)); }
  Stream get() const { return {stream_}; }

 private:
  std::shared_ptr<const NcclLibrary> library_;
  CudaStream stream_ = nullptr;
};

// Tests without knowledge of devices pass no stream; this rank uses its own.
class DeviceRank final : public Collective {
 public:
  explicit DeviceRank(std::unique_ptr<Collective> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream) override {
    if (stream.handle != nullptr) return InvalidArgument("no stream of a device");
    return inner_->Start(op, std::move(in), std::move(out), stream_.get());
  }
  std::optional<Status> Poll(Work work) override { return inner_->Poll(work); }
  Status Wait(Work work) override { return inner_->Wait(work); }
  Status Progress() override { return inner_->Progress(); }
  Result<std::unique_ptr<Collective>> Split(int color, int key) override {
    TROOP_ASSIGN_OR_RETURN(auto part, inner_->Split(color, key));
    if (part == nullptr) return std::unique_ptr<Collective>();
    return std::unique_ptr<Collective>(std::make_unique<DeviceRank>(std::move(part)));
  }
  void Abort(const Status& why) override { inner_->Abort(why); }
  Status status() const override { return inner_->status(); }
  int suspect() const override { return inner_->suspect(); }
  CollectiveCounters counters() const override { return inner_->counters(); }

 private:
  DeviceStream stream_;
  std::unique_ptr<Collective> inner_;
};

inline Result<std::unique_ptr<Collective>> MakeDeviceRank(std::unique_ptr<Collective> host) {
  TROOP_ASSIGN_OR_RETURN(auto made, MakeNcclGroup(std::move(host), SimulatedNccl()));
  return std::unique_ptr<Collective>(std::make_unique<DeviceRank>(std::move(made)));
}

}  // namespace troop
