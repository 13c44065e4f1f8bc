"""What Python asks for when it starts, when it imports, and later: hash seed, random, uuid, tempfile, secrets, time."""
import os
import random
import secrets
import sys
import tempfile
import threading
import time
import uuid


def ask():
    return {
        "hash": hash("a text whose hash depends on the seed"),
        "order": list({"one", "two", "three", "four", "five"}),
        "random": random.random(),
        "fresh": random.Random().random(),
        "system": random.SystemRandom().random(),
        "secret": secrets.token_hex(),
        "uuid": [str(uuid.uuid4()), str(uuid.uuid1())],
        "name": tempfile.mktemp(),
        "device": open("/dev/urandom", "rb").read(8),
        "pid": [os.getpid(), os.getppid(), threading.get_native_id()],
        "clock": [time.time(), time.monotonic(), time.perf_counter_ns(), time.process_time()],
        "host": [os.uname().nodename],
    }


before = ask()
from mpi4py import MPI  # calls MPI_Init

world = MPI.COMM_WORLD
after = ask()
if os.environ.get("LD_PRELOAD"):
    assert before["pid"] == after["pid"], (before, after)
    assert all(a <= b for a, b in zip(before["clock"], after["clock"])), (before, after)
    assert after["clock"][1] - before["clock"][1] < 60, (before, after)
assert before["name"] != after["name"] and before["secret"] != after["secret"]

# Waiting with a time limit, which Python computes from the clock.
condition = threading.Condition()
begin = time.monotonic()
with condition:
    condition.wait(0.2)
assert 0.19 < time.monotonic() - begin < 100

# A forked child, and a program.
child = os.fork()
if child == 0:
    os._exit(0 if os.getppid() == after["pid"][0] and os.getpid() != after["pid"][0] else 1)
assert os.waitpid(child, 0)[1] == 0
os.kill(os.getpid(), 0)
assert str(os.getpid()) not in os.listdir("/proc") or not os.environ.get("LD_PRELOAD")
assert b"python" in open(f"/proc/{os.getpid()}/cmdline", "rb").read()

everybody = world.allgather((before, after))
assert len({str(values) for values in everybody}) == world.size, "two ranks were told the same"
for ours in (before, after):
    for number, value in enumerate(ours.values()):
        world.sendrecv(value, (world.rank + 1) % world.size, number, None, (world.rank - 1) % world.size, number)
if world.rank == 0:
    print("RESULT sources_python done")
