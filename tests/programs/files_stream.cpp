// Files as C++ knows them: fstream, and the calls of std::filesystem.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>

namespace fs = std::filesystem;

static int rank;

static void need(bool condition, const char *what)
{
    if (!condition) {
        std::fprintf(stderr, "FAILED rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 99);
        std::exit(99);
    }
}

static std::string content(const fs::path &path)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fs::path folder = "rank" + std::to_string(rank);
    need(fs::create_directories(folder / "a" / "b"), "create_directories");
    {
        std::ofstream file(folder / "text");
        for (int i = 0; i < 1000; ++i) file << "line " << i << ' ' << i * 0.5 << '\n';
    }
    need(fs::file_size(folder / "text") == content(folder / "text").size(), "file_size");
    {
        std::ofstream file(folder / "text", std::ios::app);
        file << "appended\n";
    }
    {
        std::fstream file(folder / "text", std::ios::in | std::ios::out);
        file.seekp(5);
        file << "X";
        file.seekg(0);
        std::string line;
        std::getline(file, line);
        need(line == "line X 0", "in and out");
    }
    {
        std::ofstream file(folder / "binary", std::ios::binary);
        std::string large(100000, char('a' + rank));
        file.write(large.data(), long(large.size()));
    }
    need(content(folder / "binary").size() == 100000, "binary");
    need(!std::ifstream(folder / "missing"), "a missing file was opened");
    need(!fs::exists(folder / "missing") && fs::exists(folder / "text"), "exists");
    fs::rename(folder / "text", folder / "a" / "moved");
    need(!fs::exists(folder / "text") && content(folder / "a" / "moved").size() > 10000, "rename");
    fs::copy_file(folder / "binary", folder / "a" / "b" / "copy");
    need(content(folder / "a" / "b" / "copy") == content(folder / "binary"), "copy_file");
    fs::resize_file(folder / "binary", 10);
    need(content(folder / "binary").size() == 10, "resize_file");
    std::set<std::string> names;
    for (const auto &entry : fs::recursive_directory_iterator(folder)) {
        names.insert(entry.path().lexically_relative(folder).string());
    }
    need(names == std::set<std::string>{"a", "a/b", "a/b/copy", "a/moved", "binary"}, "what is in the folder");
    fs::create_directory(folder / "all of it");
    std::ofstream(folder / "all of it" / "x") << "x";
    std::ofstream(folder / "all of it" / "y") << "y";
    need(fs::remove_all(folder / "all of it") == 3, "remove_all");
    need(fs::remove(folder / "a" / "b" / "copy"), "remove");
    long long size = long(content(folder / "a" / "moved").size()), all = 0;
    MPI_Reduce(&size, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) std::cout << "RESULT files_stream " << std::hex << all << std::endl;
    static std::ofstream at_exit(folder / "at exit");
    at_exit << "written by a destructor after main\n";
    MPI_Finalize();
}
