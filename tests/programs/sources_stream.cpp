// What C++ programs ask for: std::random_device, std::chrono, threads; before MPI_Init (argument `before`) and after it.
#include <mpi.h>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

static std::vector<long long> ask()
{
    std::vector<long long> all;
    std::random_device device;
    for (int i = 0; i < 3; i++) all.push_back(device());
    std::uniform_int_distribution<long long> dice;
    std::mt19937_64 generator(std::random_device{}());
    all.push_back(dice(generator));
    long long theirs = 0;
    std::thread thread([&theirs] { theirs = std::random_device{}(); });
    thread.join();
    all.push_back(theirs);
    all.push_back(std::chrono::system_clock::now().time_since_epoch().count());
    all.push_back(std::chrono::steady_clock::now().time_since_epoch().count());
    all.push_back(std::chrono::high_resolution_clock::now().time_since_epoch().count());
    return all;
}

int main(int argc, char **argv)
{
    std::vector<long long> before;
    if (argc > 1 && std::strcmp(argv[1], "before") == 0) before = ask();
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<long long> all = ask();
    if (!before.empty() && (all[5] < before[5] || all[6] < before[6])) {
        std::fprintf(stderr, "a clock went back\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    all.insert(all.end(), before.begin(), before.end());
    for (size_t i = 0; i < all.size(); i++) {
        long long theirs = 0;
        int tag = static_cast<int>(i % 8 < 5 ? 1 + i : 60 + i) + (i >= 8 ? 100 : 0);
        MPI_Sendrecv(&all[i], 1, MPI_LONG_LONG, (rank + 1) % size, tag, &theirs, 1, MPI_LONG_LONG,
                     (rank + size - 1) % size, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0) std::puts("RESULT sources_stream done");
    MPI_Finalize();
    return 0;
}
