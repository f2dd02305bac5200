// SPDX-License-Identifier: Apache-2.0
#include "cli/input_text.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace specwire::cli {
namespace {

// What the coordinator takes.
constexpr size_t kMaxTextBytes = size_t{4} << 20;

absl::Status TooLong(absl::string_view source) {
  return absl::InvalidArgumentError(
      absl::StrCat(source, " is longer than the limit of 4 MiB"));
}

absl::StatusOr<std::string> ReadAll(std::FILE* file,
                                    const std::string& source) {
  std::string text;
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), file)) > 0) {
    text.append(buffer, count);
    if (text.size() > kMaxTextBytes) {
      return TooLong(source);
    }
  }
  if (std::ferror(file) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", source, ": ", std::strerror(errno)));
  }
  return text;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  absl::StatusOr<std::string> text = ReadAll(file, path);
  std::fclose(file);
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadTextArgument(const std::string& argument) {
  std::string text = argument;
  std::string source = "the text";
  if (argument == "-") {
    source = "standard input";
    SPECWIRE_ASSIGN_OR_RETURN(text, ReadAll(stdin, source));
  } else if (argument.starts_with("@@")) {
    text = argument.substr(1);
  } else if (argument.starts_with("@")) {
    source = argument.substr(1);
    SPECWIRE_ASSIGN_OR_RETURN(text, ReadFile(source));
  }
  if (text.size() > kMaxTextBytes) {
    return TooLong(source);
  }
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat(source, " is not UTF-8"));
  }
  return text;
}

}  // namespace specwire::cli
