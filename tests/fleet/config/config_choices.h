#pragma once

#include <string>
#include <vector>

#include "fleet/config/config_keys.h"

namespace troop {

struct ConfigChoice {
  std::string key, value;  // "replay.compression", "lz4"; of lists "network.layers.type", …
};

class ConfigChoiceVisitor final : public ConfigVisitor {
 public:
  explicit ConfigChoiceVisitor(std::vector<ConfigChoice>* out) : out_(out) {}
  void Visit(const ConfigKeyInfo&, std::int64_t&) override {}
  void Visit(const ConfigKeyInfo&, double&) override {}
  void Visit(const ConfigKeyInfo&, bool&) override {}
  void Visit(const ConfigKeyInfo& key, std::string&) override {
    for (const std::string_view value : key.choices) {
      out_->push_back({prefix_ + std::string(key.name), std::string(value)});
    }
  }
  void Visit(const ConfigKeyInfo& key, ConfigList& list) override {
    if (key.name == "network.critic_layers") return;  // the keys of network.layers
    prefix_ = std::string(key.name) + ".";
    list.VisitDefault(*this);
    prefix_.clear();
  }
  void Visit(const ConfigKeyInfo&, std::vector<EnvOption>&) override {}
  void Visit(const ConfigKeyInfo&, std::vector<std::string>&) override {}
  void Visit(const ConfigKeyInfo&, std::vector<double>&) override {}

 private:
  std::vector<ConfigChoice>* const out_;
  std::string prefix_;
};

// Every value of every key of the schema that has a list of values; of `key` alone, if given.
inline std::vector<ConfigChoice> ConfigChoices(const std::string& key = "") {
  std::vector<ConfigChoice> all;
  ConfigChoiceVisitor visitor(&all);
  Config config;
  VisitConfig(config, visitor);
  if (!key.empty()) std::erase_if(all, [&key](const ConfigChoice& c) { return c.key != key; });
  return all;
}

}  // namespace troop
