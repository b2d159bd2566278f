#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Cost model of an all-reduce between two ranks: a latency, plus a time per byte that a rank sends.
struct LinkSpeed {
  double latency_s = 0;
  double s_per_byte = 0;
};

// Fits the model to the seconds of small all-reduces and of large ones, for which a rank sends
// `sent` bytes. Uses the medians, or the minima if busy processors made the medians inconsistent.
// s_per_byte is never 0. REQUIRES: neither vector is empty.
LinkSpeed LinkOf(std::vector<double> small, std::vector<double> large, double sent);

// Bytes that a rank sends per byte reduced over N ranks: 2 (N - 1) / N, the lower bound.
double SentShare(std::int64_t ranks);

// Measures between two threads, over the transport of learners on one machine. Takes a second.
// Errors: kUnavailable: no port to listen on.
Result<LinkSpeed> MeasureLinkHere();
// Measures to a machine that runs AnswerLink at `address` ("host:port"). Blocks for some seconds;
// ten without an answer. Errors: kUnavailable, kDeadlineExceeded: no answer.
Result<LinkSpeed> MeasureLinkTo(const std::string& address);
// Serves one MeasureLinkTo at an address of this machine. Blocks until it is over, at most
// `patience` for the peer to connect. Returns false if the peer disconnected before the end.
// Errors: kInvalidArgument, kUnavailable: no such address, or it is in use; kDeadlineExceeded: no
// peer.
Result<bool> AnswerLink(const std::string& address, Duration patience);

}  // namespace troop
