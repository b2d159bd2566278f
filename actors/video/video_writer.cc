// Implements the job that encodes and writes a video.
#include "actors/video/video_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/video/mp4_encoder.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/graphics/animation.h"

namespace troop {
namespace {

constexpr double kFramesPerS = 30;

// Removes all but the newest `kept` videos; names of a fixed width sort by updates.
Status Prune(Storage* run, std::int64_t kept) {
  TROOP_ASSIGN_OR_RETURN(std::vector<std::string> names, run->List(VideoWriter::kFolder));
  for (const std::string_view extension : {".gif", ".mp4"}) {
    std::vector<std::string> own;
    std::ranges::copy_if(names, std::back_inserter(own),
                         [&](const std::string& name) { return name.ends_with(extension); });
    for (std::size_t i = 0; i + std::size_t(kept) < own.size(); ++i) {
      TROOP_RETURN_IF_ERROR(run->Remove(fmt::format("{}/{}", VideoWriter::kFolder, own[i])));
    }
  }
  return Status::Ok();
}

// Writes an encoded video, unless it is too large.
Status WriteFile(Storage* run, const std::string& name, const Buffer& bytes) {
  if (bytes.size() > VideoWriter::kBytesMax) {
    return ResourceExhausted(
        "{} has {} bytes, at most {} are written; lower evaluator.video_frames_max", name,
        bytes.size(), VideoWriter::kBytesMax);
  }
  return run->WriteAtomic(name, bytes.bytes());
}

}  // namespace

std::string VideoName(std::uint64_t updates, std::string_view extension) {
  return fmt::format("{}/{:012}.{}", VideoWriter::kFolder, updates, extension);
}

void VideoWriter::Start(std::uint64_t updates, std::vector<Picture> frames) {
  TROOP_CHECK(enabled() && !busy(), "a video is already being written");
  job_ = std::make_shared<Job>();
  job_->updates = updates;
  job_->frames = std::move(frames);
  // No job: Poll reports the reason.
  if (job_->frames.empty()) {
    job_->gif = NotFound("the environment draws no pictures; remove evaluator.video_every");
    return;
  }
  const auto id = options_.executor->Submit(
      "video", [options = options_, job = job_] { Write(options, job.get()); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  job_->id = *id;
}

// The GIF is written in any case: TensorBoard and the dashboard show it.
void VideoWriter::Write(const Options& options, Job* job) {
  job->gif =
      WriteFile(options.run, VideoName(job->updates, "gif"), AnimatedGif(job->frames, kFramesPerS));
  if (const std::string program = LocateProgram(options.ffmpeg); !program.empty()) {
    const Result<Buffer> mp4 = EncodeMp4(program, job->frames, kFramesPerS);
    job->mp4 =
        mp4.ok() ? WriteFile(options.run, VideoName(job->updates, "mp4"), *mp4) : mp4.status();
  }
  if (const Status pruned = Prune(options.run, options.kept); job->gif.ok()) {
    job->gif = pruned;
  }
}

// Each kind of failure is logged once: the next video usually fails for the same reason.
void VideoWriter::Poll() {
  if (!job_ || (job_->id != 0 && !options_.executor->TakeDone(job_->id))) return;
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  if (!job->gif.ok() && !std::exchange(gif_failed_, true)) {
    LogWarning("no evaluation video: {}", job->gif.message());
  }
  if (!job->mp4.ok() && !std::exchange(mp4_failed_, true)) {
    LogWarning("no MP4 video, only a GIF: {}", job->mp4.message());
  }
}

}  // namespace troop
