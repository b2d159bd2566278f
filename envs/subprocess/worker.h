#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/graphics/picture.h"
#include "envs/subprocess/protocol.h"
#include "envs/subprocess/worker_process.h"

namespace troop {

// One worker process of a ProcessVectorEnv as a state machine: start, rounds, deadlines.
// Nonblocking unless Options::wait is set. One owner thread.
class EnvWorker {
 public:
  // The program to run, the request to send to it, and the time limits.
  struct Options {
    WorkerProgram program;
    std::string id, request;
    int memory = -1;  // descriptor of the shared memory; borrowed
    Duration start_timeout, step_timeout;
    bool wait = false;  // Poll blocks for an answer, at most 100 ms
  };
  // Result of Poll. kSpec: the spec arrived, call Map; kReady: the worker is idle after its start;
  // kDone: the round is complete; kDied: see death().
  enum class Event { kNothing, kSpec, kReady, kDone, kDied };
  // Cause of a worker's death: what was under way, and the row if it is known (else -1).
  // `resetting` refers to that row, or to the round if the row is unknown.
  struct Death {
    std::string what;
    int row = -1;
    bool starting = false, resetting = false;
    Status final;  // not ok: a restart cannot help
  };

  explicit EnvWorker(Options options) : options_(std::move(options)) {}
  // Starts the worker. A failure is reported as a death by the next Poll. `spare` is a process of
  // the same program and memory that awaits its request; if it is empty or has ended, a new one is
  // started. REQUIRES: down().
  void Start(Time now, WorkerProcess spare = {});
  // Answers kSpec with the layout of the memory; `memory` is the mapping of options.memory.
  void Map(const worker::Layout& layout, std::byte* memory, Time now);
  // Starts a round (kStep or kReset) over all rows. REQUIRES: idle().
  void Begin(worker::Message round, Time now);
  // Advances the state machine: receives answers, checks the deadlines.
  Event Poll(Time now);
  // Renders a row and blocks for the picture; empty if there is none. REQUIRES: idle().
  Picture Render(int row);
  // Moves the numbers of its environments to `into`, and blocks for the answer. REQUIRES: idle().
  void TakeMetrics(EnvMetrics* into);
  // Closes the socket, so that the process ends by itself; End waits and kills.
  void Hang() { process_.Hang(); }
  void End(Duration patience) { process_.End(patience); }

  bool down() const { return state_ == State::kDown; }
  bool idle() const { return state_ == State::kIdle; }
  bool busy() const { return state_ == State::kBusy; }
  bool resetting() const { return round_ == worker::kReset; }
  int socket() const { return process_.socket(); }
  const Result<EnvSpec>& spec() const { return spec_; }
  const Death& death() const { return death_; }

 private:
  // kDown: no process; kStarting: waits for the spec; kSpec: waits for Map; kMapping: waits for the
  // worker to map the memory; kIdle: between rounds; kBusy: a round is under way.
  enum class State { kDown, kStarting, kSpec, kMapping, kIdle, kBusy };
  Event Die(std::string what, Status final = {});
  Event Lost();
  Event Late(Time now);
  Event Take(std::string_view part);
  Event TakeStarting(std::string_view message);
  bool Send(std::string_view message);
  void Queue(std::string json);
  void Flush();
  std::string_view Receive(bool wait);  // "" at end of file or error: see silent_
  std::uint32_t progress() const;
  bool ReceiveWithin(Duration patience, std::string_view* message);

  Options options_;
  State state_ = State::kDown;
  WorkerProcess process_;
  worker::Message round_ = worker::kStep;
  worker::Layout layout_;
  std::byte* memory_ = nullptr;
  Time since_{};                // start or last progress of the current phase or row
  std::uint32_t progress_ = 0;  // last value read from the shared memory
  bool failed_ = false;         // Start failed; the cause is in death_
  bool silent_ = false;         // nothing to receive yet
  std::string outbox_;          // parts that did not fit into the socket buffer
  std::string inbox_;           // received parts of an incomplete message
  std::vector<char> buffer_ = std::vector<char>(worker::kPartBytes);
  Result<EnvSpec> spec_ = Status(Code::kFailedPrecondition, "not started");
  Death death_;
};

}  // namespace troop
