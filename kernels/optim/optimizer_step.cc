// Selection of the optimizer kernels for an instruction set, and the factors of Adam's steps.
#include "kernels/optim/optimizer_step.h"

#include <cmath>

namespace troop {

// Each is compiled from one template with the flags of its instruction set.
namespace plain {
extern const OptimizerKernels kOptimizerKernels;
}
namespace avx2 {
extern const OptimizerKernels kOptimizerKernels;
}
namespace avx512 {
extern const OptimizerKernels kOptimizerKernels;
}

const OptimizerKernels& OptimizerKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kOptimizerKernels;
  return level == CpuLevel::kAvx2 ? avx2::kOptimizerKernels : plain::kOptimizerKernels;
}

void SetAdamFactors(const AdamSettings& settings, double t, double learning_rate, AdamStep* step) {
  // Bias corrections of both moments.
  const double power2 = std::pow(settings.beta2, t), rest2 = 1 - power2;
  const double size = learning_rate / (1 - std::pow(settings.beta1, t));
  step->step_size = float(size);
  step->root_scale = float(1 / std::sqrt(rest2));
  step->epsilon = float(settings.epsilon);
  if (!settings.rectified) return;
  const double limit = 2 / (1 - settings.beta2) - 1;  // of the length, for large t
  const double length = limit - 2 * t * power2 / rest2;
  if (length > kRectifiedLength) {
    step->step_size = float(size * std::sqrt((length - 4) * (length - 2) * limit /
                                             ((limit - 4) * (limit - 2) * length)));
  } else {
    step->root_scale = 0, step->epsilon = 1;  // the divisor of m is 1
  }
}

}  // namespace troop
