#!/usr/bin/env python3
"""Writes predictions and their metrics by scikit-learn and scipy to tests/fixtures/metrics.json.

    pip install numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1
    tools/make_metric_fixtures.py

A case has a problem type, logits [n][outputs] (multiples of 1/4, so that many are equal), labels or
targets, and the expected values. A value that scikit-learn leaves undefined is absent.
"""

import json
import pathlib
import warnings

import numpy as np
from scipy import stats
from sklearn import metrics

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/metrics.json"


def defined(values):
    return {key: float(x) for key, x in values.items() if x is not None and not np.isnan(x)}


def area(has, score):
    """The area under the ROC curve; None without both kinds."""
    return metrics.roc_auc_score(has, score) if 0 < has.sum() < len(has) else None


def mean(values):
    values = [x for x in values if x is not None]
    return np.mean(values) if values else None


def classes_of(has, predicted, score):
    """Precision, recall, F1 and area of each column."""
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        has, predicted, zero_division=np.nan, average=None)
    return [dict(defined({"precision": precision[j], "recall": recall[j], "f1": f1[j],
                          "auc": area(has[:, j], score[:, j])}), support=int(support[j]),
                 predicted=int(predicted[:, j].sum())) for j in range(has.shape[1])]


def single_label(logits, labels):
    outputs = logits.shape[1]
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    best = logits.argmax(1)
    every = list(range(outputs))
    if outputs == 2:
        auc = area(labels == 1, p[:, 1])
    elif len(set(labels)) == outputs:
        auc = metrics.roc_auc_score(labels, p, multi_class="ovr", average="macro")
    else:
        auc = mean(area(labels == j, p[:, j]) for j in every)
    one_hot = np.eye(outputs, dtype=int)
    return {"metrics": defined({
        "accuracy": metrics.accuracy_score(labels, best),
        "f1_macro": metrics.f1_score(labels, best, average="macro"),
        "f1_micro": metrics.f1_score(labels, best, average="micro"), "auc": auc}),
        "confusion": metrics.confusion_matrix(labels, best, labels=every).tolist(),
        "classes": classes_of(one_hot[labels], one_hot[best], p)}


def multi_label(logits, targets):
    predicted = (logits > 0).astype(int)
    seen = (targets + predicted).any(0)
    columns = range(targets.shape[1])
    return {"metrics": defined({
        "accuracy": metrics.accuracy_score(targets, predicted),
        "f1_macro": metrics.f1_score(targets[:, seen], predicted[:, seen], average="macro"),
        "f1_micro": metrics.f1_score(targets, predicted, average="micro"),
        "auc": mean(area(targets[:, j], logits[:, j]) for j in columns)}),
        "classes": classes_of(targets, predicted, logits)}


def regression(x, targets):
    constant = len(set(x)) < 2 or len(set(targets)) < 2
    return {"metrics": defined({
        "pearson": None if constant else stats.pearsonr(x, targets)[0],
        "spearman": None if constant else stats.spearmanr(x, targets)[0],
        "mse": metrics.mean_squared_error(targets, x),
        "mae": metrics.mean_absolute_error(targets, x)})}


def main():
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(17)

    def logits_of(shape, shift=0.0):
        return np.round(4 * (1.5 * rng.standard_normal(shape) + shift)) / 4

    cases = []

    def add(name, problem, logits, values, expected):
        key = "labels" if problem == "single_label_classification" else "targets"
        cases.append({"name": name, "problem": problem, "logits": logits.tolist(),
                      key: values.tolist(), **expected})

    for name, n, outputs, used in (("binary", 60, 2, (0, 1)), ("four classes", 80, 4, (0, 1, 2, 3)),
                                   ("class 2 is missing", 40, 4, (0, 1, 3)),
                                   ("one class only", 20, 2, (1,)), ("one example", 1, 3, (2,))):
        labels = rng.choice(used, n)
        logits = logits_of((n, outputs)) + np.eye(outputs)[labels]
        if name == "class 2 is missing":
            logits[:, 2] -= 9   # nor is it predicted
        add(name, "single_label_classification", logits, labels, single_label(logits, labels))
    constant = np.zeros((12, 3))
    labels = rng.choice(3, 12)
    add("constant logits", "single_label_classification", constant, labels,
        single_label(constant, labels))

    targets = (rng.random((50, 5)) < 0.3).astype(int)
    logits = logits_of((50, 5), -0.5) + 2 * targets
    add("labels", "multi_label_classification", logits, targets, multi_label(logits, targets))
    targets[:, 1], logits[:, 1], targets[:, 3] = 0, -1, 1   # never predicted; always there
    add("labels without a kind", "multi_label_classification", logits, targets,
        multi_label(logits, targets))

    targets = rng.integers(1, 11, 70)
    x = np.round(4 * (0.5 * targets + rng.standard_normal(70))) / 4
    for name, predicted, true in (("numbers", x, targets), ("negative", -x, targets),
                                  ("constant prediction", np.full(70, 3.5), targets),
                                  ("constant target", x, np.full(70, 2))):
        add(name, "regression", predicted[:, None], true[:, None], regression(predicted, true))
    FILE.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
