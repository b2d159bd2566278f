"""What a run leaves in model/ is read by the package transformers, which answers the same."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

NEEDS = ("torch", "transformers")
HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures/supervised"
TROOP = pathlib.Path(sys.path[0]).parent / "troop"   # behind the package's folder in the build
CONFIG = """
version = 1
learner = {batch_size = 5}
run = {max_updates = 25, epochs = 1e6}
data = {max_length = 16, cache = ""}
model.hidden_size = 32
model.num_hidden_layers = 2
model.num_attention_heads = 4
model.max_position_embeddings = 24
model.dropout = 0
optimizer = {learning_rate = 1e-3}
evaluator = {enabled = false}
"""
TEXTS = ("a great film, and a wonderful plot!", "bad.", "i loved the act of it",
         "this movie was not good, but it was never dull")
MASKED = ("the [MASK] was great", "i [MASK] it and the [MASK]")


def troop(*words):
    run = subprocess.run([TROOP, *words], capture_output=True, text=True, check=False, timeout=100)
    if run.returncode != 0:
        raise AssertionError(run.stderr + run.stdout)
    return run.stdout


class TransformersTest(unittest.TestCase):
    def model(self, folder, family, algorithm):
        (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
        troop("train", folder / "config.toml", "--plain", "name=run", f"log.dir={folder}",
              f"data.reviews={FIXTURES}/reviews.csv", f"data.vocabulary={FIXTURES}/vocab.txt",
              f"model.architecture={family}",
              f"model.embedding_size={16 if family == 'albert' else 0}",
              f"learner.algorithm={algorithm}", "fleet.mode=serial")
        return folder / "run/model"

    def each(self, algorithm, kind, texts):
        """Of BERT and ALBERT: transformers' model and tokenizer, and the texts with our answers."""
        import transformers
        for family in ("bert", "albert"):
            with tempfile.TemporaryDirectory() as name:
                folder = self.model(pathlib.Path(name), family, algorithm)
                told = troop("predict", folder, "--json", *texts).splitlines()
                self.assertEqual(len(told), len(texts))
                yield (getattr(transformers, kind).from_pretrained(folder).eval(),
                       transformers.BertTokenizerFast(str(folder / "vocab.txt")),
                       list(zip(texts, map(json.loads, told))))

    def test_classifiers(self):
        kind = "AutoModelForSequenceClassification"
        for model, tokenizer, answers in self.each("classifier", kind, TEXTS):
            for text, answer in answers:
                logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
                for i, chance in enumerate(logits.softmax(0).tolist()):
                    said = answer["probabilities"][model.config.id2label[i]]
                    self.assertAlmostEqual(said, chance, delta=1e-5)

    def test_words_that_are_masked(self):
        for model, tokenizer, answers in self.each("masked_lm", "AutoModelForMaskedLM", MASKED):
            for text, answer in answers:
                batch = tokenizer(text, return_tensors="pt")
                chances = model(**batch).logits[0].softmax(1)
                places = (batch["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
                self.assertEqual(len(places), len(answer["masks"]))
                for place, words in zip(places, answer["masks"]):
                    for word in words:
                        i = tokenizer.convert_tokens_to_ids(word["word"])
                        self.assertAlmostEqual(word["probability"], float(chances[place, i]),
                                               delta=1e-5)


if __name__ == "__main__":
    unittest.main()
