#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/status.h"
#include "nn/optimizer.h"
#include "nn/optimizer_config.h"

namespace troop {

// Parameters and their optimizer, both owned by the caller, read and updated by several threads
// concurrently without locks: Hogwild! (Recht et al. 2011); RMSProp with shared statistics as in
// Mnih et al. 2016.
// Each element is read and written atomically (relaxed), but a gradient is not: other threads may
// see it partially applied, and a reader may get elements of different times.
//
// Thread safety: all methods except the constructor, from any number of threads; clean under the
// thread sanitizer. Invariants: with one thread every bit equals that of nn/optimizer. kExact: no
// change of a value is lost, so the final value is the sum of changes up to rounding; optimizer
// statistics may lose some. kRacy: concurrent changes of one element may lose one.
// Cost: elementwise and not vectorized; kExact needs a compare-and-swap per element. More than one
// thread pays off if gradients are sparse, or expensive to compute.
class HogwildArena {
 public:
  enum class Write : std::uint8_t { kExact, kRacy };

  // `config` is that of `optimizer`. `value` and `optimizer` must outlive the arena, and must not
  // be stepped or written otherwise meanwhile. Errors: kInvalidArgument: unknown optimizer.
  static Result<std::unique_ptr<HogwildArena>> Make(const OptimizerConfig& config,
                                                    std::span<float> value, Optimizer* optimizer,
                                                    Write write = Write::kExact);
  virtual ~HogwildArena() = default;

  // One step with gradient * scale, [P].
  void Step(std::span<const float> gradient, float scale, float learning_rate);
  // Like Optimizer::StepParts. REQUIRES: the parts and the groups' counts are [P] each; all groups
  // change at every step.
  virtual void StepParts(std::span<const std::span<const float>> parts, float scale,
                         std::span<const Optimizer::Group> groups) = 0;
  // Updates only the elements `index`; statistics of the others stay unchanged. [n] and [n].
  // REQUIRES: indices in [0, P), without duplicates.
  virtual void StepSparse(std::span<const std::int32_t> index, std::span<const float> gradient,
                          float scale, float learning_rate) = 0;

  std::int64_t size() const { return std::int64_t(value_.size()); }
  float Get(std::int64_t i) const { return Atomic(value_[std::size_t(i)]); }
  void Read(std::span<float> out) const;  // [P]
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  // Stores the step count in the optimizer. REQUIRES: no concurrent steps.
  void CountSteps() { optimizer_->set_steps(std::int64_t(steps())); }

 protected:
  HogwildArena(std::span<float> value, Optimizer* optimizer, Write write)
      : value_(value),
        optimizer_(optimizer),
        write_(write),
        steps_(std::uint64_t(optimizer->steps())) {}
  static float Atomic(const float& x) {
    return std::atomic_ref(const_cast<float&>(x)).load(std::memory_order_relaxed);
  }

  const std::span<float> value_;
  Optimizer* const optimizer_;
  const Write write_;
  std::atomic<std::uint64_t> steps_;
};

// Runs several learners of one machine on one arena: `threads` threads process the steps 0 … steps
// - 1, each taking the next free one, and call f(thread, step). The caller is thread 0. f should
// key its random numbers by the step, because the assignment of steps to threads varies. Blocks
// until all are done. REQUIRES: threads > 0.
void RunHogwild(int threads, std::int64_t steps,
                const std::function<void(int thread, std::int64_t step)>& f);

}  // namespace troop
