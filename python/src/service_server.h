#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/executor.h"
#include "core/base/status.h"
#include "python/src/host.h"
#include "replay/service/server.h"

namespace troop {

// A replay server in this process, on its own thread, for the object's lifetime. Thread safe.
class ServiceServer {
 public:
  struct Options {
    std::vector<ReplayTableOptions> tables;
    std::string endpoint;      // ipc://… or tcp://…; port 0: a free one
    std::string folder;        // where tables are persisted; empty: in memory only
    bool ack_on_disk = false;  // acknowledge inserts only when a restart would recover them
    std::string key;        // key file for tcp://, with `allowed` in the same folder; empty: none
    bool insecure = false;  // allow other machines to connect without keys
  };
  // Starts the server. Errors: those of LoadKeys, Network::Listen, MakeReplayServer and
  // MakeDiskStorage.
  static Result<std::unique_ptr<ServiceServer>> Make(const Options& options);
  // Writes the tables to disk first.
  ~ServiceServer();
  ServiceServer(const ServiceServer&) = delete;
  ServiceServer& operator=(const ServiceServer&) = delete;
  const std::string& endpoint() const { return endpoint_; }  // with the actual port

 private:
  explicit ServiceServer(std::shared_ptr<Host> host) : host_(std::move(host)) {}
  Status Start(const Options& options, Network* network);
  void WaitUntilDrained();

  const std::shared_ptr<Host> host_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<ReplayServer> server_;  // used on the host's thread, like listener_
  std::unique_ptr<Listener> listener_;
  std::string endpoint_;
  std::uint64_t id_ = 0;
};

}  // namespace troop
