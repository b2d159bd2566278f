// Tensor-parallel models, each rank on its own device (or all on one, by turns), against the whole
// model in f64.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>

#include "tests/cuda/parity_cases.h"
#include "tests/cuda/text_oracle.h"

namespace troop::cuda {
namespace {

// Collective of the ranks, through host memory, in f64.
class Meeting {
 public:
  explicit Meeting(int ranks) : brought_(std::size_t(ranks)) {}

  // Elementwise sum or maximum over the ranks; empty: a rank did not arrive.
  Numbers Meet(int rank, const Numbers& mine, bool largest) {
    std::unique_lock lock(mutex_);
    const std::int64_t round = round_;
    brought_[std::size_t(rank)] = mine;
    if (++there_ == std::int64_t(brought_.size())) {
      result_ = brought_[0];
      for (std::size_t r = 1; r < brought_.size(); ++r) {
        if (brought_[r].size() != mine.size()) return Numbers();
        for (std::size_t i = 0; i < mine.size(); ++i) {
          const double theirs = brought_[r][i];
          result_[i] = largest ? std::max(result_[i], theirs) : result_[i] + theirs;
        }
      }
      there_ = 0, ++round_, ++meetings_;
      all_.notify_all();
      return result_;
    }
    if (!all_.wait_for(lock, std::chrono::seconds(60), [&] { return round_ != round; })) return {};
    return result_;
  }
  std::int64_t meetings() const { return meetings_; }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<Numbers> brought_;
  Numbers result_;
  std::int64_t there_ = 0, round_ = 0, meetings_ = 0;
};

class MeetingPeers final : public TensorParallelComm {
 public:
  MeetingPeers(Device& device, Meeting& meeting, int rank)
      : device_(device), meeting_(meeting), rank_(rank) {}
  void Sum(Stream& stream, void* x, DType dtype, std::int64_t n) override {
    if (dtype == DType::kF64) return Reduce(stream, static_cast<double*>(x), n, false);
    if (dtype == DType::kBF16) return Reduce(stream, static_cast<BF16*>(x), n, false);
    Reduce(stream, static_cast<float*>(x), n, false);
  }
  void Max(Stream& stream, float* x, std::int64_t n) override { Reduce(stream, x, n, true); }
  void Settle() override {}

 private:
  template <class T>
  void Reduce(Stream& stream, T* x, std::int64_t n, bool largest) {
    const PinnedArray<T> here(device_, n, "a part's numbers");
    if (!device_.ok()) return;
    stream.CopyToHost(here.data(), x, here.bytes());
    stream.Synchronize();
    Numbers mine;
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, BF16>) {
        mine.push_back(double(FromBF16s({&here[i], 1})[0]));
      } else {
        mine.push_back(double(here[i]));
      }
    }
    const Numbers all = meeting_.Meet(rank_, mine, largest);
    if (all.empty()) return device_.Fail("a part of the model has not come");
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, BF16>) {
        const float sum = float(all[std::size_t(i)]);
        here[i] = ToBF16s({&sum, 1})[0];
      } else {
        here[i] = T(all[std::size_t(i)]);
      }
    }
    stream.CopyToDevice(x, here.data(), here.bytes());
    stream.Synchronize();
  }

  Device& device_;
  Meeting& meeting_;
  const int rank_;
};

// Calls run(spec of the rank, its device, stream, peers) on one thread per rank. A failed device is
// reported as a line.
using RunPart = std::function<void(const TransformerSpec&, Device&, Stream&, TensorParallelComm&)>;
std::int64_t RunParts(Parity& parity, const TransformerSpec& whole, int ranks, const RunPart& run) {
  Meeting meeting(ranks);
  std::vector<std::string> errors{std::size_t(ranks)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& error = errors[std::size_t(rank)];
      const auto device = Device::Open(rank % std::max(1, Device::Count()), &error);
      if (device == nullptr) return;
      TransformerSpec spec = whole;
      spec.place = {rank, ranks};
      LayOut(&spec);
      MeetingPeers peers(*device, meeting, rank);
      Stream stream(*device);
      run(spec, *device, stream, peers);
      stream.Synchronize();
      error = device->error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) parity.True("no error, but " + error, error.empty());
  return meeting.meetings();
}

// Calls f(offset in the whole value, offset in the slice, elements, true if all ranks have them).
template <class F>
void ForRuns(const TransformerSpec& whole, const TransformerSpec& part, F f) {
  const auto all = [&](std::int64_t a, std::int64_t b, std::int64_t n) { f(a, b, n, true); };
  const auto norm = [&](const TransformerSpec::Norm& a, const TransformerSpec::Norm& b) {
    all(a.gamma, b.gamma, a.n), all(a.beta, b.beta, a.n);
  };
  const auto linear = [&](const TransformerSpec::Linear& a, const TransformerSpec::Linear& b) {
    all(a.weight, b.weight, a.in * a.out), all(a.bias, b.bias, a.out);
  };
  // Outputs first … first + n, which are stored at `to`.
  const auto outputs = [&](const TransformerSpec::Linear& a, const TransformerSpec::Linear& b,
                           std::int64_t first, std::int64_t n, std::int64_t to) {
    f(a.weight + first * a.in, b.weight + to * a.in, n * a.in, false);
    f(a.bias + first, b.bias + to, n, false);
  };
  const auto inputs = [&](const TransformerSpec::Linear& a, const TransformerSpec::Linear& b,
                          std::int64_t first, std::int64_t n) {
    for (std::int64_t o = 0; o < a.out; ++o)
      f(a.weight + o * a.in + first, b.weight + o * n, n, false);
    all(a.bias, b.bias, a.out);
  };
  const int rank = part.place.rank, ranks = part.place.ranks;
  const auto first_of = [&](std::int64_t n) {
    return n / ranks * rank + std::min<std::int64_t>(rank, n % ranks);
  };
  const auto count_of = [&](std::int64_t n) { return n / ranks + (rank < n % ranks ? 1 : 0); };
  const std::int64_t width = whole.hidden / whole.heads, e = whole.embedding;
  const std::int64_t head = first_of(whole.heads) * width, heads = count_of(whole.heads) * width;
  const std::int64_t wide = first_of(whole.intermediate), wides = count_of(whole.intermediate);
  const std::int64_t word = first_of(whole.vocabulary), words = count_of(whole.vocabulary);
  f(whole.word_table + word * e, part.word_table, words * e, false);
  all(whole.position_table, part.position_table, whole.positions * e);
  all(whole.type_table, part.type_table, whole.token_types * e);
  norm(whole.embedding_norm, part.embedding_norm);
  if (whole.has_map) linear(whole.map, part.map);
  for (std::size_t i = 0; i < whole.layer.size(); ++i) {
    const TransformerSpec::Layer &a = whole.layer[i], &b = part.layer[i];
    for (std::int64_t which = 0; which < 3; ++which)
      outputs(a.qkv, b.qkv, which * whole.hidden + head, heads, which * heads);
    inputs(a.attention_out, b.attention_out, head, heads);
    outputs(a.ffn, b.ffn, wide, wides, 0);
    inputs(a.ffn_out, b.ffn_out, wide, wides);
    norm(a.norm1, b.norm1), norm(a.norm2, b.norm2);
  }
  linear(whole.first, part.first);
  if (!whole.masked()) return linear(whole.classifier, part.classifier);
  norm(whole.head_norm, part.head_norm);
  f(whole.word_bias + word, part.word_bias, words, false);
}

// Assembles the slices; values that all ranks have must have the same bits.
class Whole {
 public:
  Whole(Parity& parity, const TransformerSpec& spec)
      : parity_(parity), spec_(spec), values_(std::size_t(spec.parameters), NAN) {}
  std::vector<float> Cut(const TransformerSpec& part, const std::vector<float>& value) const {
    std::vector<float> mine(std::size_t(part.parameters), 0);
    ForRuns(spec_, part, [&](std::int64_t from, std::int64_t to, std::int64_t n, bool) {
      std::copy_n(value.begin() + from, n, mine.begin() + to);
    });
    return mine;
  }
  void Put(const TransformerSpec& part, const std::vector<float>& mine) {
    const std::lock_guard lock(mutex_);
    ForRuns(spec_, part, [&](std::int64_t to, std::int64_t from, std::int64_t n, bool all) {
      for (std::int64_t i = 0; i < n; ++i) {
        float& there = values_[std::size_t(to + i)];
        const float here = mine[std::size_t(from + i)];
        same_ = same_ && (!all || std::isnan(there) || there == here);
        there = here;
      }
    });
  }
  const std::vector<float>& values() const { return values_; }
  void CheckSame() const { parity_.True("what all parts have is the same", same_); }

 private:
  Parity& parity_;
  const TransformerSpec& spec_;
  std::vector<float> values_;
  std::mutex mutex_;
  bool same_ = true;
};

std::vector<float> TakeFrom(Stream& stream, const float* from, std::int64_t n) {
  std::vector<float> to(std::size_t(n), 0);
  CopyOut(stream, from, to);
  return to;
}

TransformerSpec SpecFor(Kind kind, bool masked, bool drops, Precision precision, int ranks) {
  TransformerSpec spec = SpecOf(kind, masked, drops, precision);
  const std::int64_t heads = ranks == 3 ? 5 : 2;  // 2, 2 and 1
  spec.heads = heads;
  spec.hidden = heads * (precision == Precision::kBF16 ? 64 : 16);
  if (!spec.has_map) spec.embedding = spec.hidden;
  spec.intermediate = 50;
  LayOut(&spec);
  return spec;
}

void CheckParts(Parity& parity, Kind kind, bool masked, bool drops, Precision precision,
                int ranks) {
  const bool exact = precision == Precision::kF32;
  const double near = exact ? 2e-5 : 5e-2;  // as for whole models (text_step_parity.cc)
  const TransformerSpec spec = SpecFor(kind, masked, drops, precision, ranks);
  const Batch batch = BatchOf(parity, spec, {7, 1, 12}), other = BatchOf(parity, spec, {4});
  const std::vector<float> floats = ValueOf(parity, spec, exact ? 0.3 : 0.15);
  Numbers value = Doubles(floats);
  TextOracle oracle(spec, batch), second(spec, other);
  const double want_loss = oracle.Loss(value) + second.Loss(value);
  const std::int64_t want_right = oracle.right() + second.right();
  constexpr double kRate = 0.1, kClip = 0.5;
  OptimizerRule rule;
  rule.kind = OptimizerRule::Kind::kSgd;
  rule.max_grad_norm = kClip;

  Whole gradient(parity, spec), after(parity, spec);
  std::vector<TextStepReport> reports{std::size_t(ranks)}, judged = reports;
  RunParts(
      parity, spec, ranks,
      [&](const TransformerSpec& part, Device& device, Stream& stream, TensorParallelComm& peers) {
        const auto rank = std::size_t(part.place.rank);
        TextStep step(device, {.model = part, .precision = precision, .rule = rule});
        step.SetTensorParallelComm(&peers);
        std::vector<float> mine = gradient.Cut(part, floats);
        step.SetState(stream, {.value = mine});
        if (!drops) judged[rank] = step.Judge(stream, batch.view());
        step.Begin(stream);
        step.Add(stream, batch.view(), 0.5f);
        step.Add(stream, other.view(), 0.5f);
        reports[rank] = step.Finish(stream);
        gradient.Put(part, TakeFrom(stream, step.gradient(), part.parameters));
        step.RunStep(stream, kRate, masked);  // masked: computes the norm again
        after.Put(part, TakeFrom(stream, step.value(), part.parameters));
      });
  gradient.CheckSame(), after.CheckSame();
  double squares = 0;
  Numbers stepped = value;
  for (const auto& [begin, end] : ArraysOf(spec)) {
    for (std::int64_t i = begin; i < end; ++i)
      squares += std::pow(double(gradient.values()[std::size_t(i)]), 2);
  }
  const double norm = std::sqrt(squares), clip = std::min(1.0, kClip / norm);
  for (const TextStepReport& report : reports) {
    parity.Close("loss", Numbers{report.loss}, Numbers{want_loss}, exact ? 1e-5 : 1e-2);
    parity.True("the same loss on all parts", report.loss == reports[0].loss);
    if (exact) parity.True("right answers", report.right == want_right);
    parity.Close("norm", Numbers{report.gradient_norm}, Numbers{norm}, 1e-6);
    parity.True("a finite gradient", report.finite == 1);
  }
  const double alone = oracle.Loss(value);
  for (const TextStepReport& one : judged) {
    if (drops) break;
    parity.Close("loss without a gradient", Numbers{one.loss}, Numbers{alone}, exact ? 1e-5 : 1e-2);
  }
  Numbers got, want, stepped_to, should;
  const std::int64_t each = parity.large() ? 12 : 2;
  for (const auto& [begin, end] : ArraysOf(spec)) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = std::size_t(i);
      stepped_to.push_back(double(after.values()[at]) - value[at]);
      should.push_back(-kRate * clip * double(gradient.values()[at]));
    }
    for (std::int64_t i = 0; i < each; ++i) {
      const std::int64_t at = i == 0 ? begin : i == 1 ? end - 1 : begin + parity.Below(end - begin);
      constexpr double kStep = 1e-5;
      double& x = value[std::size_t(at)];
      const double before = x;
      x = before + kStep;
      const double up = oracle.Loss(value) + second.Loss(value);
      x = before - kStep;
      want.push_back(0.5 * (up - oracle.Loss(value) - second.Loss(value)) / (2 * kStep));
      x = before;
      got.push_back(double(gradient.values()[std::size_t(at)]));
    }
  }
  parity.Close("gradient", got, want, near);
  parity.Close("the step", stepped_to, should, 1e-4);  // differences of values near 1
}

void PartsOfBert(Parity& parity) {
  CheckParts(parity, Kind::kBert, true, true, Precision::kF32, 3);
  CheckParts(parity, Kind::kBert, false, false, Precision::kF32, 2);
}
void PartsOfAlbert(Parity& parity) {
  CheckParts(parity, Kind::kAlbert, true, false, Precision::kF32, 2);
  CheckParts(parity, Kind::kAlbert, false, true, Precision::kF32, 3);
}
// Positions that skip padding ids, and dropout before the pooler.
void PartsOfRoberta(Parity& parity) {
  CheckParts(parity, Kind::kRoberta, false, true, Precision::kF32, 2);
  if (parity.large()) CheckParts(parity, Kind::kElectra, true, true, Precision::kF32, 3);
}
void PartsOfBF16(Parity& parity) {
  CheckParts(parity, Kind::kBert, true, true, Precision::kBF16, 2);
  if (parity.large()) CheckParts(parity, Kind::kAlbert, false, false, Precision::kBF16, 2);
}

// Recomputed activations have the same bits, including dropout. The ranks communicate for it again.
void CheckRecomputed(Parity& parity, Kind kind, int ranks) {
  TransformerSpec spec = SpecFor(kind, true, true, Precision::kF32, ranks);
  spec.layers = 3;
  LayOut(&spec);
  const Batch batch = BatchOf(parity, spec, {7, 1}), other = BatchOf(parity, spec, {17});
  const std::vector<float> floats = ValueOf(parity, spec);
  std::map<bool, std::vector<float>> gradients;
  std::map<bool, std::int64_t> meetings;
  for (const bool recompute : {false, true}) {
    spec.recompute = recompute;
    Whole gradient(parity, spec);
    meetings[recompute] =
        RunParts(parity, spec, ranks,
                 [&](const TransformerSpec& part, Device& device, Stream& stream,
                     TensorParallelComm& peers) {
                   TextStep step(device, {.model = part, .precision = Precision::kF32});
                   step.SetTensorParallelComm(&peers);
                   std::vector<float> mine = gradient.Cut(part, floats);
                   step.SetState(stream, {.value = mine});
                   step.Begin(stream);
                   step.Add(stream, batch.view(), 1);
                   step.Add(stream, other.view(), 1);
                   gradient.Put(part, TakeFrom(stream, step.gradient(), part.parameters));
                 });
    for (const auto& [begin, end] : ArraysOf(spec)) {
      const auto& all = gradient.values();
      gradients[recompute].insert(gradients[recompute].end(), all.begin() + begin,
                                  all.begin() + end);
    }
  }
  parity.Equal("gradient", gradients[true], gradients[false]);
  // Two batches, two layers besides the last, two reductions each.
  parity.True("parts meet for it again", meetings[true] == meetings[false] + (ranks > 1 ? 8 : 0));
}
void RecomputedLayers(Parity& parity) { CheckRecomputed(parity, Kind::kAlbert, 1); }
void RecomputedLayersOfParts(Parity& parity) { CheckRecomputed(parity, Kind::kBert, 2); }

}  // namespace

std::vector<ParityCase> TextPartsCases() {
  return {{"TextParts.GradientsAndStepsOfBert", PartsOfBert},
          {"TextParts.GradientsAndStepsOfAlbert", PartsOfAlbert},
          {"TextParts.GradientsAndStepsOfRoberta", PartsOfRoberta},
          {"TextParts.GradientsAndStepsOfBF16", PartsOfBF16, 80},
          {"TextParts.RecomputedLayers", RecomputedLayers},
          {"TextParts.RecomputedLayersOfParts", RecomputedLayersOfParts}};
}

}  // namespace troop::cuda
