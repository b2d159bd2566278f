#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/picture.h"
#include "core/status.h"
#include "core/time.h"
#include "envs/worker_process.h"
#include "envs/worker_protocol.h"

namespace troop {

// One worker process of a ProcessVectorEnv and what it is doing: starts, rounds, deadlines. Does
// not wait, unless told to. One owner thread.
class EnvWorker {
 public:
  struct Options {
    WorkerProgram program;
    std::string id, request;
    int memory = -1;  // borrowed
    Duration start_timeout, step_timeout;
    bool wait = false;  // Poll waits for an answer, 100 ms at most
  };
  enum class Event { kNothing, kSpec, kReady, kDone, kDied };
  // How it died: what was under way, and the row where that is known (else -1); `resetting`: that
  // row, or the round where no row is known.
  struct Death {
    std::string what;
    int row = -1;
    bool starting = false, resetting = false;
    Status final;  // not ok: another start can't help
  };

  explicit EnvWorker(Options options) : options_(std::move(options)) {}
  // REQUIRES: down(). A failure is a death, which the next Poll tells. `spare`: a process of the
  // same program and memory that awaits its request; where there is none, or it has ended, another
  // is started.
  void Start(Time now, WorkerProcess spare = {});
  // The answer to kSpec. `memory` is where options.memory is mapped.
  void Map(const worker::Layout& layout, std::byte* memory, Time now);
  // REQUIRES: idle().
  void Begin(worker::Message round, Time now);
  Event Poll(Time now);
  // REQUIRES: idle(). Waits for the picture; empty: there is none.
  Picture Render(int row);
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
  enum class State { kDown, kStarting, kSpec, kMapping, kIdle, kBusy };
  Event Die(std::string what, Status final = {});
  Event Lost();
  Event Late(Time now);
  Event Take(std::string_view part);
  Event TakeStarting(std::string_view message);
  bool Send(std::string_view message);
  void Queue(std::string json);
  void Flush();
  std::string_view Receive(bool wait);  // "" at the end of file or an error: see lost_, silent_
  std::uint32_t progress() const;
  bool ReceiveWithin(Duration patience, std::string_view* message);

  Options options_;
  State state_ = State::kDown;
  WorkerProcess process_;
  worker::Message round_ = worker::kStep;
  worker::Layout layout_;
  std::byte* memory_ = nullptr;
  Time since_{};                // what is under way began, or moved on, then
  std::uint32_t progress_ = 0;  // as seen last
  bool failed_ = false;         // Start's misfortune, in death_
  bool silent_ = false;         // nothing to receive, yet
  std::string outbox_;          // parts that the socket had no room for
  std::string inbox_;           // parts that came of a message
  std::vector<char> buffer_ = std::vector<char>(worker::kPartBytes);
  Result<EnvSpec> spec_ = Status(Code::kFailedPrecondition, "not started");
  Death death_;
};

}  // namespace troop
