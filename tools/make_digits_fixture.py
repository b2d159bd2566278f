#!/usr/bin/env python3
"""Writes scikit-learn's digit images to tests/fixtures/digits/digits.bin.

    pip install scikit-learn==1.9.1
    tools/make_digits_fixture.py

One record of 65 bytes per image: its digit, then its 8 x 8 pixels, 0 to 16, row by row.
"""

import pathlib

import numpy as np
from sklearn.datasets import load_digits

PATH = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/digits/digits.bin"


def main():
    digits = load_digits()
    pixels = digits.data.astype(np.uint8)
    assert (pixels == digits.data).all() and pixels.max() == 16
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_bytes(np.column_stack([digits.target.astype(np.uint8), pixels]).tobytes())


if __name__ == "__main__":
    main()
