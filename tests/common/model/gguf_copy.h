// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/model/model_files.h"

namespace specwire {

// The bytes of a GGUF file with what `folder`, a Hugging Face folder, holds, in
// the form that llama.cpp's converter gives it: its names, rows of Llama's
// heads in pairs, Gemma's norms with one added, rotary factors as a tensor.
// Tensors keep their types. A failure is a failed expectation.
std::string GgufCopy(const ModelFiles& folder);

}  // namespace specwire
