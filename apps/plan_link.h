#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/time.h"

namespace troop {

// What an all-reduce between two ranks takes: of few numbers, and more for each byte that a rank
// sends.
struct LinkSpeed {
  double latency_s = 0;
  double s_per_byte = 0;
};

// The line through the seconds of small all-reduces and of large ones, of which a rank sends `sent`
// bytes. It takes the medians, or the fastest of each where the medians contradict each other
// because the processors were busy. s_per_byte is never 0. REQUIRES: neither is empty.
LinkSpeed LinkOf(std::vector<double> small, std::vector<double> large, double sent);

// Of n bytes that N ranks reduce, each sends 2 (N - 1) / N n: the least that any all-reduce can do.
double SentShare(std::int64_t ranks);

// Between two threads of this process, as learners of one machine are joined. Takes a second.
// Errors: kUnavailable: no port to listen on.
Result<LinkSpeed> MeasureLinkHere();
// To another machine where AnswerLink waits at `address` ("host:port"). Blocks, some seconds; where
// nobody answers, ten. Errors: kUnavailable, kDeadlineExceeded: nobody does.
Result<LinkSpeed> MeasureLinkTo(const std::string& address);
// The other side of one MeasureLinkTo, at an address of this machine. Blocks until that is over, or
// nobody has come within `patience`. false: who came has gone before the end. Errors:
// kInvalidArgument, kUnavailable: no such address, or somebody listens there; kDeadlineExceeded.
Result<bool> AnswerLink(const std::string& address, Duration patience);

}  // namespace troop
