"""Pairs of a redundant job and as many plain ones, one after the other and in turns; called by ci/bench."""

import os
import resource
import statistics
import subprocess
import sys
import time

PAIRS = int(sys.argv[1])
# The same on both sides: small separate jobs are not oversubscribed in Open MPI's eyes and would spin.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
RANKS = 2
CASES = [
    ("LAMMPS melt, 6912 atoms, 800 steps", ["lmp", "-in", "in.melt", "-log", "none"]),
    ("ping-pong 8 B, 100 000 rounds", ["./pingpong", "8", "100000"]),
    ("ping-pong 4 KiB, 50 000 rounds", ["./pingpong", "4096", "50000"]),
    ("ping-pong 64 KiB, 10 000 rounds", ["./pingpong", "65536", "10000"]),
    ("ping-pong 1 MiB, 1 000 rounds", ["./pingpong", "1048576", "1000"]),
]


def timed(commands):
    """Wall and processor time of commands that run at the same time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    jobs = [subprocess.Popen(c, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for c in commands]
    for job in jobs:
        _, said = job.communicate()
        if job.returncode != 0:
            sys.exit(f"{' '.join(job.args)} failed ({job.returncode}):\n{said}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, used


def plain(program, degree):
    return timed([MPIRUN + ["-n", str(RANKS)] + program] * degree)


def redundant(program, degree):
    switch = ["--mca", "coll", "redmpi", "--mca", "pml_redmpi_degree", str(degree)]
    return timed([MPIRUN + switch + ["-n", str(RANKS * degree)] + program])


print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {RANKS} ranks, medians of {PAIRS} pairs, {time.strftime('%Y-%m-%d')}\n")
print("| program | degree | plain s | redmpi s | wall ratio (min-max) | processor time ratio |")
print("|---|---|---|---|---|---|")
for name, program in CASES:
    for degree in (2, 3):
        pairs = []
        for turn in range(PAIRS):
            order = [plain, redundant] if turn % 2 == 0 else [redundant, plain]
            result = {run: run(program, degree) for run in order}
            pairs.append((result[plain], result[redundant]))
        median = statistics.median
        walls = [b[0] / a[0] for a, b in pairs]
        print(
            f"| {name} | {degree} | {median(a[0] for a, _ in pairs):.2f} | {median(b[0] for _, b in pairs):.2f} "
            f"| {median(walls):.2f} ({min(walls):.2f}-{max(walls):.2f}) | {median(b[1] / a[1] for a, b in pairs):.2f} |",
            flush=True,
        )
