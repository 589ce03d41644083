ANSWER = "the profiler.py of the user"
