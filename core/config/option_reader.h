#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config_visitor.h"
#include "core/config/env_option.h"

namespace troop {

// Typed access to a table of options whose names only its reader defines (learner.options, the
// options of an own layer). A value of the wrong type or outside its range, and an option that was
// never read, are errors, so that no mistyped option is silently ignored. One owner thread.
class OptionReader {
 public:
  // key: of the table in the config. `options` must outlive this.
  OptionReader(std::string key, std::span<const EnvOption> options)
      : key_(std::move(key)), options_(options) {}

  // Return the value of an option; `otherwise` if the table does not have it, or if it is invalid.
  // An integer is also accepted as a number.
  std::int64_t Integer(std::string_view name, std::int64_t otherwise,
                       const ConfigRange& range = {});
  double Number(std::string_view name, double otherwise, const ConfigRange& range = {});
  bool Flag(std::string_view name, bool otherwise);
  std::string Text(std::string_view name, std::string_view otherwise);

  // Checks the values read so far. Errors: kInvalidArgument: the first invalid one.
  Status Values() const;
  // Checks also that every option was read. Errors: kInvalidArgument: as Values, or an option that
  // was not read, with the names of those that were.
  Status Finish() const;

 private:
  // The value of an option; nullptr if the table does not have it.
  const EnvOption* Find(std::string_view name);
  // Reports an invalid value, with the type and the range that are required.
  void Refuse(const EnvOption& option, std::string_view type, const ConfigRange& range = {});

  const std::string key_;
  const std::span<const EnvOption> options_;
  std::vector<std::string> read_;  // names in the order of reading
  Status invalid_;                 // the first invalid value
};

}  // namespace troop
