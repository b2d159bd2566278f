// Declares the config keys of supervised mode: data, model and mesh.
#include "core/config/schema.h"

namespace troop {
namespace {

void VisitData(Config::DataKeys& c, ConfigVisitor& v) {
  v.Visit({"data.reviews",
           "Supervised: source of the examples (reviews): a folder aclImdb, that folder as a "
           ".tar.xz, or a .csv with the columns review and sentiment."},
          c.reviews);
  v.Visit(
      {"data.unlabeled", "masked_lm: additional source of unlabeled examples; empty means none."},
      c.unlabeled);
  v.Visit({"data.vocabulary",
           "Vocabulary file: BERT's, one token per line, or a SentencePiece .model (ALBERT)."},
          c.vocabulary);
  // Tokenization.
  v.Visit({"data.cased", "Keep case and accents; must match the vocabulary."}, c.cased);
  v.Visit(
      {"data.max_length",
       "Maximum sequence length in tokens, special tokens included; longer examples are truncated.",
       Between(3, 1 << 16)},
      c.max_length);
  v.Visit({.name = "data.truncation_side",
           .doc = "Side on which examples are truncated: the end (right), or the beginning (left), "
                  "which carries less of the sentiment (Sun et al. 2019, sec. 5.3).",
           .choices = {"right", "left"}},
          c.truncation_side);
  // Use of the examples.
  v.Visit({"data.word_dropout",
           "classifier: fraction of the tokens that training replaces with [MASK], chosen again in "
           "each epoch (Iyyer et al. 2015).",
           RightOpen(0, 1)},
          c.word_dropout);
  v.Visit(
      {"data.validation_split",
       "Fraction of the training examples that is kept for validation during training, stratified "
       "by sentiment and selected with the run's seed; 0 validates on test examples.",
       RightOpen(0, 1)},
      c.validation_split);
  v.Visit({"data.cache",
           "Folder in log.dir for tokenized examples, reused by later runs; empty disables it."},
          c.cache);
}

void VisitModel(Config::ModelKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "model.architecture",
           .doc = "Supervised: BERT (Devlin et al. 2019), ALBERT (Lan et al. 2020), or a "
                  "bidirectional LSTM with attention as a small baseline (classifier only).",
           .choices = {"bert", "albert", "lstm"}},
          c.architecture);
  v.Visit({"model.pretrained",
           "Folder with initial weights in Hugging Face format (config.json, model.safetensors), "
           "such as the folder model/ of a run. The sizes must match the keys below; a missing "
           "head is initialized randomly. Empty means random weights."},
          c.pretrained);
  v.Visit({"model.vocab_size",
           "Number of rows of the token embedding; 0 means the size of data.vocabulary.",
           Between(0, 1 << 20)},
          c.vocab_size);
  v.Visit(
      {"model.hidden_size",
       "Hidden size, a multiple of 16 and of model.num_attention_heads; lstm: size per direction.",
       Between(1, 1 << 20)},
      c.hidden_size);
  v.Visit({"model.embedding_size",
           "albert, lstm: size of the token embedding; 0 means model.hidden_size.",
           Between(0, 1 << 20)},
          c.embedding_size);
  v.Visit({"model.num_hidden_layers",
           "Number of layers; albert: number of times that the shared layer is applied.",
           Between(1, 1024)},
          c.num_hidden_layers);
  v.Visit({"model.num_attention_heads", "Number of attention heads.", Between(1, 1024)},
          c.num_attention_heads);
  v.Visit(
      {"model.intermediate_size",
       "Inner size of the feed-forward block; 0 means 4 · model.hidden_size.", Between(0, 1 << 20)},
      c.intermediate_size);
  v.Visit({"model.max_position_embeddings",
           "Maximum sequence length of the model; at least data.max_length.", Between(1, 1 << 20)},
          c.max_position_embeddings);
  v.Visit({.name = "model.position_init",
           .doc = "bert, albert: initial position embeddings: random, or sinusoids of the same "
                  "scale (Vaswani et al. 2017, sec. 3.5), which encode relative distance even "
                  "before training. Both are trained.",
           .choices = {"normal", "sinusoids"}},
          c.position_init);
  // Regularization and memory.
  v.Visit({"model.dropout", "Dropout probability of hidden activations.", RightOpen(0, 1)},
          c.dropout);
  v.Visit({"model.attention_dropout", "Dropout probability of attention weights.", RightOpen(0, 1)},
          c.attention_dropout);
  v.Visit(
      {"model.classifier_dropout", "Dropout probability of the classifier input.", RightOpen(0, 1)},
      c.classifier_dropout);
  v.Visit({"model.gradient_checkpointing",
           "Store only the input of each layer and recompute its activations in the backward pass "
           "(Chen et al. 2016); saves memory at the cost of a third more computation."},
          c.gradient_checkpointing);
}

void VisitMesh(Config::MeshKeys& c, ConfigVisitor& v) {
  v.Visit(
      {"mesh.dp", "Supervised: number of data-parallel workers; 0 means fleet.learners / mesh.tp.",
       Between(0, 256)},
      c.dp);
  v.Visit({"mesh.tp",
           "Supervised: number of tensor-parallel learners per worker (Shoeybi et al. 2019).",
           Between(1, 256)},
          c.tp);
  v.Visit({"mesh.batch_shares",
           "Supervised: relative share of each batch for each of the mesh.dp workers, such as [2, "
           "1] if the first machine is twice as fast; empty means equal shares, which also apply "
           "while a worker is absent.",
           LeftOpen(0, 1e6)},
          c.batch_shares);
}

}  // namespace

void VisitSupervised(Config& config, ConfigVisitor& visitor) {
  VisitData(config.data, visitor);
  VisitModel(config.model, visitor);
  VisitMesh(config.mesh, visitor);
}

}  // namespace troop
