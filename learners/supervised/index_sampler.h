#pragma once

#include <memory>

#include "replay/service/client.h"

namespace troop {

// Makes a sampler that replaces the replay's in supervised mode. The samples of an update follow
// from its number (BatchSchedule), so a batch is only a permission to make one update: one key, no
// data. It never runs out; the learner's update limit ends the run.
std::unique_ptr<ReplaySampler> MakeIndexSampler();

}  // namespace troop
