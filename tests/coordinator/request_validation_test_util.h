// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "coordinator/model_catalog.h"
#include "coordinator/request_validation.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_nodes.h"

namespace specwire::coordinator {

inline VerifierInfo Info(const FakeModel& model) {
  return {model.Info(), model.Fingerprint(), 64};
}

inline std::shared_ptr<const CatalogModel> Model(const FakeModel& model = {}) {
  ModelCatalog catalog;
  EXPECT_TRUE(catalog.Add(Info(model), model.Tokenizer()).ok());
  return catalog.Find(model.Info().model_digest);
}

// The status that a Generate call with `request` gets.
inline absl::StatusOr<CheckedRequest> Check(
    const v1::GenerateRequest& request,
    const FakeModel& model = {},
    const RequestDefaults& defaults = {}) {
  if (absl::Status status = CheckGenerateFields(request); !status.ok()) {
    return status;
  }
  return BuildRequest(request, Model(model), defaults);
}

}  // namespace specwire::coordinator
