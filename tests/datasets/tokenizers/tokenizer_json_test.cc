#include "datasets/tokenizers/tokenizer_json.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/datasets/tokenizers/hub_data.h"

namespace troop {
namespace {

using Ids = std::vector<TokenId>;

std::string Document(const std::string& name) {
  return ReadAll(HubFixture(name + "/tokenizer.json"));
}

std::unique_ptr<Tokenizer> Make(const std::string& json) {
  auto made = MakeTokenizerJson(json, {});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(*made) : nullptr;
}

std::string MessageOf(const std::string& json, const TokenizerOptions& options = {}) {
  const auto made = MakeTokenizerJson(json, options);
  return made.ok() ? "accepted" : made.status().message();
}

// Hugging Face's tokenizers 0.23.3 (tools/make_tokenizer_fixtures.py).
TEST(TokenizerJsonTest, MatchesHuggingFaceOnEachFamily) {
  for (const std::string name : {"roberta", "bert", "albert", "xlmr"}) {
    ExpectIdsOfSamples(*OpenTokenizer(HubFixture(name + "/tokenizer.json")), name);
  }
}

TEST(TokenizerJsonTest, MatchesHuggingFaceWithOtherNormalizers) {
  const std::string bert = Document("bert");
  ExpectIdsOfSamples(*Make(Replaced(bert, R"("lowercase":true)", R"("lowercase":false)")),
                     "bert_cased");
  const std::string roberta =
      Replaced(Document("roberta"), R"("add_prefix_space":true)", R"("add_prefix_space":false)");
  for (const auto& [form, key] :
       {std::pair("NFC", "roberta_nfc"), std::pair("NFKC", "roberta_nfkc")}) {
    const std::string step = std::string(R"("normalizer":{"type":")") + form + R"("})";
    ExpectIdsOfSamples(*Make(Replaced(roberta, R"("normalizer":null)", step)), key);
  }
}

// Each file follows its tokenizer: vocab.txt and spiece.model the slow ones, tokenizer.json the
// fast ones. The texts are those for which the two differ (tools/make_tokenizer_fixtures.py).
TEST(TokenizerJsonTest, FilesFollowSlowAndFastTokenizersWhereTheyDiffer) {
  std::set<std::string> differences;
  for (const JsonValue& line : ReadJsonLines(HubFixture("differences.jsonl"))) {
    const std::string name = line.Find("name")->string, why = line.Find("why")->string;
    const std::string folder = "differences/" + name + "/";
    const std::string text = FromHex(line.Find("hex")->string);
    const auto slow =
        OpenTokenizer(HubFixture(folder + (name == "bert" ? "vocab.txt" : "spiece.model")));
    EXPECT_EQ(Encode(*slow, text), IdsOf(line, "slow")) << why;
    EXPECT_EQ(Encode(*OpenTokenizer(HubFixture(folder + "tokenizer.json")), text),
              IdsOf(line, "fast"))
        << why;
    EXPECT_NE(IdsOf(line, "slow"), IdsOf(line, "fast")) << why;
    differences.insert(name + why);
  }
  EXPECT_EQ(differences.size(), 7u);
}

// The slow tokenizer, and so vocab.txt, gives a final sigma.
TEST(TokenizerJsonTest, LowercasesSigmaByItself) {
  const auto made = MakeTokenizerJson(
      R"({"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
          "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
          "model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3,
          "[MASK]": 4, "ασ": 5, "ας": 6}}})",
      {});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(Encode(**made, "ΑΣ"), (Ids{5}));
  EXPECT_EQ((*made)->pair_format(), PairFormat());
}

TEST(TokenizerJsonTest, UnassignedCharacterIsUnknown) {
  for (const std::string name : {"bert", "albert", "xlmr"}) {
    const auto tokenizer = OpenTokenizer(HubFixture(name + "/tokenizer.json"));
    // U+1FAE8 and U+1FADC came with Unicode 15 and 16, U+0378 is not assigned.
    for (const char* const text : {"\U0001FAE8", "\U0001FADC", "\u0378"}) {
      const Ids ids = Encode(*tokenizer, text);
      EXPECT_EQ(std::ranges::count(ids, tokenizer->special().unknown), 1) << name << text;
    }
  }
}

TEST(TokenizerJsonTest, SpecialTokensInTextArePlainText) {
  for (const std::string name : {"roberta", "bert", "albert", "xlmr"}) {
    const auto tokenizer = OpenTokenizer(HubFixture(name + "/tokenizer.json"));
    const SpecialTokens& special = tokenizer->special();
    for (const TokenId id : Encode(*tokenizer, "<s> [CLS] </s> [SEP] <mask> [MASK] <pad> [PAD]")) {
      EXPECT_TRUE(id != special.begin && id != special.end && id != special.mask &&
                  id != special.pad)
          << name << id;
    }
  }
}

TEST(TokenizerJsonTest, ReadsSpecialTokensBeyondVocabulary) {
  const std::string json = Replaced(Replaced(Document("xlmr"), R"({"id":4,"content":"<mask>")",
                                             R"({"id":800,"content":"<mask>")"),
                                    R"(["<mask>",0.0])", R"(["<old>",0.0])");
  const auto tokenizer = Make(json);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special().mask, 800);
  EXPECT_EQ(tokenizer->size(), 801);
}

// Hugging Face's tokenizers 0.23.3: each family with added tokens of all flags.
TEST(TokenizerJsonTest, AddedTokensMatchHuggingFace) {
  int documents = 0;
  for (const JsonValue& line : ReadJsonLines(HubFixture("added.jsonl"))) {
    const std::string& added = line.Find("added")->string;
    const auto tokenizer = Make(Replaced(Document(line.Find("name")->string), R"("added_tokens":[)",
                                         R"("added_tokens":[)" + added + ","));
    ASSERT_NE(tokenizer, nullptr);
    const auto& texts = line.Find("texts")->array;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Ids expected;
      for (const JsonValue& id : line.Find("ids")->array[i].array) {
        expected.push_back(TokenId(*id.integer));
      }
      const std::string text = FromHex(texts[i].string);
      EXPECT_EQ(Encode(*tokenizer, text), expected) << added << "\n" << text;
    }
    ++documents;
  }
  EXPECT_EQ(documents, 28);
}

TEST(TokenizerJsonTest, RefusesDamagedAddedTokens) {
  const std::string list = R"("added_tokens":[)";
  const auto message = [&](const std::string& name, const std::string& token) {
    return MessageOf(Replaced(Document(name), list, list + token + ","));
  };
  EXPECT_EQ(message("bert", R"({"id":16777216,"content":"x"})"),
            "\"added_tokens\" has \"x\" with id 16777216, must be in 0 to 16777215");
  EXPECT_EQ(message("bert", R"({"id":-1,"content":"x"})"),
            "\"added_tokens\" has \"x\" with id -1, must be in 0 to 16777215");
  EXPECT_EQ(message("bert", R"({"id":9000,"content":"xyzzy"})"),
            "no piece has id 1500; ids must be 0 to 1500");
  EXPECT_EQ(message("bert", R"({"id":1500,"content":"\u0301"})"),
            "the added token \"\u0301\" is empty after the normalizer");
  EXPECT_EQ(message("bert", R"({"id":1500,"content":"Xyzzy"},{"id":1501,"content":"xyzzY"})"),
            "\"added_tokens\": pieces 0 and 1 are equal: \"xyzzy\"");
  EXPECT_EQ(MessageOf(Replaced(Document("bert"), list, R"("added_tokens":{},"old":[)")),
            "\"added_tokens\" is not a list");
}

TEST(TokenizerJsonTest, PairsMatchTransformers) {
  int pairs = 0;
  std::string open;
  std::unique_ptr<Tokenizer> tokenizer;
  for (const JsonValue& line : ReadJsonLines(HubFixture("pairs.jsonl"))) {
    const std::string& name = line.Find("name")->string;
    if (name != open) tokenizer = OpenTokenizer(HubFixture(name + "/tokenizer.json"));
    open = name;
    const auto length = std::size_t(*line.Find("length")->integer);
    const EncodedPair pair = EncodePair(
        *tokenizer, line.Find("first")->string, line.Find("second")->string, length,
        line.Find("side")->string == "left" ? TruncationSide::kLeft : TruncationSide::kRight);
    EXPECT_EQ(pair.ids, IdsOf(line, "ids")) << name << length;
    EXPECT_EQ(pair.types, IdsOf(line, "types")) << name << length;
    ++pairs;
  }
  EXPECT_EQ(pairs, 280);
}

TEST(TokenizerJsonTest, NamesComponentsThatAreNotSupported) {
  const std::string bert = Document("bert"), roberta = Document("roberta"), xlmr = Document("xlmr");
  EXPECT_EQ(MessageOf("{}"), "it has no \"model\": it is not a file of Hugging Face's tokenizers");
  EXPECT_EQ(MessageOf(Replaced(roberta, R"("normalizer":null)", R"("normalizer":{"type":"Nmt"})")),
            "the normalizer \"Nmt\" is not supported: it changes the tokens");
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  std::string steps = R"("normalizer":{"type":"Sequence","normalizers":[)" + twice;
  for (int i = 0; i < 6; ++i) steps += "," + twice;
  EXPECT_EQ(MessageOf(Replaced(roberta, R"("normalizer":null)", steps + "]}")),
            "the normalizer may make texts 128 times longer with 0 character maps, must be at most "
            "64 times with 1 map");
  EXPECT_EQ(MessageOf(Replaced(bert, "BertPreTokenizer", "Digits")),
            "the pre-tokenizer \"Digits\" is not supported in this place: it changes the tokens");
  EXPECT_EQ(MessageOf(Replaced(bert, "TemplateProcessing", "Truncate")),
            "the post-processor \"Truncate\" is not supported");
  EXPECT_EQ(MessageOf(Replaced(bert, R"("type":"WordPiece")", R"("type":"WordLevel")")),
            "the model \"WordLevel\" is not supported (WordPiece, Unigram and BPE are)");
  EXPECT_EQ(MessageOf(Replaced(bert, R"("clean_text":true)", R"("clean_text":false)")),
            "the normalizer BertNormalizer has \"clean_text\" false: only true is supported");
  EXPECT_EQ(MessageOf(Replaced(bert, R"("max_input_chars_per_word":100)",
                               R"("max_input_chars_per_word":200)")),
            "the model WordPiece is supported only with \"continuing_subword_prefix\" ## and "
            "\"max_input_chars_per_word\" 100");
  EXPECT_EQ(MessageOf(Replaced(xlmr, "{2,}", "{3,}")),
            "the normalizer Replace has the regular expression \" {3,}\": only \" {2,}\" and plain "
            "strings are supported");
  EXPECT_EQ(MessageOf(Replaced(xlmr, R"("byte_fallback":false)", R"("byte_fallback":true)")),
            "the model Unigram is supported only with \"byte_fallback\" false");
  EXPECT_EQ(MessageOf(Replaced(roberta, R"("dropout":null)", R"("dropout":0.1)")),
            "the model BPE is supported only with \"dropout\" null");
  EXPECT_EQ(MessageOf(Replaced(roberta, R"("use_regex":true)", R"("use_regex":false)")),
            "the pre-tokenizer ByteLevel has \"use_regex\" false: only GPT-2's expression is "
            "supported");
  EXPECT_EQ(MessageOf(Replaced(roberta, R"("type":"RobertaProcessing")", R"("type":"ByteLevel")")),
            "it has no post-processor that names the begin and end tokens (TemplateProcessing, "
            "BertProcessing or RobertaProcessing)");
  EXPECT_EQ(MessageOf(Replaced(bert, R"({"Sequence":{"id":"B","type_id":1}})",
                               R"({"Sequence":{"id":"B","type_id":2}})")),
            "the post-processor TemplateProcessing has a template of a pair that is neither BERT's "
            "nor RoBERTa's, which is not supported");
}

TEST(TokenizerJsonTest, SettingsOfConfigMustAgree) {
  const std::string roberta = Document("roberta"), bert = Document("bert");
  EXPECT_EQ(MessageOf(roberta, {.add_prefix_space = true, .lowercase = false}), "accepted");
  EXPECT_EQ(MessageOf(roberta, {.add_prefix_space = false}),
            "\"add_prefix_space\" is false in tokenizer_config.json, but true in this file");
  EXPECT_EQ(MessageOf(bert, {.add_prefix_space = false, .lowercase = true}), "accepted");
  EXPECT_EQ(MessageOf(bert, {.lowercase = false}),
            "\"do_lower_case\" is false in tokenizer_config.json, but true in this file");
  const auto made = MakeTokenizer(HubFixture("bert/tokenizer.json"), {.cased = true});
  EXPECT_TRUE(made.status().message().ends_with(
      "determines whether case is kept; leave data.cased (--cased) at false"))
      << made.status().message();
}

// Single bytes changed: refused, or a tokenizer whose ids are inside its vocabulary.
TEST(TokenizerJsonTest, DamagedDocumentStaysWithinBounds) {
  const std::string text = "\uFB01ne \u00BD e\u0301 A\u030A tab\t\u2026 (1,990) it's \xFF";
  int accepted = 0;
  for (const std::string name : {"roberta", "bert", "albert", "xlmr"}) {
    const std::string sound = Document(name);
    for (std::size_t i = 0; i < sound.size(); i += 1009) {
      std::string bytes = sound;
      bytes[i] = char(bytes[i] ^ 1);
      const auto made = MakeTokenizerJson(bytes, {});
      if (!made.ok()) continue;
      ++accepted;
      for (const TokenId id : Encode(**made, text)) {
        ASSERT_TRUE(id >= 0 && id < (*made)->size()) << name << i;
      }
    }
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace troop
