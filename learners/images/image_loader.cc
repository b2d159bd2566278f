// Implements loading of images ahead of the step: threads claim runs of images of the oldest batch.

#include "learners/images/image_loader.h"

#include <algorithm>
#include <utility>

namespace troop {
namespace {

// Numbers of a claim: small images would cost more for the lock than for their pixels.
constexpr std::int64_t kNumbersOfClaim = 1 << 14;

}  // namespace

ImageLoader::ImageLoader(const ImageCollator* images, Plan plan, int threads)
    : images_(images),
      plan_(std::move(plan)),
      claim_(
          std::size_t(std::max<std::int64_t>(1, kNumbersOfClaim / images->ShapeOf(1).elements()))) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ImageLoader::~ImageLoader() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Memory is allocated by the owner, so that threads only write pixels.
void ImageLoader::Start(std::uint64_t number) {
  auto job = std::make_unique<Job>();
  job->loaded.work = plan_(number);
  const ImageWork& work = job->loaded.work;
  job->images = work.part.samples.size();
  for (std::size_t first = 0; first < job->images; first += work.micro) {
    const std::size_t count = std::min(work.micro, job->images - first);
    job->loaded.parts.push_back(
        images_->Begin(std::span(work.part.samples).subspan(first, count), work.part.epoch));
  }
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  work_.notify_all();
}

// REQUIRES: the lock. only: nullptr: the oldest batch that has unclaimed images.
bool ImageLoader::Claim(Job* only, Job** job, std::size_t* first, std::size_t* last) {
  for (const std::unique_ptr<Job>& candidate : jobs_) {
    if (only != nullptr && candidate.get() != only) continue;
    if (candidate->claimed == candidate->images) continue;
    *job = candidate.get();
    *first = candidate->claimed;
    *last = candidate->claimed = std::min(candidate->images, *first + claim_);
    return true;
  }
  return false;
}

// Releases the lock meanwhile: no other thread has these images. After an error the others of this
// run are not made.
void ImageLoader::Make(Job* job, std::size_t first, std::size_t last,
                       std::unique_lock<std::mutex>* lock) {
  lock->unlock();
  const ImageWork& work = job->loaded.work;
  Status status;
  std::size_t i = first;
  for (; i < last && status.ok(); ++i) {
    status = images_->Fill(work.part.samples[i], work.part.epoch, i % work.micro,
                           &job->loaded.parts[i / work.micro]);
  }
  lock->lock();
  // The first image's error, whichever thread was faster.
  if (!status.ok() && i < job->failed) job->failed = i, job->status = status;
  job->done += last - first;
}

// A thread's loop.
void ImageLoader::Run() {
  std::unique_lock lock(mutex_);
  Job* job = nullptr;
  std::size_t first = 0, last = 0;
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || Claim(nullptr, &job, &first, &last); });
    if (stopping_) return;
    Make(job, first, last, &lock);
    // The owner waits for the batch, or for this run of images in Clear.
    done_.notify_all();
  }
}

Result<ImageLoader::Loaded> ImageLoader::Take(std::uint64_t number) {
  if (!jobs_.empty() && jobs_.front()->loaded.work.number != number) Clear();
  // Only the owner changes the queue, so its size needs no lock.
  const std::uint64_t ahead = threads_.empty() ? 0 : kAhead;
  while (jobs_.size() <= ahead) Start(number + jobs_.size());
  std::unique_lock lock(mutex_);
  Job* job = jobs_.front().get();
  std::size_t first = 0, last = 0;
  while (Claim(job, &job, &first, &last)) Make(job, first, last, &lock);
  // The last images are with the threads.
  done_.wait(lock, [job] { return job->done == job->images; });
  const std::unique_ptr<Job> taken = std::move(jobs_.front());
  jobs_.pop_front();
  if (!taken->status.ok()) return taken->status;
  return std::move(taken->loaded);
}

// Threads still write the images that they have claimed.
void ImageLoader::Clear() {
  std::unique_lock lock(mutex_);
  for (const std::unique_ptr<Job>& job : jobs_) job->images = job->claimed;
  done_.wait(lock, [this] {
    return std::ranges::all_of(jobs_, [](const auto& job) { return job->done == job->claimed; });
  });
  jobs_.clear();
}

}  // namespace troop
