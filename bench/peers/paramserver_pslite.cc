// ps-lite (github.com/dmlc/ps-lite) on the cases of bench/paramserver_bench.cc: one server that
// adds, one worker, on this machine, over Unix sockets (its DMLC_LOCAL) and TCP. No registry has
// it; build it from source,
//
//   protoc --cpp_out=src src/meta.proto
//   g++ -std=c++14 -O3 -Isrc -Iinclude src/*.cc PATH/paramserver_pslite.cc -o pslite \
//       -lzmq -lprotobuf -lpthread          (in a checkout; libzmq3-dev, libprotobuf-dev)
//
// and name it: bench/run paramserver --peer-binary PATH. 100 MB are sent as 100 keys of 1 MB, its
// fastest setting; the tiny tensors are keys of one request.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace {

struct Case {
  const char* name;
  int keys, elements, rounds;
  bool tcp;
};
const Case kCases[] = {{"push-pull-100MB", 100, 250000, 1, false},
                       {"push-pull-1000-tiny", 1000, 16, 20, false},
                       {"push-pull-100MB-tcp", 100, 250000, 1, true},
                       {"push-pull-1000-tiny-tcp", 1000, 16, 20, true}};

// Adds pushed values; the values of a key are in one vector.
struct Adder {
  std::unordered_map<ps::Key, std::vector<float>> store;
  void operator()(const ps::KVMeta& meta, const ps::KVPairs<float>& data,
                  ps::KVServer<float>* server) {
    ps::KVPairs<float> answer;
    if (meta.push) {
      size_t at = 0;
      for (size_t i = 0; i < data.keys.size(); ++i) {
        std::vector<float>& value = store[data.keys[i]];
        value.resize(size_t(data.lens[i]));
        for (float& v : value) v += data.vals[at++];
      }
    } else {
      answer.keys = data.keys;
      for (const ps::Key key : data.keys) {
        const std::vector<float>& value = store[key];
        answer.lens.push_back(int(value.size()));
        const size_t at = answer.vals.size();
        answer.vals.resize(at + value.size());
        std::memcpy(answer.vals.data() + at, value.data(), 4 * value.size());
      }
    }
    server->Response(meta, answer);
  }
};

double Now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

void Work(const Case& c, int repeats) {
  ps::KVWorker<float> worker(0, 0);
  const bool large = c.elements > 1000;
  std::vector<ps::SArray<ps::Key>> keys;  // per request
  std::vector<ps::SArray<float>> gradients, values;
  std::vector<ps::SArray<int>> lens;
  const int requests = large ? c.keys : 1, each = large ? 1 : c.keys;
  for (int r = 0; r < requests; ++r) {
    ps::SArray<ps::Key> key(each);
    ps::SArray<float> gradient(size_t(each) * c.elements), value(gradient.size());
    for (int i = 0; i < each; ++i) key[i] = ps::Key(r + i);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = float(i % 8 + 1) / 8;
    keys.push_back(key), gradients.push_back(gradient), values.push_back(value);
    lens.push_back(ps::SArray<int>(each, c.elements));
  }
  const auto round = [&] {
    std::vector<int> open;
    for (int r = 0; r < requests; ++r) open.push_back(worker.ZPush(keys[r], gradients[r], lens[r]));
    for (const int ticket : open) worker.Wait(ticket);
    open.clear();
    for (int r = 0; r < requests; ++r) {
      open.push_back(worker.ZPull(keys[r], &values[r], &lens[r]));
    }
    for (const int ticket : open) worker.Wait(ticket);
  };
  for (int i = 0; i < 3; ++i) round();
  std::string check, times;
  char text[64];
  for (int i = 0; i < 8; ++i) {
    std::snprintf(text, sizeof text, "%s%.9g", i ? ", " : "", double(values[0][i]));
    check += text;
  }
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double begin = Now();
    for (int i = 0; i < c.rounds; ++i) round();
    std::snprintf(text, sizeof text, "%s%.5g", repeat ? ", " : "", (Now() - begin) / c.rounds);
    times += text;
  }
  std::printf(
      "{\"case\": \"%s\", \"metric\": \"time\", \"unit\": \"ms\", \"peer\": \"ps-lite\", "
      "\"peer_version\": \"0.1\", \"values\": [%s], \"check\": [%s]}\n",
      c.name, times.c_str(), check.c_str());
  std::fflush(stdout);
}

void Play(const char* role, const Case& c, int repeats) {
  setenv("DMLC_ROLE", role, 1);
  ps::Start(0);
  ps::KVServer<float>* server = nullptr;
  if (ps::IsServer()) {
    server = new ps::KVServer<float>(0);
    server->set_request_handle(Adder());
  }
  if (ps::IsWorker()) Work(c, repeats);
  ps::Finalize(0, true);
  delete server;
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  const char* only = "";
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--quick")) quick = true;
    if (!std::strcmp(argv[i], "--only") && i + 1 < argc) only = argv[++i];
  }
  for (const Case& c : kCases) {
    if (*only != 0 && std::strcmp(only, c.name) != 0) continue;
    if (c.tcp) {
      unsetenv("DMLC_LOCAL");
    } else {
      setenv("DMLC_LOCAL", "1", 1);
    }
    setenv("DMLC_NUM_WORKER", "1", 1);
    setenv("DMLC_NUM_SERVER", "1", 1);
    setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
    setenv("DMLC_NODE_HOST", "127.0.0.1", 1);
    const long port = 20000 + getpid() % 20000 + (&c - kCases);
    setenv("DMLC_PS_ROOT_PORT", std::to_string(port).c_str(), 1);
    for (const char* role : {"scheduler", "server", "worker"}) {
      if (fork() == 0) {
        Play(role, c, quick ? 5 : 11);
        _exit(0);
      }
    }
    for (int i = 0; i < 3; ++i) wait(nullptr);
  }
  return 0;
}
