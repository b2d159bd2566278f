#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "envs/environment.h"

namespace troop {

// A program with its arguments and environment variables.
struct WorkerProgram {
  std::string path;                      // contains a slash: PATH is not searched
  std::vector<std::string> arguments;    // [0]: the program's name
  std::vector<std::string> environment;  // "NAME=value": the complete environment
};
// Command of a Python worker, `<python> -m troop_env.worker`, with the package that belongs to this
// program: in TROOP_PYTHON_PATH, or ../share/troop/python relative to the program, or the source
// tree that it was built from. Errors: kNotFound: no such interpreter, or no package.
Result<WorkerProgram> PythonWorker(const std::string& python);
// Command of a native worker, `troop env-worker`: the running executable if it is troop, else
// TROOP_PROGRAM. Errors: kNotFound.
Result<WorkerProgram> TroopWorker();

// One child process with a socket and a shared memory (protocol.h). It has its own process
// group, no other descriptors, an empty standard input and our standard error, and it ends when
// this process does. One owner thread.
class WorkerProcess {
 public:
  WorkerProcess() = default;  // no process
  WorkerProcess(WorkerProcess&& other) noexcept { *this = std::move(other); }
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess() { End({}); }
  // Starts the program with `memory` as descriptor 4. Errors: kResourceExhausted: no more processes
  // or descriptors.
  static Result<WorkerProcess> Start(const WorkerProgram& program, int memory);

  bool ended() const;  // exited, but not reaped yet
  int socket() const { return socket_; }
  pid_t process() const { return process_; }
  // Closes the socket; the process reads end of file and may exit by itself.
  void Hang();
  // Waits up to `patience` for the process to exit, then kills its process group and reaps it.
  // Returns the cause: "ended by signal 11 (Segmentation fault)", "exit code 3", or "" if it was
  // killed here.
  std::string End(Duration patience);

 private:
  int socket_ = -1;
  pid_t process_ = 0;
};

}  // namespace troop
