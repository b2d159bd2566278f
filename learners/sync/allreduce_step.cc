// Implements the state exchange and one update of a synchronous learner group.

#include "learners/sync/allreduce_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace troop {
namespace {

// Large enough for full link bandwidth, small enough that the first bucket is sent early in
// backward.
constexpr std::int64_t kBucketFloats = 1 << 18;
// Above the weights, target and optimizer slots of any model. A peer's claimed size is checked
// against it before memory is allocated.
constexpr std::uint64_t kStateBytesMax = std::uint64_t{1} << 36;

Tensor ViewOf(std::span<std::byte> bytes, DType dtype, std::int64_t count) {
  return Tensor::View(nullptr, bytes, {dtype, {count}});
}

}  // namespace

// Step 1: every rank announces its update count and the size of its state.
Status StateExchange::StartOffers() {
  state_ = EncodeSafetensors(algorithm_->State());
  mine_ = {.updates = algorithm_->updates(), .bytes = state_.size()};
  offers_.resize(std::size_t(group_->size()));
  const auto mine = std::as_bytes(std::span(&mine_, 1));
  const auto all = std::as_writable_bytes(std::span(offers_));
  TROOP_ASSIGN_OR_RETURN(
      work_, group_->Start({.kind = OpKind::kAllGather},
                           ConstTensor::Borrow(mine, {DType::kU8, {std::int64_t(mine.size())}}),
                           ViewOf(all, DType::kU8, std::int64_t(all.size()))));
  at_ = At::kOffers;
  return Status::Ok();
}

// Step 2: the rank with the most updates broadcasts its state; all ranks derive the same root.
Status StateExchange::StartState() {
  const auto most = std::ranges::max_element(offers_, {}, &Offer::updates);  // the first of several
  root_ = int(most - offers_.begin());
  if (most->bytes > kStateBytesMax) {
    return DataLoss("rank {} has a state of {} bytes, must be at most {}", root_, most->bytes,
                    kStateBytesMax);
  }
  const TensorSpec spec{DType::kU8, {std::int64_t(most->bytes)}};
  received_ = Tensor(spec.dtype, spec.shape);
  const bool ours = root_ == group_->rank();
  TROOP_ASSIGN_OR_RETURN(
      work_, group_->Start({.kind = OpKind::kBroadcast, .peer = root_},
                           ours ? ConstTensor(state_, spec) : ConstTensor(received_), received_));
  at_ = At::kState;
  return Status::Ok();
}

// Step 3: the other ranks load the state.
Status StateExchange::TakeState() {
  if (root_ == group_->rank()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const TensorFile state,
                         DecodeSafetensors(Buffer::Copy(received_.bytes())));
  return algorithm_->SetState(state);
}

// The transitions between the steps.
std::optional<Status> StateExchange::Advance(const Status& ended) {
  if (!ended.ok()) return ended;
  if (at_ == At::kState) return TakeState();
  const Status started = at_ == At::kStart ? StartOffers() : StartState();
  if (!started.ok()) return started;
  return std::nullopt;
}

// The non-blocking driver, for learners that share one thread.
std::optional<Status> StateExchange::Poll() {
  if (at_ == At::kStart) {
    if (auto end = Advance(Status::Ok())) return end;
  }
  while (const std::optional<Status> ended = group_->Poll(work_)) {
    if (auto end = Advance(*ended)) return end;
  }
  return std::nullopt;
}

Status StateExchange::Wait() {
  std::optional<Status> end = Advance(Status::Ok());
  while (!end) end = Advance(group_->Wait(work_));
  return *end;
}

// Starts the all-reduce of gradient[from, given_from_).
void AllReduceStep::StartBucket(std::int64_t from) {
  const std::int64_t end = std::exchange(given_from_, from), count = end - from;
  if (count == 0 || !failed_.ok()) return;
  const std::span<float> part = Gradient().subspan(std::size_t(from), std::size_t(count));
  const Tensor tensor = ViewOf(std::as_writable_bytes(part), DType::kF32, count);
  // The first bucket is the end of the gradient: backward runs from the last layer to the first.
  if (end == std::int64_t(Gradient().size())) travels_since_ = clock_.Now();
  const Stream stream{device_ != nullptr ? device_->gradient_stream() : nullptr};
  Result<Work> work = gradients_->Start({.kind = OpKind::kAllReduce}, tensor, tensor, stream);
  if (work.ok()) {
    works_.push_back({gradients_, *work});
  } else {
    failed_ = work.status();
  }
}

// Bucket boundaries are fixed multiples, whatever ranges backward reports: all ranks start the same
// operations in the same order, including a rank without a batch.
void AllReduceStep::GradientReady(std::int64_t from) {
  const std::int64_t end = (from + kBucketFloats - 1) / kBucketFloats * kBucketFloats;
  while (given_from_ > end) {
    StartBucket((given_from_ - 1) / kBucketFloats * kBucketFloats);
  }
  // Advances pending operations while backward continues.
  while (!works_.empty() && failed_.ok()) {
    const std::optional<Status> ended = works_.front().group->Poll(works_.front().work);
    if (!ended) break;
    works_.erase(works_.begin());
    failed_ = *ended;
  }
}

void AllReduceStep::ClearGradient(std::int64_t count) {
  if (device_ != nullptr) return device_->ClearOnDevice(count);
  std::ranges::fill(algorithm_->gradient().first(std::size_t(count)), 0.0f);
}

void AllReduceStep::DivideGradient(float given) {
  if (device_ != nullptr) return device_->DivideOnDevice(given);
  if (rows_) return algorithm_->row_gradients()->row_gradient().Divide(given);
  for (float& g : algorithm_->gradient()) g /= given;
}

// Adds the operations of the next phase of the rows to works_. False: there are none.
bool AllReduceStep::AdvanceRows() {
  std::vector<Work> works;
  failed_ = rows_->Advance(&works);
  // Rows that contradict the model end the group on all ranks.
  if (!failed_.ok()) group_->Abort(failed_);
  for (const Work work : works) works_.push_back({group_, work});
  return !works.empty();
}

void AllReduceStep::StartRows() {
  std::vector<Work> works;
  travels_since_ = clock_.Now();
  failed_ = rows_->Start(outcome_.given > 0, &works);
  for (const Work work : works) works_.push_back({group_, work});
}

// Bytes that this rank contributed.
double AllReduceStep::GradientBytes() const {
  return rows_ ? double(rows_->bytes()) : double(Gradient().size_bytes());
}

// The scalars of the round, all-reduced after the gradient: counts, requests, and loss sums.
void AllReduceStep::StartWords(bool exhausted, double progress) {
  words_ = {};
  words_[kGiven] = float(outcome_.given);
  words_[kExhausted] = exhausted ? 1 : 0;
  words_[kProgress] = outcome_.given > 0 ? float(progress) : 0;
  words_[kWantValue] = options_.want_value ? 1 : 0;
  words_[kWantState] = options_.want_state ? 1 : 0;
  const LossReport& report = outcome_.report;  // zeros without a gradient
  words_[kRows] = float(report.rows);
  words_[kLoss] = float(report.loss * report.rows);
  words_[kTdError] = float(report.td_error_mean * report.rows);
  words_[kQ] = float(report.q_mean * report.rows);
  words_[kRight] = float(report.accuracy * report.rows);
  words_[kEntropy] = float(report.entropy * report.rows);
  words_[kPolicyLoss] = float(report.policy_loss * report.rows);
  words_[kValueLoss] = float(report.value_loss * report.rows);
  words_[kDivergence] = float(report.divergence * report.rows);
  words_[kClipped] = float(report.clipped * report.rows);
  words_[kStopped] = float(report.stopped * report.rows);
  const Tensor tensor =
      ViewOf(std::as_writable_bytes(std::span(words_)), DType::kF32, std::int64_t(kWords));
  Result<Work> work = group_->Start({.kind = OpKind::kAllReduce}, tensor, tensor);
  if (work.ok()) {
    works_.push_back({group_, *work});
  } else {
    failed_ = work.status();
  }
}

// Computes the gradient (its buckets are started by GradientReady), then submits the rest.
Status AllReduceStep::Begin(const SampleBatch* batch, double progress, bool exhausted,
                            std::span<float> priority) {
  outcome_ = {};
  failed_ = group_->status();
  if (!failed_.ok()) return failed_;
  BatchPartition* const partition = algorithm_->batch_partition();
  if (partition != nullptr) partition->SetRank(gradients_->rank(), gradients_->size());
  given_from_ = std::int64_t(Gradient().size());
  if (batch != nullptr) {
    Result<LossReport> report = algorithm_->ComputeGradient(*batch, priority, this);
    if (report.ok()) {
      outcome_.report = *report;
      outcome_.given = 1;
    } else {
      outcome_.update = report.status();
    }
    // Other ranks may block in an operation of the tensor-parallel group, or in that of the batch;
    // abort to release them.
    Status parts = tensor_status();
    if (parts.ok() && partition != nullptr) parts = partition->group_status();
    if (!parts.ok()) {
      failed_ = std::move(parts);
      group_->Abort(failed_);
    }
    if (!failed_.ok()) return Failure();  // during backward
  }
  // Buckets already sent count as contributed; a rank without a gradient contributes zeros.
  if (outcome_.given == 0) ClearGradient(given_from_);
  GradientReady(0);
  if (rows_) StartRows();
  if (!failed_.ok()) return Failure();
  StartWords(exhausted, progress);
  waits_since_ = clock_.Now();
  return Failure();
}

// The operations end in submission order.
std::optional<Result<AllReduceStep::Outcome>> AllReduceStep::Poll() {
  do {
    while (failed_.ok() && !works_.empty()) {
      const std::optional<Status> ended = works_.front().group->Poll(works_.front().work);
      if (!ended) return std::nullopt;
      works_.erase(works_.begin());
      failed_ = *ended;
    }
  } while (failed_.ok() && rows_ && AdvanceRows());
  return Finish();
}

Result<AllReduceStep::Outcome> AllReduceStep::Wait() {
  do {
    while (failed_.ok() && !works_.empty()) {
      failed_ = works_.front().group->Wait(works_.front().work);
      works_.erase(works_.begin());
    }
  } while (failed_.ok() && rows_ && AdvanceRows());
  return Finish();
}

// Reports the whole batch of all ranks. Tensor-parallel ranks report equal values, which are
// counted equally often in numerator and denominator.
void AllReduceStep::SumReports() {
  const double rows = words_[kRows];
  if (!(rows > 0)) return;
  const std::pair<Word, double*> means[] = {{kLoss, &outcome_.report.loss},
                                            {kTdError, &outcome_.report.td_error_mean},
                                            {kQ, &outcome_.report.q_mean},
                                            {kRight, &outcome_.report.accuracy},
                                            {kEntropy, &outcome_.report.entropy},
                                            {kPolicyLoss, &outcome_.report.policy_loss},
                                            {kValueLoss, &outcome_.report.value_loss},
                                            {kDivergence, &outcome_.report.divergence},
                                            {kClipped, &outcome_.report.clipped},
                                            {kStopped, &outcome_.report.stopped}};
  for (const auto& [word, mean] : means) *mean = double(words_[word]) / rows;
  outcome_.report.rows = rows;
}

// After all operations: mean gradient, norm, optimizer step, and gathering of parts.
Result<AllReduceStep::Outcome> AllReduceStep::Finish() {
  if (!failed_.ok()) return Failure();
  const auto ranks = float(group_->size());
  const bool agrees = gradients_->size() > 1;
  const Time now = clock_.Now();
  if (CostReporting* const costs = algorithm_->cost_reporting(); costs != nullptr) {
    costs->CountAllReduce({.wait_s = ToSeconds(now - waits_since_),
                           .allreduce_s = agrees ? ToSeconds(now - travels_since_) : 0,
                           .bytes = agrees ? GradientBytes() : 0});
  }
  outcome_.all_exhausted = words_[kExhausted] == ranks;
  // The tensor-parallel ranks of one model count as one contribution.
  const float given = words_[kGiven] * float(gradients_->size()) / ranks;
  if (given == 0) return outcome_;
  if (given != 1) DivideGradient(given);
  const double norm = algorithm_->GradientNorm();
  failed_ = tensor_status();
  if (!failed_.ok()) {
    group_->Abort(failed_);
    return Failure();
  }
  // All ranks compute the same norm, so all skip the update together.
  if (!std::isfinite(norm)) {
    if (outcome_.update.ok()) {
      outcome_.update = DataLoss("update {}: the norm of {} learners' mean gradient is {}",
                                 algorithm_->updates() + 1, given, norm);
    }
    return outcome_;
  }
  outcome_.report.gradient_norm = norm;
  SumReports();
  outcome_.applied = true;
  algorithm_->ApplyGradient(words_[kProgress] / double(words_[kGiven]), norm);
  failed_ = Gather();
  if (failed_.ok()) return outcome_;
  group_->Abort(failed_);
  return Failure();
}

// All ranks gather if any rank requested it.
Status AllReduceStep::Gather() {
  if (options_.gradients == nullptr) return Status::Ok();
  const bool last = options_.last > 0 && algorithm_->updates() >= options_.last;
  outcome_.gathered = last || words_[kWantState] > 0;
  if (!outcome_.gathered && words_[kWantValue] == 0) return Status::Ok();
  return member_ != nullptr ? member_->Gather(outcome_.gathered) : Status::Ok();
}

}  // namespace troop
