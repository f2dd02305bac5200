// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/node_health.h"

#include <utility>

#include "common/base/logging.h"

namespace specwire {

NodeHealth::NodeHealth(RpcServer* server,
                       std::string service,
                       std::function<v1::NodeLoad()> load,
                       NodeHealthOptions options)
    : server_(server),
      service_(std::move(service)),
      load_(std::move(load)),
      options_(options),
      watch_(4 * options.period),
      timer_(std::make_unique<TimerThread>()) {
  SetServing(true);
  Look();
}

NodeHealth::~NodeHealth() { timer_.reset(); }

void NodeHealth::SetDraining() {
  draining_ = true;
  SetServing(false);
}

void NodeHealth::SetServing(bool serving) {
  MutexLock lock(&mutex_);
  serving = serving && !draining_;
  // The empty name stands for the whole server, which is what probes ask for.
  server_->SetServing("", serving);
  server_->SetServing(service_, serving);
}

void NodeHealth::Look() {
  const v1::NodeLoad load = load_();
  const absl::Duration stall =
      watch_.Observe(load.progress(), load.working(), clock_.Now());
  const bool healthy = stall < options_.max_stall;
  if (healthy != healthy_.exchange(healthy)) {
    if (healthy) {
      SPECWIRE_LOG(Info, "the engine makes progress again: healthy");
    } else {
      SPECWIRE_LOG(Error,
                   "the engine has made no progress for ",
                   absl::FormatDuration(stall),
                   " though it has work: not healthy");
    }
    SetServing(healthy);
  }
  timer_->ScheduleAfter(options_.period, [this] { Look(); });
}

}  // namespace specwire
