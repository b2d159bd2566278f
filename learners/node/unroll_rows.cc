// Implements copies of single unrolls.
#include "learners/node/unroll_rows.h"

#include <cstring>
#include <initializer_list>

namespace troop {
namespace {

// The tensors of a batch of unrolls; a recurrent network has a state, others may have none.
constexpr std::initializer_list<Tensor SampleBatch::*> kTensors = {
    &SampleBatch::observation, &SampleBatch::action, &SampleBatch::reward, &SampleBatch::discount,
    &SampleBatch::state};

// Uninitialized rows like those of `rows`; empty if it is.
Tensor RowsLike(const Tensor& rows, std::int64_t count) {
  if (rows.empty()) return {};
  return Tensor(rows.dtype(), rows.shape().DropFirst().Prepend(count));
}

// Row `from_row` of `from` becomes row `row` of `to`.
void CopyRow(const Tensor& from, std::int64_t from_row, const Tensor& to, std::int64_t row) {
  if (from.empty()) return;
  const Tensor source = from.Rows(from_row, 1), target = to.Rows(row, 1);
  std::memcpy(target.bytes().data(), source.bytes().data(), source.bytes().size());
}

// Appends what a row has besides tensors.
void AppendRow(const SampleBatch& from, std::size_t row, SampleBatch* to) {
  to->key.push_back(from.key[row]);
  to->probability.push_back(from.probability[row]);
  to->weight.push_back(from.weight[row]);
  to->length.push_back(from.length[row]);
  to->burn_in.push_back(from.burn_in[row]);
  to->policy_version.push_back(from.policy_version[row]);
}

}  // namespace

SampleBatch UnrollAt(const SampleBatch& batch, std::int64_t row) {
  SampleBatch one{.beta = batch.beta};
  for (const auto tensor : kTensors) {
    one.*tensor = RowsLike(batch.*tensor, 1);
    CopyRow(batch.*tensor, row, one.*tensor, 0);
  }
  AppendRow(batch, std::size_t(row), &one);
  return one;
}

SampleBatch JoinUnrolls(std::span<const SampleBatch* const> unrolls) {
  const SampleBatch& like = *unrolls.front();
  SampleBatch joined{.beta = like.beta};
  for (const auto tensor : kTensors) {
    joined.*tensor = RowsLike(like.*tensor, std::ssize(unrolls));
    for (std::size_t row = 0; row < unrolls.size(); ++row)
      CopyRow(unrolls[row]->*tensor, 0, joined.*tensor, std::int64_t(row));
  }
  for (const SampleBatch* unroll : unrolls) AppendRow(*unroll, 0, &joined);
  return joined;
}

}  // namespace troop
