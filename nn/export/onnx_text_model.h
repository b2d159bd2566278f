#pragma once

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "nn/io/safetensors.h"
#include "nn/models/model_setup.h"

namespace troop {

// Encodes a trained text classifier (a transformer or LSTM) or masked language model (a
// transformer) as an ONNX model (opset 17). Padding follows the tokens of a sequence, and must have
// the mask 0; its ids are arbitrary tokens of the vocabulary.
//   input   "input_ids" [batch, tokens] i64: [CLS] text [SEP], or a pair of texts
//   input   "attention_mask" [batch, tokens] i64: 1 for a token, 0 for padding
//   input   "token_type_ids" [batch, tokens] i64: segment of each token, 0 or 1; only of models
//   with
//           embeddings of segments (BERT, ALBERT, ELECTRA). A caller may leave it out: all are 0
//   output  "logits" [batch, classes] f32; of a masked language model [batch, tokens, vocabulary]:
//           for each position the scores of the words that can be there
//   output  "probabilities" [batch, classes] f32: softmax(logits), or sigmoid(logits) of several
//           labels; only of a classifier, whose regression has logits [batch, 1] alone
// A transformer accepts at most LengthMax tokens (nn/transformer/transformer.h; in RoBERTa tokens
// with the padding id 1 do not count), an LSTM any number. file: the
// parameters by name, and metadata of the model. Errors: kInvalidArgument: not a text model, a
// parameter is missing or has another shape, more than 2 GiB.
Result<Buffer> EncodeOnnxTextModel(const ModelSetup& setup, const TensorFile& file);

// Key of the metadata with the settings of the tokenizer and the labels, as JSON.
inline constexpr char kTextModelKey[] = "troop_text_model";

}  // namespace troop
