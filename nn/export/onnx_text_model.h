#pragma once

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "nn/io/safetensors.h"
#include "nn/models/model_setup.h"

namespace troop {

// Encodes a trained text classifier (BERT, ALBERT or LSTM) or masked language model (BERT or
// ALBERT) as an ONNX model (opset 17). Padding follows the tokens of a sequence, and must have the
// mask 0; its ids are arbitrary tokens of the vocabulary.
//   input   "input_ids" [batch, tokens] i64: [CLS] text [SEP], all of type 0
//   input   "attention_mask" [batch, tokens] i64: 1 for a token, 0 for padding
//   output  "logits" [batch, classes] f32; of a masked language model [batch, tokens, vocabulary]:
//           for each position the scores of the words that can be there
//   output  "probabilities" [batch, classes] f32: softmax(logits), or sigmoid(logits) of several
//           labels; only of a classifier, whose regression has logits [batch, 1] alone
// A transformer accepts at most model.max_position_embeddings tokens, an LSTM any number. file: the
// parameters by name, and metadata of the model. Errors: kInvalidArgument: not a text model, a
// parameter is missing or has another shape, more than 2 GiB.
Result<Buffer> EncodeOnnxTextModel(const ModelSetup& setup, const TensorFile& file);

// Key of the metadata with the settings of the tokenizer and the labels, as JSON.
inline constexpr char kTextModelKey[] = "troop_text_model";

}  // namespace troop
