// Replay server on the host's thread, with storage and an executor.

#include "python/src/service_server.h"

#include <condition_variable>
#include <mutex>
#include <random>

namespace troop {

Result<std::unique_ptr<ServiceServer>> ServiceServer::Make(const Options& options) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<Host> host, Host::Make(options.key, options.insecure));
  std::unique_ptr<ServiceServer> self(new ServiceServer(host));
  if (!options.folder.empty()) {
    TROOP_ASSIGN_OR_RETURN(self->storage_, MakeDiskStorage(options.folder));
  }
  Status status;
  host->Run([&](Network* network) { status = self->Start(options, network); });
  TROOP_RETURN_IF_ERROR(status);
  // After a failed Start id_ is 0, so the destructor neither drains nor removes a step.
  self->id_ = host->Add([server = self->server_.get()](Time now) {
    server->Tick(now);
    return false;
  });
  return self;
}

// Runs on the host's thread.
Status ServiceServer::Start(const Options& options, Network* network) {
  // One thread for commits and dictionaries, one for concurrent snapshots.
  executor_ = std::make_unique<ThreadExecutor>(2, [network] { network->Wake(); });
  // A new incarnation each time, so that keys of a previous server are invalid here.
  TROOP_ASSIGN_OR_RETURN(server_, MakeReplayServer({.tables = options.tables,
                                                    .incarnation = std::random_device{}() % 1000,
                                                    .executor = executor_.get(),
                                                    .storage = storage_.get(),
                                                    .ack_on_disk = options.ack_on_disk}));
  TROOP_ASSIGN_OR_RETURN(listener_, network->Listen(options.endpoint, server_.get()));
  endpoint_ = listener_->endpoint();
  return Status::Ok();
}

ServiceServer::~ServiceServer() {
  // Drain first, then stop ticking, then destroy on the host's thread.
  if (id_ != 0) {
    if (storage_ != nullptr) WaitUntilDrained();
    host_->Remove(id_);
  }
  host_->Run([this](Network*) {
    // Order: the listener calls the server, and the server posts work to the executor.
    listener_.reset();
    server_.reset();
    executor_.reset();
  });
}

// Blocks without a deadline: the duration depends on the storage and the size of the tables.
void ServiceServer::WaitUntilDrained() {
  std::mutex mutex;
  std::condition_variable changed;
  bool drained = false;
  // Drain is asynchronous: poll its completion in the thread's turns.
  host_->Run([this](Network*) { server_->Drain(); });
  const std::uint64_t id = host_->Add([&](Time) {
    const std::lock_guard lock(mutex);
    drained = server_->drained();
    if (drained) changed.notify_all();
    return false;
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&drained] { return drained; });
  }
  host_->Remove(id);
}

}  // namespace troop
