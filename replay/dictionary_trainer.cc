#include "replay/dictionary_trainer.h"

#include <algorithm>
#include <cstring>

#include "core/log.h"

namespace troop {
namespace {

// Some thousand frames are what the trainer asks for; large ones give as much with fewer. It takes
// no less than 16.
constexpr std::size_t kFramesMax = 2000, kFramesMin = 16;
constexpr std::size_t kBytesMax = std::size_t{16} << 20;
// What came first may be too much alike: the trainer then makes a dictionary of 110 to 140 bytes,
// of its tables alone. A later training takes each 4th, 16th, … frame.
constexpr int kTrainings = 5;
constexpr std::size_t kDictionaryMin = 256;

}  // namespace

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

// A job under way works on what it was given.
DictionaryTrainer::~DictionaryTrainer() = default;

bool DictionaryTrainer::full() const {
  return work_->frames.size() >= frames_wanted_ * frame_bytes_;
}

void DictionaryTrainer::Offer(const std::vector<EncodedChunk>& chunks) {
  if (!work_ || job_ != 0) return;
  std::vector<std::byte>& frames = work_->frames;
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
          InvalidArgument("{} frames have nothing to put into one", work->frames.size() / bytes);
    }
    std::vector<std::byte>().swap(work->frames);
  });
  if (job.ok()) job_ = *job;  // else with the next call: nothing more is taken until then
}

Buffer DictionaryTrainer::Poll() {
  if (job_ == 0 || !executor_->TakeDone(job_)) return {};
  job_ = 0;
  const auto work = std::exchange(work_, nullptr);
  if (work->dictionary.ok()) return *work->dictionary;
  offered_ = 0;
  const bool again = ++failures_ < kTrainings;
  if (again) work_ = std::make_shared<Work>();
  LogWarning("replay: no dictionary: {}{}", work->dictionary.status().message(),
             again ? "; tried again with later frames" : "");
  return {};
}

void DictionaryTrainer::Finish() {
  if (job_ == 0) work_.reset();
}

}  // namespace troop
