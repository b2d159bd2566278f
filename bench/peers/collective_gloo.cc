// All-reduce with Gloo's ring over TCP: collective_gloo RANKS ELEMENTS ROUNDS REPEATS FOLDER starts
// all ranks; the empty FOLDER is the rendezvous. Rank 0 prints the lists "values" and "check".
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main(int, char** argv) {
  const int size = std::atoi(argv[1]);
  const long elements = std::atol(argv[2]);
  const int rounds = std::atoi(argv[3]), repeats = std::atoi(argv[4]);
  int rank = 0;
  for (int child = 1; child < size && rank == 0; ++child) {
    if (fork() == 0) rank = child;
  }
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[5]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  std::vector<float> x(elements);
  for (long i = 0; i < elements; ++i) x[i] = float(i % 1024 + 1) * float(rank + 1) / 8;
  const auto all_reduce = [&] {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(x.data(), x.size());
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, std::size_t n) { gloo::sum<float>(c, a, b, n); });
    gloo::allreduce(options);
  };
  all_reduce();
  if (rank == 0) {
    std::printf("check");
    for (int i = 0; i < 8; ++i) std::printf(" %.9g", x[i]);
    std::printf("\nvalues");
  }
  for (float& v : x) v = 0;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < rounds; ++round) all_reduce();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (rank == 0 && repeat >= 0) std::printf(" %.6g", took.count() * 1e3 / rounds);
  }
  if (rank != 0) _exit(0);
  std::printf("\n");
  while (wait(nullptr) > 0) {
  }
}
