// Implements the search for non-finite and very large values.

#include "learners/nonfinite_report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/elementwise/is_finite.h"

namespace troop {
namespace {

// The item's name in messages: position, key, and the weights that acted.
std::string ItemName(const SampleBatch& batch, std::size_t i) {
  const ItemKey& key = batch.key[i];
  return fmt::format(
      "item {} (slot {}, generation {} of shard {}; made with the weights of update {})", i,
      key.slot, key.generation, key.shard, UpdatesOf(batch.policy_version[i]));
}

// Row i of [B, …]; empty for types that are always finite.
std::span<const float> RowOf(const Tensor& tensor, std::size_t i) {
  if (tensor.empty() || tensor.dtype() != DType::kF32) return {};
  const std::span<const float> all = tensor.as<float>();
  const std::size_t size = all.size() / std::size_t(tensor.dim(0));
  return all.subspan(i * size, size);
}

// All floats of item i that enter an update, with their names.
std::array<std::pair<const char*, std::span<const float>>, 7> RowsOf(const SampleBatch& batch,
                                                                     std::size_t i) {
  return {{{"importance weight", std::span(batch.weight).subspan(i, 1)},
           {"reward", RowOf(batch.reward, i)},
           {"discount", RowOf(batch.discount, i)},
           {"action", RowOf(batch.action, i)},
           {"observation", RowOf(batch.observation, i)},
           {"next observation", RowOf(batch.next_observation, i)},
           {"state", RowOf(batch.state, i)}}};
}

}  // namespace

// The first hit is enough: one value spoils the whole batch.
std::string FindNonFiniteInBatch(const SampleBatch& batch) {
  for (std::size_t i = 0; i < batch.key.size(); ++i) {
    for (const auto& [what, row] : RowsOf(batch, i)) {
      const std::size_t at = FirstNonFinite(row);
      if (at == row.size()) continue;
      return fmt::format("{}[{}] of {} is {}", what, at, ItemName(batch, i), row[at]);
    }
  }
  return "";
}

// Parameter by parameter, so that the message has a name.
std::string FindNonFiniteParameter(const Module& module, std::span<const float> values) {
  if (AllFinite(values)) return "";
  for (const ParamSpec& param : module.params()) {
    const auto part =
        values.subspan(std::size_t(param.offset), std::size_t(param.shape.elements()));
    const std::size_t at = FirstNonFinite(part);
    if (at < part.size()) return fmt::format("{}[{}] is {}", param.name, at, part[at]);
  }
  const std::size_t at = FirstNonFinite(values);  // in the padding between parameters
  return fmt::format("padding value {} is {}", at, values[at]);
}

std::string FindNonFiniteItem(const SampleBatch& batch, std::span<const float> priority) {
  const std::size_t i = FirstNonFinite(priority);
  if (i == priority.size()) return "";
  return fmt::format("the TD error of {} is {}", ItemName(batch, i), priority[i]);
}

// A non-finite value counts as infinity, so it is always the largest.
LargestNumber FindLargest(const SampleBatch& batch, std::size_t item) {
  LargestNumber largest;
  for (const auto& [what, row] : RowsOf(batch, item)) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      const float size =
          std::isfinite(row[k]) ? std::abs(row[k]) : std::numeric_limits<float>::infinity();
      if (size <= largest.value) continue;
      largest.value = size;
      largest.where = fmt::format("{}[{}] of {} is {:g}", what, k, ItemName(batch, item), row[k]);
    }
  }
  return largest;
}

// Used when all inputs and weights are finite.
std::string DescribeLargest(const SampleBatch& batch) {
  float largest = 0;
  std::string where = "none";
  for (std::size_t i = 0; i < batch.key.size(); ++i) {
    for (const auto& [what, row] : RowsOf(batch, i)) {
      for (std::size_t k = 0; k < row.size(); ++k) {
        if (std::abs(row[k]) <= largest) continue;
        largest = std::abs(row[k]);
        where = fmt::format("{}[{}] of {}", what, k, ItemName(batch, i));
      }
    }
  }
  return fmt::format("the largest input is {:g}, {}", largest, where);
}

}  // namespace troop
