"""The Kubeflow component, run as a pipeline's launcher would: with files for artifacts, and paths
for what it has to leave. Usage: component_test.py (TROOP_PROGRAM, TROOP_SOURCE_DIR). Exit code 77
without PyYAML."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError as error:
    print(f"skipped: {error} (tools/test-requirements.txt)")
    sys.exit(77)

SOURCE = pathlib.Path(os.environ["TROOP_SOURCE_DIR"])
COMPONENT = SOURCE / "examples" / "kubeflow" / "imdb_component.yaml"
FIXTURES = SOURCE / "tests" / "fixtures" / "supervised"
CONFIG = """
learner = {algorithm = "classifier", batch_size = 5}
run = {epochs = 1e6, max_updates = 60}
data = {max_length = 16, cache = "", validation_split = 0.4}
model.hidden_size = 32
model.num_hidden_layers = 1
model.num_attention_heads = 4
model.max_position_embeddings = 24
evaluator = {final_episodes = 4}
"""
# kubeflow/pipelines, sdk/python/kfp/dsl/types: what an artifact or a parameter may be.
TYPES = {"String", "Integer", "Float", "Boolean", "List", "Dict",
         "Artifact", "Dataset", "Model", "Metrics", "Markdown", "HTML"}


class ComponentTest(unittest.TestCase):
    def setUp(self):
        self.component = yaml.safe_load(COMPONENT.read_text())
        self.container = self.component["implementation"]["container"]

    def test_placeholders_are_inputs_and_outputs_and_all_of_them(self):
        self.assertEqual(set(self.component),
                         {"name", "description", "inputs", "outputs", "implementation"})
        inputs = {i["name"]: i for i in self.component["inputs"]}
        outputs = {o["name"]: o for o in self.component["outputs"]}
        for one in [*inputs.values(), *outputs.values()]:
            self.assertIn(one["type"], TYPES)
            self.assertLessEqual(set(one), {"name", "type", "description", "default"})
        used = {"inputPath": set(), "inputValue": set(), "outputPath": set()}
        for word in self.container["args"]:
            ((kind, name),) = word.items()
            used[kind].add(name)
        self.assertEqual(used["inputPath"] | used["inputValue"], set(inputs))
        self.assertEqual(used["outputPath"], set(outputs))
        # Files are artifacts, and words are parameters.
        parameters = {"String", "Float"}
        self.assertTrue(all(inputs[n]["type"] not in parameters for n in used["inputPath"]))
        self.assertTrue(all(inputs[n]["type"] in parameters for n in used["inputValue"]))

    def test_it_trains_and_leaves_its_model_and_its_timing(self):
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp)
            (folder / "bin").mkdir()
            (folder / "bin" / "troop").symlink_to(os.environ["TROOP_PROGRAM"])
            (folder / "config.toml").write_text(CONFIG)
            # Names without an extension, as a launcher passes them.
            (folder / "reviews").write_bytes((FIXTURES / "reviews.csv").read_bytes())
            (folder / "vocabulary").write_bytes((FIXTURES / "vocab.txt").read_bytes())
            values = {"reviews_format": "csv", "config": str(folder / "config.toml"),
                      "overrides": "seed=3 learner.batch_size=4"}
            words = []
            for word in self.container["args"]:
                ((kind, name),) = word.items()
                path = folder / ("out/" + name if kind == "outputPath" else "") / name
                words.append(values[name] if kind == "inputValue" else str(path))
            done = subprocess.run(
                [*self.container["command"], *words], capture_output=True, text=True, timeout=100,
                env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "TMPDIR": temp})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            left = {o["name"]: folder / "out" / o["name"] / o["name"]
                    for o in self.component["outputs"]}
            result = json.loads(left["result"].read_text())
            self.assertEqual(result["status"], "ok")
            self.assertEqual(result["updates"], 60)
            for name, key in [("wall_s", "wall_s"), ("updates", "updates"),
                              ("accuracy_percent", "final_return_mean")]:
                self.assertEqual(float(left[name].read_text()), result[key])
            self.assertGreater(float(left["wall_s"].read_text()), 0)
            self.assertTrue((left["model"] / "model.safetensors").exists())
            self.assertIn("| total |", left["report"].read_text())


if __name__ == "__main__":
    unittest.main()
