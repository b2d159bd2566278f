#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "learners/gpu/cuda/text_step.h"
#include "tests/cuda/parity.h"

// Small text models and their reference results, for parity cases of updates on a GPU.
namespace troop::cuda {

using Numbers = std::vector<double>;

// A batch in host memory.
struct Batch {
  std::vector<std::int32_t> ids, starts = {0}, places, labels;
  std::vector<DropoutKey> dropout;
  std::vector<float> targets, weights;
  std::vector<std::int32_t> types;
  HostTokens view() const {
    return {.ids = ids,
            .starts = starts,
            .types = types,
            .dropout = dropout,
            .places = places,
            .labels = labels,
            .targets = targets,
            .weights = weights};
  }
};

// Reference: the sum of the losses of a batch, from the formulas of the papers in f64. Derivatives
// are computed as differences.
class TextOracle {
 public:
  TextOracle(const TransformerSpec& spec, const Batch& batch,
             ProblemType problem = ProblemType::kSingleLabel)
      : s_(spec), b_(batch), problem_(problem) {}
  double Loss(const Numbers& value);
  std::int64_t right() const { return right_; }  // of the last Loss, as are:
  const Numbers& logits() const { return logits_; }

 private:
  double V(std::int64_t at) const { return (*v_)[std::size_t(at)]; }
  Numbers Linear(const Numbers& x, const TransformerSpec::Linear& linear) const;
  Numbers Norm(Numbers x, const TransformerSpec::Norm& norm) const;
  std::vector<float> Factors(std::size_t sequence, std::uint32_t site, float rate,
                             std::int64_t first, std::int64_t n) const;
  Numbers Dropped(Numbers x, std::int64_t width, std::uint32_t site, float rate) const;
  Numbers Attention(const Numbers& qkv, std::uint32_t site) const;
  static Numbers Sum(Numbers a, const Numbers& b);
  Numbers Layer(const Numbers& x, std::int64_t use) const;
  Numbers Embedded() const;
  double Pooled(double z) const;
  void DropRows(Numbers* rows, std::uint32_t site) const;
  double Head(const Numbers& x);
  double LossOf(const Numbers& logits);
  std::int64_t TypeOf(std::int32_t token) const {
    return b_.types.empty() ? 0 : b_.types[std::size_t(token)];
  }
  double Gelu(double z, GeluForm form) const;

  const TransformerSpec& s_;
  const Batch& b_;
  const ProblemType problem_;
  const Numbers* v_ = nullptr;
  std::int64_t right_ = 0;
  Numbers logits_;
};

enum class Kind : std::uint8_t { kBert, kAlbert, kRoberta, kDistilBert, kElectra };

// A model with two layers and a few dozen token ids, as LayOut lays it out.
TransformerSpec SpecOf(Kind kind, bool masked, bool drops, Precision precision);
Batch BatchOf(Parity& parity, const TransformerSpec& spec,
              const std::vector<std::int32_t>& lengths);
// Replaces the labels by targets of the problem, or with classes adds weights.
void SetTargets(Parity& parity, const TransformerSpec& spec, ProblemType problem, Batch* batch);
// Norm weights near 1, the rest random: spread enough that attention is not just a mean.
std::vector<float> ValueOf(Parity& parity, const TransformerSpec& spec, double size = 0.3);
// Offsets of the arrays of the model.
std::vector<std::pair<std::int64_t, std::int64_t>> ArraysOf(const TransformerSpec& spec);
std::vector<float> Download(Parity& parity, const float* from, std::int64_t n);

}  // namespace troop::cuda
