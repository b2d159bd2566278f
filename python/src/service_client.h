#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "python/src/host.h"
#include "python/src/replay_ends.h"
#include "replay/service/client.h"
#include "replay/service/messages.h"

namespace troop {

// A connection to the shards of a replay service. Thread safe; its writers and samplers may outlive
// it.
class ServiceClient {
 public:
  // endpoints: of the shards, in order. Blocks until each has described its tables. key: key file
  // whose role decides what this client may request; empty: none. Errors: kDeadlineExceeded: the
  // shard that did not answer; kInvalidArgument: an invalid endpoint or key file, or shards with
  // different tables; kFailedPrecondition: the key is not accepted, or one is required.
  static Result<std::unique_ptr<ServiceClient>> Make(std::vector<std::string> endpoints,
                                                     const std::string& key, Time deadline);

  // Tables as of the last Refresh, `items` summed over the shards.
  std::vector<TableInfo> tables() const;
  // Requests the tables again. Errors: kDeadlineExceeded.
  Status Refresh(Time deadline);
  struct Described {
    std::uint32_t number = 0;
    std::int64_t capacity_items = 0;  // of one shard
    TableDescription description;
  };
  Result<Described> Find(const std::string& table) const;  // kNotFound: lists the known tables

  struct SamplerOptions {
    std::int64_t batch_size = 32;
    double beta = 0.4;
    int prefetch = 4;
    int decode_threads = 0;
  };
  // Creates a writer with up to `window` unacknowledged pushes, or a sampler; each has its own
  // connections.
  Result<std::unique_ptr<ExperienceSink>> MakeSink(const Described& table, int window);
  Result<std::unique_ptr<BatchSource>> MakeSource(const Described& table,
                                                  const SamplerOptions& options);
  // Metrics of every shard, by name; those of shard k > 0 as "shard<k>/name".
  Result<std::vector<std::pair<std::string, double>>> Stats(Time deadline);
  // Changes the rate limiter of a table on every shard.
  Status Reconfigure(const ReconfigureBody& body, Time deadline);

 private:
  class Sink;
  class Source;
  ServiceClient(std::shared_ptr<Host> host, std::vector<std::string> endpoints)
      : host_(std::move(host)), endpoints_(std::move(endpoints)) {}
  Result<std::vector<std::unique_ptr<Channel>>> Connect(int window);
  // Sends one call to every shard; returns the replies in order.
  Result<std::vector<Message>> CallAll(const Message& message, Time deadline);

  std::shared_ptr<Host> host_;
  std::vector<std::string> endpoints_;
  mutable std::mutex mutex_;  // protects tables_
  std::vector<TableInfo> tables_;
};

}  // namespace troop
