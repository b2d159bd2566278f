#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "nn/lbfgs/line_search.h"
#include "nn/lbfgs/vector_command.h"

namespace troop {

// Options of L-BFGS.
struct LbfgsOptions {
  int history = 10;  // pairs of changes, from 1 to kLbfgsHistoryMax
  // The search has converged if the norm of the gradient is at most this.
  double gradient_norm = 1e-5;
  // ... or if an iteration lowers the value by at most this fraction; 0: not checked.
  double decrease = 1e-9;
  LineSearchOptions search;
};

// Limit of the history, so that the state of a search and a request fit into 1 KB.
inline constexpr int kLbfgsHistoryMax = 30;

// L-BFGS (Nocedal 1980; Liu & Nocedal 1989) by the two-loop recursion, with the line search of Moré
// and Thuente. Minimizes a function whose value and gradient the caller computes; all of it, not
// those of random batches. A state machine that holds scalars only: the vectors are in an
// LbfgsVectors, or divided among parameter shards, and request() says what to do with them. The
// caller executes the request, then passes its results to Take. Iterates are those of L-BFGS-B
// without bounds, except that the first step is min(1, 1/|d|). Deterministic. One owner thread.
class Lbfgs {
 public:
  explicit Lbfgs(const LbfgsOptions& options);

  enum class Outcome : std::uint8_t {
    kRunning,
    kConverged,  // the gradient is small, or the value no longer falls
    kStuck,      // the line search along the negative gradient failed: rounding, or a gradient that
                 // is not that of the function
    kNotFinite,  // the first value or its gradient is not finite
  };
  // The next work: commands in order, then, if wanted, the function's value and gradient at the
  // weights. The results are those of the dot products, followed by the value.
  struct Request {
    std::vector<VectorCommand> commands;
    bool evaluate = false;
    std::size_t results() const;  // their number
  };
  // The current request, which is a function of the state; empty if the outcome is known.
  Request request() const;
  // Takes the results of the request. REQUIRES: outcome() is kRunning, and request().results() of
  // them.
  void Take(std::span<const double> results);

  Outcome outcome() const { return outcome_; }
  // Explanation of the outcome, for users; "" while running.
  std::string Reason() const;
  std::int64_t iterations() const { return iterations_; }    // completed
  std::int64_t evaluations() const { return evaluations_; }  // of the function
  double value() const { return value_; }                    // after the last iteration
  double gradient_norm() const { return norm_; }             // there
  double step() const { return search_.step(); }             // length factor of the last direction

  // The state as numbers: for checkpoints, and for a process that takes over the search.
  std::vector<double> Save() const;
  // Restores it. Errors: kInvalidArgument: numbers that no Save with this history returns; nothing
  // was changed then.
  Status Restore(std::span<const double> numbers);

 private:
  // States: the first evaluation and its norm; the two loops; the slope along the direction; a
  // trial of the line search and its slope; the new pair; the return to the start of a failed
  // search.
  enum class Phase : std::uint8_t {
    kFirst,
    kFirstNorm,
    kBackward,
    kForward,
    kSlope,
    kTrial,
    kTrialSlope,
    kPair,
    kReturn,
    kLast = kReturn,
  };
  int PlaceOf(int age) const;  // age 0: the newest pair
  void Begin();
  void StartSearch(double slope, double squares);
  void EndTrial(double slope, double squares);
  void AddPair(double ys, double yy);
  void EndIteration();

  LbfgsOptions options_;
  Phase phase_ = Phase::kFirst;
  Outcome outcome_ = Outcome::kRunning;
  int age_ = 0;       // of the current pair in a loop
  int pairs_ = 0;     // in the history
  int newest_ = 0;    // place of the newest pair
  double gamma_ = 1;  // scale of the first matrix, s·y / y·y of the newest pair
  double value_ = 0, norm_ = 0;
  double trial_ = 0, trial_norm_ = 0;  // of the last trial
  std::int64_t iterations_ = 0, evaluations_ = 0;
  std::vector<double> rho_, alpha_;  // [history] 1 / s·y, and of the first loop, by place
  double beta_ = 0;                  // of the second loop's last pair
  double slope_ = 0;                 // along the direction
  LineSearch search_;
};

// Minimizes on one device: executes the requests of `lbfgs` on `vectors` until an iteration ends,
// or the outcome is known. evaluate: computes value and gradient at the weights.
//   template <class T> double evaluate(span<const T> weights, span<T> gradient)
// Errors: those of LbfgsVectors::Run.
template <class Vectors, class Evaluate>
Status RunLbfgsIteration(Lbfgs* lbfgs, Vectors* vectors, const Evaluate& evaluate) {
  const std::int64_t before = lbfgs->iterations();
  while (lbfgs->outcome() == Lbfgs::Outcome::kRunning && lbfgs->iterations() == before) {
    const Lbfgs::Request request = lbfgs->request();
    std::vector<double> results;
    TROOP_RETURN_IF_ERROR(vectors->Run(request.commands, &results));
    if (request.evaluate) {
      results.push_back(
          evaluate(vectors->at(VectorName::kWeights), vectors->at(VectorName::kGradient)));
    }
    lbfgs->Take(results);
  }
  return Status::Ok();
}

}  // namespace troop
