// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace specwire {

// The small models of tests/data/families, each a Hugging Face folder.
inline constexpr const char* kFamilies[] = {"llama2",
                                            "llama3",
                                            "smollm2",
                                            "mistral",
                                            "qwen2",
                                            "qwen2_window",
                                            "qwen3",
                                            "gemma3"};

}  // namespace specwire
