#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/node.h"
#include "core/base/status.h"
#include "net/control/shard_move.h"
#include "nn/module.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"
#include "paramserver/shard_config.h"

namespace troop {

// The shard of one parameter server process in the newest adopted epoch: the shard's number, the
// map, and the options that follow from both. Deterministic: only the settings, the module and the
// epochs are inputs. Owner: ShardNode's thread; a job may read it until the next Adopt.
class ShardLayout {
 public:
  // Derives the map of the first epoch. `index`: the process's index in its role. `appliers`:
  // executor of Hogwild updates, or null. `module` and `appliers` must outlive the layout.
  // Errors: as ShardMapFor.
  static Result<ShardLayout> Make(const ShardConfig& config, const Module* module,
                                  std::int32_t index, Executor* appliers);

  // Switches to the last of `epochs`. Errors: kDataLoss: as ShardMapAfter; nothing changes then.
  Status Adopt(std::span<const ShardEpoch> epochs);
  // True if the last of these non-empty `epochs` is adopted.
  bool IsCurrent(std::span<const ShardEpoch> epochs) const {
    return !epochs_.empty() && epochs.size() == epochs_.size();
  }
  // Map of the epoch that `move` would begin. Errors: as ShardMapAfter. REQUIRES: an epoch is
  // adopted.
  Result<ShardMap> MapAfterMove(const ShardMove& move) const;
  // Options of this process's shard in `map`.
  ParameterShard::Options OptionsFor(const ShardMap& map) const;
  // Upper bound on the snapshot size of this process's shard in `map`.
  std::size_t StateBytesMax(const ShardMap& map) const;
  // True for the first of the shard's processes.
  bool is_first_process() const { return index_ == shard_ * servers_per_shard_; }

  std::int32_t index() const { return index_; }
  std::int32_t shard() const { return shard_; }
  const ShardMap& map() const { return map_; }
  const std::vector<ShardEpoch>& epochs() const { return epochs_; }  // empty: none adopted yet

 private:
  ShardLayout(const ShardConfig& config, const Module* module, std::int32_t index, ShardMap first)
      : config_(config), module_(module), index_(index), first_map_(first), map_(first) {}

  ShardConfig config_;
  const Module* module_;
  std::int32_t index_ = 0, servers_per_shard_ = 1, shard_ = 0;
  std::size_t slots_ = 0;  // of the optimizer
  Executor* appliers_ = nullptr;
  ShardMap first_map_, map_;  // of the first epoch, and of the last of epochs_
  std::vector<ShardEpoch> epochs_;
};

}  // namespace troop
