#include "replay/dictionary_trainer.h"

#include <algorithm>
#include <cstring>

#include "core/log.h"

namespace troop {
namespace {

// Some thousand frames are what the trainer asks for; large ones give as much with fewer.
constexpr std::size_t kFramesMax = 2000, kFramesMin = 100;
constexpr std::size_t kBytesMax = std::size_t{16} << 20;

}  // namespace

struct DictionaryTrainer::Work {
  std::vector<std::byte> frames;
  Result<Buffer> dictionary = Buffer();
};

DictionaryTrainer::DictionaryTrainer(std::size_t frame_bytes, Executor* executor)
    : executor_(executor),
      frame_bytes_(frame_bytes),
      frames_wanted_(
          std::clamp(kBytesMax / std::max<std::size_t>(frame_bytes, 1), kFramesMin, kFramesMax)),
      coder_(Codec::kZstd, frame_bytes) {
  if (executor != nullptr) work_ = std::make_shared<Work>();
}

// A job under way works on what it was given.
DictionaryTrainer::~DictionaryTrainer() = default;

void DictionaryTrainer::Offer(const std::vector<EncodedChunk>& chunks) {
  if (!work_ || job_ != 0) return;
  std::vector<std::byte>& frames = work_->frames;
  for (const EncodedChunk& chunk : chunks) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < chunk.frames; ++i) {
      std::uint32_t bytes;
      std::memcpy(&bytes, chunk.frame_bytes.data() + i * sizeof bytes, sizeof bytes);
      const std::size_t at = frames.size();
      frames.resize(at + frame_bytes_);
      if (!coder_.Decode({chunk.observation.data() + offset, bytes}, frames.data() + at).ok()) {
        frames.resize(at);
      }
      offset += bytes;
    }
  }
  if (frames.size() < frames_wanted_ * frame_bytes_) return;
  const auto job = executor_->Submit("dictionary", [work = work_, bytes = frame_bytes_] {
    work->dictionary = TrainFrameDictionary(work->frames, bytes);
    std::vector<std::byte>().swap(work->frames);
  });
  if (job.ok()) {
    job_ = *job;
  } else {
    frames.resize(frames.size() - frame_bytes_);  // tried again with the next frame
  }
}

Buffer DictionaryTrainer::Poll() {
  if (job_ == 0 || !executor_->TakeDone(job_)) return {};
  job_ = 0;
  const auto work = std::exchange(work_, nullptr);
  if (work->dictionary.ok()) return *work->dictionary;
  LogWarning("replay: no dictionary: {}", work->dictionary.status().message());
  return {};
}

void DictionaryTrainer::Finish() {
  if (job_ == 0) work_.reset();
}

}  // namespace troop
