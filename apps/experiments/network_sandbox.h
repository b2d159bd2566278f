#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Parses "1gbit", "200mbit" or "64kbit" to bits per second. Errors: kInvalidArgument: another
// form, or outside 64 kbit/s to 100 Gbit/s.
Result<double> ParseLinkRate(std::string_view text);

// Runs `work` in a child process with private network, mount and process namespaces; all of its
// processes end with it. SIGINT, SIGTERM and SIGHUP are forwarded. Blocks until it ends and returns
// the value of `work` as an exit code. REQUIRES: this process has one thread. Errors:
// kFailedPrecondition: not root, or `ip`, `tc` or `unshare` is missing.
Result<int> RunInSandbox(const std::function<int()>& work);

// Emulated machines in a sandbox: network namespaces on one switch, which this process is on too.
// Each sends at most `bits_per_s` (tbf), so no link between two of them is faster.
class NetworkSandbox {
 public:
  static constexpr char kOurAddress[] = "10.77.0.254";
  // Creates the namespaces and links. Errors: kFailedPrecondition: an `ip` or `tc` command failed.
  static Result<NetworkSandbox> Make(int machines, double bits_per_s);
  std::string AddressOf(int machine) const;
  // Command prefix that runs a command on that machine as its first process. Its ranks then look
  // like another host and share no memory with the others.
  std::vector<std::string> On(int machine) const;

 private:
  NetworkSandbox() = default;
};

}  // namespace troop
