#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/linear/matmul.h"
#include "kernels/transformer/attention.h"
#include "nn/arena.h"
#include "nn/transformer/transformer.h"

// Common parts of token models: inputs, parameter layout, and shared steps. All work on memory of
// the caller, in f32.
namespace troop {

// Limits that keep every product of three sizes far from overflow.
inline constexpr std::int64_t kSizeMax = 1 << 20;
inline constexpr std::int64_t kTokensMax = 1 << 24;

// Errors: kInvalidArgument: "a transformer's hidden size = 0: needs 1 to 1048576".
Status CheckSize(const char* model, const char* name, std::int64_t value,
                 std::int64_t most = kSizeMax);
Status CheckRate(const char* model, const char* name, float value);  // 0 <= value < 1

// Sizes of a token batch (nn/transformer/transformer.h), which MakePlan derives from the specs and
// Forward from the data.
struct TokenSizes {
  std::int64_t tokens = 0, sequences = 0, places = 0;
};
// `places`: true if they are among the inputs. Errors: kInvalidArgument.
Result<TokenSizes> CheckTokenInputs(std::span<const TensorSpec> in, bool places);
TokenSizes SizesOf(const TokenBatch& batch);
// View of the inputs. Aborts on a value out of bounds, which would be used as a memory offset.
TokenBatch TokenBatchOf(std::span<const ConstTensor> in, const TokenBounds& bounds);

// Zeroes the gradients of `params`, but not the padding between them.
void ClearGradient(std::span<const ParamSpec> params, std::span<float> gradient);

// Assigns consecutive offsets to parameters.
class ParamLayout {
 public:
  using Slice = ParamSpec::Slice;
  explicit ParamLayout(float deviation) : deviation_(deviation) {}
  std::int64_t Weight(const std::string& name, const Shape& shape, const Slice& slice = {}) {
    return Add(name, shape, ParamSpec::Init::kNormal, slice);
  }
  std::int64_t Bias(const std::string& name, std::int64_t n, const Slice& slice = {}) {
    return Add(name, {n}, ParamSpec::Init::kZeros, slice);
  }
  std::int64_t Gamma(const std::string& name, std::int64_t n) {
    return Add(name, {n}, ParamSpec::Init::kOnes, {});
  }
  std::int64_t Sinusoids(const std::string& name, const Shape& shape) {
    return Add(name, shape, ParamSpec::Init::kSinusoids, {});
  }
  // U(±1/sqrt(fan_in)); matrices have weight decay.
  std::int64_t Uniform(const std::string& name, const Shape& shape, std::int64_t fan_in) {
    const std::int64_t offset = Add(name, shape, ParamSpec::Init::kUniformFanIn, {});
    specs_.back().fan_in = fan_in;
    specs_.back().decays = shape.rank() == 2;
    return offset;
  }
  // The parameter that was added last starts with this value in each element; 0: unchanged.
  void StartWith(float constant) {
    if (constant == 0) return;
    specs_.back().init = ParamSpec::Init::kConstant;
    specs_.back().constant = constant;
  }
  std::int64_t end() const { return end_; }
  std::vector<ParamSpec> Take() && { return std::move(specs_); }

 private:
  std::int64_t Add(const std::string& name, const Shape& shape, ParamSpec::Init init,
                   const Slice& slice);

  const float deviation_;
  std::vector<ParamSpec> specs_;
  std::int64_t end_ = 0;
};

// A rank's share of a layer dimension of size n; the whole of it for one rank.
struct Extent {
  std::int64_t whole = 0;
  Share share;
  Extent() = default;
  Extent(std::int64_t n) : whole(n), share{0, n} {}
  Extent(std::int64_t n, const Share& mine) : whole(n), share(mine) {}
  std::int64_t count() const { return share.count; }
  bool cut() const { return share.count < whole; }
  ParamSpec::Slice Along(int axis) const {
    return cut() ? ParamSpec::Slice{axis, share.first, whole} : ParamSpec::Slice{};
  }
};

// Parameters, their gradient (nullptr: not wanted), and how to compute with them.
struct Params {
  const float* value = nullptr;
  float* gradient = nullptr;
  DType compute = DType::kF32;    // kBF16: operands of products are rounded to it (MatMulBF16)
  TensorGroup* tensor = nullptr;  // for slices
  void MatMul(const MatMulShape& shape, const float* a, const float* b, float beta,
              float* c) const {
    (compute == DType::kBF16 ? MatMulBF16 : troop::MatMul)(shape, a, b, beta, c);
  }
  // x [n] = the sum over the ranks.
  void Sum(std::int64_t n, float* x) const { tensor->Sum({x, std::size_t(n)}); }
  bool first_rank() const { return tensor == nullptr || tensor->place().rank == 0; }
};

// Packed form that only selects the precision of products; weights are used in place.
struct ComputePacked final : Packed {
  explicit ComputePacked(DType dtype) : compute(dtype) {}
  const DType compute;
};
// REQUIRES: context.packed is a ComputePacked or nullptr.
Params ParamsOf(const StepContext& context);
// Reports a completed gradient range to context.watch, if any.
void TellReady(const StepContext& context, std::int64_t from);

// y [rows, out] = x [rows, in] · wᵀ + b. A rank with a share of the outputs ("column parallel",
// Shoeybi et al. 2019, sec. 3) takes all of x, and the gradients of x are summed over the ranks; a
// rank with a share of the inputs ("row parallel") produces all of y as the sum over the ranks, and
// b is whole.
struct LinearPart {
  std::int64_t in = 0, out = 0;  // on this rank
  bool cut_in = false, cut_out = false;
  std::int64_t weight = 0, bias = 0;  // offsets
  // Number of consecutive biases, each aligned: queries, keys, values.
  std::int64_t biases = 1;

  LinearPart() = default;
  LinearPart(ParamLayout& layout, const std::string& name, const Extent& in, const Extent& out);
  void Forward(const Params& params, std::int64_t rows, const float* x, float* y) const;
  // Arguments of Backward.
  struct BackwardArgs {
    std::int64_t rows = 0;
    const float* x = nullptr;   // [rows, in], the input of Forward
    const float* dy = nullptr;  // [rows, out]
    float beta = 0;             // 0: overwrites dx; 1: adds to it
    float* dx = nullptr;        // [rows, in]; nullptr: not wanted
  };
  // Accumulates the gradients of w and b; dx = dy · w + beta dx.
  void Backward(const Params& params, const BackwardArgs& args) const;
  // The part of Backward that accumulates the gradients of w and b.
  void AddGradient(const Params& params, std::int64_t rows, const float* x, const float* dy) const;
};

// Layer norm over `n`. Keeps its input, and mean and rstd, [rows] each, for backward.
struct NormPart {
  std::int64_t n = 0;
  std::int64_t gamma = 0, beta = 0;  // offsets
  float epsilon = 0;

  struct Kept {
    float *x = nullptr, *mean = nullptr, *rstd = nullptr;
  };
  NormPart() = default;
  NormPart(ParamLayout& layout, const std::string& name, std::int64_t n, float epsilon);
  Kept TakeKept(Arena& arena, std::int64_t rows) const;
  // y from kept.x, which the caller has filled.
  void Forward(const Params& params, std::int64_t rows, const Kept& kept, float* y) const;
  // Arguments of Backward.
  struct BackwardArgs {
    std::int64_t rows = 0;
    const float* dy = nullptr;  // [rows, n]
    float* dx = nullptr;        // [rows, n], overwritten; may be dy
    float* scratch = nullptr;   // [2 n]; unused if params has a gradient
  };
  // Computes dx and accumulates the gradients of gamma and beta. kept: that of Forward.
  void Backward(const Params& params, const Kept& kept, const BackwardArgs& args) const;
};

// Tokens whose layer outputs are requested, increasing; nullopt: all. A reader of few outputs of
// the last layer saves computing the others: they are only keys and values there.
using AskedTokens = std::optional<std::span<const std::int32_t>>;

// Floats of scratch in which Drop computes factors.
inline constexpr std::int64_t kDropScratch = 4096;
// Arguments of Drop.
struct DropArgs {
  DropoutSite site;
  float rate = 0;
  std::int64_t first = 0;    // number of element x[0] at the site
  std::int64_t n = 0;        // elements
  float* x = nullptr;        // [n], multiplied by the factors
  float* scratch = nullptr;  // [kDropScratch]
};
// Applies dropout: x [n] times the factors of the elements from `first` on.
void Drop(const DropArgs& args);

// Dropout of the rows of a batch at one site.
struct DropRowsArgs {
  std::uint32_t site = 0;  // number of the site in the model
  float rate = 0;          // 0: nothing is dropped
  std::int64_t width = 0;
  float* x = nullptr;        // [rows, width], multiplied by the factors
  float* scratch = nullptr;  // [kDropScratch]
};
// Applies dropout to the rows of all tokens, or of the requested ones; factors are counted from
// each sequence's first token.
void DropTokens(const TokenBatch& batch, const AskedTokens& asked, const DropRowsArgs& args);
// Applies dropout to one row per sequence.
void DropSequences(const TokenBatch& batch, const DropRowsArgs& args);

}  // namespace troop
