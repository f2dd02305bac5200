// SPDX-License-Identifier: Apache-2.0
// The KV cache under random use beside a naive model of it, which knows only
// texts: what each text's sequence must find, hold, keep and lose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/kv_cache.h"

namespace specwire {
namespace {

// A number for each text under a salt: equal exactly if both are. What lies in
// the cache for a position is a function of the text up to it, so this number
// stands for it.
class Texts {
 public:
  static constexpr int kNothing = 0;

  int Root(const std::string& salt) { return Number(salt, kNothing, 0); }
  int Behind(int text, int32_t token) { return Number("", text, token); }

 private:
  int Number(const std::string& salt, int text, int32_t token) {
    return numbers_
        .try_emplace({salt, text, token}, static_cast<int>(numbers_.size()) + 1)
        .first->second;
  }

  std::map<std::tuple<std::string, int, int32_t>, int> numbers_;
};

struct ModelSequence {
  bool shares = false;
  // text[p]: the text of the positions before p.
  std::vector<int> text;
  std::vector<int32_t> tokens;
  // Leading blocks in the index.
  size_t num_indexed = 0;

  size_t length() const { return tokens.size(); }
  // What names block b: the text up to its end.
  int Key(size_t block) const { return text[(block + 1) * 16]; }
  size_t num_blocks() const { return (length() + 15) / 16; }
};

// What the cache must do, written for clarity alone.
class Model {
 public:
  explicit Model(int total) : total_(total) {}

  int Used() const {
    std::set<int> shared;
    size_t own = 0;
    for (const ModelSequence* sequence : open_) {
      for (size_t b = 0; b < sequence->num_indexed; ++b) {
        shared.insert(sequence->Key(b));
      }
      own += sequence->num_blocks() - sequence->num_indexed;
    }
    return static_cast<int>(shared.size() + own);
  }
  int Cached() const { return static_cast<int>(cached_.size()); }
  const std::set<int>& index() const { return index_; }

  void Open(ModelSequence* sequence) { open_.insert(sequence); }

  void Reuse(ModelSequence* sequence,
             const std::vector<int32_t>& tokens,
             const std::vector<int>& text) {
    sequence->shares = true;
    sequence->text.assign(1, text[0]);
    for (size_t end = 16; end < tokens.size(); end += 16) {
      if (index_.count(text[end]) == 0) break;
      cached_.remove(text[end]);
      for (size_t p = end - 16; p < end; ++p) {
        sequence->tokens.push_back(tokens[p]);
        sequence->text.push_back(text[p + 1]);
      }
      ++sequence->num_indexed;
    }
  }

  // False if there is no room for `more` positions.
  bool MakeRoom(ModelSequence* sequence, size_t more) {
    Offer(sequence);
    const auto needed = static_cast<int>((sequence->length() + more + 15) / 16 -
                                         sequence->num_blocks());
    if (needed > total_ - Used()) return false;
    for (int free = total_ - Used() - Cached(); free < needed; ++free) {
      index_.erase(cached_.front());
      parents_.erase(cached_.front());
      for (const auto& [child, parent] : parents_) {
        EXPECT_NE(parent, cached_.front()) << "a child outlives its parent";
      }
      cached_.pop_front();
    }
    return true;
  }

  void Truncate(ModelSequence* sequence, size_t length) {
    const size_t cut = length / 16;
    bool unindex = false;
    if (length % 16 != 0 && cut < sequence->num_indexed) {
      unindex = Holders(sequence->Key(cut)) == 1;
      if (!unindex) length = cut * 16;
    }
    const size_t kept = (length + 15) / 16;
    for (size_t b = sequence->num_indexed; b > kept; --b) {
      --sequence->num_indexed;
      LetGo(sequence->Key(b - 1));
    }
    if (unindex) {
      --sequence->num_indexed;
      Forget(sequence->Key(cut));
    }
    sequence->tokens.resize(length);
    sequence->text.resize(length + 1);
  }

  void Close(ModelSequence* sequence) {
    Offer(sequence);
    Truncate(sequence, 0);
    open_.erase(sequence);
  }

 private:
  int Holders(int key) const {
    int holders = 0;
    for (const ModelSequence* sequence : open_) {
      for (size_t b = 0; b < sequence->num_indexed; ++b) {
        holders += sequence->Key(b) == key;
      }
    }
    return holders;
  }

  // Called when one holder less is counted already.
  void LetGo(int key) {
    if (Holders(key) == 0) cached_.push_back(key);
  }

  void Offer(ModelSequence* sequence) {
    if (!sequence->shares) return;
    while ((sequence->num_indexed + 1) * 16 <= sequence->length()) {
      const size_t block = sequence->num_indexed++;
      const int key = sequence->Key(block);
      index_.insert(key);
      parents_[key] = sequence->text[block * 16];
      cached_.remove(key);
    }
  }

  // Removes a text and all that continue it.
  void Forget(int key) {
    index_.erase(key);
    cached_.remove(key);
    std::vector<int> below;
    for (const auto& [child, parent] : parents_) {
      if (parent == key) below.push_back(child);
    }
    for (const int child : below) Forget(child);
    parents_.erase(key);
  }

  const int total_;
  std::set<const ModelSequence*> open_;
  std::set<int> index_;
  std::map<int, int> parents_;  // of all in the index
  std::list<int> cached_;       // coldest first
};

// The cache under test with contents for its blocks, and the model.
class Driver {
 public:
  Driver(uint32_t seed, int total)
      : random_(seed),
        cells_(static_cast<size_t>(total)),
        cache_(total, [this](int32_t block, int slot) { Clear(block, slot); }),
        model_(total) {}

  void Step() {
    const size_t i = random_() % 12;
    if (sequences_[i] == nullptr) {
      Open(i);
    } else if (const auto dice = random_() % 100; dice < 12) {
      Close(i);
    } else if (dice < 35) {
      Truncate(i);
    } else {
      Grow(i, 1 + random_() % (dice < 60 ? 5 : 40));
    }
  }

  void CloseAll() {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (sequences_[i] != nullptr) Close(i);
    }
  }

  // All that must hold between two operations.
  void Check() const {
    const BlockPool& pool = cache_.pool();
    ASSERT_EQ(pool.used(), model_.Used());
    ASSERT_EQ(pool.cached(), model_.Cached());
    ASSERT_EQ(pool.free(), pool.total() - pool.used());
    std::set<int> indexed;
    for (int32_t block = 0; block < pool.total(); ++block) {
      if (cache_.index().Contains(block)) {
        indexed.insert(cells_[static_cast<size_t>(block)][15]);
      }
    }
    ASSERT_EQ(indexed, model_.index());
    ASSERT_EQ(cache_.index().size(), indexed.size());
    std::set<int32_t> held;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (sequences_[i] == nullptr) continue;
      const PagedSequence& sequence = *sequences_[i];
      const ModelSequence& expected = texts_[i];
      ASSERT_EQ(sequence.length(), static_cast<int>(expected.length()));
      ASSERT_EQ(sequence.blocks().size(), expected.num_blocks());
      for (size_t p = 0; p < expected.length(); ++p) {
        const auto block = static_cast<size_t>(sequence.blocks()[p / 16]);
        ASSERT_EQ(cells_[block][p % 16], expected.text[p + 1])
            << "sequence " << i << ", position " << p;
      }
      held.insert(sequence.blocks().begin(), sequence.blocks().end());
    }
    ASSERT_EQ(pool.used(), static_cast<int>(held.size()));
  }

  const KvCache& cache() const { return cache_; }
  int num_hits() const { return num_hits_; }
  int num_refused() const { return num_refused_; }
  int num_given_up() const { return num_given_up_; }

 private:
  void Clear(int32_t block, int slot) {
    auto& cell = cells_[static_cast<size_t>(block)];
    std::fill(cell.begin() + slot, cell.end(), Texts::kNothing);
  }

  // Blocks of mostly one token, of few tokens.
  int32_t NextToken(const std::vector<int32_t>& before) {
    if (before.size() % 16 == 0) return static_cast<int32_t>(random_() % 2);
    return random_() % 150 == 0 ? 7 : before.back();
  }

  void Open(size_t i) {
    sequences_[i] = cache_.NewSequence();
    texts_[i] = ModelSequence();
    model_.Open(&texts_[i]);
    if (random_() % 8 == 0) {
      // Does not take part, and so has a text that nobody else can have.
      texts_[i].text = {numbers_.Root(absl::StrCat("alone ", num_opened_++))};
      return;
    }
    std::vector<int32_t> tokens;
    const std::string salt = absl::StrCat("salt ", random_() % 3);
    std::vector<int> text = {numbers_.Root(salt)};
    const size_t length = random_() % 120;
    while (tokens.size() < length) {
      tokens.push_back(NextToken(tokens));
      text.push_back(numbers_.Behind(text.back(), tokens.back()));
    }
    model_.Reuse(&texts_[i], tokens, text);
    const int taken = sequences_[i]->ReusePrefix(salt, tokens);
    ASSERT_EQ(taken, static_cast<int>(texts_[i].length()));
    if (taken > 0) ++num_hits_;
    // The rest of the prompt.
    GrowBy(i,
           {tokens.begin() + static_cast<std::ptrdiff_t>(taken), tokens.end()});
  }

  void Grow(size_t i, size_t count) {
    std::vector<int32_t> all = texts_[i].tokens;
    for (size_t n = 0; n < count; ++n) all.push_back(NextToken(all));
    GrowBy(i,
           {all.begin() + static_cast<std::ptrdiff_t>(texts_[i].length()),
            all.end()});
  }

  // As the engine does it.
  void GrowBy(size_t i, const std::vector<int32_t>& tokens) {
    PagedSequence& sequence = *sequences_[i];
    ModelSequence& text = texts_[i];
    const auto count = static_cast<int>(tokens.size());
    sequence.Offer();
    const bool fits = model_.MakeRoom(&text, tokens.size());
    ASSERT_EQ(sequence.Reserve(count), fits);
    if (!fits) {
      ++num_refused_;
      return;
    }
    // A pass writes what its rows are, then may fail.
    const bool fails = random_() % 20 == 0;
    int so_far = text.text.back();
    for (size_t n = 0; n < tokens.size(); ++n) {
      const size_t p = text.length() + n;
      so_far = numbers_.Behind(so_far, tokens[n]);
      cells_[static_cast<size_t>(sequence.blocks()[p / 16])][p % 16] = so_far;
    }
    if (fails) {
      sequence.Unreserve();
      return;
    }
    sequence.Advance(tokens);
    for (const int32_t token : tokens) {
      text.tokens.push_back(token);
      text.text.push_back(numbers_.Behind(text.text.back(), token));
    }
  }

  void Truncate(size_t i) {
    const size_t length = texts_[i].length();
    // Mostly a few rows, as rejected drafts are.
    const size_t less = random_() % (random_() % 3 == 0 ? length + 1 : 6);
    const size_t kept = length - std::min(less, length);
    model_.Truncate(&texts_[i], kept);
    sequences_[i]->Truncate(static_cast<int>(kept));
    if (texts_[i].length() < kept) ++num_given_up_;
  }

  void Close(size_t i) {
    model_.Close(&texts_[i]);
    sequences_[i] = nullptr;
  }

  std::mt19937 random_;
  Texts numbers_;
  int num_opened_ = 0;
  // What lies in each block's slots.
  std::vector<std::array<int, 16>> cells_;
  KvCache cache_;
  Model model_;
  std::array<ModelSequence, 12> texts_;
  std::array<std::unique_ptr<PagedSequence>, 12> sequences_;
  int num_hits_ = 0;
  int num_refused_ = 0;
  int num_given_up_ = 0;
};

class PrefixCachePropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(PrefixCachePropertyTest, TenThousandOperationsEqualTheModel) {
  const int total = GetParam();
  Driver driver(static_cast<uint32_t>(total), total);
  for (int step = 0; step < 10000; ++step) {
    driver.Step();
    ASSERT_NO_FATAL_FAILURE(driver.Check()) << "step " << step;
  }
  // It was all there.
  EXPECT_GT(driver.num_hits(), 50);
  EXPECT_GT(driver.num_given_up(), 5);
  if (total < 60) {
    EXPECT_GT(driver.num_refused(), 20);
  }
  driver.CloseAll();
  ASSERT_NO_FATAL_FAILURE(driver.Check());
  EXPECT_EQ(driver.cache().pool().used(), 0);
  EXPECT_EQ(driver.cache().pool().free(), total);
}

// From one that is always short of room to one that never is.
INSTANTIATE_TEST_SUITE_P(Pools,
                         PrefixCachePropertyTest,
                         ::testing::Values(5, 20, 40, 70, 150, 2000));

}  // namespace
}  // namespace specwire
