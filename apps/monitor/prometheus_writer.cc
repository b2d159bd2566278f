// Implements the lines of the Prometheus text format.
#include "apps/monitor/prometheus_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace troop {
namespace {

// Non-finite values have their own spelling in the format.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Escapes a label value, or with `quotes` false a HELP line.
std::string Escape(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

// Both lines precede the samples of the family.
void PrometheusWriter::Begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", name,
                 Escape(help, false), name, type);
}

// The suffix is that of a part of a histogram.
void PrometheusWriter::Sample(const PrometheusLabels& labels, double value,
                              std::string_view suffix) {
  out_ += name_;
  out_ += suffix;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    fmt::format_to(std::back_inserter(out_), "{}{}=\"{}\"", i == 0 ? '{' : ',', labels[i].first,
                   Escape(labels[i].second, true));
  }
  if (!labels.empty()) out_ += '}';
  out_ += ' ';
  out_ += Number(value);
  out_ += '\n';
}

void PrometheusWriter::Gauge(std::string_view name, std::string_view help, double value) {
  Begin(name, "gauge", help);
  Sample({}, value);
}

void PrometheusWriter::Counter(std::string_view name, std::string_view help, double value) {
  Begin(name, "counter", help);
  Sample({}, value);
}

// A bucket of Histogram holds values below its limit, one of Prometheus values up to "le"; hence
// "le" is the largest double below the limit.
void PrometheusWriter::HistogramSamples(const PrometheusLabels& labels, const Histogram& h) {
  const auto with = [&labels](std::string limit) {
    PrometheusLabels all = labels;
    all.emplace_back("le", std::move(limit));
    return all;
  };
  // The last bucket of Histogram has no upper limit and counts in "+Inf" only.
  std::uint64_t below = 0;
  for (int b = 0; b < Histogram::kBuckets - 1; ++b) {
    below += h.bucket(b);
    // Only the limits that are powers of two: the full resolution has several buckets per octave.
    if (b % Histogram::kStepsPerOctave != 0) continue;
    Sample(with(Number(std::nextafter(Histogram::Limit(b), 0.0))), double(below), "_bucket");
  }
  Sample(with("+Inf"), double(h.count()), "_bucket");
  Sample(labels, h.sum(), "_sum");
  Sample(labels, double(h.count()), "_count");
}

}  // namespace troop
