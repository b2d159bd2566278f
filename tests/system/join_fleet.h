#pragma once

// Utilities of the tests of fleets on more than one machine.
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdlib>

#include "net/security/keys.h"
#include "tests/system/troop_process.h"
#include "tests/system/two_machines.h"

namespace troop {

class JoinFleet : public SystemTest {
 protected:
  void SetUp() override {
    const auto made = Start({"keygen", keys()});
    ASSERT_EQ(made->Wait(), 0) << made->output();
  }
  std::string keys() const { return folder() + "/keys"; }
  std::string key(const std::string& name = "actor") const { return keys() + "/" + name + ".key"; }
  // Its own machine is 127.0.0.2: TCP, and keys.
  std::vector<std::string> ListenWords(const std::string& host = "127.0.0.2",
                                       const std::string& steps = "1e9") const {
    return TrainWords({"fleet.listen=tcp://" + host + ":0", "fleet.actors=1",
                       "security.keys=" + keys(), "run.total_steps=" + steps, "log.level=debug"});
  }
  // Stops a run without a step limit.
  void Stop(Troop* troop) const {
    troop->Signal(SIGINT);
    EXPECT_EQ(troop->Wait(), 130) << troop->output() << LauncherLog();
  }
  // True if an evaluation after the first `seen` bytes of the file reached a mean return of 100; a
  // random policy reaches about 22.
  bool LearnedBehind(std::size_t seen) const {
    std::istringstream lines(FileText(run() + "/evaluations.jsonl").substr(seen));
    for (std::string line; std::getline(lines, line);) {
      const auto value = ParseJson(line);
      const JsonValue* mean = value.ok() ? value->Find("return_mean") : nullptr;
      if (mean != nullptr && mean->number >= 100) return true;
    }
    return false;
  }
  // The address as a person types it: without the coordinator's public key.
  std::string Address() const {
    EXPECT_TRUE(Await([this] { return !Coordinator().empty(); })) << LauncherLog();
    return Coordinator().substr(0, Coordinator().find('#'));
  }
  std::vector<std::string> JoinWords(const std::string& count, const std::string& logs,
                                     const std::string& key_file) const {
    std::vector<std::string> words{"join", Address(), "--count",
                                   count,  "--logs",  folder() + "/" + logs};
    if (!key_file.empty()) words.insert(words.end(), {"--key", key_file});
    return words;
  }
  // Number of the coordinator's current members of a role.
  int Actors(const std::vector<std::string>& starter = {}) const {
    return Members("actor", starter);
  }
  int Members(const std::string& role, const std::vector<std::string>& starter = {}) const {
    Troop status({"status", run(), "--json"}, folder(), {}, starter);
    if (status.Wait() != 0) return -1;
    const auto view = ParseJson(status.output());
    const JsonValue* members = view.ok() ? view->Find("members") : nullptr;
    int count = 0;
    for (std::size_t i = 0; members != nullptr && i < members->array.size(); ++i) {
      count += members->array[i].String("role")->starts_with(role + "-");
    }
    return count;
  }
  // No secret key in the run's folder, in the printed output, or in the logs of the joined
  // machines.
  void ExpectNoSecretLeft() const {
    std::vector<std::string> secrets;
    for (const auto& file : std::filesystem::directory_iterator(keys())) {
      if (file.path().extension() != ".key") continue;
      const auto ring = LoadKeys(file.path().string());
      ASSERT_TRUE(ring.ok());
      const auto& bytes = (*ring)->secret_key.bytes();
      secrets.push_back(KeyText(bytes));
      secrets.push_back(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
    ASSERT_GE(secrets.size(), 14u);
    int files = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder())) {
      if (!file.is_regular_file() || file.path().parent_path() == keys()) continue;
      const std::string text = FileText(file.path());
      ++files;
      for (const std::string& secret : secrets) {
        EXPECT_EQ(text.find(secret), std::string::npos) << file.path();
      }
    }
    EXPECT_GT(files, 15) << "nothing was looked at";
  }
};

}  // namespace troop
