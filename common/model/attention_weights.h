// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "common/model/config.h"
#include "common/model/ops.h"

namespace specwire {

// Fills in the run's probe, for people to look at: softmax(q K^T / sqrt(d)) of
// its layer's heads, in double precision, of the queries in
// qkv, [., (Hq + 2 Hkv) d], and of the keys as the cache holds them. Changes
// nothing else.
// REQUIRES: ops.RotateAndStore has been called for the probe's layer;
// run.attention is not null.
void ReadAttention(const ModelConfig& config,
                   const Ops& ops,
                   const PassRun& run,
                   const at::Tensor& qkv);

}  // namespace specwire
