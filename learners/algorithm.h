#pragma once

#include <memory>
#include <span>

#include "core/config.h"
#include "core/spec.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "nn/safetensors.h"
#include "nn/tensor_parallel.h"
#include "replay/sample.h"

namespace troop {

// Of several learners' reports of one update: the sum of mean times rows over the sum of rows.
struct LossReport {
  double loss = 0;           // importance-weighted mean over the batch
  double td_error_mean = 0;  // mean |TD error|
  double q_mean = 0;         // mean q of the chosen actions
  double gradient_norm = 0;  // before the clip
  double rows = 0;           // items, or labels, that the means are of
  // Of supervised algorithms.
  double accuracy = 0;         // share of the labels that were told right
  std::int64_t sequences = 0;  // of this learner's part of the batch
};

// What it took that learners agree on a gradient: agree_s, travel_s, gradient_bytes, weights_s and
// weights_bytes of UpdateCost.
struct Agreement {
  double wait_s = 0, travel_s = 0, bytes = 0;
  double weights_s = 0, weights_bytes = 0;
};

// What updates took of one learner, for the report at a run's end. Sums.
struct UpdateCost {
  double gradients = 0;       // that were computed
  double data_s = 0;          // choosing and packing the batch
  double compute_s = 0;       // forward, loss, backward; and what agrees meanwhile
  double tensor_s = 0;        // waiting for those who have the model's other parts
  double agree_s = 0;         // waiting for the gradients' agreement, behind the backward pass
  double travel_s = 0;        // that agreement, from the first that left to the last that came
  double step_s = 0;          // clip and optimizer
  double flops = 0;           // of this learner's products, 2 for each multiplication and addition
  double gradient_bytes = 0;  // of the gradients that were agreed on, or pushed to shards
  double weights_s = 0;       // from asking parameter shards for weights until they are there
  double weights_bytes = 0;   // of those
  double tensor_bytes = 0;    // of what was exchanged with the model's other parts
  double tokens = 0, sequences = 0;  // that went in; of a model in parts, the first counts them
  UpdateCost& operator+=(const UpdateCost& other);
  void Count(const Agreement& agreement);
};

// A loss, its gradient, its priorities, its step: the only thing that tells DQN from DPG.
// One owner thread at a time (the learner hands it to one job at a time). Deterministic.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The first half of an update: the gradient of the batch's mean loss at value(). priority: [B],
  // |TD error| of each item, not yet raised to α. `watch` hears while backward goes on which
  // parts are done; nullptr: nobody wants to know.
  // Errors: kDataLoss when loss or gradient is not finite, with where that comes from: the item
  // of the batch, the parameter; kInvalidArgument: the batch doesn't fit. No gradient then.
  virtual Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                             GradientWatch* watch = nullptr) = 0;
  // [P], of the last ComputeGradient. Learners that agree put here what they agreed on.
  virtual std::span<float> gradient() = 0;
  // Of an algorithm that computes on a device: the same as gradient() in its memory, also where no
  // batch came by now, for learners that agree without the host. Empty: there is no device. Behind
  // AgreeOnDevice(true) gradient() is not looked at, and ComputeGradient tells its watch of parts
  // that are on their way on gradient_stream().
  virtual std::span<float> device_gradient() { return {}; }
  virtual void AgreeOnDevice(bool there) { (void)there; }
  virtual void* gradient_stream() { return nullptr; }  // a cudaStream_t
  virtual int device_ordinal() const { return -1; }    // below 0: there is no device
  // Of the gradient, wherever it is agreed on: its first `count` numbers become 0; all of them a
  // `given`-th part.
  virtual void ClearGradient(std::int64_t count);
  virtual void DivideGradient(float given);
  // The second half: clip, optimizer step, target. norm: of gradient(). progress: share of the run
  // that is over before this update, [0, 1], for schedules.
  virtual void ApplyGradient(double progress, double norm) = 0;
  // The other second half, where others step: takes [P] as the weights after `updates` updates.
  // Each learner.target_update_steps of those the target follows.
  virtual void AdoptValue(std::uint64_t updates, std::span<const float> value) = 0;
  // What goes with that, where others step: several gradients may be of one version, and versions
  // may come of others' gradients alone. Until it is set, both follow from updates().
  struct Course {
    std::uint64_t batches = 0;  // of the run, before that of the next gradient: supervised
    double progress = 0;        // before it, [0, 1], for schedules
  };
  virtual void SetCourse(const Course& course) { (void)course; }
  // Of gradient(), as it is; of parts, of all of them: then all ranks call it.
  virtual double GradientNorm();
  // Which of the learners that make an update together this one is: where a batch is shared, it
  // takes that part of it.
  virtual void SetPlace(int rank, int ranks) { (void)rank, (void)ranks; }
  // Of one part of a model (nn/tensor_parallel.h): the ranks that have the others, as a group that
  // outlives its use here; nullptr: none by now. devices: the same for device tensors, where all
  // compute on devices; nullptr: what they exchange goes through the host.
  virtual void SetTensorGroup(Collective* group, Collective* devices) {
    (void)group, (void)devices;
  }
  // What ended that group within ComputeGradient or GradientNorm.
  virtual Status tensor_status() const { return Status::Ok(); }
  // All parts' values, and with `state` all that State() has, come together on each rank of that
  // group: WholeValue(), WholeState() have them. All ranks call it. Errors: what ended the group.
  virtual Status Gather(bool state) {
    (void)state;
    return Status::Ok();
  }
  // Of the whole model: of parts, as it was gathered last; empty: never.
  virtual std::span<const float> WholeValue() const { return value(); }
  virtual TensorFile WholeState() const { return State(); }
  // What the updates took since it was asked last; of algorithms that count it.
  virtual UpdateCost TakeCost() { return {}; }
  // Adds to it what an agreement took, beside ComputeGradient.
  virtual void CountAgreement(const Agreement& agreement) { (void)agreement; }
  // For who steps in its place: the state that goes with value().
  virtual Optimizer& optimizer() = 0;
  // What the clip makes of a gradient of that norm.
  virtual double ClipScale(double norm) const = 0;
  virtual float LearningRate(double progress) const = 0;
  // Both halves. Errors: as ComputeGradient; nothing was changed then.
  virtual Result<LossReport> Update(const SampleBatch& batch, double progress,
                                    std::span<float> priority);
  // The batch of the Update behind the next one, where it is here already; it stays as it is until
  // then. nullptr: not known. A device copies it meanwhile.
  virtual void ExpectNext(const SampleBatch* batch) { (void)batch; }
  // Of algorithms that draw their batches themselves (replay.placement = "gpu"). Takes in what a
  // batch brings; Update does so too. Errors: kInvalidArgument: it is none of those.
  virtual Status TakeExperience(const SampleBatch& batch);
  // [B], of the last Update: what was drawn.
  struct DrawnItem {
    ItemKey key;
    std::uint64_t policy_version = 0;
  };
  virtual std::span<const DrawnItem> drawn() const { return {}; }

  virtual std::uint64_t updates() const = 0;
  virtual std::span<const float> value() const = 0;  // [P], the newest weights
  // Everything that an exact continuation needs, apart from the replay: value, target, optimizer
  // slots and counters.
  virtual TensorFile State() const = 0;
  virtual Status SetState(const TensorFile& state) = 0;
  // Goes back to such a state, but counts on: this is an update, too, so what is published of it is
  // newer than all before. Errors: as SetState; nothing was changed then.
  virtual Status RollBack(const TensorFile& state) = 0;
  // Errors: kDataLoss that names the first number of State() that is NaN or infinite; kUnavailable:
  // what computes has failed for good, with what it said. O(P).
  virtual Status CheckNumbers() const = 0;
};

// config.learner.algorithm. tensor: the part of the model that it trains. learner: which of several
// it is, who share the machine's GPUs by turns. Errors: kInvalidArgument
// with the known names.
Result<std::unique_ptr<Algorithm>> MakeAlgorithm(const Config& config, const EnvSpec& env,
                                                 const TensorPlace& tensor = {}, int learner = 0);

}  // namespace troop
