#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/translation/lstm_stack.h"
#include "nn/translation/sequence_attention.h"

namespace troop {

// Sizes of a translation model.
struct GnmtConfig {
  std::int64_t vocabulary = 8000;  // of both languages
  std::int64_t embedding = 256, hidden = 256, attention = 256;
  std::int64_t encoder_layers = 2, decoder_layers = 2;  // 2 to 16
  float dropout = 0.2f;
  bool shared_embedding = true;  // one table of embeddings for both languages
  bool operator==(const GnmtConfig&) const = default;
};
// Errors: kInvalidArgument, naming the value that is out of bounds.
Status CheckGnmt(const GnmtConfig& config);

// Translation by LSTMs with attention: GNMT (Wu et al. 2016), in the form of MLPerf's reference
// "rnn_translator". The first layer of the encoder is bidirectional. The states of the bottom layer
// of the decoder select a context by SequenceAttention, which each layer above takes next to the
// output of the layer below; residual connections begin at the third layer of each stack. A linear
// layer gives the logits. The decoder begins with states of 0.
//
// Inputs: source ids [S] i32, source starts [B + 1] i32, target ids [T] i32, target starts [B + 1]
// i32: sequences end to end, each at least one token. The target ids are those that the decoder
// takes: a begin, then the translation without its end. StepContext::dropout: a key per pair.
// Output: logits [T, vocabulary] of the token after each target id. Ids have no gradient.
//
// Parameters are in order of use: encoder.embedding.weight (embedding.weight, if it is shared),
// encoder.lstm.* and decoder.lstm.* as PyTorch names those of nn.LSTM, decoder.embedding.weight,
// attention.*, classifier.weight and .bias. Initial weights are uniform. Precision, order and
// reproducibility are those of MakeLstmClassifier. Immutable, so usable from any thread.
class Gnmt final : public Module {
 public:
  // Errors: those of CheckGnmt.
  static Result<std::unique_ptr<Gnmt>> Make(const GnmtConfig& config);

  std::span<const ParamSpec> params() const override { return params_; }
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override;
  std::unique_ptr<Packed> MakePacked(Precision precision) const override;
  void Pack(std::span<const float>, Packed*) const override {}  // weights are used in place
  // Aborts on an id out of bounds, which would be used as a memory offset.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override;
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override;

  // Parts, for decoding step by step (SentenceDecoder).
  const GnmtConfig& config() const { return config_; }
  const LstmStack& encoder() const { return encoder_; }
  const LstmStack& decoder() const { return decoder_; }
  const SequenceAttention& attention() const { return attention_; }
  const LinearPart& classifier() const { return classifier_; }
  std::int64_t source_table() const { return source_table_; }  // offsets of embeddings
  std::int64_t target_table() const { return target_table_; }

 private:
  explicit Gnmt(const GnmtConfig& config);
  // The two sides of a batch.
  struct Pairs {
    TokenBatch source, target;
    std::int64_t pairs = 0, longest = 0;  // as SequenceAttention has them
  };
  Pairs PairsOf(const StepContext& context, std::span<const ConstTensor> in) const;
  struct Kept {
    TimeSteps source_steps, target_steps;
    LstmStack::Kept encoder, decoder;
    SequenceAttention::Kept attention;
    float* context = nullptr;  // [T, hidden], in time steps
    float* top = nullptr;      // [T, hidden], in batch order
  };
  struct Scratch {
    LstmStack::Scratch encoder, decoder;
    SequenceAttention::Scratch attention;
    float *source = nullptr, *target = nullptr;  // [S, widest], [T, widest]
    float *dcontext = nullptr, *dsource = nullptr, *dtarget = nullptr;
  };
  Kept TakeKept(Arena& arena, const SequenceAttention::Sizes& sizes, std::int64_t pairs) const;
  Scratch TakeScratch(Arena& arena, const SequenceAttention::Sizes& sizes, std::int64_t sequences,
                      std::int64_t longest) const;
  void BackwardDecoder(const StepContext& context, const Pairs& batch, const Kept& kept,
                       const Scratch& scratch) const;

  const GnmtConfig config_;
  std::int64_t source_table_ = 0, target_table_ = 0;
  // First parameters of the parts, for the gradient watch.
  std::int64_t decoder_begin_ = 0, attention_begin_ = 0, upper_begin_ = 0, classifier_begin_ = 0;
  LstmStack encoder_, decoder_;
  SequenceAttention attention_;
  LinearPart classifier_;
  std::vector<ParamSpec> params_;
};

}  // namespace troop
