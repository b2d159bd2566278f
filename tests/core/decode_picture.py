#!/usr/bin/env python3
"""Prints what Pillow reads: decode_picture.py FILE.

First line: format, width, height, frames, loop, delay in ms of the first frame. Then one line per
frame: its RGB bytes in hexadecimal.
"""
import sys

from PIL import Image, ImageSequence

with Image.open(sys.argv[1]) as image:
    print(image.format, image.width, image.height, getattr(image, "n_frames", 1),
          image.info.get("loop", "-"), image.info.get("duration", "-"))
    for frame in ImageSequence.Iterator(image):
        print(frame.convert("RGB").tobytes().hex())
