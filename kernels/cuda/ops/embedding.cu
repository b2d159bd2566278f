// Embedding lookup, its gradients without atomics, and gather and scatter of rows.
#include "kernels/cuda/ops/embedding.h"

#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 128;

// Rows of the tables by token; nullptr as in EmbedTokensArgs.
struct TokenRows {
  const std::int32_t *id, *type, *place;
};

// One block per token: blockIdx.y is the sequence, blockIdx.x the index in it.
template <class T>
TROOP_KERNEL void EmbedKernel(const std::int32_t* starts, std::int64_t width, TokenRows rows,
                              EmbeddingTables tables, T* out) {
  const std::int64_t token = starts[blockIdx.y] + blockIdx.x;
  if (token >= starts[blockIdx.y + 1]) return;
  const std::int64_t place = rows.place != nullptr ? rows.place[token] : blockIdx.x;
  const std::int64_t type = rows.type != nullptr ? rows.type[token] : 0;
  const std::int32_t word = rows.id[token] - tables.first_word;
  // Ids without a row in this rank's slice contribute 0.
  const bool here = word >= 0 && word < tables.words;
  const float* const of_word = tables.word + (here ? word * width : 0);
  const float* const of_place = tables.position + place * width;
  for (std::int64_t c = threadIdx.x; c < width; c += kThreads) {
    float x = here ? of_word[c] : 0;
    if (tables.places && tables.type != nullptr) x = x + tables.type[type * width + c];
    if (tables.places) x = x + of_place[c];
    Put(out + token * width + c, x);
  }
}

// A block may have hundreds of tokens of a frequent id, one after the other; this many of their
// rows are loaded at once.
constexpr int kAhead = 16;

// One block per token id and 128 columns; it adds the tokens in their order.
template <class T>
TROOP_KERNEL void WordGradientKernel(std::int64_t width, WordTokens tokens, const T* dout,
                                     float* dword) {
  const std::int64_t column = std::int64_t(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= width) return;
  // The group of tokens of this id.
  const std::int32_t end = tokens.first[blockIdx.x + 1];
  std::int32_t i = tokens.first[blockIdx.x];
  float sum = 0;
  for (; i + kAhead <= end; i += kAhead) {
    float x[kAhead];
    TROOP_UNROLL for (int j = 0; j < kAhead; ++j) {
      x[j] = Get(dout + tokens.order[i + j] * width + column);
    }
    TROOP_UNROLL for (int j = 0; j < kAhead; ++j) sum += x[j];
  }
  for (; i < end; ++i) sum += Get(dout + tokens.order[i] * width + column);
  // Each id has its own block, so no atomics are needed.
  dword[tokens.word[blockIdx.x] * width + column] += sum;
}

// One block per position in sequences and 128 columns.
template <class T>
TROOP_KERNEL void PlaceGradientKernel(const std::int32_t* starts, std::int64_t sequences,
                                      std::int64_t width, const T* dout, float* dposition) {
  const std::int64_t column = std::int64_t(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= width) return;
  const std::int64_t place = blockIdx.x;
  float sum = 0;
  // In the order of sequences; shorter ones do not have the position.
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t token = starts[s] + place;
    if (token < starts[s + 1]) sum += Get(dout + token * width + column);
  }
  dposition[place * width + column] += sum;
}

// One block per row.
template <class T>
TROOP_KERNEL void GatherKernel(std::int64_t width, const std::int32_t* row, const T* from, T* to) {
  const std::int64_t r = blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < width; c += kThreads)
    to[r * width + c] = from[row[r] * width + c];
}
template <class T>
TROOP_KERNEL void ScatterKernel(std::int64_t width, const std::int32_t* row, const T* from, T* to) {
  const std::int64_t r = blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < width; c += kThreads)
    to[row[r] * width + c] = from[r * width + c];
}

// Calls run(a value of the element type).
template <class Run>
void WithType(DType dtype, const Run& run) {
  if (dtype == DType::kBF16) return run(BF16());
  run(float());
}

}  // namespace

void EmbedTokens(Stream& stream, const EmbedTokensArgs& args) {
  const PackedSequences& batch = args.batch;
  const LaunchShape shape{dim3(unsigned(batch.longest), unsigned(batch.sequences)), dim3(kThreads)};
  WithType(args.dtype, [&]<class T>(T) {
    Launch(stream, "EmbedTokens", shape, EmbedKernel<T>, batch.starts, args.width,
           TokenRows{args.id, args.type, args.place}, args.tables, static_cast<T*>(args.out));
  });
}

void EmbedTokensBackward(Stream& stream, const EmbedTokensBackwardArgs& args) {
  const PackedSequences& batch = args.batch;
  const EmbeddingGradients& to = args.gradient;
  // Three sums: by token id, by position and by token type.
  const auto columns = unsigned(CeilDivide(args.width, kThreads));
  WithType(args.dtype, [&]<class T>(T) {
    const T* const from = static_cast<const T*>(args.dout);
    if (args.words.words > 0) {
      Launch(stream, "EmbedTokensBackward of words",
             {dim3(unsigned(args.words.words), columns), dim3(kThreads)}, WordGradientKernel<T>,
             args.width, args.words, from, to.word);
    }
    if (args.places.words > 0) {
      return Launch(stream, "EmbedTokensBackward of places",
                    {dim3(unsigned(args.places.words), columns), dim3(kThreads)},
                    WordGradientKernel<T>, args.width, args.places, from, to.position);
    }
    Launch(stream, "EmbedTokensBackward of places",
           {dim3(unsigned(batch.longest), columns), dim3(kThreads)}, PlaceGradientKernel<T>,
           batch.starts, batch.sequences, args.width, from, to.position);
  });
  // A text has at most two segments, so this reads the gradients twice at most.
  const std::int64_t types = to.type == nullptr ? 0 : args.type == nullptr ? 1 : args.types;
  for (std::int64_t type = 0; type < types; ++type) {
    SumRows(stream, {.rows = batch.tokens,
                     .n = args.width,
                     .x = args.dout,
                     .dtype = args.dtype,
                     .sum = to.type + type * args.width,
                     .add = true,
                     .workspace = args.workspace,
                     .group = args.type,
                     .number = std::int32_t(type)});
  }
}

void GatherRows(Stream& stream, const GatherRowsArgs& args) {
  WithType(args.dtype, [&]<class T>(T) {
    Launch(stream, "GatherRows", {dim3(unsigned(args.rows)), dim3(kThreads)}, GatherKernel<T>,
           args.width, args.row, static_cast<const T*>(args.from), static_cast<T*>(args.to));
  });
}

void ScatterRows(Stream& stream, const ScatterRowsArgs& args) {
  WithType(args.dtype, [&]<class T>(T) {
    Launch(stream, "ScatterRows", {dim3(unsigned(args.rows)), dim3(kThreads)}, ScatterKernel<T>,
           args.width, args.row, static_cast<const T*>(args.from), static_cast<T*>(args.to));
  });
}

}  // namespace troop::cuda
