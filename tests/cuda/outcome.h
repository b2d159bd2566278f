#pragma once

#include <cstdio>
#include <string>

// Report of a case by programs for machines with a GPU (gpu_check, gpu_nccl): a human-readable
// line, and one of JSON.
namespace troop::cuda {

struct Outcome {
  std::string name, state, detail;  // state: passed, failed, skipped
  double worst = 0, seconds = 0;    // worst: error / tolerance
};

inline std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c >= 0 && c < ' ' ? ' ' : c;
  }
  return out + "\"";
}

// Flushed after each line: results survive if a later case crashes the process.
inline void Tell(const Outcome& outcome, std::FILE* json) {
  std::printf("%-8s %-60s %7.3f s  error/tolerance %.3f  %s\n", outcome.state.c_str(),
              outcome.name.c_str(), outcome.seconds, outcome.worst, outcome.detail.c_str());
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(json,
               "{\"case\": %s, \"state\": %s, \"error_over_tolerance\": %g, \"seconds\": %g, "
               "\"detail\": %s}\n",
               Quoted(outcome.name).c_str(), Quoted(outcome.state).c_str(), outcome.worst,
               outcome.seconds, Quoted(outcome.detail).c_str());
  std::fflush(json);
}

}  // namespace troop::cuda
