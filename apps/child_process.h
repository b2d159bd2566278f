#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"

namespace troop {

// Starts `program` in a process group of its own (a terminal's Ctrl-C is for the parent alone),
// with its output appended to the file `log`. It gets `signal_at_end` when this process ends before
// it, however that ends: no orphan goes on. Errors: kResourceExhausted. REQUIRES: called by a
// thread that lives as long as this process.
Result<pid_t> StartChild(const std::string& program, std::vector<std::string> words,
                         const std::string& log, int signal_at_end);
// What a program said and how it ended. Errors: kNotFound: it can't be started; kDeadlineExceeded:
// it took longer than `patience`, and was killed. Blocks. `words[0]` is looked up in PATH.
struct Ended {
  int code = 0;        // 128 + the signal that ended it
  std::string output;  // standard output and standard error together, at most 1 MiB
};
Result<Ended> RunProgram(const std::vector<std::string>& words, Duration patience);
// The path of a program in PATH; empty: it is not there.
std::string FindProgram(const std::string& name);
// "exit code 1", "killed by signal 9 (Killed)": what waitpid said.
std::string DescribeExit(int wait_status);
// The last line of a file that is not empty, and not one of srun where there is another; "none"
// without any.
std::string LastLine(const std::string& file);

}  // namespace troop
