// Declares the config keys of the model of a supervised run.
#include "nn/model_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(ModelConfig& c, ConfigVisitor& v) {
  v.Visit(
      {.name = "model.architecture",
       .doc = "Supervised: BERT (Devlin et al. 2019), ALBERT (Lan et al. 2020), RoBERTa (Liu et "
              "al. 2019), DistilBERT (Sanh et al. 2019), ELECTRA (Clark et al. 2020), or a "
              "bidirectional LSTM with attention as a small baseline (classifier only); a linear "
              "model of n-grams or svmlight files ([features], [linear]; classifier only); of "
              "images (data.images): a small CNN, ResNet-18 or ResNet-50 (He et al. 2016), AlexNet "
              "as published (Krizhevsky et al. 2012) or as in torchvision (Krizhevsky 2014), or "
              "VGG-16 (Simonyan & Zisserman 2015)."},
      c.architecture);
  v.Visit({"model.pretrained",
           "Folder with initial weights in Hugging Face format (config.json, model.safetensors), "
           "such as the folder model/ of a run. The architecture, the sizes, model.hidden_act and "
           "model.layer_norm_eps come from config.json, unless they are set; then they must equal "
           "those. A missing head is initialized randomly. For images model.safetensors with the "
           "names of torchvision; a last layer for another number of classes is initialized "
           "randomly. Empty means random weights."},
          c.pretrained);
  v.Visit({"model.sync_batch_norm",
           "Images: normalize the batch of all learners as a whole, by sums over them in each "
           "batch normalization, instead of each learner's part."},
          c.sync_batch_norm);
  v.Visit({.name = "model.problem_type",
           .doc = "classifier: what the model predicts for a text: one class, any number of "
                  "classes, or a number."},
          c.problem_type);
  v.Visit({"model.labels",
           "classifier: names of the classes in the order of their ids (id2label); empty means "
           "those of the training examples, sorted."},
          c.labels);
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
           "albert, electra, lstm: size of the token embedding; 0 means model.hidden_size.",
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
           "Number of position embeddings, the maximum sequence length of the model (roberta: two "
           "more than that); at least data.max_length.",
           Between(1, 1 << 20)},
          c.max_position_embeddings);
  v.Visit({.name = "model.hidden_act",
           .doc = "Activation of the feed-forward layers of a transformer: GELU, exact (gelu) or "
                  "with tanh (gelu_new); auto means gelu_new for albert, else gelu."},
          c.hidden_act);
  v.Visit({"model.layer_norm_eps",
           "Number added to the variance by a transformer's layer norms; 0 means 1e-5 for roberta, "
           "else 1e-12.",
           RightOpen(0, 1)},
          c.layer_norm_eps);
  v.Visit({"model.output_bias",
           "Regression: initial bias of the output, if the head is new; 0 means the mean of the "
           "training targets, so that the first updates do not have to find it.",
           Between(-1e30, 1e30)},
          c.output_bias);
  v.Visit({.name = "model.position_init",
           .doc = "Transformers: initial position embeddings: random, or sinusoids of the same "
                  "scale (Vaswani et al. 2017, sec. 3.5), which encode relative distance even "
                  "before training. Both are trained."},
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
  v.Visit({"model.num_features", "Linear models: number of features; 0 means that of the data.",
           Between(0, double(1 << 28))},
          c.num_features);
  // Images.
  v.Visit({"model.image_height",
           "Image classifiers: height of the model's images in pixels; 0 means that of the data.",
           Between(0, 1 << 13)},
          c.image_height);
  v.Visit({"model.image_width",
           "Image classifiers: width of the model's images in pixels; 0 means that of the data.",
           Between(0, 1 << 13)},
          c.image_width);
  v.Visit({"model.image_channels",
           "Image classifiers: channels of the model's images, 1 (gray) or 3 (RGB); 0 means those "
           "of the data.",
           Between(0, 3)},
          c.image_channels);
  v.Visit({"model.classifier_units",
           "AlexNet and VGG-16: units of each of the two hidden linear layers; 4096 as published.",
           Between(1, 1 << 16)},
          c.classifier_units);
}

}  // namespace troop
