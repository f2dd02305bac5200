// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_view.h"

#include <limits>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace specwire::cli {
namespace {

using ::testing::HasSubstr;

v1::DraftTokenTrace* AddDraft(v1::DraftTrace* run,
                              int position,
                              const std::string& bytes,
                              v1::DraftOutcome outcome) {
  v1::DraftTokenTrace* const draft = run->add_tokens();
  draft->set_position(position);
  draft->set_token_id(static_cast<unsigned char>(bytes[0]));
  draft->set_token_bytes(bytes);
  draft->set_outcome(outcome);
  return draft;
}

void AddChoice(v1::PassTrace* pass,
               const std::string& bytes,
               v1::TokenOrigin origin) {
  v1::ChoiceTrace* const choice = pass->add_choices();
  choice->set_token_id(static_cast<unsigned char>(bytes[0]));
  choice->set_token_bytes(bytes);
  choice->set_origin(origin);
  choice->mutable_target()->set_probability(0.75);
  choice->mutable_target()->set_logprob(0);
}

// A pass that accepted one of three, and what was left.
std::vector<v1::PassTrace> MakeTrace() {
  std::vector<v1::PassTrace> trace(2);
  v1::PassTrace& pass = trace[0];
  pass.set_position(12);
  pass.set_verifier("verifier-1");
  v1::DraftTrace* run = pass.add_drafts();
  run->set_drafter("ngram");
  run->set_node("draft-1");
  v1::DraftTokenTrace* draft =
      AddDraft(run, 12, "a", v1::DRAFT_OUTCOME_ACCEPTED);
  draft->set_draft_probability(0.5);
  draft->mutable_target()->set_probability(0.75);
  draft->mutable_target()->set_logprob(0);
  draft = AddDraft(run, 13, "b\n\x1b", v1::DRAFT_OUTCOME_REJECTED);
  draft->mutable_target()->set_probability(1e-7);
  draft->mutable_target()->set_logprob(
      -std::numeric_limits<double>::infinity());
  AddDraft(run, 14, "c", v1::DRAFT_OUTCOME_DISCARDED);
  AddChoice(&pass, "a", v1::TOKEN_ORIGIN_DRAFT);
  AddChoice(&pass, "\xe2\x80\xae", v1::TOKEN_ORIGIN_TARGET);
  v1::PassTimings* times = pass.mutable_timings();
  times->set_start_us(1500);
  times->set_wait_us(10);
  times->set_draft_us(2000);
  times->set_network_us(300);
  times->set_verify_us(9870);
  times->set_proposal_us(1400);
  run = trace[1].add_drafts();
  run->set_drafter("local");
  AddDraft(run, 14, "d", v1::DRAFT_OUTCOME_UNUSED);
  trace[1].set_num_left_out(7);
  return trace;
}

TEST(TraceViewTest, ShowsWhatWasProposedAndWhatWasChosen) {
  const std::string text = TraceText(MakeTrace());
  EXPECT_THAT(text,
              HasSubstr("pass 1 on verifier-1, at 1.50 ms: waited 0.01 ms, "
                        "draft 2.00 ms, network 0.30 ms, verify 9.87 ms\n"));
  const char* const rows[] = {
      "12        \"a\"        ngram@draft-1  accepted   0.5000    0.7500     "
      "1.0000  \"a\"       0.7500     1.0000\n",
      "13        \"b\\n\\x1b\"  ngram@draft-1  rejected   -         1.0e-07    "
      "0.0000  \"\\u202e\"  0.7500     1.0000\n",
      "14        \"c\"        ngram@draft-1  discarded  -         -          - "
      " "
      "     -         -          -\n"};
  for (const char* row : rows) EXPECT_THAT(text, HasSubstr(row));
  EXPECT_THAT(text, HasSubstr("left at the end\n"));
  EXPECT_THAT(text, HasSubstr("14        \"d\"       local  unused"));
  EXPECT_THAT(text, HasSubstr("and 7 more draft tokens\n"));
  for (const char c : text) {
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  }
}

// Columns stay straight.
TEST(TraceViewTest, ShowsOrdinaryTextAsItIs) {
  std::vector<v1::PassTrace> trace(1);
  trace[0].set_position(3);
  trace[0].mutable_timings()->set_verify_us(1000);
  AddChoice(&trace[0], "\xc3\xa8s", v1::TOKEN_ORIGIN_TARGET);
  AddChoice(&trace[0], "it's", v1::TOKEN_ORIGIN_TARGET);
  AddChoice(&trace[0], "\xc3", v1::TOKEN_ORIGIN_TARGET);
  AddChoice(&trace[0], "\"\\n", v1::TOKEN_ORIGIN_TARGET);
  const std::string text = TraceText(trace);
  EXPECT_THAT(text, HasSubstr("\"\xc3\xa8s\"     0.7500"));
  EXPECT_THAT(text, HasSubstr("\"it's\"   0.7500"));
  EXPECT_THAT(text, HasSubstr("\"\\xc3\"   0.7500"));
  EXPECT_THAT(text, HasSubstr("\"\\\"\\\\n\"  0.7500"));
}

TEST(TraceViewTest, ShowsPlainPasses) {
  std::vector<v1::PassTrace> trace(1);
  trace[0].set_position(3);
  trace[0].mutable_timings()->set_verify_us(1000);
  AddChoice(&trace[0], "x", v1::TOKEN_ORIGIN_TARGET);
  const std::string text = TraceText(trace);
  EXPECT_THAT(text, HasSubstr("3         -         -   -        -         -"));
  EXPECT_THAT(text, HasSubstr("waited 0.00 ms, verify 1.00 ms"));
  EXPECT_EQ(TraceText({}), "");
  // Nothing was left.
  EXPECT_EQ(TraceText({v1::PassTrace()}), "");
}

TEST(TraceViewTest, BadPositionsDoNoHarm) {
  std::vector<v1::PassTrace> trace = MakeTrace();
  trace[0].set_position(-2147483647);
  trace[0].mutable_drafts(0)->mutable_tokens(0)->set_position(2147483647);
  EXPECT_THAT(TraceText(trace), HasSubstr("2147483647"));
}

TEST(TraceViewTest, IsDataInJson) {
  const nlohmann::ordered_json json = TraceJson(MakeTrace());
  ASSERT_EQ(json.size(), 2u);
  const auto& pass = json[0];
  EXPECT_EQ(pass["position"], 12);
  EXPECT_EQ(pass["verifier"], "verifier-1");
  EXPECT_EQ(pass["drafts"][0]["drafter"], "ngram");
  EXPECT_EQ(pass["drafts"][0]["node"], "draft-1");
  const auto& tokens = pass["drafts"][0]["tokens"];
  EXPECT_EQ(tokens[0]["outcome"], "accepted");
  EXPECT_EQ(tokens[0]["draft_probability"], 0.5);
  EXPECT_EQ(tokens[1]["target"]["probability"], 1e-7);
  EXPECT_EQ(tokens[1]["target"]["logprob"], kNoLogprob);
  EXPECT_EQ(tokens[1]["draft_probability"], nullptr);
  EXPECT_EQ(tokens[2]["target"], nullptr);
  EXPECT_EQ(pass["choices"][0]["origin"], "draft");
  EXPECT_EQ(pass["choices"][1]["target"]["probability"], 0.75);
  EXPECT_EQ(pass["timings"]["proposal_us"], 1400);
  EXPECT_EQ(json[1]["timings"], nullptr);
  EXPECT_EQ(json[1]["num_left_out"], 7);
  // Part of a character is no fault.
  EXPECT_FALSE(DumpJson(json).empty());
}

}  // namespace
}  // namespace specwire::cli
