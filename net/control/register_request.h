#pragma once

#include <cstdint>
#include <string>

#include "net/control/env_spec_body.h"
#include "net/message.h"

namespace troop {

// Registers a process as a role of the run.
struct RegisterRequest {
  Role role = Role::kNone;
  std::int32_t index = 0;    // -1 for an external role: the coordinator assigns it
  std::string version;       // of the program
  std::int64_t process = 0;  // process id, shown by `troop status`
  std::string host;
  std::string reach;  // external roles: address at which others reach their services
  template <class A>
  void serialize(A& a) {
    a(role, index, version, process, host, reach);
  }
};

// The identity of the new member and all it needs to start.
struct RegisterReply {
  std::uint64_t incarnation = 0;  // never reused, also after a coordinator restart
  std::int32_t index = 0;
  std::string config_toml;        // resolved
  std::string listen;             // listen address of roles that serve
  std::string resume_checkpoint;  // path in the run folder; empty: a new run
  EnvSpecBody env;
  std::string group_secret;  // learners of a run with keys: secret that authenticates group members
  std::string data_identity;  // supervised: Config::data_identity
  template <class A>
  void serialize(A& a) {
    a(incarnation, index, config_toml, listen, resume_checkpoint, env, group_secret, data_identity);
  }
};

}  // namespace troop
