#pragma once

#include <memory>

#include "core/base/status.h"
#include "python/src/replay_ends.h"
#include "replay/table/table.h"

namespace troop {

// A table in this process, without a server, for a single training script. There is no rate
// limiter: the script itself decides how often it samples. Thread safe: one lock around the table.
// Writers and samplers may outlive the replay.
class LocalReplay {
 public:
  // Errors: those of Table::Make.
  static Result<std::unique_ptr<LocalReplay>> Make(const Table::Options& options);

  struct SamplerOptions {
    std::int64_t batch_size = 32;
    double beta = 0.4;       // exponent of the importance weights
    int decode_threads = 0;  // in addition to the caller's thread
  };
  std::unique_ptr<ExperienceSink> MakeSink();
  Result<std::unique_ptr<BatchSource>> MakeSource(const SamplerOptions& options);

  struct Counts {
    std::int64_t items = 0, frames = 0, evicted = 0;
    std::size_t bytes = 0;
  };
  Counts counts() const;
  const Table::Options& options() const;

 private:
  struct Shared;  // the table and its lock
  class Sink;
  class Source;
  explicit LocalReplay(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;
};

}  // namespace troop
