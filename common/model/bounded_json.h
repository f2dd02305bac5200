// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace specwire {

// What a JSON text may have at most.
struct JsonLimits {
  // In bytes of the text, of a string, and of what stands between two strings.
  size_t piece_bytes;
  // Containers that are open at once.
  int depth;
};

// Limits for readers that keep little: the memory that reading takes is
// bounded by half of the text and a few KiB.
JsonLimits TightJsonLimits(absl::string_view text);

// What a reader of a model's JSON file sees as the text goes by: it keeps what
// it needs, and no document is ever built. A handler returns false to stop,
// after Fail.
//
// Everything is refused until a reader overrides it. Texts and names are valid
// UTF-8. A name may come twice: what that means is the reader's affair.
//
// Thread safety: one thread.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Unexpected(); }
  bool boolean(bool /*value*/) override { return Unexpected(); }
  bool number_integer(number_integer_t /*value*/) override {
    return Unexpected();
  }
  bool number_unsigned(number_unsigned_t /*value*/) override {
    return Unexpected();
  }
  bool number_float(number_float_t /*value*/,
                    const string_t& /*text*/) override {
    return Unexpected();
  }
  bool string(string_t& /*value*/) override { return Unexpected(); }
  bool binary(binary_t& /*value*/) override { return Unexpected(); }
  bool start_object(size_t /*size*/) final { return StartObject() && Deeper(); }
  bool end_object() final {
    --depth_;
    return EndObject();
  }
  bool start_array(size_t /*size*/) final { return StartArray() && Deeper(); }
  bool end_array() final {
    --depth_;
    return EndArray();
  }
  bool parse_error(size_t position,
                   const std::string& token,
                   const nlohmann::json::exception& error) final;

 protected:
  virtual bool StartObject() { return Unexpected(); }
  virtual bool EndObject() { return true; }
  virtual bool StartArray() { return Unexpected(); }
  virtual bool EndArray() { return true; }
  // The containers that are open.
  int depth() const { return depth_; }
  // Where in the document the reader is, for an error; empty if it cannot say.
  virtual std::string Field() const { return ""; }
  // A value stands where none of its kind may.
  virtual bool Unexpected() { return Fail("has a value of the wrong kind"); }
  // Keeps the first problem, "<field>: <problem>". Returns false.
  bool Fail(std::string problem);

 private:
  friend absl::Status ReadJson(absl::string_view field,
                               absl::string_view text,
                               const JsonLimits& limits,
                               JsonEvents* events);
  bool Deeper();

  int depth_ = 0;
  int max_depth_ = 0;
  // How errors of the text itself begin.
  std::string prefix_;
  std::string problem_;
};

// Hands a JSON text to `events`. An error is INVALID_ARGUMENT with what events
// failed with, or "<field>: <problem>" if the text is malformed or beyond a
// limit; without a field if that is empty.
//
// The memory that it takes, beside what `events` keeps, is a small multiple of
// limits.piece_bytes, or of the text if that is shorter.
absl::Status ReadJson(absl::string_view field,
                      absl::string_view text,
                      const JsonLimits& limits,
                      JsonEvents* events);

}  // namespace specwire
