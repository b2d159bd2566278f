#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "learners/images/image_share.h"
#include "learners/images/image_step.h"

namespace troop {

// One learner's images of one update.
struct ImageWork {
  std::uint64_t number = 0;  // index of the batch
  ImageShare::Part part;     // cut into micro-batches
  std::size_t micro = 1;     // images of a micro-batch
};

// Makes the images of the next updates on threads while the step computes, at most kAhead updates
// ahead. The images are keyed by their indices, so the batches have the same bytes for any number
// of threads. Called by one owner thread. The destructor joins the threads.
//
// Invariant: `jobs_` are the batches of consecutive numbers, made in this order.
class ImageLoader {
 public:
  static constexpr std::uint64_t kAhead = 2;  // updates, whose memory is that of their pixels
  // The images of a batch. Called by the owner thread only.
  using Plan = std::function<ImageWork(std::uint64_t number)>;

  // images: must outlive this. threads: 0: Take makes all images itself, and none ahead.
  ImageLoader(const ImageCollator* images, Plan plan, int threads);
  ~ImageLoader();

  struct Loaded {
    ImageWork work;
    std::vector<ImageBatch> parts;  // micro-batches, without weights
  };
  // The images of batch `number`; starts those of the next batches. Helps while they are not
  // complete, so it is never slower than without threads. A number out of sequence discards what
  // was made ahead. Errors: those of PixelsOf, for the first image of the batch that has one.
  Result<Loaded> Take(std::uint64_t number);
  // Discards what was made ahead, because the plan has changed.
  void Clear();

 private:
  // A batch that is being made. Guarded by mutex_, except the pixels: a thread writes those of the
  // images that it claimed.
  struct Job {
    Loaded loaded;
    std::size_t images = 0, claimed = 0, done = 0;
    std::size_t failed = SIZE_MAX;  // place of the first image with an error
    Status status;                  // its error
  };
  void Start(std::uint64_t number);
  bool Claim(Job* only, Job** job, std::size_t* first, std::size_t* last);
  void Make(Job* job, std::size_t first, std::size_t last, std::unique_lock<std::mutex>* lock);
  void Run();

  const ImageCollator* const images_;
  const Plan plan_;
  const std::size_t claim_;  // images that a thread takes at once
  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<std::unique_ptr<Job>> jobs_;  // guarded by mutex_, as the next
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace troop
