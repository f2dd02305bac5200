// SPDX-License-Identifier: Apache-2.0
// No #pragma once: as lanes.inc.h, included by an instruction set's file,
// behind it, inside an unnamed namespace.
//
// Attention over a cache of half-precision blocks (AttendArgs in kernels.h).

// Products of N queries with the 16 keys of a block, one key a lane. Element i
// belongs to partial sum i mod 16. This gives the fold of partial sums kFirst,
// kFirst + kStep, ...; all of them for kFirst 0, kStep 1. kDim is head_dim if
// that is a common one (so that all loops are unrolled), or else 0.
template <int N, int kDim, int kFirst = 0, int kStep = 1>
inline void DotKeys(const uint16_t* keys,
                    const float* const* queries,
                    int64_t head_dim,
                    Lanes* dots) {
  if constexpr (kStep < kLanes) {
    Lanes others[N];
    DotKeys<N, kDim, kFirst, 2 * kStep>(keys, queries, head_dim, dots);
    DotKeys<N, kDim, kFirst + kStep, 2 * kStep>(
        keys, queries, head_dim, others);
    for (int q = 0; q < N; ++q) dots[q] = Add(dots[q], others[q]);
  } else {
    for (int q = 0; q < N; ++q) dots[q] = Set(0.0f);
    const int64_t dim = kDim > 0 ? kDim : head_dim;
    for (int64_t i = kFirst; i < dim; i += kLanes) {
      const Lanes key = LoadHalf(keys + i * kKvSlots);
      for (int q = 0; q < N; ++q) {
        dots[q] = Fma(Set(queries[q][i]), key, dots[q]);
      }
    }
  }
}

// Adds weights[q][slot] * value to the sums of N outputs, for `slots` slots in
// ascending order and `width` vectors of a value, at most 4.
template <int N>
inline void AddValues(const uint16_t* values,
                      int64_t stride,
                      int slots,
                      int width,
                      const float* const* weights,
                      Lanes (*sums)[4]) {
  if (width == 4) {
    for (int slot = 0; slot < slots; ++slot) {
      const uint16_t* const value = values + slot * stride;
      Lanes v[4];
      for (int j = 0; j < 4; ++j) v[j] = LoadHalf(value + j * kLanes);
      for (int q = 0; q < N; ++q) {
        const Lanes weight = Set(weights[q][slot]);
        for (int j = 0; j < 4; ++j) sums[q][j] = Fma(weight, v[j], sums[q][j]);
      }
    }
    return;
  }
  for (int slot = 0; slot < slots; ++slot) {
    for (int j = 0; j < width; ++j) {
      const Lanes v = LoadHalf(values + slot * stride + j * kLanes);
      for (int q = 0; q < N; ++q) {
        sums[q][j] = Fma(Set(weights[q][slot]), v, sums[q][j]);
      }
    }
  }
}

// What a chunk of positions gives a query: weights e^(score - max), their sum,
// and the sum of weight * value.
struct Partial {
  float* scores;  // [kAttendChunk], then the weights
  float* sums;    // [padded_dim]
  float* max;
  float* weight;  // the sum of the weights
};

// One query head of one row.
struct Query {
  const float* query;
  float* scratch;
  int first;  // the first position that it sees
  int end;    // one behind the last
};

// All query heads of all rows of an AttendArgs, row by row. A table, because
// finding a query's row takes a division, which is as slow as a block's scores.
struct QueryList {
  explicit QueryList(const AttendArgs& of)
      : args(&of), padded_dim(RoundUp16(of.head_dim)) {
    const int64_t chunks =
        (of.first_position + of.rows + kAttendChunk - 1) / kAttendChunk;
    for (int row = 0; row < of.rows; ++row) {
      const int end = of.first_position + row + 1;
      const int first = of.window > 0 && of.window < end ? end - of.window : 0;
      for (int head = 0; head < of.heads; ++head) {
        queries[size] = {
            of.queries + row * of.query_stride + int64_t{head} * of.head_dim,
            of.scratch + size * chunks * PartialFloats(),
            first,
            end};
        ++size;
      }
    }
  }
  int64_t PartialFloats() const { return kAttendChunk + padded_dim + kLanes; }
  Partial At(int query, int chunk) const {
    float* const from = queries[query].scratch + chunk * PartialFloats();
    float* const sums = from + kAttendChunk;
    return {from, sums, sums + padded_dim, sums + padded_dim + 1};
  }
  // A chunk's positions that a query sees, [FirstIn, EndIn) of the chunk; none
  // unless the first is less.
  int FirstIn(int query, int chunk) const {
    const int before = queries[query].first - chunk * kAttendChunk;
    return before > 0 ? before : 0;
  }
  int EndIn(int query, int chunk) const {
    const int left = queries[query].end - chunk * kAttendChunk;
    return left < kAttendChunk ? left : kAttendChunk;
  }
  bool Sees(int query, int chunk) const {
    return FirstIn(query, chunk) < EndIn(query, chunk);
  }
  // The first position that any query sees: the first row's.
  int first() const { return queries[0].first; }
  const uint16_t* Keys(int block) const {
    return args->cache + args->blocks[block] * args->block_stride;
  }
  const uint16_t* Values(int block) const {
    return Keys(block) + int64_t{args->head_dim} * kKvSlots;
  }

  const AttendArgs* args;
  int64_t padded_dim;
  int size = 0;
  Query queries[kMaxAttendQueries];
};

// Asks for memory that will be read soon. Blocks lie anywhere, and a block is
// not read in order, so that the processor would not ask by itself.
inline void Fetch(const uint16_t* from, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(uint16_t);
  for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i);
}

// How many blocks ahead of the arithmetic keys and values are fetched.
constexpr int kBlocksAhead = 4;

constexpr int kChunkBlocks = kAttendChunk / kKvSlots;

template <int N, int kDim>
inline void ScoreTogether(const QueryList& list, int block, int first) {
  const float* queries[N];
  for (int q = 0; q < N; ++q) queries[q] = list.queries[first + q].query;
  Lanes dots[N];
  DotKeys<N, kDim>(list.Keys(block), queries, list.args->head_dim, dots);
  for (int q = 0; q < N; ++q) {
    // Lanes behind a row's own position are stored, but never read.
    Store(list.At(first + q, block / kChunkBlocks).scores +
              block % kChunkBlocks * kKvSlots,
          Mul(dots[q], Set(list.args->scale)));
  }
}

// As many queries at once as the registers hold, then the rest.
template <int N, int kDim>
inline void ScoreAll(const QueryList& list, int block, int first) {
  for (; first + N <= list.size; first += N) {
    ScoreTogether<N, kDim>(list, block, first);
  }
  if constexpr (N > 1) ScoreAll<N - 1, kDim>(list, block, first);
}

template <int kDim>
inline void ScoreBlocks(const QueryList& list, int first_block, int end_block) {
  const int64_t num_keys = int64_t{list.args->head_dim} * kKvSlots;
  for (int i = 0; i < kBlocksAhead && first_block + i < end_block; ++i) {
    Fetch(list.Keys(first_block + i), num_keys);
  }
  for (int block = first_block; block < end_block; ++block) {
    if (block + kBlocksAhead < end_block) {
      Fetch(list.Keys(block + kBlocksAhead), num_keys);
    }
    ScoreAll<kQueriesTogether, kDim>(list, block, 0);
  }
}

// Scores of a chunk's positions [first, length) become weights; the weights of
// positions before them in the same block are +0.
inline void Weigh(const Partial& partial, int first, int length) {
  float* const scores = partial.scores;
  const int begin = first / kLanes * kLanes;
  const int full = length / kLanes * kLanes;
  for (int i = begin; i < first; ++i) {
    scores[i] = -BitsToFloat(kInfinityBits);
  }
  Lanes largest = Set(-BitsToFloat(kInfinityBits));
  for (int i = begin; i < full; i += kLanes) {
    largest = Max(largest, Load(scores + i));
  }
  float max = MaxLane(largest);
  for (int i = full; i < length; ++i) {
    if (scores[i] > max) max = scores[i];
  }
  const Lanes shift = Set(max);
  Lanes sum = Set(0.0f);
  for (int i = begin; i < full; i += kLanes) {
    const Lanes weight = Exp(Sub(Load(scores + i), shift));
    Store(scores + i, weight);
    sum = Add(sum, weight);
  }
  if (full < length) {
    StoreFirst(scores + full,
               Exp(Sub(LoadFirst(scores + full, length - full), shift)),
               length - full);
    // A lane without a position adds +0 to a sum that is never -0.
    sum = Add(sum, LoadFirst(scores + full, length - full));
  }
  *partial.max = max;
  *partial.weight = Fold(sum);
}

// Sums of N queries over a chunk's values, columns [column, column + 16 width),
// width <= 4, in ascending order: what a row with an earlier window sees alone,
// then blocks that all of them see together, with the sums in registers from
// the first to the last, then what a longer row sees alone.
template <int N>
inline void MixTogether(
    const QueryList& list, int chunk, int first, int64_t column, int width) {
  const int first_block = chunk * kChunkBlocks;
  Partial partials[N];
  // Blocks of each query, and those that all of them see whole or, with weights
  // of +0, from the first one's middle on.
  int begins[N];
  int ends[N];
  int shared_begin = 0;
  int shared_end = kChunkBlocks;
  for (int q = 0; q < N; ++q) {
    partials[q] = list.At(first + q, chunk);
    const bool sees = list.Sees(first + q, chunk);
    begins[q] = sees ? list.FirstIn(first + q, chunk) / kKvSlots : 0;
    ends[q] = sees ? list.EndIn(first + q, chunk) : 0;
    if (begins[q] > shared_begin) shared_begin = begins[q];
    if (ends[q] / kKvSlots < shared_end) shared_end = ends[q] / kKvSlots;
  }
  if (shared_end < shared_begin) shared_end = shared_begin = 0;
  Lanes sums[N][4];
  for (int q = 0; q < N; ++q) {
    for (int j = 0; j < 4; ++j) sums[q][j] = Set(0.0f);
  }
  const auto alone = [&](int q, int from, int to) {
    for (int at = from; at < to; at += kKvSlots) {
      const float* const weights = partials[q].scores + at;
      AddValues<1>(list.Values(first_block + at / kKvSlots) + column,
                   list.padded_dim,
                   to - at < kKvSlots ? to - at : kKvSlots,
                   width,
                   &weights,
                   &sums[q]);
    }
  };
  for (int q = 0; q < N; ++q) {
    if (shared_begin < shared_end) {
      alone(q, begins[q] * kKvSlots, shared_begin * kKvSlots);
    }
  }
  for (int block = shared_begin; block < shared_end; ++block) {
    const float* weights[N];
    for (int q = 0; q < N; ++q) {
      weights[q] = partials[q].scores + block * kKvSlots;
    }
    if (first == 0 && block + kBlocksAhead < shared_end) {
      const uint16_t* const ahead =
          list.Values(first_block + block + kBlocksAhead);
      Fetch(ahead + column * kKvSlots, int64_t{width} * kLanes * kKvSlots);
    }
    AddValues<N>(list.Values(first_block + block) + column,
                 list.padded_dim,
                 kKvSlots,
                 width,
                 weights,
                 sums);
  }
  for (int q = 0; q < N; ++q) {
    const int done = shared_begin < shared_end ? shared_end : begins[q];
    alone(q, done * kKvSlots, ends[q]);
    for (int j = 0; j < width; ++j) {
      Store(partials[q].sums + column + j * kLanes, sums[q][j]);
    }
  }
}

template <int N>
inline void MixAll(
    const QueryList& list, int chunk, int first, int64_t column, int width) {
  for (; first + N <= list.size; first += N) {
    MixTogether<N>(list, chunk, first, column, width);
  }
  if constexpr (N > 1) MixAll<N - 1>(list, chunk, first, column, width);
}

void AttendToChunk(const QueryList& list, int chunk) {
  const AttendArgs& args = *list.args;
  const int num_blocks =
      (args.first_position + args.rows + kKvSlots - 1) / kKvSlots;
  const int end_block = (chunk + 1) * kChunkBlocks < num_blocks
                            ? (chunk + 1) * kChunkBlocks
                            : num_blocks;
  const int seen_block = list.first() / kKvSlots;
  const int first_block =
      chunk * kChunkBlocks > seen_block ? chunk * kChunkBlocks : seen_block;
  if (first_block >= end_block) return;
  switch (args.head_dim) {
    case 64:
      ScoreBlocks<64>(list, first_block, end_block);
      break;
    case 128:
      ScoreBlocks<128>(list, first_block, end_block);
      break;
    default:
      ScoreBlocks<0>(list, first_block, end_block);
      break;
  }
  const int64_t num_values = list.padded_dim * kKvSlots;
  for (int i = 0; i < kBlocksAhead && first_block + i < end_block; ++i) {
    Fetch(list.Values(first_block + i), num_values);
  }
  for (int i = 0; i < list.size; ++i) {
    if (!list.Sees(i, chunk)) continue;
    Weigh(list.At(i, chunk), list.FirstIn(i, chunk), list.EndIn(i, chunk));
  }
  for (int64_t column = 0; column < list.padded_dim; column += 4 * kLanes) {
    const int64_t left = (list.padded_dim - column) / kLanes;
    MixAll<kQueriesTogether>(
        list, chunk, 0, column, left < 4 ? static_cast<int>(left) : 4);
  }
  if (end_block < num_blocks) {
    for (int i = 0; i < kBlocksAhead && end_block + i < num_blocks; ++i) {
      // The next chunk's first keys.
      Fetch(list.Keys(end_block + i), int64_t{args.head_dim} * kKvSlots);
    }
  }
}

// Adds the chunks' sums up in ascending order, always to the larger maximum of
// what came before and what comes.
void FoldChunks(const QueryList& list) {
  const AttendArgs& args = *list.args;
  for (int i = 0; i < list.size; ++i) {
    const int first = list.queries[i].first / kAttendChunk;
    const Partial total = list.At(i, first);
    Lanes max = Set(*total.max);
    Lanes weight = Set(*total.weight);
    for (int chunk = first + 1; list.Sees(i, chunk); ++chunk) {
      const Partial next = list.At(i, chunk);
      const Lanes next_max = Set(*next.max);
      const Lanes new_max = Max(max, next_max);
      const Lanes old_factor = Exp(Sub(max, new_max));
      const Lanes next_factor = Exp(Sub(next_max, new_max));
      weight = Fma(weight, old_factor, Mul(Set(*next.weight), next_factor));
      for (int64_t j = 0; j < list.padded_dim; j += kLanes) {
        Store(total.sums + j,
              Fma(Load(total.sums + j),
                  old_factor,
                  Mul(Load(next.sums + j), next_factor)));
      }
      max = new_max;
    }
    const Lanes inverse = Div(Set(1.0f), weight);
    float* const out = args.out + (i / args.heads) * args.out_stride +
                       int64_t{i % args.heads} * args.head_dim;
    for (int64_t j = 0; j < args.head_dim; j += kLanes) {
      StoreFirst(
          out + j, Mul(Load(total.sums + j), inverse), args.head_dim - j);
    }
  }
}

void Attend(const AttendArgs& args) {
  const QueryList list(args);
  const int length = args.first_position + args.rows;
  for (int chunk = list.first() / kAttendChunk; chunk * kAttendChunk < length;
       ++chunk) {
    AttendToChunk(list, chunk);
  }
  FoldChunks(list);
}

void AttendChunk(const AttendArgs& args, int chunk) {
  AttendToChunk(QueryList(args), chunk);
}

void AttendFold(const AttendArgs& args) { FoldChunks(QueryList(args)); }
