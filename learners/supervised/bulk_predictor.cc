// Implements prediction of many texts by a pool of threads.

#include "learners/supervised/bulk_predictor.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

namespace troop {
namespace {

// Tokens of a batch: enough for products at full speed, and few enough that its activations stay in
// the cache of a core.
constexpr std::size_t kTokensOfBatch = 2048;
constexpr std::size_t kTextsOfChunk = 64;  // tokenized at a time

// Calls work(i, thread) for each i below n. The threads take the next i in turn; the caller's is
// one of them.
template <class Work>
void ForEachInParallel(std::size_t n, std::size_t threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&](std::size_t thread) {
    for (std::size_t i = next++; i < n; i = next++) work(i, thread);
  };
  std::vector<std::jthread> pool;
  for (std::size_t thread = 1; thread < std::min(threads, n); ++thread)
    pool.emplace_back(run, thread);
  run(0);
}

// The first error in the order of the work, so that it does not depend on the threads.
Status FirstError(const std::vector<Status>& all) {
  const auto it = std::ranges::find_if(all, [](const Status& status) { return !status.ok(); });
  return it == all.end() ? Status::Ok() : *it;
}

}  // namespace

BulkPredictor::BulkPredictor(const TextPredictor* predictor, int threads) : predictor_(predictor) {
  for (int i = 0; i < std::max(1, threads); ++i) steps_.push_back(predictor->MakeStep());
}

// Steps: tokenize, cut into batches by length, predict the batches, the longest ones first, so that
// the threads end at about the same time.
Result<std::vector<TextAnswer>> BulkPredictor::Predict(std::span<const TextInput> texts) {
  std::vector<TextPredictor::EncodedText> encoded(texts.size());
  std::vector<Status> outcomes(texts.size());
  const std::size_t chunks = (texts.size() + kTextsOfChunk - 1) / kTextsOfChunk;
  ForEachInParallel(chunks, steps_.size(), [&](std::size_t chunk, std::size_t) {
    const std::size_t first = chunk * kTextsOfChunk;
    for (std::size_t i = first; i < std::min(first + kTextsOfChunk, texts.size()); ++i) {
      Result<TextPredictor::EncodedText> one = predictor_->Encode(texts[i]);
      outcomes[i] = one.status();
      if (one.ok()) encoded[i] = *std::move(one);
    }
  });
  TROOP_RETURN_IF_ERROR(FirstError(outcomes));
  // Sequences of equal length in one batch need about the same time, so no thread waits for long.
  // Stable: equal texts are in the same batches in every run.
  std::vector<TextPredictor::EncodedText*> order;
  for (TextPredictor::EncodedText& one : encoded) order.push_back(&one);
  std::ranges::stable_sort(order, std::greater<>(),
                           [](const auto* one) { return one->ids.size(); });
  std::vector<std::size_t> begins = {0};
  for (std::size_t i = 0, tokens = 0; i < order.size(); ++i) {
    const std::size_t more = order[i]->ids.size();
    if (tokens > 0 && tokens + more > kTokensOfBatch) {
      begins.push_back(i);
      tokens = 0;
    }
    tokens += more;
  }
  begins.push_back(order.size());
  // Each thread has its own step, with the buffers of its largest batch.
  outcomes.assign(begins.size() - 1, Status::Ok());
  ForEachInParallel(outcomes.size(), steps_.size(), [&](std::size_t batch, std::size_t thread) {
    outcomes[batch] = predictor_->PredictEncoded(
        std::span(order).subspan(begins[batch], begins[batch + 1] - begins[batch]),
        steps_[thread].get());
  });
  TROOP_RETURN_IF_ERROR(FirstError(outcomes));
  // Back in the order of the texts, since `encoded` was not moved.
  std::vector<TextAnswer> answers;
  for (TextPredictor::EncodedText& one : encoded) answers.push_back(std::move(one.answer));
  return answers;
}

}  // namespace troop
