#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/config.h"
#include "core/status.h"
#include "nn/optimizer.h"

namespace troop {

// Parameters and their optimizer, which are somebody else's, read and changed by several threads at
// once without locks: Hogwild! (Recht et al. 2011); RMSProp with statistics of all threads as in
// Mnih et al. 2016.
// Each element is read and written whole (relaxed atomics), but a gradient is not applied as one:
// others see it half, and a reader gets elements of different times.
//
// Thread safety: all const and non-const calls but the constructor, from any number of threads;
// clean under the thread sanitizer. Invariants: with one thread every bit is as nn/optimizer's.
// kExact: no change of a value is lost, so the sum of changes is there in the end, up to rounding;
// an optimizer's statistics may lose some. kRacy: changes of one element that meet may lose one.
// Cost: elementwise and not vectorised; kExact has a compare-and-swap an element. More than one
// thread pays where gradients are sparse, or computing them is the larger part.
class SharedArena {
 public:
  enum class Write : std::uint8_t { kExact, kRacy };

  // `config`: that of `optimizer`. Both outlive it, and nobody else steps or writes meanwhile.
  // Errors: kInvalidArgument: no such optimizer.
  static Result<std::unique_ptr<SharedArena>> Make(const Config& config, std::span<float> value,
                                                   Optimizer* optimizer,
                                                   Write write = Write::kExact);
  virtual ~SharedArena() = default;

  // One step with gradient * scale. [P]
  void Step(std::span<const float> gradient, float scale, float learning_rate);
  // As Optimizer::StepParts. REQUIRES: the parts and the groups' counts are [P] each.
  virtual void StepParts(std::span<const std::span<const float>> parts, float scale,
                         std::span<const Optimizer::Group> groups) = 0;
  // Of the elements `index` alone; the others' statistics stay as they are. [n] and [n].
  // REQUIRES: each index is in [0, P), and there once.
  virtual void StepSparse(std::span<const std::int32_t> index, std::span<const float> gradient,
                          float scale, float learning_rate) = 0;

  std::int64_t size() const { return std::int64_t(value_.size()); }
  float Get(std::int64_t i) const { return Atomic(value_[std::size_t(i)]); }
  void Read(std::span<float> out) const;  // [P]
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  // The optimizer learns how many steps it has made. REQUIRES: nobody steps meanwhile.
  void CountSteps() { optimizer_->set_steps(std::int64_t(steps())); }

 protected:
  SharedArena(std::span<float> value, Optimizer* optimizer, Write write)
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

// Learners of one machine on one arena: `threads` threads take the steps 0 … steps - 1, each the
// next that nobody has, and call f(thread, step). What f draws is keyed by the step, not by who
// does it. Blocks until all are done. REQUIRES: threads > 0.
void RunHogwild(int threads, std::int64_t steps,
                const std::function<void(int thread, std::int64_t step)>& f);

}  // namespace troop
