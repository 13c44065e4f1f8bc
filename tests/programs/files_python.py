# Files as Python knows them. Temporary names are random: what they are called stays out of what is compared.
from mpi4py import MPI
import os
import shutil
import tempfile

world = MPI.COMM_WORLD
rank = world.Get_rank()
folder = f"rank{rank}"
os.mkdir(folder)

with open(f"{folder}/text", "w") as file:
    for i in range(2000):
        file.write(f"line {i}\n")
with open(f"{folder}/text", "a") as file:
    file.write("appended\n")
with open(f"{folder}/text", "r+") as file:
    file.write("LINE")
with open(f"{folder}/text") as file:
    lines = file.readlines()
assert lines[0] == "LINE 0\n" and lines[-1] == "appended\n" and len(lines) == 2001
try:
    open(f"{folder}/text", "x")
    raise SystemExit("mode x opened what is there")
except FileExistsError:
    pass
assert os.path.getsize(f"{folder}/text") == sum(map(len, lines))

# A file is written under another name and put in the place of the old one.
for content in "one", "two":
    with open(f"{folder}/state.new", "wb") as file:
        file.write(content.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{folder}/state.new", f"{folder}/state")
assert open(f"{folder}/state").read() == "two"

with tempfile.NamedTemporaryFile("w+", dir=folder) as file:
    file.write("temporary")
    file.flush()
    assert open(file.name).read() == "temporary"
os.mkdir(f"{folder}/temporary")
with open(f"{folder}/temporary/inside", "w") as file:
    file.write("x")
assert os.listdir(f"{folder}/temporary") == ["inside"]
shutil.rmtree(f"{folder}/temporary")
with tempfile.TemporaryFile() as file:
    file.write(b"nobody sees this")

descriptor = os.open(f"{folder}/descriptor", os.O_RDWR | os.O_CREAT, 0o640)
os.write(descriptor, b"0123456789")
os.pwrite(descriptor, b"xy", 3)
os.ftruncate(descriptor, 8)
assert os.pread(descriptor, 10, 0) == b"012xy567"
os.close(descriptor)
shutil.copy(f"{folder}/descriptor", f"{folder}/copy")
os.makedirs(f"{folder}/a/b")
shutil.move(f"{folder}/copy", f"{folder}/a/b/moved")
assert open(f"{folder}/a/b/moved").read() == "012xy567"
shutil.copytree(f"{folder}/a", f"{folder}/tree")
assert sorted(os.listdir(folder)) == ["a", "descriptor", "state", "text", "tree"], os.listdir(folder)
shutil.rmtree(f"{folder}/tree")
assert not os.path.exists(f"{folder}/tree")

if rank == 0:
    with open("before", "a") as file:
        file.write("after\n")
    os.remove("obsolete")
world.Barrier()
assert not os.path.exists("obsolete")
assert open("before").read() == "before\nafter\n"

file = MPI.File.Open(world, "mpi", MPI.MODE_CREATE | MPI.MODE_WRONLY)
file.Write_at_all(rank * 10, bytearray([65 + rank] * 10))
file.Close()
# What a program sees of a file is the same in all replicas: it goes into a message that is compared.
total = world.reduce(os.stat(f"{folder}/text").st_mtime_ns, MPI.SUM)
if rank == 0:
    assert total > 0
    print("RESULT files_python", len(open("mpi", "rb").read()), flush=True)
left = open(f"{folder}/left to the collector", "w")
left.write("closed at the end\n")
