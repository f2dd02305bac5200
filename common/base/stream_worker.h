// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/thread_name.h"

namespace specwire {

struct StreamWorkerOptions {
  // Of the thread, at most 15 characters.
  std::string thread_name;
  // Streams at once.
  int max_streams = 64;
  // Events that may wait for the thread, and their size, for each stream.
  size_t max_events = 1024;
  size_t max_bytes = size_t{16} << 20;
};

// Whose turn it is among those whom a thread serves: those of the highest
// priority first, among them who has waited longest.
struct Turn {
  int32_t priority = 0;
  // Number of the turn that it had last; 0: none yet.
  int64_t last = 0;

  bool GoesBefore(const Turn& other) const {
    if (priority != other.priority) return priority > other.priority;
    return last < other.last;
  }
};

// A thread that serves many streams of events: whatever the streams' readers
// post is handed to a client on the thread, in order, and between events the
// client works. Every stream has a bounded queue of its own, so one that floods
// is found out and disturbs no other.
//
// Thread safety: any thread, unless a method says otherwise.
// Lifetime: the client must live until Stop() has returned.
template <class Event>
class StreamWorker {
 public:
  using StreamId = uint64_t;
  // No stream.
  static constexpr StreamId kNone = 0;

  // What the thread does. Called on the thread, without locks.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void OnEvent(StreamId stream, Event event) = 0;
    // The stream has gone; no event of it follows. Not called for a stream that
    // the client released.
    virtual void OnGone(StreamId stream) = 0;
    // Does at most one piece of work, all events so far having been delivered.
    // Returns how long to wait for an event before the next call: zero is at
    // once, infinite is until an event comes.
    virtual absl::Duration Work() = 0;
    // The worker stops, all events having been delivered; no other call
    // follows.
    virtual void OnStop() = 0;
  };

  enum class PostResult {
    kPosted,
    kFull,    // The stream's queue is full: the event was dropped.
    kClosed,  // The stream has gone, or the client has released it.
    kStopped,
  };

  explicit StreamWorker(StreamWorkerOptions options)
      : options_(std::move(options)) {}
  ~StreamWorker() { Stop(); }
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;

  // REQUIRES: called at most once.
  void Start(Client* client) {
    thread_ = std::thread([this, client] {
      SetThreadName(options_.thread_name.c_str());
      Run(client);
    });
  }

  // Has the client stop and waits for the thread. REQUIRES: not called on it.
  void Stop() {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
      wake_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  // From now on no stream is opened; those that are open go on.
  void Drain() {
    MutexLock lock(&mutex_);
    draining_ = true;
  }

  bool draining() const {
    MutexLock lock(&mutex_);
    return draining_;
  }

  // A new stream, or kNone if there are max_streams of them already, or after
  // Drain().
  StreamId Open() {
    MutexLock lock(&mutex_);
    if (draining_ ||
        streams_.size() >= static_cast<size_t>(options_.max_streams)) {
      return kNone;
    }
    const StreamId stream = ++last_stream_;
    streams_.emplace(stream, Stream());
    return stream;
  }

  // Queues an event that takes about `num_bytes` of memory.
  PostResult Post(StreamId stream, Event event, size_t num_bytes) {
    MutexLock lock(&mutex_);
    if (stopped_) return PostResult::kStopped;
    const auto it = streams_.find(stream);
    if (it == streams_.end() || it->second.gone) return PostResult::kClosed;
    Stream& counts = it->second;
    if (counts.num_events >= options_.max_events ||
        counts.num_bytes + num_bytes > options_.max_bytes) {
      return PostResult::kFull;
    }
    ++counts.num_events;
    counts.num_bytes += num_bytes;
    Queue({stream, num_bytes, false, std::move(event)});
    return PostResult::kPosted;
  }

  // The stream's peer has gone: what is queued for it is dropped, and the
  // client is told as soon as it has finished the piece of work under way.
  void Close(StreamId stream) {
    MutexLock lock(&mutex_);
    const auto it = streams_.find(stream);
    if (it == streams_.end() || it->second.gone) return;
    it->second.gone = true;
    Queue({stream, 0, true, Event()});
  }

  // The client has ended the stream: its place is free at once, and nothing
  // more is delivered for it.
  void Release(StreamId stream) {
    MutexLock lock(&mutex_);
    streams_.erase(stream);
  }

  // Streams that are open, those that the client has not yet seen included.
  int num_streams() const {
    MutexLock lock(&mutex_);
    return static_cast<int>(streams_.size());
  }
  // Events that wait for the thread.
  size_t num_queued() const {
    MutexLock lock(&mutex_);
    return queue_.size();
  }
  int max_streams() const { return options_.max_streams; }

  // Whether the client is at something, or events wait for it: it does not wait
  // for others. A client for which this holds and that gets nowhere hangs.
  bool working() const {
    MutexLock lock(&mutex_);
    return !waiting_ || !queue_.empty();
  }

 private:
  // What waits in the queue for one stream.
  struct Stream {
    size_t num_events = 0;
    size_t num_bytes = 0;
    bool gone = false;
  };
  struct Entry {
    StreamId stream = kNone;
    size_t num_bytes = 0;
    bool gone = false;
    Event event;
  };

  void Queue(Entry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (queue_.empty()) wake_.NotifyOne();
    queue_.push_back(std::move(entry));
  }

  void Run(Client* client) {
    absl::Duration pause = absl::ZeroDuration();
    for (bool stopped = false; !stopped;) {
      size_t num_entries = WaitForEvents(pause, &stopped);
      // No more than there were: events that never cease must not keep the
      // client from working.
      for (; num_entries > 0; --num_entries) {
        Entry entry;
        if (!Take(&entry)) continue;
        if (entry.gone) {
          client->OnGone(entry.stream);
        } else {
          client->OnEvent(entry.stream, std::move(entry.event));
        }
      }
      if (stopped) break;
      pause = client->Work();
    }
    client->OnStop();
  }

  // Waits until there is an event or `pause` is over, and returns how many
  // entries are queued. The wait may end early.
  size_t WaitForEvents(absl::Duration pause, bool* stopped) {
    MutexLock lock(&mutex_);
    waiting_ = !stopped_ && queue_.empty() && pause > absl::ZeroDuration();
    if (waiting_) wake_.WaitFor(&mutex_, pause);
    waiting_ = false;
    *stopped = stopped_;
    return queue_.size();
  }

  // Takes the first entry; false if it is not to be delivered.
  bool Take(Entry* entry) {
    MutexLock lock(&mutex_);
    *entry = std::move(queue_.front());
    queue_.pop_front();
    const auto it = streams_.find(entry->stream);
    if (it == streams_.end()) return false;
    if (entry->gone) {
      streams_.erase(it);
      return true;
    }
    --it->second.num_events;
    it->second.num_bytes -= entry->num_bytes;
    return !it->second.gone;
  }

  const StreamWorkerOptions options_;
  mutable Mutex mutex_;
  CondVar wake_;
  // All streams' events in the order in which they came.
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StreamId, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  StreamId last_stream_ ABSL_GUARDED_BY(mutex_) = kNone;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  // The thread waits for an event, or for its next turn. Not before it runs.
  bool waiting_ ABSL_GUARDED_BY(mutex_) = true;
  std::thread thread_;
};

}  // namespace specwire
