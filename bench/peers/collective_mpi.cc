// All-reduce with MPI, one rank of a case of collective_bench.cc: collective_mpi ELEMENTS ROUNDS
// REPEATS. Rank 0 prints the lists "values" and "check".
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long elements = std::atol(argv[1]);
  const int rounds = std::atoi(argv[2]), repeats = std::atoi(argv[3]);
  std::vector<float> x(elements);
  for (long i = 0; i < elements; ++i) x[i] = float(i % 1024 + 1) * float(rank + 1) / 8;
  const auto all_reduce = [&] {
    MPI_Allreduce(MPI_IN_PLACE, x.data(), int(elements), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  all_reduce();
  if (rank == 0) {
    std::printf("check");
    for (int i = 0; i < 8; ++i) std::printf(" %.9g", x[i]);
    std::printf("\nvalues");
  }
  for (float& v : x) v = 0;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int round = 0; round < rounds; ++round) all_reduce();
    if (rank == 0 && repeat >= 0) std::printf(" %.6g", (MPI_Wtime() - begin) * 1e3 / rounds);
  }
  if (rank == 0) std::printf("\n");
  MPI_Finalize();
}
