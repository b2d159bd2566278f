#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace troop {

// Two machines, each in a network namespace, with a cable between. Removed with the test.
class TwoMachines {
 public:
  TwoMachines() {
    const std::string id = std::to_string(getpid());
    for (int i = 0; i < 2; ++i) names_[i] = "troop" + id + "m" + std::to_string(i);
    ok_ = Ip("netns add " + names_[0]) && Ip("netns add " + names_[1]) &&
          Ip("-n " + names_[0] + " link add cable type veth peer name cable netns " + names_[1]);
    for (int i = 0; ok_ && i < 2; ++i) {
      const std::string in = "-n " + names_[i];
      ok_ = Ip(in + " addr add 10.77.0." + std::to_string(i + 1) + "/24 dev cable") &&
            Ip(in + " link set cable up") && Ip(in + " link set lo up");
    }
  }
  ~TwoMachines() {
    for (const std::string& name : names_) Ip("netns del " + name);
  }
  TwoMachines(const TwoMachines&) = delete;
  bool ok() const { return ok_; }
  std::vector<std::string> On(int machine) const {
    return {"ip", "netns", "exec", names_[machine]};
  }
  // Also mounts `hosts` as /etc/hosts, which may change meanwhile.
  std::vector<std::string> On(int machine, const std::string& hosts) const {
    std::vector<std::string> words = On(machine);
    const std::string mount = "mount --bind '" + hosts + "' /etc/hosts && exec \"$@\"";
    words.insert(words.end(), {"sh", "-c", mount, "sh"});
    return words;
  }
  // Machine 0 has another address; packets for the old one vanish, as those for a pod that is gone.
  bool Move(const std::string& from, const std::string& to) const {
    const std::string in = "-n " + names_[0];
    return Ip(in + " addr del " + from + "/24 dev cable") &&
           Ip(in + " addr add " + to + "/24 dev cable") &&
           Ip("-n " + names_[1] + " neigh replace " + from +
              " lladdr 02:00:00:00:00:99 dev cable nud permanent");
  }
  void Cable(bool up) const { Ip("-n " + names_[1] + " link set cable " + (up ? "up" : "down")); }

 private:
  static bool Ip(const std::string& words) {
    return std::system(("ip " + words + " > /dev/null 2>&1").c_str()) == 0;
  }
  std::string names_[2];
  bool ok_ = false;
};

}  // namespace troop
