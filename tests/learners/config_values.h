#pragma once

#include "learners/training_config.h"
#include "tests/learners/value_reference.h"

namespace troop {

inline ValueReference ValuesOf(const TrainingConfig& config) {
  const auto& l = config.learner;
  const bool huber = l.loss == TdLoss::kHuber;
  if (l.critic == CriticKind::kScalar) return {.huber = huber};
  const auto kind = l.critic == CriticKind::kCategorical ? ValueReference::kCategorical
                                                         : ValueReference::kQuantile;
  return {.kind = kind, .numbers = std::size_t(l.atoms), .low = l.v_min, .high = l.v_max};
}

}  // namespace troop
