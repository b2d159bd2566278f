#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"
#include "envs/environment.h"

namespace troop {

// A program to run, and what with.
struct WorkerProgram {
  std::string path;                      // with a slash
  std::vector<std::string> arguments;    // [0]: its name
  std::vector<std::string> environment;  // "NAME=value": all of it
};
// `<python> -m troop_env.worker`, which finds the package that belongs to this program: in
// TROOP_PYTHON_PATH, or ../share/troop/python beside the program, or the sources that it was built
// of. Errors: kNotFound: no such interpreter, or no package.
Result<WorkerProgram> PythonWorker(const std::string& python);
// `troop env-worker`: this very program if it is troop, else the one that TROOP_PROGRAM names.
// Errors: kNotFound.
Result<WorkerProgram> TroopWorker();

// One child process with a socket to talk over and a memory to share (worker_protocol.h). It is a
// group of its own, has no other descriptors, reads nothing, writes to our standard error, and ends
// when we do. One owner thread.
class WorkerProcess {
 public:
  WorkerProcess() = default;  // none
  WorkerProcess(WorkerProcess&& other) noexcept { *this = std::move(other); }
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess() { End({}); }
  // Errors: kResourceExhausted: no more processes or descriptors.
  static Result<WorkerProcess> Start(const WorkerProgram& program, int memory);

  bool ended() const;  // by itself, and not reaped
  int socket() const { return socket_; }
  pid_t process() const { return process_; }
  // Closes the socket: the process sees the end of file, and may end by itself.
  void Hang();
  // Waits for it to end by itself for that long, kills it and all its group, reaps it; returns how
  // it ended: "ended by signal 11 (Segmentation fault)", "exit code 3", or "" where it was we who
  // ended it.
  std::string End(Duration patience);

 private:
  int socket_ = -1;
  pid_t process_ = 0;
};

}  // namespace troop
