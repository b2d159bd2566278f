#!/usr/bin/env python3
"""Prints what the real TensorBoard package reads: read_events.py FOLDER.

One line per point: tag, step, wall time, value, separated by spaces; floats as Python's repr. The
value of a histogram: min, max, count, sum, sum of squares, limit:count of each bucket. The value of
an image: width, height, SHA-256 of the encoded bytes.
"""
import hashlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "images": 0})
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for point in events.Scalars(tag):
        print(tag, point.step, repr(point.wall_time), repr(point.value))
for tag in sorted(events.Tags()["histograms"]):
    for point in events.Histograms(tag):
        h = point.histogram_value
        buckets = (f"{limit!r}:{count!r}" for limit, count in zip(h.bucket_limit, h.bucket))
        print(tag, point.step, repr(point.wall_time), h.min, h.max, h.num, h.sum, h.sum_squares,
              *buckets)
for tag in sorted(events.Tags()["images"]):
    for point in events.Images(tag):
        print(tag, point.step, repr(point.wall_time), point.width, point.height,
              hashlib.sha256(point.encoded_image_string).hexdigest())
