#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// "1gbit", "200mbit", "64kbit" → bits per second. Errors: kInvalidArgument: another form, or not
// within 64 kbit/s and 100 Gbit/s.
Result<double> ParseLinkRate(std::string_view text);

// Runs `work` in a process of its own whose network, mounts and processes nobody else sees and
// which all end with it, however it ends; SIGINT and SIGTERM are passed on. Returns work's return
// value as an exit code. Blocks until then. REQUIRES: this process has one thread. Errors:
// kFailedPrecondition: that needs root, or `ip` and `tc`.
Result<int> RunInSandbox(const std::function<int()>& work);

// Within a sandbox: `machines` network namespaces that stand for machines, at a switch at which
// this process is as well. Each sends at most `bits_per_s` (tbf), and so no two are joined by more.
class ShapedLinks {
 public:
  static constexpr char kOurAddress[] = "10.77.0.254";
  static Result<ShapedLinks> Make(int machines, double bits_per_s);
  std::string AddressOf(int machine) const;
  // Words before a command that run it there, as the first process of a machine of its own: ranks
  // take it for another host, and share no memory with the others.
  std::vector<std::string> On(int machine) const;

 private:
  ShapedLinks() = default;
};

}  // namespace troop
