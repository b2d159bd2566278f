#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/supervised/text_predictor.h"

namespace troop {

// Predicts many texts on several threads: the texts of a call are sorted by length and cut into
// batches of similar lengths, so that no time is spent on padding, and each thread takes the next
// batch. The answers do not depend on the number of threads. One owner thread; the threads end
// with each call.
class BulkPredictor {
 public:
  // predictor: outlives this. threads: at least 1; with kernels on one thread each
  // (SetKernelThreads), as many as cores are the fastest.
  BulkPredictor(const TextPredictor* predictor, int threads);
  // Returns one answer for each text, in their order. Memory grows with the number of texts, so a
  // file is predicted in windows. Errors: those of TextPredictor.
  Result<std::vector<TextAnswer>> Predict(std::span<const TextInput> texts);

 private:
  const TextPredictor* const predictor_;
  std::vector<std::unique_ptr<TextStep>> steps_;  // of each thread
};

}  // namespace troop
