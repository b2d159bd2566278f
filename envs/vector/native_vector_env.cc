// Base class of native vectors: the order of calls, resets and faults.

#include "envs/vector/native_vector_env.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace troop {
namespace {

// Allocates a multiple of kRowMultiple rows and returns the first `size`: [size, ...element].
Tensor PaddedRows(const TensorSpec& element, int size) {
  constexpr int kMultiple = NativeVectorEnv::kRowMultiple;
  const std::int64_t padded = (size + kMultiple - 1) / kMultiple * kMultiple;
  return Tensor(element.dtype, element.shape.Prepend(padded)).Rows(0, size);
}

}  // namespace

// All tensors are allocated once and reused by every batch.
NativeVectorEnv::NativeVectorEnv(EnvSpec spec, int size, EpisodeSeeder seeder)
    : spec_(std::move(spec)),
      size_(size),
      row_bytes_(spec_.observation.bytes()),
      observation_(PaddedRows(spec_.observation, size)),
      final_observation_(PaddedRows(spec_.observation, size)),
      reward_(PaddedRows({DType::kF32, {}}, size)),
      terminated_(PaddedRows({DType::kU8, {}}, size)),
      truncated_(PaddedRows({DType::kU8, {}}, size)),
      fault_(DType::kU8, {size}),
      seeder_(std::move(seeder)) {
  batch_ = {.observation = observation_,
            .final_observation = final_observation_,
            .reward = reward_,
            .terminated = terminated_,
            .truncated = truncated_,
            .fault = fault_};
}

void NativeVectorEnv::SubmitReset() {
  TROOP_CHECK(!pending_, "the previous step was not polled");
  // A batch of a reset has only observations.
  for (const Tensor& tensor : {reward_, terminated_, truncated_}) {
    std::ranges::fill(tensor.bytes(), std::byte{0});
  }
  ForgetFaults();
  for (int i = 0; i < size_; ++i) Start(i, seeder_(i));
  started_ = pending_ = true;
}

// Steps at once; Poll only returns the batch.
void NativeVectorEnv::Submit(ConstTensor action) {
  TROOP_CHECK(started_ && !pending_, "Submit must come after a polled SubmitReset or Submit");
  const TensorSpec one = spec_.action.tensor();
  const TensorSpec want{one.dtype, one.shape.Prepend(size_)};
  TROOP_CHECK(action.spec() == want, "{}: actions are {}, not {}", spec_.id, want.ToString(),
              action.spec().ToString());
  ForgetFaults();
  StepAll(action.bytes().data());
  pending_ = true;
}

const StepBatch* NativeVectorEnv::Poll() {
  if (!pending_) return nullptr;
  pending_ = false;
  return &batch_;
}

void NativeVectorEnv::SubmitRestart(std::span<const int> indices) {
  TROOP_CHECK(started_ && !pending_,
              "SubmitRestart must come after a polled SubmitReset or Submit");
  ForgetFaults();
  for (const int index : indices) {
    TROOP_CHECK(index >= 0 && index < size_, "environment {} of {}", index, size_);
    Start(index, seeder_(index));
  }
  pending_ = true;
}

// Saves the last observation, then starts the next episode in the same row.
void NativeVectorEnv::EndEpisode(int index) {
  const std::span<std::byte> row = ObservationRow(index);
  std::memcpy(final_observation_.bytes().data() + index * row_bytes_, row.data(), row_bytes_);
  Start(index, seeder_(index));
}

void NativeVectorEnv::Fail(EnvFault fault) {
  // The row is 0 except for its observation, which is the restarted episode's.
  const auto row = std::size_t(fault.index);
  fault_.data<std::uint8_t>()[row] = 1;
  reward_.data<float>()[row] = 0;
  terminated_.data<std::uint8_t>()[row] = truncated_.data<std::uint8_t>()[row] = 0;
  faults_.push_back(std::move(fault));
}

// Clears only the rows that failed, since faults are rare and vectors may be large.
void NativeVectorEnv::ForgetFaults() {
  for (const EnvFault& fault : faults_) fault_.data<std::uint8_t>()[std::size_t(fault.index)] = 0;
  faults_.clear();
}

std::span<std::byte> NativeVectorEnv::ObservationRow(int index) const {
  return observation_.bytes().subspan(index * row_bytes_, row_bytes_);
}

}  // namespace troop
