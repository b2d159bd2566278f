#!/usr/bin/env python3
"""Prints what the real TensorBoard package reads: read_events.py FOLDER.

One line per point: tag, step, wall time, value, separated by spaces; floats as Python's repr.
"""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for point in events.Scalars(tag):
        print(tag, point.step, repr(point.wall_time), repr(point.value))
