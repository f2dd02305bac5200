// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/name_watch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/thread_name.h"

namespace specwire {

struct NameWatch::State {
  State(NameWatchOptions wanted, OnChange callback)
      : options(std::move(wanted)), on_change(std::move(callback)) {}

  // The next look-up of a name; false if it is time to end.
  bool LookUp(const HostPort& name) ABSL_LOCKS_EXCLUDED(mutex);
  // Addresses that count now.
  std::set<std::string> Addresses();
  // Waits for the next round; false if it is time to end.
  bool WaitForRound() ABSL_LOCKS_EXCLUDED(mutex);

  const NameWatchOptions options;
  const OnChange on_change;
  const SteadyClock clock;

  Mutex mutex;
  CondVar changed;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  bool hurried ABSL_GUARDED_BY(mutex) = false;
  // The thread is in a look-up: it touches nothing but this state.
  bool looking_up ABSL_GUARDED_BY(mutex) = false;

  // The rest belongs to the thread. When each address was last told, by name.
  std::map<std::string, std::map<std::string, absl::Time>> seen;
  // Names that could not be looked up last time.
  std::set<std::string> failing;
};

bool NameWatch::State::LookUp(const HostPort& name) {
  {
    MutexLock lock(&mutex);
    if (stopped) return false;
    looking_up = true;
  }
  const absl::StatusOr<std::vector<std::string>> addresses =
      options.resolve(name);
  {
    MutexLock lock(&mutex);
    looking_up = false;
    if (stopped) return false;
  }
  const std::string key = name.ToString();
  if (!addresses.ok()) {
    // Once, not every few seconds.
    if (failing.insert(key).second) {
      SPECWIRE_LOG(Warning,
                   addresses.status().message(),
                   "; trying again until it works");
    }
    return true;
  }
  failing.erase(key);
  const absl::Time now = clock.Now();
  std::map<std::string, absl::Time>& known = seen[key];
  for (const std::string& address : *addresses) known[address] = now;
  std::erase_if(known, [&](const auto& entry) {
    return entry.second + options.keep <= now && entry.second != now;
  });
  return true;
}

std::set<std::string> NameWatch::State::Addresses() {
  std::set<std::string> addresses;
  for (const auto& [name, known] : seen) {
    for (const auto& [address, time] : known) addresses.insert(address);
  }
  return addresses;
}

bool NameWatch::State::WaitForRound() {
  const absl::Time start = clock.Now();
  MutexLock lock(&mutex);
  while (!stopped) {
    const absl::Duration pause = hurried ? options.least_pause : options.period;
    const absl::Duration left = start + pause - clock.Now();
    if (left <= absl::ZeroDuration()) break;
    changed.WaitFor(&mutex, left);
  }
  hurried = false;
  return !stopped;
}

NameWatch::NameWatch(NameWatchOptions options, OnChange on_change)
    : state_(
          std::make_shared<State>(std::move(options), std::move(on_change))) {}

void NameWatch::Start() {
  thread_ = std::thread([state = state_] { Run(state); });
}

NameWatch::~NameWatch() { Stop(); }

void NameWatch::Stop() {
  bool left_behind = false;
  {
    MutexLock lock(&state_->mutex);
    state_->stopped = true;
    left_behind = state_->looking_up;
    state_->changed.NotifyAll();
  }
  if (!thread_.joinable()) return;
  if (left_behind) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void NameWatch::Hurry() {
  MutexLock lock(&state_->mutex);
  state_->hurried = true;
  state_->changed.NotifyAll();
}

void NameWatch::Run(const std::shared_ptr<State>& state) {
  SetThreadName("name_watch");
  std::set<std::string> told;
  do {
    for (const HostPort& name : state->options.names) {
      if (!state->LookUp(name)) return;
    }
    std::set<std::string> addresses = state->Addresses();
    if (addresses == told) continue;
    told = std::move(addresses);
    state->on_change(told);
  } while (state->WaitForRound());
}

}  // namespace specwire
