#pragma once

#include <vector>

#include "tests/cuda/parity.h"

// The cases of each file; parity_cases.cc concatenates them.
namespace troop::cuda {

std::vector<ParityCase> ActivationCases();
std::vector<ParityCase> AttentionCases();
std::vector<ParityCase> ConvCases();
std::vector<ParityCase> DeviceTableCases();
std::vector<ParityCase> DistributionLossCases();
std::vector<ParityCase> DqnLossCases();
std::vector<ParityCase> DqnStepCases();
std::vector<ParityCase> DropoutCases();
std::vector<ParityCase> DuelingCases();
std::vector<ParityCase> EmbeddingCases();
std::vector<ParityCase> InterleaveCases();
std::vector<ParityCase> LstmCases();
std::vector<ParityCase> MatMulCases();
std::vector<ParityCase> OptimizerCases();
std::vector<ParityCase> TextLossCases();
std::vector<ParityCase> TextPartsCases();
std::vector<ParityCase> TextStepCases();
std::vector<ParityCase> TransformerCases();

}  // namespace troop::cuda
