// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/message_checksum.h"

#include <cstdint>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "specwire/v1/cluster.pb.h"
#include "specwire/v1/draft.pb.h"
#include "specwire/v1/generation.pb.h"
#include "specwire/v1/verifier.pb.h"

namespace specwire {
namespace {

static_assert(HasChecksum<v1::DecodeRequest>);
static_assert(HasChecksum<v1::DecodeResponse>);
static_assert(HasChecksum<v1::DraftRequest>);
static_assert(HasChecksum<v1::DraftResponse>);
static_assert(HasChecksum<v1::JoinRequest>);
static_assert(HasChecksum<v1::JoinResponse>);
static_assert(HasChecksum<v1::GetModelResponse>);
static_assert(HasChecksum<v1::GetDrafterResponse>);
static_assert(HasChecksum<v1::ScoreTokensRequest>);
static_assert(HasChecksum<v1::ScoreTokensResponse>);
static_assert(!HasChecksum<v1::GenerateResponse>);

v1::GetModelResponse Described() {
  v1::GetModelResponse message;
  message.mutable_model()->set_name("synthetic");
  message.mutable_model()->set_max_model_len(4096);
  message.mutable_model()->add_eos_token_ids(2);
  message.add_step_costs()->set_duration_us(1200);
  message.set_tokenizer_chunk("abc");
  return message;
}

TEST(MessageChecksumTest, IsTheCrc32OfPlaceAndMessage) {
  // zlib.crc32(bytes(8)) and zlib.crc32(b"\x07" + bytes(7)) of Python.
  EXPECT_EQ(ChecksumOf(v1::GetModelResponse(), 0), 0x6522df69u);
  EXPECT_EQ(ChecksumOf(v1::GetModelResponse(), 7), 0x6fe7d670u);
}

TEST(MessageChecksumTest, AMessageInItsPlacePasses) {
  v1::GetModelResponse message = Described();
  SetChecksum(3, &message);
  EXPECT_TRUE(message.has_checksum());
  EXPECT_TRUE(CheckChecksum(3, &message).ok());
  EXPECT_FALSE(message.has_checksum());
  EXPECT_EQ(message.SerializeAsString(), Described().SerializeAsString());
}

TEST(MessageChecksumTest, AMessageOutOfItsPlaceFails) {
  v1::GetModelResponse message = Described();
  SetChecksum(3, &message);
  EXPECT_EQ(CheckChecksum(4, &message).code(), absl::StatusCode::kAborted);
}

TEST(MessageChecksumTest, OneWithoutPasses) {
  v1::GetModelResponse message = Described();
  EXPECT_TRUE(CheckChecksum(3, &message).ok());
}

TEST(MessageChecksumTest, SettingItTwiceIsSettingItOnce) {
  v1::GetModelResponse message = Described();
  SetChecksum(1, &message);
  SetChecksum(2, &message);
  EXPECT_TRUE(CheckChecksum(2, &message).ok());
}

// Every single bit flip, but for those that make another field of the
// checksum's own name: then the rest is as it was sent.
TEST(MessageChecksumTest, FindsEveryFlippedBit) {
  v1::GetModelResponse message = Described();
  SetChecksum(0, &message);
  const std::string sent = message.SerializeAsString();
  for (size_t bit = 0; bit < sent.size() * 8; ++bit) {
    std::string altered = sent;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    v1::GetModelResponse received;
    if (!received.ParseFromString(altered)) continue;
    if (!CheckChecksum(0, &received).ok()) continue;
    EXPECT_EQ(received.model().SerializeAsString(),
              Described().model().SerializeAsString())
        << "bit " << bit;
    EXPECT_EQ(received.tokenizer_chunk(), "abc") << "bit " << bit;
    EXPECT_EQ(received.step_costs(0).duration_us(), 1200) << "bit " << bit;
  }
}

// Flips that come in numbers.
TEST(MessageChecksumTest, FindsManyFlippedBits) {
  std::mt19937 random(20);
  v1::GetModelResponse message = Described();
  SetChecksum(0, &message);
  const std::string sent = message.SerializeAsString();
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string altered = sent;
    const size_t count = 2 + random() % 6;
    // The last five bytes are the checksum's.
    for (size_t k = 0; k < count; ++k) {
      const size_t bit = random() % ((sent.size() - 5) * 8);
      altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    }
    v1::GetModelResponse received;
    if (altered == sent || !received.ParseFromString(altered)) continue;
    // The same message, written otherwise; or one that has swallowed it.
    if (received.SerializeAsString() == sent || !received.has_checksum()) {
      continue;
    }
    ++parsed;
    EXPECT_FALSE(CheckChecksum(0, &received).ok()) << "case " << i;
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace specwire
