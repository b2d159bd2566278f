#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Starts `program` in its own process group (Ctrl-C of a terminal reaches the parent only), with
// its output appended to the file `log`. The child receives `signal_at_end` when this process ends
// in any way, so none is orphaned. Errors: kResourceExhausted. REQUIRES: the calling thread lives
// as long as this process (PR_SET_PDEATHSIG follows the thread).
Result<pid_t> StartChild(const std::string& program, std::vector<std::string> words,
                         const std::string& log, int signal_at_end);
// Output and exit code of a finished program.
struct ProgramResult {
  int code = 0;        // 128 + the signal that ended it
  std::string output;  // standard output and standard error together, at most 1 MiB
};
// Runs a program to its end; `words[0]` is looked up in PATH. Blocks. Errors: kNotFound: not in
// PATH; kDeadlineExceeded: it took longer than `patience` and was killed; kResourceExhausted.
Result<ProgramResult> RunProgram(const std::vector<std::string>& words, Duration patience);
// The path of a program in PATH; empty if there is none.
std::string FindProgram(const std::string& name);
// Text of a waitpid status: "exit code 1", "killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);
// The last non-empty line of a file, preferring lines that srun did not write; "none" without one.
std::string LastLine(const std::string& file);

}  // namespace troop
