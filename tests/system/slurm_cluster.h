#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/system/troop_process.h"

namespace troop {

// A real Slurm cluster of four nodes on this machine (fleetbed.sh), which ends with the object.
class SlurmCluster {
 public:
  explicit SlurmCluster(const std::string& folder) : folder_(folder + "/bed") {
    std::filesystem::create_directories(folder_);
    const std::string script = TROOP_SOURCE_DIR "/tests/system/fleetbed.sh";
    const std::string command =
        "exec bash " + script + " " + folder_ + " > " + folder_ + "/said 2>&1";
    commands_ = popen(command.c_str(), "we");
  }
  ~SlurmCluster() {
    if (commands_ != nullptr) pclose(commands_);  // its end of input ends it
  }
  SlurmCluster(const SlurmCluster&) = delete;

  // Why there can be none here; empty: there can.
  static std::string WhatIsMissing() {
    for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch",
                                "/usr/bin/unshare", "/usr/bin/nsenter"}) {
      if (access(program, X_OK) != 0) return std::string("no ") + program;
    }
    const char* const user = geteuid() == 0 ? "" : "--user --map-current-user --keep-caps ";
    const std::string probe = std::string("unshare ") + user +
                              "--net --mount --pid --fork --mount-proc sh -c 'mount -t tmpfs x "
                              "/run && mkdir /run/netns && ip netns add a' > /dev/null 2>&1";
    return std::system(probe.c_str()) == 0 ? "" : "no namespaces, or no iproute2";
  }
  bool AwaitReady() const {
    return Await([this] { return std::filesystem::exists(folder_ + "/ready"); }, 40);
  }

  struct Said {
    int code = -1;  // -1: it did not end
    std::string text;
  };
  // Returns the output of a command of fleetbed.sh. One line.
  Said Run(const std::string& command) {
    const std::string number = std::to_string(++count_);
    fprintf(commands_, "%s %s\n", number.c_str(), command.c_str());
    fflush(commands_);
    const std::string file = folder_ + "/" + number;
    if (!Await([&] { return std::filesystem::exists(file + ".rc"); }, 30)) return {};
    return {std::stoi(FileText(file + ".rc")), FileText(file + ".out")};
  }
  std::string said() const { return FileText(folder_ + "/said"); }

 private:
  const std::string folder_;
  FILE* commands_ = nullptr;
  int count_ = 0;
};

}  // namespace troop
