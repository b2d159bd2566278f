// Atari vector: wraps a ProcessVectorEnv of raw frame pairs and preprocesses them in this process.

#include "envs/atari/atari_vector_env.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "envs/atari/preprocessing.h"
#include "envs/subprocess/subproc_vector_env.h"

namespace troop {
namespace {

constexpr std::int64_t kScreenSize = 84;  // Mnih et al. 2015

// Row i of a tensor of bytes.
std::span<const std::uint8_t> Row(const ConstTensor& t, int i) {
  const std::size_t bytes = t.bytes().size() / std::size_t(t.dim(0));
  return t.as<std::uint8_t>().subspan(std::size_t(i) * bytes, bytes);
}

// Forwards everything to `raw_` and replaces the observations of each batch.
class AtariVectorEnv final : public VectorEnv {
 public:
  AtariVectorEnv(std::unique_ptr<VectorEnv> raw, AtariPreprocess preprocess)
      : raw_(std::move(raw)), preprocess_(std::move(preprocess)), spec_(raw_->spec()) {
    const AtariPreprocess::Size to = preprocess_.to();
    spec_.observation = {DType::kU8, {to.height, to.width}};
    observation_ = Tensor(DType::kU8, spec_.observation.shape.Prepend(raw_->size()));
    final_observation_ = Tensor(DType::kU8, spec_.observation.shape.Prepend(raw_->size()));
  }

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return raw_->size(); }
  void SubmitReset() override { raw_->SubmitReset(); }
  void Submit(ConstTensor action) override { raw_->Submit(std::move(action)); }
  void SubmitRestart(std::span<const int> indices) override { raw_->SubmitRestart(indices); }
  std::span<const EnvFault> faults() const override { return raw_->faults(); }
  int fd() const override { return raw_->fd(); }
  Status status() const override { return raw_->status(); }
  int seeds_ahead() const override { return raw_->seeds_ahead(); }
  Environment::Picture Render(int index) const override { return raw_->Render(index); }
  std::optional<Duration> inside() const override { return raw_->inside(); }

  const StepBatch* Poll() override {
    const StepBatch* const raw = raw_->Poll();
    if (raw == nullptr) return nullptr;
    // Rewards and flags are the raw batch's tensors; only observations are replaced.
    batch_ = *raw;
    batch_.observation = observation_;
    batch_.final_observation = final_observation_;
    for (int i = 0; i < raw_->size(); ++i) {
      Shrink(raw->observation, i, &observation_);
      // Final observations are valid only at an end, so the others are not converted.
      const bool ended = raw->terminated.as<std::uint8_t>()[std::size_t(i)] != 0 ||
                         raw->truncated.as<std::uint8_t>()[std::size_t(i)] != 0;
      if (ended) Shrink(raw->final_observation, i, &final_observation_);
      if (raw->fault.as<std::uint8_t>()[std::size_t(i)] != 0) Clear(i);
    }
    return &batch_;
  }

 private:
  // Preprocesses row i, which is a pair of frames [2, H, W].
  void Shrink(const ConstTensor& frames, int i, Tensor* out) const {
    const auto pair = Row(frames, i);
    const std::size_t pixels = std::size_t(preprocess_.to().pixels());
    preprocess_.Run(pair.first(pair.size() / 2), pair.last(pair.size() / 2),
                    out->as<std::uint8_t>().subspan(std::size_t(i) * pixels, pixels));
  }

  void Clear(int i) {  // StepBatch: final_observation of a fault is 0
    const std::size_t pixels = std::size_t(preprocess_.to().pixels());
    std::ranges::fill(
        final_observation_.as<std::uint8_t>().subspan(std::size_t(i) * pixels, pixels), 0);
  }

  const std::unique_ptr<VectorEnv> raw_;
  const AtariPreprocess preprocess_;
  EnvSpec spec_;
  Tensor observation_, final_observation_;
  StepBatch batch_;
};

// Removes the option screen_size: it is applied in this process, and the worker does not support
// it.
Result<std::int64_t> TakeScreenSize(std::vector<EnvOption>* options) {
  const auto at = std::ranges::find(*options, "screen_size", &EnvOption::name);
  if (at == options->end()) return kScreenSize;
  const auto* size = std::get_if<std::int64_t>(&at->value);
  if (size == nullptr || *size < 1 || *size > AtariPreprocess::kSideMax) {
    return InvalidArgument("env.options.screen_size must be an integer in [1, {}] (pixels)",
                           AtariPreprocess::kSideMax);
  }
  const std::int64_t taken = *size;
  options->erase(at);
  return taken;
}

}  // namespace

bool IsAtariEnvironment(std::string_view id) { return id.starts_with("ALE/"); }

// Errors: kInvalidArgument for screen_size, kInternal for frames of an unexpected shape.
Result<std::unique_ptr<VectorEnv>> MakeAtariVectorEnv(std::string_view id,
                                                      const EnvOptions& options, int size,
                                                      EpisodeSeeder seeder) {
  EnvOptions raw_options = options;
  TROOP_ASSIGN_OR_RETURN(const std::int64_t side, TakeScreenSize(&raw_options.options));
  TROOP_ASSIGN_OR_RETURN(auto raw, MakeSubprocVectorEnv(id, raw_options, size, std::move(seeder)));
  // The worker is another program: check its frames before computing tables for them.
  const TensorSpec& frames = raw->spec().observation;
  if (frames.dtype != DType::kU8 || frames.shape.rank() != 3 || frames.shape[0] != 2) {
    return Internal("{}: the worker's observation is {}, not two gray frames", id,
                    frames.ToString());
  }
  if (frames.shape[1] > AtariPreprocess::kSideMax || frames.shape[2] > AtariPreprocess::kSideMax) {
    return Internal("{}: frames of {}; a side must be at most {}", id, frames.ToString(),
                    AtariPreprocess::kSideMax);
  }
  auto preprocess =
      AtariPreprocess::Make({int(frames.shape[1]), int(frames.shape[2])}, {int(side), int(side)});
  if (!preprocess.ok()) return preprocess.status().WithContext("env.options.screen_size");
  return std::unique_ptr<VectorEnv>(
      std::make_unique<AtariVectorEnv>(std::move(raw), *std::move(preprocess)));
}

}  // namespace troop
