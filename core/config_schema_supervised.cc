#include "core/config_schema.h"

namespace troop {
namespace {

void VisitData(Config::DataKeys& c, ConfigVisitor& v) {
  v.Visit({"data.reviews",
           "Supervised: the reviews. A folder aclImdb, that folder as a .tar.xz, or a .csv with "
           "columns review and sentiment."},
          c.reviews);
  v.Visit({"data.unlabelled",
           "masked_lm: a second source, whose reviews are learned beside those of data.reviews; "
           "empty: none."},
          c.unlabelled);
  v.Visit(
      {"data.vocabulary", "BERT's vocabulary, a piece a line, or a SentencePiece .model (ALBERT)."},
      c.vocabulary);
  v.Visit({"data.cased", "Keep capitals and accents: as the vocabulary was made."}, c.cased);
  v.Visit({"data.tokens_max", "Tokens of a review, its two ends included; more are cut off.",
           Between(3, 1 << 16)},
          c.tokens_max);
  v.Visit({.name = "data.truncation_side",
           .doc = "What is cut off: the end of a review (right) or its beginning (left), which "
                  "tells less of the sentiment (Sun et al. 2019, sec. 5.3).",
           .choices = {"right", "left"}},
          c.truncation_side);
  v.Visit({"data.word_dropout",
           "classifier: share of the tokens that training does not see ([MASK] stands there), "
           "others in each epoch (Iyyer et al. 2015).",
           FromBelow(0, 1)},
          c.word_dropout);
  v.Visit({"data.holdout",
           "Share of the training reviews that is not learned but kept for evaluations while "
           "training, of each sentiment alike, drawn by the seed; 0: those take test reviews.",
           FromBelow(0, 1)},
          c.holdout);
  v.Visit({"data.cache",
           "Folder below log.dir for reviews as tokens, so that the next run need not make them; "
           "empty: none."},
          c.cache);
}

void VisitModel(Config::ModelKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "model.family",
           .doc = "Supervised: BERT (Devlin et al. 2019), ALBERT (Lan et al. 2020), or as a small "
                  "baseline a bidirectional LSTM with attention (classifier only).",
           .choices = {"bert", "albert", "lstm"}},
          c.family);
  v.Visit({"model.pretrained",
           "Weights to begin with: a folder of Hugging Face files (config.json, "
           "model.safetensors), such as a run's model/. Its sizes must be those below; a missing "
           "head is fresh. Empty: random weights."},
          c.pretrained);
  v.Visit({"model.vocabulary", "Rows of the word embedding; 0: as data.vocabulary has.",
           Between(0, 1 << 20)},
          c.vocabulary);
  v.Visit({"model.hidden",
           "Numbers of a token between layers, a multiple of 16 and of heads; lstm: of each "
           "direction.",
           Between(1, 1 << 20)},
          c.hidden);
  v.Visit({"model.embedding", "albert, lstm: numbers of a word's embedding; 0: as hidden.",
           Between(0, 1 << 20)},
          c.embedding);
  v.Visit({"model.layers", "Layers; albert: uses of its one layer.", Between(1, 1024)}, c.layers);
  v.Visit({"model.heads", "Heads of attention.", Between(1, 1024)}, c.heads);
  v.Visit({"model.intermediate", "Inner numbers of the feed-forward part; 0: 4 hidden.",
           Between(0, 1 << 20)},
          c.intermediate);
  v.Visit({"model.positions", "Longest sequence; at least data.tokens_max.", Between(1, 1 << 20)},
          c.positions);
  v.Visit({.name = "model.position_init",
           .doc = "bert, albert: what the embeddings of positions begin as: random numbers, or "
                  "sinusoids of that size (Vaswani et al. 2017, sec. 3.5), which tell from the "
                  "first update on how far two tokens lie apart. Both are learned from there on.",
           .choices = {"normal", "sinusoids"}},
          c.position_init);
  v.Visit({"model.dropout", "Share of hidden numbers that training drops.", FromBelow(0, 1)},
          c.dropout);
  v.Visit({"model.attention_dropout", "Share of attention that training drops.", FromBelow(0, 1)},
          c.attention_dropout);
  v.Visit({"model.classifier_dropout", "Share of the classifier's input that training drops.",
           FromBelow(0, 1)},
          c.classifier_dropout);
  v.Visit({"model.recompute",
           "Keep each layer's input alone, and compute the rest again for the gradient (Chen et "
           "al. 2016): less memory, a third more work."},
          c.recompute);
}

void VisitMesh(Config::MeshKeys& c, ConfigVisitor& v) {
  v.Visit({"mesh.dp",
           "Supervised: workers that share each batch (data parallel); 0: as many as "
           "fleet.learners and mesh.tp leave.",
           Between(0, 256)},
          c.dp);
  v.Visit({"mesh.tp",
           "Supervised: learners that share each layer's products (tensor parallel; Shoeybi et "
           "al. 2019).",
           Between(1, 256)},
          c.tp);
  v.Visit({"mesh.shares",
           "Supervised: how much of each batch each of the mesh.dp workers takes: [2, 1] where "
           "the first machine is twice as fast; empty: equal parts, as also while one is away.",
           AboveUpTo(0, 1e6)},
          c.shares);
}

}  // namespace

void VisitSupervised(Config& config, ConfigVisitor& visitor) {
  VisitData(config.data, visitor);
  VisitModel(config.model, visitor);
  VisitMesh(config.mesh, visitor);
}

}  // namespace troop
