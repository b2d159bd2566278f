#include "tests/cuda/parity_cases.h"

namespace troop::cuda {

std::vector<ParityCase> AllParityCases() {
  std::vector<ParityCase> all;
  for (const auto& cases :
       {ActivationCases(), AttentionCases(), ConvCases(), DeviceTableCases(),
        DistributionLossCases(), DqnLossCases(), DqnStepCases(), DropoutCases(), DuelingCases(),
        EmbeddingCases(), InterleaveCases(), LstmCases(), MatMulCases(), OptimizerCases(),
        TextLossCases(), TextPartsCases(), TextStepCases(), TransformerCases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

}  // namespace troop::cuda
