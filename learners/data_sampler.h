#pragma once

#include <memory>

#include "replay/client.h"

namespace troop {

// Takes the place of a replay's sampler where a data set is learned. Which samples an update has
// follows from its number (UpdateOrder), so a batch is only the word that one may be made: one key,
// no data. There is always one; who counts the updates says when it is enough.
std::unique_ptr<ReplaySampler> MakeDataSampler();

}  // namespace troop
