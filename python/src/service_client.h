#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "python/src/host.h"
#include "python/src/replay_ends.h"
#include "replay/client.h"
#include "replay/wire.h"

namespace troop {

// A connection to the shards of a replay service. Thread safe; ends may outlive it.
class ServiceClient {
 public:
  // endpoints: of the shards, in their order. Waits until each has told its tables. key: file of
  // keys, whose role decides what this client may ask for; empty: none.
  // Errors: kDeadlineExceeded: which one did not answer; kInvalidArgument: an endpoint that is
  // none, a bad key file, or shards with different tables; kFailedPrecondition: the key doesn't
  // let us in, or one is wanted.
  static Result<std::unique_ptr<ServiceClient>> Make(std::vector<std::string> endpoints,
                                                     const std::string& key, Time deadline);

  // As told at the beginning, `items` summed over the shards.
  std::vector<TableInfo> tables() const;
  // Asks again. Errors: kDeadlineExceeded.
  Status Refresh(Time deadline);
  struct Described {
    std::uint32_t number = 0;
    std::int64_t capacity_items = 0;  // of one shard
    TableDescription description;
  };
  Result<Described> Find(const std::string& table) const;  // kNotFound: lists those there are

  struct SamplerOptions {
    std::int64_t batch_size = 32;
    double beta = 0.4;
    int prefetch = 4;
    int decode_threads = 0;
  };
  Result<std::unique_ptr<ExperienceSink>> MakeSink(const Described& table, int window);
  Result<std::unique_ptr<BatchSource>> MakeSource(const Described& table,
                                                  const SamplerOptions& options);
  // Counters and gauges of every shard, by name; those of shard k > 0 as "shard<k>/name".
  Result<std::vector<std::pair<std::string, double>>> Stats(Time deadline);
  // Each shard's limiter of a table.
  Status Reconfigure(const ReconfigureBody& body, Time deadline);

 private:
  class Sink;
  class Source;
  ServiceClient(std::shared_ptr<Host> host, std::vector<std::string> endpoints)
      : host_(std::move(host)), endpoints_(std::move(endpoints)) {}
  Result<std::vector<std::unique_ptr<Channel>>> Connect(int window);
  // One call to every shard; its answers in their order.
  Result<std::vector<Message>> CallAll(const Message& message, Time deadline);

  std::shared_ptr<Host> host_;
  std::vector<std::string> endpoints_;
  mutable std::mutex mutex_;
  std::vector<TableInfo> tables_;
};

}  // namespace troop
