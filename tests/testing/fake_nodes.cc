// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_nodes.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/logging.h"
#include "common/base/random_id.h"
#include "common/base/sha256.h"
#include "common/drafting/draft_path.h"
#include "common/rpc/convert.h"
#include "common/rpc/server_stream.h"
#include "common/rpc/status.h"
#include "common/rpc/trace_convert.h"
#include "common/text/byte_spelling.h"
#include "common/text/tokenizer.h"

namespace specwire {
namespace {

constexpr char kChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Answers a check.
template <class Out>
void Answer(ServerSender<Out>* sender, int num_lost) {
  sender->SendNumbered([num_lost](int64_t num_sent) {
    Out answer;
    answer.mutable_check()->set_num_sent(num_sent + num_lost);
    return answer;
  });
}

// A broken fake is no test: ends the program.
template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    LogLine(LogLevel::kError, value.status().ToString());
    std::abort();
  }
  return *std::move(value);
}

std::unique_ptr<JoinClient> Join(const std::vector<std::string>& coordinators,
                                 const std::string& name,
                                 v1::NodeRole role,
                                 const std::string& address,
                                 JoinClient::LoadCallback load) {
  if (coordinators.empty()) return nullptr;
  JoinClientOptions options;
  options.coordinators = coordinators;
  options.registration.set_name(name);
  options.registration.set_role(role);
  options.registration.set_address(address);
  options.registration.set_incarnation_id(RandomHexId());
  options.registration.set_pid(1);
  return std::make_unique<JoinClient>(options, std::move(load), nullptr);
}

v1::NodeLoad LoadOf(int num_sequences) {
  v1::NodeLoad load;
  load.set_num_sequences(num_sequences);
  return load;
}

absl::Duration Patience(int64_t us) {
  return us < 0 ? absl::InfiniteDuration() : absl::Microseconds(us);
}

}  // namespace

TokenizerModel FakeModel::Tokenizer() const {
  TokenizerModel model;
  model.kind = "gpt2";
  model.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    model.tokens.push_back(
        SpellingFromBytes(std::string(1, static_cast<char>(byte))));
    model.types.push_back(static_cast<int32_t>(TokenType::kNormal));
  }
  for (const char* token :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|bos|>"}) {
    model.tokens.emplace_back(token);
    model.types.push_back(static_cast<int32_t>(TokenType::kControl));
  }
  if (!extra_token.empty()) {
    model.tokens.push_back(extra_token);
    model.types.push_back(static_cast<int32_t>(TokenType::kControl));
  }
  model.bos_id = kBos;
  model.eos_id = kEos;
  model.add_bos = add_bos;
  model.chat_template = kChatTemplate;
  return model;
}

ModelInfo FakeModel::Info() const {
  ModelInfo info;
  info.name = name;
  info.architecture = "fake";
  info.engine = "reference";
  Sha256 sha;
  sha.UpdateSized(name);
  sha.UpdateInt(salt);
  sha.UpdateSized(extra_token);
  info.model_digest = sha.FinishHex();
  info.vocab_size = kVocabSize + (extra_token.empty() ? 0 : 1);
  info.max_model_len = max_model_len;
  info.eos_ids = {kEos};
  return info;
}

std::string FakeModel::Fingerprint() const {
  return Must(specwire::Tokenizer::Create(Tokenizer()))->fingerprint();
}

int32_t FakeModel::Next(absl::Span<const int32_t> log) const {
  if (eos_position == static_cast<int>(log.size())) return kEos;
  uint64_t hash = 0x9e3779b97f4a7c15u + static_cast<uint64_t>(salt);
  size_t position = log.size();
  if (period > 0) {
    position %= static_cast<size_t>(period);
  } else {
    const size_t begin = log.size() - std::min<size_t>(log.size(), 3);
    for (size_t i = begin; i < log.size(); ++i) {
      hash = (hash ^ static_cast<uint64_t>(log[i])) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 29;
    }
  }
  hash = (hash ^ position) * 0xc4ceb9fe1a85ec53u;
  hash ^= hash >> 32;
  return static_cast<int32_t>(hash % 5 == 0 ? 128 + (hash >> 8) % 128
                                            : 32 + (hash >> 8) % 95);
}

std::vector<int32_t> FakeModel::Complete(std::vector<int32_t> prompt,
                                         int max_tokens) const {
  const size_t begin = prompt.size();
  while (static_cast<int>(prompt.size() - begin) < max_tokens &&
         static_cast<int>(prompt.size()) < max_model_len) {
    prompt.push_back(Next(prompt));
    if (prompt.back() == kEos) break;
  }
  prompt.erase(prompt.begin(),
               prompt.begin() + static_cast<std::ptrdiff_t>(begin));
  return prompt;
}

// Guarded by FakeVerifier::mutex_.
struct FakeVerifier::Sequence {
  Sender sender;
  std::optional<verifier::VerifySequence> verify;
  // Null: it has no local drafts.
  std::unique_ptr<DraftSequence> local;
  int local_run_length = 0;
  int num_committed = 0;
  bool closed = false;
  // Messages that were lost on the way.
  int num_lost = 0;
};

class FakeVerifier::Handler final : public StreamHandler<v1::DecodeRequest> {
 public:
  Handler(FakeVerifier* node, std::shared_ptr<Sequence> sequence)
      : node_(node), sequence_(std::move(sequence)) {
    MutexLock lock(&node_->mutex_);
    node_->sequences_.push_back(sequence_);
  }
  void OnMessage(v1::DecodeRequest request) override {
    if (request.has_check()) {
      MutexLock lock(&node_->mutex_);
      if (!node_->options_.ignores_checks) {
        Answer(sequence_->sender.get(), sequence_->num_lost);
      }
      return;
    }
    node_->OnRequest(sequence_.get(), request);
  }
  void OnClosed(absl::Status /*status*/) override {
    MutexLock lock(&node_->mutex_);
    sequence_->closed = true;
    node_->sequences_.remove(sequence_);
  }

 private:
  FakeVerifier* const node_;
  const std::shared_ptr<Sequence> sequence_;
};

FakeVerifier::FakeVerifier(FakeVerifierOptions options)
    : options_(std::move(options)),
      local_drafter_(!options_.local_drafter.empty()
                         ? Must(SuffixDrafter::Create({}))
                         : nullptr),
      failing_probes_(options_.failing_probes) {
  std::vector<grpc::Service*> services = {this};
  if (options_.another_service != nullptr) {
    services.push_back(options_.another_service);
  }
  server_ = Must(RpcServer::Start(RpcServerOptions(), services));
  thread_ = std::thread([this] { Run(); });
  join_ = Join(options_.coordinators,
               options_.name,
               v1::NODE_ROLE_VERIFIER,
               server_->address(),
               [this] {
                 v1::NodeLoad load = LoadOf(num_open());
                 load.set_progress(num_committed_);
                 load.set_working(hangs_);
                 return load;
               });
}

FakeVerifier::~FakeVerifier() { Kill(); }

void FakeVerifier::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  wake_.NotifyAll();
}

int FakeVerifier::num_open() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(sequences_.size());
}

void FakeVerifier::Kill() {
  if (!thread_.joinable()) return;
  std::list<std::shared_ptr<Sequence>> sequences;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    sequences = sequences_;
  }
  wake_.NotifyAll();
  thread_.join();
  for (const std::shared_ptr<Sequence>& sequence : sequences) {
    sequence->sender->Cancel(absl::UnavailableError("killed"));
  }
  if (join_ != nullptr) join_->Stop();
  server_->Shutdown(absl::ZeroDuration()).IgnoreError();
}

grpc::ServerWriteReactor<v1::GetModelResponse>* FakeVerifier::GetModel(
    grpc::CallbackServerContext* context,
    const v1::GetModelRequest* /*request*/) {
  class Nothing final : public WriterHandler {
    void OnClosed(absl::Status /*status*/) override {}
  };
  return StartServerWriter<v1::GetModelResponse>(
      context, StreamLimits(), [this](auto sender) {
        if (failing_probes_.fetch_sub(1) > 0) {
          sender->Finish(absl::UnavailableError("not yet"));
          return std::make_shared<Nothing>();
        }
        v1::GetModelResponse response;
        *response.mutable_model() =
            ToProto(options_.model.Info(), options_.model.Fingerprint(), 64);
        if (local_drafter_ != nullptr) {
          response.mutable_model()->set_local_drafter(options_.local_drafter);
        }
        for (const auto& [num_rows, duration] : options_.step_costs) {
          v1::StepCost* const cost = response.add_step_costs();
          cost->set_num_rows(num_rows);
          cost->set_duration_us(absl::ToInt64Microseconds(duration));
        }
        const std::string tokenizer =
            SerializeTokenizer(options_.model.Tokenizer());
        for (size_t begin = 0; begin < tokenizer.size(); begin += 1024) {
          response.set_tokenizer_chunk(tokenizer.substr(begin, 1024));
          sender->Send(response);
          response.Clear();
        }
        sender->Finish(absl::OkStatus());
        return std::make_shared<Nothing>();
      });
}

grpc::ServerBidiReactor<v1::DecodeRequest, v1::DecodeResponse>*
FakeVerifier::Decode(grpc::CallbackServerContext* context) {
  ++num_opened_;
  return StartServerStream<v1::DecodeRequest, v1::DecodeResponse>(
      context, StreamLimits(), [this](Sender sender) {
        auto sequence = std::make_shared<Sequence>();
        sequence->sender = std::move(sender);
        return std::make_shared<Handler>(this, std::move(sequence));
      });
}

void FakeVerifier::OnRequest(Sequence* sequence,
                             const v1::DecodeRequest& request) {
  MutexLock lock(&mutex_);
  absl::Status status;
  if (request.has_open()) {
    const v1::DecodeOpen& open = request.open();
    verifier::VerifyParams params;
    params.tokens.assign(open.tokens().begin(), open.tokens().end());
    params.prompt_length = open.prompt_length();
    params.max_tokens = open.max_tokens();
    params.stop_token_ids.assign(open.stop_token_ids().begin(),
                                 open.stop_token_ids().end());
    if (!open.ignore_eos()) params.stop_token_ids.push_back(FakeModel::kEos);
    params.source = open.source();
    params.decode_until = open.decode_until();
    params.patience = Patience(open.patience_us());
    params.max_draft_rows = open.max_draft_rows();
    params.local_run_length = open.local_run_length();
    params.local_enough = open.local_enough();
    params.trace = open.trace();
    if (local_drafter_ != nullptr && params.local_run_length > 0) {
      DraftSequenceParams local;
      local.context.prompt_length = open.prompt_length();
      sequence->local = local_drafter_->NewSequence(local);
      sequence->local_run_length = params.local_run_length;
    }
    const ModelInfo info = options_.model.Info();
    auto opened = verifier::VerifySequence::Open(
        std::move(params), {info.vocab_size, info.max_model_len});
    status = opened.status();
    if (opened.ok()) {
      sequence->verify.emplace(*std::move(opened));
      sequence->verify->OnPrefilled(absl::Now());
    }
  } else if (request.has_proposal()) {
    const v1::Proposal& message = request.proposal();
    Proposal proposal;
    proposal.source = message.source();
    proposal.position = message.position();
    proposal.based_on = message.based_on();
    proposal.tokens.assign(message.tokens().begin(), message.tokens().end());
    status = sequence->verify->OnProposal(proposal);
  } else if (request.has_tune()) {
    verifier::VerifyTune tune;
    if (request.tune().has_patience_us()) {
      tune.patience = Patience(request.tune().patience_us());
    }
    if (request.tune().has_decode_until()) {
      tune.decode_until = request.tune().decode_until();
    }
    if (request.tune().has_local_enough()) {
      tune.local_enough = request.tune().local_enough();
    }
    status = sequence->verify->OnTune(tune);
  }
  if (!status.ok()) {
    sequence->closed = true;
    sequence->sender->Finish(status);
  }
  changed_ = true;
  wake_.NotifyAll();
}

void FakeVerifier::Run() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    changed_ = false;
    if (options_.hang_after.has_value() && !woken_ &&
        num_committed_ >= *options_.hang_after) {
      hangs_ = true;
      while (!stopping_ && !woken_) wake_.Wait(&mutex_);
      hangs_ = false;
      continue;
    }
    absl::Time next = absl::InfiniteFuture();
    for (const std::shared_ptr<Sequence>& sequence : sequences_) {
      next = std::min(next, Advance(sequence.get()));
    }
    if (options_.step_time > absl::ZeroDuration() && !sequences_.empty()) {
      mutex_.Unlock();
      absl::SleepFor(options_.step_time);
      mutex_.Lock();
    } else if (!changed_ && !stopping_ && next > absl::Now()) {
      wake_.WaitUntil(&mutex_, next);
    }
  }
}

absl::Time FakeVerifier::Advance(Sequence* sequence) {
  if (sequence->closed || !sequence->verify.has_value()) {
    return absl::InfiniteFuture();
  }
  verifier::VerifySequence& verify = *sequence->verify;
  using Kind = verifier::VerifySequence::Next::Kind;
  const verifier::VerifySequence::Next next = verify.NextAt(absl::Now());
  if (next.kind == Kind::kWait) return next.at;
  if (next.kind != Kind::kRun) return absl::InfiniteFuture();
  const absl::Span<const int32_t> draft = verify.BeginStep(256);
  std::vector<int32_t> path(verify.log().begin(), verify.log().end());
  std::vector<int32_t> target = {options_.model.Next(path)};
  for (const int32_t token : draft) {
    path.push_back(token);
    target.push_back(options_.model.Next(path));
  }
  Commit commit = verify.FinishStep(target, absl::Now());
  if (sequence->local != nullptr && !verify.done()) {
    absl::StatusOr<DraftRun> draft_run = sequence->local->Propose(
        verify.log(), {.max_tokens = sequence->local_run_length});
    if (draft_run.ok()) verify.SetLocalDraft(*std::move(draft_run));
    commit.local_next = verify.LocalIsEnough();
  }
  SendCommit(sequence, commit);
  return absl::InfinitePast();
}

void FakeVerifier::SendCommit(Sequence* sequence, const Commit& commit) {
  v1::DecodeResponse response;
  const bool shift = sequence->num_committed > 0;
  response.set_position(commit.position + (shift ? options_.commit_shift : 0));
  response.mutable_tokens()->Assign(commit.tokens.begin(), commit.tokens.end());
  response.set_num_proposed(commit.num_proposed);
  response.set_num_accepted(commit.num_accepted);
  response.mutable_counters()->set_overlapped(commit.counters.overlapped);
  response.mutable_counters()->set_stale(commit.counters.stale);
  response.mutable_counters()->set_trimmed(commit.counters.trimmed);
  response.set_local(commit.local);
  response.set_local_next(commit.local_next);
  if (commit.trace.has_value()) {
    ToProto(*commit.trace, response.mutable_trace());
  }
  response.mutable_timings()->set_verify_us(
      absl::ToInt64Microseconds(options_.step_time));
  if (commit.finish != FinishReason::kNone) {
    response.mutable_finish()->set_reason(ToProto(commit.finish));
    if (commit.stop_token_id.has_value()) {
      response.mutable_finish()->set_stop_token_id(*commit.stop_token_id);
    }
  }
  num_committed_ += static_cast<int64_t>(commit.tokens.size());
  sequence->num_committed += static_cast<int>(commit.tokens.size());
  if (num_opened_ == 1 && options_.loses_messages_after.has_value() &&
      sequence->num_committed > *options_.loses_messages_after) {
    ++sequence->num_lost;
    sequence->closed = commit.finish != FinishReason::kNone;
    return;
  }
  sequence->sender->Send(std::move(response));
  if (commit.finish != FinishReason::kNone) {
    sequence->closed = true;
    sequence->sender->Finish(absl::OkStatus());
  } else if (options_.lose_streams_after.has_value() &&
             sequence->num_committed >= *options_.lose_streams_after) {
    sequence->closed = true;
    sequence->sender->Finish(absl::Status(options_.loss, "lost"));
  }
}

// Drafts on the thread that brings the message: a hash takes no time.
class FakeDrafter::Handler final : public StreamHandler<v1::DraftRequest> {
 public:
  Handler(FakeDrafter* node, Sender sender)
      : node_(node), sender_(std::move(sender)) {
    ++node_->num_open_;
  }

  void OnMessage(v1::DraftRequest request) override {
    const FakeDrafterOptions& options = node_->options_;
    if (request.has_check()) {
      if (!options.ignores_checks) Answer(sender_.get(), 0);
      return;
    }
    absl::Status status;
    if (request.has_open()) {
      const v1::DraftOpen& open = request.open();
      auto path = DraftPath::Open({open.tokens().begin(), open.tokens().end()},
                                  open.prompt_length(),
                                  open.run_length(),
                                  open.window());
      status = path.status();
      if (path.ok()) path_.emplace(*std::move(path));
      v1::DraftResponse nothing;
      nothing.set_position(open.tokens_size());
      nothing.set_based_on(open.tokens_size());
      for (int i = 0; i < options.flood; ++i) sender_->Send(nothing);
    } else if (request.has_commit()) {
      status = path_->OnCommit(request.commit().position(),
                               request.commit().tokens());
      if (++num_commits_ == options.lose_streams_after) {
        status = absl::UnavailableError("lost");
      }
    } else if (request.has_rewind()) {
      status = path_->OnRewind(request.rewind().position());
    }
    if (!status.ok()) {
      sender_->Finish(status);
      return;
    }
    if (!options.silent) Work();
  }

  void OnClosed(absl::Status /*status*/) override { --node_->num_open_; }

 private:
  void Work() {
    const FakeDrafterOptions& options = node_->options_;
    while (true) {
      DraftPath::Work work = path_->NextWork();
      if (work.kind == DraftPath::Work::Kind::kNone) return;
      if (work.kind == DraftPath::Work::Kind::kSend) {
        v1::DraftResponse response;
        response.set_position(work.proposal.position);
        response.set_based_on(work.proposal.based_on);
        response.mutable_tokens()->Assign(work.proposal.tokens.begin(),
                                          work.proposal.tokens.end());
        if (options.malformed) response.add_tokens(1 << 30);
        sender_->Send(std::move(response));
        continue;
      }
      std::vector<int32_t> path(path_->path().begin(), path_->path().end());
      DraftRun run;
      while (static_cast<int>(run.tokens.size()) < work.limits.max_tokens) {
        int32_t token = options.model.Next(path);
        if (options.wrong_every > 0 &&
            static_cast<int>(path.size()) % options.wrong_every == 0) {
          token = token == 'x' ? 'y' : 'x';
        }
        path.push_back(token);
        run.tokens.push_back(token);
      }
      path_->OnDrafted(std::move(run));
    }
  }

  FakeDrafter* const node_;
  const Sender sender_;
  // OnMessage calls never overlap.
  std::optional<DraftPath> path_;
  int num_commits_ = 0;
};

FakeDrafter::FakeDrafter(FakeDrafterOptions options)
    : options_(std::move(options)) {
  server_ = Must(RpcServer::Start(RpcServerOptions(), {this}));
  join_ = Join(options_.coordinators,
               options_.name,
               v1::NODE_ROLE_DRAFT,
               server_->address(),
               [this] { return LoadOf(num_open_); });
}

FakeDrafter::~FakeDrafter() { Kill(); }

void FakeDrafter::Kill() {
  std::list<std::weak_ptr<ServerSender<v1::DraftResponse>>> senders;
  {
    MutexLock lock(&mutex_);
    senders.swap(senders_);
  }
  for (const auto& weak : senders) {
    if (const Sender sender = weak.lock(); sender != nullptr) {
      sender->Cancel(absl::UnavailableError("killed"));
    }
  }
  if (join_ != nullptr) join_->Stop();
  server_->Shutdown(absl::ZeroDuration()).IgnoreError();
}

grpc::ServerUnaryReactor* FakeDrafter::GetDrafter(
    grpc::CallbackServerContext* context,
    const v1::GetDrafterRequest* /*request*/,
    v1::GetDrafterResponse* response) {
  response->set_drafter(options_.drafter);
  response->set_vocabulary_fingerprint(options_.vocabulary_fingerprint);
  response->set_max_num_sequences(64);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<v1::DraftRequest, v1::DraftResponse>*
FakeDrafter::Draft(grpc::CallbackServerContext* context) {
  ++num_opened_;
  return StartServerStream<v1::DraftRequest, v1::DraftResponse>(
      context,
      StreamLimits{.max_queued_messages = 1 << 20},
      [this](Sender sender) {
        {
          MutexLock lock(&mutex_);
          senders_.push_back(sender);
        }
        return std::make_shared<Handler>(this, std::move(sender));
      });
}

}  // namespace specwire
