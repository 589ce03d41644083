"""Prints what a script can see of how it was started, as JSON."""

import json
import os
import sys

import profiler  # the file beside this one

import __main__

print(
    json.dumps(
        {
            "argv": sys.argv,
            "file": __file__,
            "name": __name__,
            "path0": sys.path[0],
            "package": __package__,
            "spec": __spec__ and __spec__.name,
            "imported": [name for name in ("torch", "numpy") if name in sys.modules],
            "main": __main__.__dict__ is globals(),
            "sibling": profiler.ANSWER,
            "ours": sorted(name for name in os.environ if name.startswith("STEPSCOPE")),
            "doc": __doc__.split()[0],
        }
    ),
    flush=True,
)
