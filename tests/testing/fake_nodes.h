// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/drafting/suffix.h"
#include "common/model/engine.h"
#include "common/rpc/join_client.h"
#include "common/rpc/server.h"
#include "common/rpc/stream.h"
#include "common/text/tokenizer_model.h"
#include "specwire/v1/draft.grpc.pb.h"
#include "specwire/v1/verifier.grpc.pb.h"
#include "verifier_node/verify_sequence.h"

// Draft and verifier nodes for tests of the coordinator: real gRPC and the real
// protocol machines around a toy model, with knobs for going wrong.

namespace specwire {

// A toy model over the 256 bytes and four control tokens: the next token is a
// hash of the last few and of the position. A fifth of its tokens are bytes
// beyond ASCII, so its text is full of broken characters.
struct FakeModel {
  static constexpr int32_t kEos = 256;
  static constexpr int32_t kImStart = 257;
  static constexpr int32_t kImEnd = 258;
  static constexpr int32_t kBos = 259;
  static constexpr int kVocabSize = 260;

  std::string name = "fake";
  // Models of different salt have different digests and texts.
  int salt = 0;
  int max_model_len = 4096;
  // Not 0: the text repeats itself after so many tokens, whatever the prompt.
  int period = 0;
  // The token at this position is EOS.
  std::optional<int> eos_position;
  // Raw prompts begin with kBos.
  bool add_bos = false;
  // Models with different extra tokens have different vocabularies.
  std::string extra_token;

  TokenizerModel Tokenizer() const;
  ModelInfo Info() const;
  std::string Fingerprint() const;
  int32_t Next(absl::Span<const int32_t> log) const;
  // What plain decoding makes of a prompt: up to `max_tokens`, the end of the
  // context or EOS.
  std::vector<int32_t> Complete(std::vector<int32_t> prompt,
                                int max_tokens) const;
};

struct FakeVerifierOptions {
  FakeModel model = {};
  std::string name = "verifier-1";
  std::vector<std::string> coordinators = {};
  // How long a pass takes.
  absl::Duration step_time = absl::ZeroDuration();
  // Every stream is lost after this many tokens.
  std::optional<int> lose_streams_after = std::nullopt;
  // And ends like this.
  absl::StatusCode loss = absl::StatusCode::kUnavailable;
  // Every commit but a sequence's first is off by this many positions.
  int commit_shift = 0;
  // GetModel fails so many times first.
  int failing_probes = 0;
  // If not empty it looks drafts up for itself, and says that this drafter
  // does.
  std::string local_drafter = "";
  // What it tells of its passes: rows and time.
  std::vector<std::pair<int, absl::Duration>> step_costs = {};
  // Once it has committed so many tokens its engine hangs, until Wake(), while
  // it goes on to report.
  std::optional<int64_t> hang_after = std::nullopt;
  // As if its first stream's messages after so many tokens were lost on the
  // way, the end included, while the connection lives.
  std::optional<int> loses_messages_after = std::nullopt;
  // As if checks, or the answers, were lost on the way.
  bool ignores_checks = false;
  // Served beside its own; must outlive it.
  grpc::Service* another_service = nullptr;
};

// A verifier node. Thread safety: any thread.
class FakeVerifier final : public v1::VerifierService::CallbackService {
 public:
  explicit FakeVerifier(FakeVerifierOptions options);
  ~FakeVerifier() override;

  const std::string& address() const { return server_->address(); }
  int num_open() const;
  int num_opened() const { return num_opened_; }
  // Tokens committed on all its streams.
  int64_t num_committed() const { return num_committed_; }
  // As if the process were killed: streams and membership end at once.
  void Kill();
  bool hangs() const { return hangs_; }
  void Wake();

  grpc::ServerWriteReactor<v1::GetModelResponse>* GetModel(
      grpc::CallbackServerContext* context,
      const v1::GetModelRequest* request) override;
  grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>* Decode(
      grpc::CallbackServerContext* context) override;

 private:
  class Handler;
  struct Sequence;
  using Sender = std::shared_ptr<ServerSender<v1::DecodeResponse>>;

  void OnRequest(Sequence* sequence, const v1::DecodeRequest& request);
  void Run();
  // One pass if it is time for it; else when it will be.
  absl::Time Advance(Sequence* sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendCommit(Sequence* sequence, const Commit& commit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeVerifierOptions options_;
  // Null: there is none.
  const std::unique_ptr<SuffixDrafter> local_drafter_;
  std::atomic<int> num_opened_ = 0;
  std::atomic<int> failing_probes_;
  std::atomic<int64_t> num_committed_ = 0;
  std::atomic<bool> hangs_ = false;
  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Sequence>> sequences_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<JoinClient> join_;
  std::thread thread_;
};

struct FakeDrafterOptions {
  // Whose text it drafts.
  FakeModel model = {};
  std::string name = "draft-1";
  std::string drafter = "oracle";
  // Empty: serves any vocabulary.
  std::string vocabulary_fingerprint = "";
  std::vector<std::string> coordinators = {};
  // One in so many of its tokens is wrong; 0: none.
  int wrong_every = 0;
  // Answers nothing at all.
  bool silent = false;
  // Proposes ids outside the vocabulary.
  bool malformed = false;
  // Sends so many empty proposals at once when it opens.
  int flood = 0;
  // Every stream is lost after this many commits.
  std::optional<int> lose_streams_after = std::nullopt;
  // As if checks, or the answers, were lost on the way.
  bool ignores_checks = false;
};

// A draft node. Thread safety: any thread.
class FakeDrafter final : public v1::DraftService::CallbackService {
 public:
  explicit FakeDrafter(FakeDrafterOptions options);
  ~FakeDrafter() override;

  const std::string& address() const { return server_->address(); }
  int num_open() const { return num_open_; }
  int num_opened() const { return num_opened_; }
  void Kill();

  grpc::ServerUnaryReactor* GetDrafter(
      grpc::CallbackServerContext* context,
      const v1::GetDrafterRequest* request,
      v1::GetDrafterResponse* response) override;
  grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>* Draft(
      grpc::CallbackServerContext* context) override;

 private:
  class Handler;
  using Sender = std::shared_ptr<ServerSender<v1::DraftResponse>>;

  const FakeDrafterOptions options_;
  std::atomic<int> num_open_ = 0;
  std::atomic<int> num_opened_ = 0;
  Mutex mutex_;
  std::list<std::weak_ptr<ServerSender<v1::DraftResponse>>> senders_
      ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<JoinClient> join_;
};

}  // namespace specwire
