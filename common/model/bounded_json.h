// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace specwire {

// What a reader of a model's JSON file sees as the text goes by: it keeps what
// it needs, and no document is ever built. A handler returns false to stop,
// after Fail.
//
// Everything is refused until a reader overrides it. Texts and names are valid
// UTF-8; the reader bounds the depth, by the states that it has.
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
  bool start_object(size_t /*size*/) override { return Unexpected(); }
  bool end_object() override { return true; }
  bool start_array(size_t /*size*/) override { return Unexpected(); }
  bool end_array() override { return true; }
  bool parse_error(size_t position,
                   const std::string& token,
                   const nlohmann::json::exception& error) final;

 protected:
  // A value stands where none of its kind may.
  virtual bool Unexpected() { return Fail("has a value of the wrong kind"); }
  // Keeps the first problem, "<field>: <problem>". Returns false.
  bool Fail(std::string problem);

 private:
  friend absl::Status ReadJson(absl::string_view field,
                               absl::string_view text,
                               JsonEvents* events);
  // How errors of the text itself begin.
  std::string prefix_;
  std::string problem_;
};

// Hands a JSON text to `events`. An error is INVALID_ARGUMENT with what events
// failed with, or "<field>: <problem>" if the text is malformed; without a
// field if that is empty.
//
// The memory that it takes, beside what `events` keeps, is bounded by half of
// the text and a few KiB: a single string, and what stands between two strings,
// may have 2 KiB or 1/32 of the text, whichever is more.
absl::Status ReadJson(absl::string_view field,
                      absl::string_view text,
                      JsonEvents* events);

}  // namespace specwire
