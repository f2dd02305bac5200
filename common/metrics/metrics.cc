// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/metrics/names.h"
#include "common/metrics/vllm_aliases.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace specwire {
namespace {

class PrometheusCounter final : public Counter {
 public:
  explicit PrometheusCounter(prometheus::Counter* counter)
      : counter_(counter) {}
  void Increment(double by) override { counter_->Increment(by); }
  double value() const override { return counter_->Value(); }

 private:
  prometheus::Counter* const counter_;
};

class PrometheusGauge final : public Gauge {
 public:
  explicit PrometheusGauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  void Set(double value) override { gauge_->Set(value); }
  void Add(double by) override { gauge_->Increment(by); }
  double value() const override { return gauge_->Value(); }

 private:
  prometheus::Gauge* const gauge_;
};

class PrometheusHistogram final : public Histogram {
 public:
  explicit PrometheusHistogram(prometheus::Histogram* histogram)
      : histogram_(histogram) {}
  void Observe(double value) override { histogram_->Observe(value); }
  void ObserveMany(double value, int count) override {
    for (int i = 0; i < count; ++i) histogram_->Observe(value);
  }

 private:
  prometheus::Histogram* const histogram_;
};

// One of the two is set.
struct Callback {
  prometheus::Gauge* gauge = nullptr;
  prometheus::Counter* counter = nullptr;
  std::function<double()> read;
};

}  // namespace

struct MetricsRegistry::Impl {
  // The wrapper of a series; the library returns the same series for the same
  // name and labels.
  template <class Wrapper, class Base, class Series>
  Base* Wrap(std::map<const void*, std::unique_ptr<Base>>* wrappers,
             Series* series) {
    MutexLock lock(&mutex);
    std::unique_ptr<Base>& wrapper = (*wrappers)[series];
    if (wrapper == nullptr) wrapper = std::make_unique<Wrapper>(series);
    return wrapper.get();
  }

  prometheus::Counter* FindCounter(absl::string_view name,
                                   absl::string_view help,
                                   const MetricLabels& labels) {
    return &prometheus::BuildCounter()
                .Name(std::string(name))
                .Help(std::string(help))
                .Labels(common_labels)
                .Register(registry)
                .Add(labels);
  }

  prometheus::Gauge* FindGauge(absl::string_view name,
                               absl::string_view help,
                               const MetricLabels& labels) {
    return &prometheus::BuildGauge()
                .Name(std::string(name))
                .Help(std::string(help))
                .Labels(common_labels)
                .Register(registry)
                .Add(labels);
  }

  MetricLabels common_labels;
  prometheus::Registry registry;
  Mutex mutex;
  std::map<const void*, std::unique_ptr<Counter>> counters;
  std::map<const void*, std::unique_ptr<Gauge>> gauges;
  std::map<const void*, std::unique_ptr<Histogram>> histograms;
  std::vector<Callback> callbacks ABSL_GUARDED_BY(mutex);
};

MetricsRegistry::MetricsRegistry(MetricLabels common_labels)
    : impl_(std::make_unique<Impl>()) {
  impl_->common_labels = std::move(common_labels);
}

MetricsRegistry::~MetricsRegistry() = default;

Counter* MetricsRegistry::AddCounter(absl::string_view name,
                                     absl::string_view help,
                                     const MetricLabels& labels) {
  return impl_->Wrap<PrometheusCounter>(&impl_->counters,
                                        impl_->FindCounter(name, help, labels));
}

Gauge* MetricsRegistry::AddGauge(absl::string_view name,
                                 absl::string_view help,
                                 const MetricLabels& labels) {
  return impl_->Wrap<PrometheusGauge>(&impl_->gauges,
                                      impl_->FindGauge(name, help, labels));
}

void MetricsRegistry::AddCallbackGauge(absl::string_view name,
                                       absl::string_view help,
                                       const MetricLabels& labels,
                                       std::function<double()> read) {
  prometheus::Gauge* gauge = impl_->FindGauge(name, help, labels);
  MutexLock lock(&impl_->mutex);
  impl_->callbacks.push_back({.gauge = gauge, .read = std::move(read)});
}

void MetricsRegistry::AddCallbackCounter(absl::string_view name,
                                         absl::string_view help,
                                         const MetricLabels& labels,
                                         std::function<double()> read) {
  prometheus::Counter* counter = impl_->FindCounter(name, help, labels);
  MutexLock lock(&impl_->mutex);
  impl_->callbacks.push_back({.counter = counter, .read = std::move(read)});
}

Histogram* MetricsRegistry::AddHistogram(absl::string_view name,
                                         absl::string_view help,
                                         absl::Span<const double> buckets,
                                         const MetricLabels& labels) {
  const prometheus::Histogram::BucketBoundaries bounds(buckets.begin(),
                                                       buckets.end());
  prometheus::Histogram& histogram = prometheus::BuildHistogram()
                                         .Name(std::string(name))
                                         .Help(std::string(help))
                                         .Labels(impl_->common_labels)
                                         .Register(impl_->registry)
                                         .Add(labels, bounds);
  return impl_->Wrap<PrometheusHistogram>(&impl_->histograms, &histogram);
}

std::vector<CounterValue> MetricsRegistry::ReadCounters() const {
  std::vector<CounterValue> values;
  for (const prometheus::MetricFamily& family : impl_->registry.Collect()) {
    if (family.type != prometheus::MetricType::Counter) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      CounterValue value = {family.name, {}, metric.counter.value};
      for (const prometheus::ClientMetric::Label& label : metric.label) {
        value.labels[label.name] = label.value;
      }
      values.push_back(std::move(value));
    }
  }
  return values;
}

std::string MetricsRegistry::Expose() const {
  std::vector<Callback> callbacks;
  {
    MutexLock lock(&impl_->mutex);
    callbacks = impl_->callbacks;
  }
  for (const Callback& callback : callbacks) {
    const double value = callback.read();
    if (callback.gauge != nullptr) {
      callback.gauge->Set(value);
      continue;
    }
    // Others may read the metrics at the same time.
    MutexLock lock(&impl_->mutex);
    const double more = value - callback.counter->Value();
    if (more > 0) callback.counter->Increment(more);
  }
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  if (repeat_for_vllm_) AppendVllmAliases(&families);
  const prometheus::TextSerializer serializer;
  return static_cast<const prometheus::Serializer&>(serializer)
      .Serialize(families);
}

void AddBuildInfo(MetricsRegistry* registry) {
  registry
      ->AddGauge(metric::kBuildInfo,
                 "Constant 1; the version is a label.",
                 {{metric::kVersion, SPECWIRE_VERSION}})
      ->Set(1);
}

}  // namespace specwire
