// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// The one list of engines. No torch here: the command line includes it too.

namespace specwire {

// Own int8 kernels on CPUs, in groups of 32 values; the same bits everywhere.
inline constexpr char kInt8Engine[] = "int8";
// float32 on ATen; the yardstick for quality.
inline constexpr char kReferenceEngine[] = "reference";

inline constexpr const char* kEngineNames[] = {kInt8Engine, kReferenceEngine};

// What is taken unless another is asked for, by every program.
inline constexpr const char* kDefaultEngine = kInt8Engine;

// For messages: "int8, reference".
std::string EngineNames();

// INVALID_ARGUMENT, naming `field`, if there is no such engine.
absl::Status CheckEngineName(absl::string_view name, absl::string_view field);

// What the reference engine keeps its weights in, and where it computes their
// products.
inline constexpr char kFloat32Dtype[] = "float32";
inline constexpr char kBfloat16Dtype[] = "bfloat16";
inline constexpr char kCpuDevice[] = "cpu";
inline constexpr char kCudaDevice[] = "cuda";

// INVALID_ARGUMENT naming --dtype or --device if one is unknown, or not one
// that the engine has.
absl::Status CheckFormat(absl::string_view engine,
                         absl::string_view dtype,
                         absl::string_view device);

}  // namespace specwire
