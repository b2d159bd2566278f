#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "python/src/host.h"
#include "replay/server.h"

namespace troop {

// A replay server of this process, on a thread of its own, for as long as it lives. Thread safe.
class ServiceServer {
 public:
  struct Options {
    std::vector<ReplayTableOptions> tables;
    std::string endpoint;      // ipc://… or tcp://…; port 0: a free one
    std::string folder;        // where the tables are kept; empty: in memory alone
    bool ack_on_disk = false;  // inserts are acknowledged when a restart would find them
    std::string key;           // file of keys, for tcp://, with `allowed` beside it; empty: none
    bool insecure = false;     // beyond this machine without keys as well
  };
  // Errors: of LoadKeys, Network::Listen, MakeReplayServer and MakeDiskStorage.
  static Result<std::unique_ptr<ServiceServer>> Make(const Options& options);
  // Brings the tables to the disk first.
  ~ServiceServer();
  ServiceServer(const ServiceServer&) = delete;
  ServiceServer& operator=(const ServiceServer&) = delete;
  const std::string& endpoint() const { return endpoint_; }  // with the port that it has

 private:
  explicit ServiceServer(std::shared_ptr<Host> host) : host_(std::move(host)) {}
  Status Start(const Options& options, Network* network);
  void WaitUntilDrained();

  const std::shared_ptr<Host> host_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<ReplayServer> server_;  // the host's thread's, as the listener
  std::unique_ptr<Listener> listener_;
  std::string endpoint_;
  std::uint64_t id_ = 0;
};

}  // namespace troop
