#!/usr/bin/env python3
"""Write an rt-app file of N threads that each create a thread and wait for its end, R times: spawn.py N R FILE."""

import json
import sys

threads, times = int(sys.argv[1]), int(sys.argv[2])
tasks = {}
for n in range(threads):
    tasks[f"c{n}"] = {"instance": 0, "loop": 1, "run": 1, "sem_post": f"s{n}"}
    tasks[f"p{n}"] = {"instance": 1, "loop": times, "fork": f"c{n}", "sem_wait": f"s{n}"}
with open(sys.argv[3], "w") as file:
    json.dump({"tasks": tasks}, file)
