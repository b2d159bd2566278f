// Declares the config keys of linear models.
#include "nn/sparse/linear_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(LinearConfig& c, ConfigVisitor& v) {
  v.Visit({.name = "linear.solver",
           .doc = "Linear models: dual coordinate ascent (Shalev-Shwartz & Zhang 2013, as in "
                  "liblinear), which has no learning rate; or an optimizer that steps the rows of "
                  "a batch with optimizer.learning_rate: FTRL-proximal (McMahan et al. 2013), SGD, "
                  "AdaGrad, or lazy Adam."},
          c.solver);
  v.Visit({.name = "linear.loss",
           .doc = "Loss of an output: squared hinge, logistic (log_loss), or half the squared "
                  "error, which a regression needs."},
          c.loss);
  // Penalties.
  v.Visit({"linear.l2",
           "dual_ascent and ftrl: coefficient of the L2 penalty. dual_ascent adds half of it times "
           "the sum of squares to the mean loss; liblinear's C is 1 / (examples · l2).",
           AtLeast(0)},
          c.l2);
  v.Visit({"linear.l1",
           "dual_ascent and ftrl: coefficient of the L1 penalty; above 0 many weights are 0.",
           AtLeast(0)},
          c.l1);
  // Weights of the features before training.
  v.Visit({"linear.naive_bayes",
           "Two classes: multiply each feature by its log-count ratio (NB-SVM, Wang & Manning "
           "2012)."},
          c.naive_bayes);
  v.Visit({"linear.smoothing", "Count that linear.naive_bayes adds to each feature.", Above(0)},
          c.smoothing);
}

}  // namespace troop
