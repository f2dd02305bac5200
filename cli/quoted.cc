// SPDX-License-Identifier: Apache-2.0
#include "cli/quoted.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/text/printable.h"

namespace specwire::cli {

std::string Quoted(absl::string_view text) {
  return absl::StrCat(
      "\"",
      Printable(absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}})),
      "\"");
}

}  // namespace specwire::cli
