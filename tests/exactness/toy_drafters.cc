// SPDX-License-Identifier: Apache-2.0
#include "tests/exactness/toy_drafters.h"

#include <utility>

#include "common/drafting/ngram.h"
#include "common/drafting/random.h"
#include "common/model_drafting/model_drafter.h"

namespace specwire {
namespace {

std::unique_ptr<Drafter> MakeModel(std::unique_ptr<ToyEngine> model,
                                   std::string name) {
  return *ModelDrafter::Create(std::move(model), {.name = std::move(name)});
}

}  // namespace

std::unique_ptr<Drafter> MakeToyDrafter(absl::string_view kind,
                                        const ToyEngine& target) {
  if (kind == "ngram") return *NgramDrafter::Create({.min_ngram = 1});
  if (kind == "random") return std::make_unique<RandomDrafter>();
  if (kind == "good") {
    return MakeToyModelDrafter(std::make_unique<ToyEngine>(target, 0.5f, 91));
  }
  if (kind == "bad") {
    return MakeToyModelDrafter(
        std::make_unique<ToyEngine>(target.vocab_size(), 1.5f, 92));
  }
  return MakeModel(std::make_unique<ToyEngine>(target, 0.0f, 93),
                   std::string(kind));
}

std::unique_ptr<Drafter> MakeToyModelDrafter(std::unique_ptr<ToyEngine> model) {
  return MakeModel(std::move(model), "model");
}

}  // namespace specwire
