// Declares the config keys of the optimizer.
#include "nn/optimizer_config.h"

#include "core/config/config_visitor.h"
#include "nn/lbfgs/lbfgs.h"

namespace troop {

void VisitKeys(OptimizerConfig& c, ConfigVisitor& v) {
  v.Visit({.name = "optimizer.type",
           .doc = "Optimizer: Adam (Kingma & Ba 2015), RMSProp (Graves 2013), SGD, AdaGrad "
                  "(Duchi et al. 2011), RAdam (Liu et al. 2020); or, for linear models, L-BFGS "
                  "(Liu & Nocedal 1989), whose every update uses all examples."},
          c.type);
  v.Visit({"optimizer.learning_rate", "Learning rate at the start.", Above(0)}, c.learning_rate);
  v.Visit({"optimizer.policy_learning_rate",
           "dpg, td3 and sac: learning rate of the policy at the start; 0 means "
           "optimizer.learning_rate.",
           AtLeast(0)},
          c.policy_learning_rate);
  // Schedule of the learning rate.
  v.Visit({.name = "optimizer.lr_schedule",
           .doc = "Course of the learning rate after the warm-up: linear or along half a cosine to "
                  "optimizer.final_lr_fraction, or in steps at optimizer.lr_milestones."},
          c.lr_schedule);
  v.Visit({"optimizer.final_lr_fraction",
           "Learning rate at the end of the linear or cosine decay, as a fraction of the initial "
           "one; the last update is one step before that end, so its rate is never 0.",
           Between(0, 1)},
          c.final_lr_fraction);
  v.Visit({"optimizer.lr_milestones",
           "Step schedule: fractions of the updates of the run, rising, at each of which the "
           "learning rate is multiplied by optimizer.lr_milestone_factor; such as [0.33, 0.67]."},
          c.lr_milestones);
  v.Visit(
      {"optimizer.lr_milestone_factor", "Step schedule: factor at each milestone.", Between(0, 1)},
      c.lr_milestone_factor);
  v.Visit({"optimizer.warmup_ratio",
           "Fraction of the updates of the run in which the learning rate rises linearly to its "
           "full value; the decay starts after them.",
           RightOpen(0, 1)},
          c.warmup_ratio);
  // Parameters of single optimizers.
  v.Visit({"optimizer.beta1", "Adam and RAdam: decay rate of the gradient mean.", RightOpen(0, 1)},
          c.beta1);
  v.Visit({"optimizer.beta2",
           "Adam and RAdam: decay rate of the squared-gradient mean; for RAdam above 2/3.",
           RightOpen(0, 1)},
          c.beta2);
  v.Visit({"optimizer.decay",
           "RMSProp: decay rate of the running means of the gradient and of its square.",
           RightOpen(0, 1)},
          c.decay);
  v.Visit({"optimizer.centered",
           "RMSProp: divide by the standard deviation of the gradient instead of its root mean "
           "square."},
          c.centered);
  v.Visit(
      {"optimizer.momentum", "SGD: momentum coefficient; 0 disables momentum.", RightOpen(0, 1)},
      c.momentum);
  v.Visit({"optimizer.epsilon",
           "Term added to the divisor: outside the root for Adam, RAdam and AdaGrad, inside it for "
           "RMSProp.",
           Above(0)},
          c.epsilon);
  v.Visit(
      {"optimizer.weight_decay",
       "Adam and RAdam: coefficient of decoupled weight decay; each update multiplies the weights "
       "by 1 - learning rate · this value. SGD: coupled weight decay; this value · weights is "
       "added "
       "to the gradient, before the momentum.",
       AtLeast(0)},
      c.weight_decay);
  v.Visit(
      {"optimizer.history_size", "L-BFGS: number of recent updates that approximate the curvature.",
       Between(1, kLbfgsHistoryMax)},
      c.history_size);
  v.Visit({"optimizer.tolerance_grad",
           "L-BFGS: norm of the gradient below which the weights no longer change.", AtLeast(0)},
          c.tolerance_grad);
}

}  // namespace troop
