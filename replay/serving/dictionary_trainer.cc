// DictionaryTrainer: collects frames and trains a dictionary in a job.
#include "replay/serving/dictionary_trainer.h"

#include <algorithm>
#include <cstring>

#include "core/base/log.h"

namespace troop {
namespace {

// Number of training frames: zstd's trainer asks for thousands; fewer suffice if they are large.
// It refuses fewer than 16.
constexpr std::size_t kFramesMax = 2000, kFramesMin = 16;
constexpr std::size_t kBytesMax = std::size_t{16} << 20;
// The first frames may be too similar: the trainer then returns 110 to 140 bytes of entropy tables
// alone. Later trainings take each 4th, 16th, … frame.
constexpr int kTrainings = 5;
constexpr std::size_t kDictionaryMin = 256;

}  // namespace

// Shared by the owner and the job, which may outlive the owner.
struct DictionaryTrainer::Work {
  std::vector<std::byte> frames;
  Result<Buffer> dictionary = Buffer();
};

DictionaryTrainer::DictionaryTrainer(Codec codec, std::size_t frame_bytes, Executor* executor)
    : executor_(executor),
      frame_bytes_(frame_bytes),
      frames_wanted_(std::min(kBytesMax / std::max<std::size_t>(frame_bytes, 1), kFramesMax)),
      coder_(codec, frame_bytes) {
  if (executor != nullptr && codec != Codec::kNone && frames_wanted_ >= kFramesMin)
    work_ = std::make_shared<Work>();
}

// A running job keeps its own reference to the work.
DictionaryTrainer::~DictionaryTrainer() = default;

bool DictionaryTrainer::full() const {
  return work_->frames.size() >= frames_wanted_ * frame_bytes_;
}

void DictionaryTrainer::Offer(const std::vector<EncodedChunk>& chunks) {
  if (!work_ || job_ != 0) return;
  std::vector<std::byte>& frames = work_->frames;
  // After each failure the samples are spread over four times as many frames.
  const std::size_t stride = std::size_t{1} << (2 * failures_);
  for (const EncodedChunk& chunk : chunks) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < chunk.frames && !full(); ++i) {
      std::uint32_t bytes;
      std::memcpy(&bytes, chunk.frame_bytes.data() + i * sizeof bytes, sizeof bytes);
      const std::byte* const encoded = chunk.observation.data() + offset;
      offset += bytes;
      if (offered_++ % stride != 0) continue;
      const std::size_t at = frames.size();
      frames.resize(at + frame_bytes_);
      if (!coder_.Decode({encoded, bytes}, frames.data() + at).ok()) frames.resize(at);
    }
  }
  if (!full()) return;
  const auto job = executor_->Submit("dictionary", [work = work_, bytes = frame_bytes_] {
    work->dictionary = TrainFrameDictionary(work->frames, bytes);
    if (work->dictionary.ok() && work->dictionary->size() < kDictionaryMin) {
      work->dictionary =
          InvalidArgument("{} frames have too little in common", work->frames.size() / bytes);
    }
    std::vector<std::byte>().swap(work->frames);
  });
  if (job.ok()) job_ = *job;  // on failure the next call retries; `frames` stays full
}

// Takes the job's result. After a failure, collects later frames, up to kTrainings times.
Buffer DictionaryTrainer::Poll() {
  if (job_ == 0 || !executor_->TakeDone(job_)) return {};
  job_ = 0;
  const auto work = std::exchange(work_, nullptr);
  if (work->dictionary.ok()) return *work->dictionary;
  offered_ = 0;
  const bool again = ++failures_ < kTrainings;
  if (again) work_ = std::make_shared<Work>();
  LogWarning("replay: dictionary training failed: {}{}", work->dictionary.status().message(),
             again ? "; retrying with later frames" : "");
  return {};
}

void DictionaryTrainer::Finish() {
  if (job_ == 0) work_.reset();
}

}  // namespace troop
