#!/usr/bin/env python3
"""scikit-learn and tokenizers on the IMDB reviews: peers and data of the suite `imdb`.

    imdb_peers.py ratings             ridge regression of the ratings on TF-IDF
    imdb_peers.py linear              linear SVM with naive Bayes weights (NB-SVM)
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
LINEAR = "linear model of n-grams, 25,000 test reviews"
L2 = 4e-3   # linear.l2 of configs/imdb_linear.toml
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


def linear_lines():
    """Accuracy of liblinear with the features, weights and objective of configs/imdb_linear.toml;
    minutes of everything after reading."""
    import numpy
    import sklearn
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.svm import LinearSVC

    texts, ratings = reviews()
    begin = time.monotonic()
    vectorizer = CountVectorizer(ngram_range=(1, 3), binary=True, min_df=2,
                                 token_pattern=r"(?u)\b\w+\b")
    train = vectorizer.fit_transform(texts["train"]).astype(numpy.float64)
    test = vectorizer.transform(texts["test"]).astype(numpy.float64)
    positive = numpy.array(ratings["train"]) > 5
    counts = [numpy.asarray(train[chosen].sum(axis=0)).ravel() + 1
              for chosen in (positive, ~positive)]
    weights = sparse.diags(numpy.log(counts[0] / counts[0].sum())
                           - numpy.log(counts[1] / counts[1].sum()))
    model = LinearSVC(loss="squared_hinge", dual=True, C=1 / (len(positive) * L2))
    model.fit(train @ weights, positive)
    right = model.predict(test @ weights) == (numpy.array(ratings["test"]) > 5)
    peer = {"peer": "scikit-learn LinearSVC with NB weights", "peer_version": sklearn.__version__}
    print(json.dumps({"case": LINEAR, "metric": "right", "unit": "share",
                      "values": [float(right.mean())], **peer}))
    print(json.dumps({"case": LINEAR, "metric": "minutes", "unit": "min", "better": "lower",
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
    parser.add_argument("what", choices=("ratings", "linear", "vocabulary"))
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    if options.what == "ratings":
        ratings_line()
    elif options.what == "linear":
        linear_lines()
    else:
        learn_vocabulary(options.folder)


if __name__ == "__main__":
    main()
