#!/usr/bin/env python3
"""scikit-learn and tokenizers on the IMDB reviews: peers and data of the suite `imdb`.

    imdb_peers.py ratings             ridge regression of the ratings on TF-IDF, one line
    imdb_peers.py vocabulary FOLDER   learns a byte-level BPE from the training reviews

The ridge uses words and word pairs that occur twice or more, with sublinear counts; its strength
is chosen on a tenth of the training reviews, whose films are not in the rest.
"""
import argparse
import json
import os
import pathlib
import re
import tarfile
import time

DATA = pathlib.Path(os.environ.get("TROOP_DATA", "../shared/data"))
CASE = "ratings of 25,000 test reviews"
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
PIECES = 16000


def reviews():
    """Texts and ratings of both parts, in the order of the archive."""
    texts, ratings = {"train": [], "test": []}, {"train": [], "test": []}
    with tarfile.open(DATA / "imdb/aclImdb_labeled.tar.xz") as archive:
        for entry in archive:
            found = re.search(r"(train|test)/(?:pos|neg)/\d+_(\d+)\.txt$", entry.name)
            if found:
                texts[found[1]].append(archive.extractfile(entry).read().decode())
                ratings[found[1]].append(int(found[2]))
    return texts, ratings


def pearson(x, y):
    import numpy
    return float(numpy.corrcoef(x, y)[0, 1])


def ratings_line():
    """Pearson correlation of a ridge's predictions with the ratings; seconds of everything after
    reading."""
    import numpy
    import sklearn
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    texts, ratings = reviews()
    begin = time.monotonic()
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    train = vectorizer.fit_transform(texts["train"])
    test = vectorizer.transform(texts["test"])
    target = numpy.array(ratings["train"])
    held = numpy.zeros(len(target), bool)   # the last twentieth of each class's files
    for chosen in (target > 5, target <= 5):
        held[numpy.flatnonzero(chosen)[-len(target) // 20:]] = True

    def correlation(strength):
        model = Ridge(alpha=strength, solver="sparse_cg").fit(train[~held], target[~held])
        return pearson(model.predict(train[held]), target[held])

    best = max(STRENGTHS, key=correlation)
    model = Ridge(alpha=best, solver="sparse_cg").fit(train, target)
    found = pearson(model.predict(test), ratings["test"])
    peer = {"peer": "scikit-learn ridge on TF-IDF", "peer_version": sklearn.__version__}
    print(json.dumps({"case": CASE, "metric": "pearson", "unit": "r", "values": [found], **peer}))
    print(json.dumps({"case": CASE, "metric": "minutes", "unit": "min", "better": "lower",
                      "values": [(time.monotonic() - begin) / 60], **peer}))


def learn_vocabulary(folder):
    """Writes vocab.json and merges.txt."""
    from tokenizers import ByteLevelBPETokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        reviews()[0]["train"], vocab_size=PIECES, show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.save_model(str(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ratings", "vocabulary"))
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    if options.what == "ratings":
        ratings_line()
    else:
        learn_vocabulary(options.folder)


if __name__ == "__main__":
    main()
