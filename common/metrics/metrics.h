// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace specwire {

// Values of a series' labels by name.
using MetricLabels = std::map<std::string, std::string>;

// A number that only grows. Thread safety: any thread.
class Counter {
 public:
  virtual ~Counter() = default;
  // REQUIRES: by >= 0.
  virtual void Increment(double by = 1) = 0;
  virtual double value() const = 0;
};

// A number that goes up and down. Thread safety: any thread.
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
  virtual void Add(double by) = 0;
  virtual double value() const = 0;
};

// Observations, counted in buckets. Thread safety: any thread.
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
  // The same value `count` times.
  virtual void ObserveMany(double value, int count) = 0;
};

// A counter's series at one moment.
struct CounterValue {
  std::string name;
  MetricLabels labels;
  double value = 0;
};

// All metrics of a process, and their text form for Prometheus.
//
// A metric's name (from names.h) belongs to one kind; asking again for a name
// with the same labels returns the same object. Labels are set here, once: no
// label may have a value that users choose.
//
// Thread safety: any thread.
// Lifetime: the objects that it hands out live as long as it.
class MetricsRegistry {
 public:
  // `common_labels` are part of every series.
  explicit MetricsRegistry(MetricLabels common_labels = {});
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  Counter* AddCounter(absl::string_view name,
                      absl::string_view help,
                      const MetricLabels& labels = {});
  Gauge* AddGauge(absl::string_view name,
                  absl::string_view help,
                  const MetricLabels& labels = {});
  // A gauge, or a counter, that is asked for when the metrics are read. `read`
  // is called without any lock, from the thread that reads the metrics, for as
  // long as they are read. A counter keeps the largest value that was read.
  void AddCallbackGauge(absl::string_view name,
                        absl::string_view help,
                        const MetricLabels& labels,
                        std::function<double()> read);
  void AddCallbackCounter(absl::string_view name,
                          absl::string_view help,
                          const MetricLabels& labels,
                          std::function<double()> read);
  // `buckets` are ascending upper bounds.
  Histogram* AddHistogram(absl::string_view name,
                          absl::string_view help,
                          absl::Span<const double> buckets,
                          const MetricLabels& labels = {});

  // Expose() tells those that vLLM has too a second time, under its names
  // (vllm_aliases.h).
  void RepeatForVllm() { repeat_for_vllm_ = true; }

  // All counters: what Expose() tells of them.
  std::vector<CounterValue> ReadCounters() const;
  // All series in Prometheus' text format 0.0.4.
  std::string Expose() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
  std::atomic<bool> repeat_for_vllm_ = false;
};

// Adds the constant gauge that tells the program's version.
void AddBuildInfo(MetricsRegistry* registry);

}  // namespace specwire
