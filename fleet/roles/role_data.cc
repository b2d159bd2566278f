// Reads the data of supervised runs ahead of the nodes that use them.
#include "fleet/roles/role_data.h"

#include "fleet/config/role_configs.h"
#include "learners/images/image_dataset.h"
#include "learners/linear/linear_data.h"
#include "learners/supervised/dataset.h"

namespace troop {

bool ReadsData(const Config& config, Role role) {
  return IsSupervised(config) && (role == Role::kLearner || role == Role::kEvaluator);
}

// One kind per architecture, as in MakeAlgorithm.
Result<std::shared_ptr<const void>> ReadRoleData(const Config& config) {
  const TrainingConfig training = TrainingConfigOf(config);
  const auto upcast = [](const auto& loaded) -> Result<std::shared_ptr<const void>> {
    if (!loaded.ok()) return loaded.status();
    return std::shared_ptr<const void>(*loaded);
  };
  if (ClassifiesImages(training)) return upcast(LoadImageData(training));
  if (IsLinearModel(training)) return upcast(LoadLinearData(training));
  return upcast(LoadReviewData(training));
}

}  // namespace troop
