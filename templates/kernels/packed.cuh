// Variant `packed`: dense rows too narrow for vectors of their own.
//
// Each lane of a warp reduces `rows` neighbouring rows in its registers. All rows of a warp follow each other without
// gaps, so the warp moves them together like a copy: in vectors of 16 bytes, neighbouring lanes neighbouring vectors,
// whatever rows these are of. Shared memory of the warp hands each lane its own rows. With 10 columns in 16 bits and
// rows=4:
//
//     vectors | 0       | 1       | 2       | 3       | 4       | 5       | 6
//     rows    | 0          | 1          | 2          | 3          | 4          | 5
//     lanes   | 0                                                 | 1
//
// Were each lane to load its own vectors, those of neighbouring lanes would lie 80 bytes apart, and each store of the
// warp would write half of every sector that it touches. Where the rows of a lane are one access there is nothing to
// hand over: 4 rows of 2 columns in 16 bits are a vector. Rows at the end, too few for the warp, are moved element by
// element.
//
// Moves 1 read + 1 write. Bound by the memory. There is no block barrier.
//
// axis warps = 4
// axis rows = 1 2 4 8
// axis load = ca cs evict_last
// axis store = wb cg cs
#pragma once
#include "row/tile.cuh"
#include "shared_layouts.cuh"

namespace ce {

using Element = problem::Element;
constexpr PackedShape shape{problem::columns, int(sizeof(Element)), config::rows, problem::inputs};
static_assert(problem::dense, "rows follow each other, the first on a 16-byte boundary");
static_assert(Operation::reduces && Operation::has_output && !Operation::has_target,
              "nothing is read or written beside the rows");
static_assert(shape.access() >= 4 || !shape.is_one_access(), "16-bit elements one by one");

constexpr int words_of_access = ceil_of(shape.access(), 4);

struct Shared {
  alignas(16) char of_warp[config::warps][problem::inputs][shape.warp_bytes()];
};

/// The rows of a lane, of one tensor, in memory order.
struct LaneRows {
  static constexpr int elements = config::rows * problem::columns, per_word = 4 / int(sizeof(Element));
  uint32 word[ceil_of(shape.lane_bytes(), 4)];

  CE_DEVICE uint32 bits(int i) const {
    if constexpr (per_word == 1) return word[i];
    return i % 2 == 0 ? word[i / 2] & 0xffffu : word[i / 2] >> 16;
  }
  /// The rows are contiguous, starting at the first.
  CE_DEVICE void put(int i, uint32 bits) {
    if constexpr (per_word == 1)
      word[i] = bits;
    else if (i % 2 == 0)
      word[i / 2] = bits & 0xffffu;
    else
      word[i / 2] |= bits << 16;
  }

  /// \param address  address of the first row, a multiple of shape.access()
  CE_DEVICE void read(const char* address) {
    if constexpr (shape.access() < 4) {
#pragma unroll
      for (int i = 0; i < elements; ++i) put(i, reinterpret_cast<const unsigned short*>(address)[i]);
    } else {
#pragma unroll
      for (int i = 0; i < shape.lane_bytes() / shape.access(); ++i) {
        const auto part = reinterpret_cast<const Words<words_of_access>*>(address)[i];
#pragma unroll
        for (int w = 0; w < words_of_access; ++w) word[i * words_of_access + w] = part.word[w];
      }
    }
  }
  CE_DEVICE void write(char* address) const {
    if constexpr (shape.access() < 4) {
#pragma unroll
      for (int i = 0; i < elements; ++i)
        reinterpret_cast<unsigned short*>(address)[i] = (unsigned short)(bits(i));
    } else {
#pragma unroll
      for (int i = 0; i < shape.lane_bytes() / shape.access(); ++i) {
        Words<words_of_access> part;
#pragma unroll
        for (int w = 0; w < words_of_access; ++w) part.word[w] = word[i * words_of_access + w];
        reinterpret_cast<Words<words_of_access>*>(address)[i] = part;
      }
    }
  }
  /// \param count  number of elements to read; the others are zero
  CE_DEVICE void load_elements(const Element* first, int count) {
#pragma unroll
    for (int i = 0; i < elements; ++i) {
      uint32 bits = 0;
      if (i < count) put_bits(bits, load_element<config::load>(first + i));
      put(i, bits);
    }
  }
  CE_DEVICE void store_elements(Element* first, int count) const {
#pragma unroll
    for (int i = 0; i < elements; ++i) {
      Element element;
      get_bits(bits(i), element);
      if (i < count) store_element<config::store>(first + i, element);
    }
  }
};

/// One row of a lane as a tile: pairs of 16-bit elements; the last element of an odd row is paired with padding.
struct PackedRow {
  static constexpr int vec = LaneRows::per_word, count = ceil_of(problem::columns, vec);
  static constexpr bool is_plain = false;
  Elements<Element, vec> elements[count];

  CE_DEVICE PackedRow(const LaneRows (&inputs)[problem::inputs], int row, float padding) {
    const Vector<Element, vec> filled = Vector<Element, vec>::filled(padding);
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int input = 0; input < problem::inputs; ++input) {
        const LaneRows& rows = inputs[input];
        const int first = row * problem::columns + i * vec;
        uint32 word = rows.bits(first);
        if constexpr (vec == 2) {
          const bool inside = i * vec + 1 < problem::columns;
          word |= inside ? rows.bits(first + 1) << 16 : filled.data.word[0] & 0xffff0000u;
        }
        elements[i].of_input[input].data.word[0] = word;
      }
  }
  CE_DEVICE bool full() const { return problem::columns % vec == 0; }
  CE_DEVICE bool holds(int) const { return false; }
  CE_DEVICE bool inside(int) const { return true; }
  CE_DEVICE int column_of(int i) const { return i * vec; }

  /// Writes outputs over this row.
  template <bool is_fast>
  CE_DEVICE void apply(const Operation& operation, LaneRows& outputs, int row) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int first = row * problem::columns + i * vec;
      const uint32 word = operation.template apply<is_fast>(elements[i], i * vec).data.word[0];
      outputs.put(first, word);
      if (vec == 2 && i * vec + 1 < problem::columns) outputs.put(first + 1, word >> 16);
    }
  }
};

/// Like extend() of empty statistics by a whole row: nothing must be rescaled. Returns whether the row is simple.
template <class O, class Stats>
CE_DEVICE bool reduce(const O& operation, Stats& stats, PackedRow& row) {
  if constexpr (Stats::exponentials) stats.max = maximum(stats.max, operation.maximum_of(row));
  return operation.add(stats, row);
}

/// Moves the vectors of a warp's rows between global and shared memory: neighbouring lanes have neighbouring vectors.
struct WarpVectors {
  static constexpr int vectors = shape.warp_bytes() / 16, count = ceil_of(vectors, lanes);
  Words<4> data[count];

  template <class Visit>
  CE_DEVICE static void each(const Visit& visit) {
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (const int vector = i * lanes + lane_index(); vector < vectors) visit(i, 16 * vector);
  }
  CE_DEVICE void load_from(const char* global) {
    each([&](int i, int at) { data[i] = load<config::load, 4>(global + at); });
  }
  CE_DEVICE void write(char* shared) const {
    each([&](int i, int at) { *reinterpret_cast<Words<4>*>(shared + at) = data[i]; });
  }
  CE_DEVICE static void store_to(char* global, const char* shared) {
    each([&](int, int at) {
      store<config::store>(global + at, *reinterpret_cast<const Words<4>*>(shared + at));
    });
  }
};

/// For a warp that has all of its rows.
/// \param first  first elements of the rows
CE_DEVICE void load_rows(const Element* const (&first)[problem::inputs], LaneRows (&rows)[problem::inputs]) {
  const int own = lane_index() * shape.lane_bytes();
  if constexpr (shape.is_one_access()) {
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) {
      const auto part = load<config::load, words_of_access>(reinterpret_cast<const char*>(first[i]) + own);
#pragma unroll
      for (int w = 0; w < words_of_access; ++w) rows[i].word[w] = part.word[w];
    }
  } else {
    auto& shared = shared_memory<Shared>().of_warp[warp_index()];
    WarpVectors vectors[problem::inputs];
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) vectors[i].load_from(reinterpret_cast<const char*>(first[i]));
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) vectors[i].write(shared[i]);
    warp_barrier();
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) rows[i].read(shared[i] + own);
  }
}
/// Stores them through the shared memory of the first input, where each lane has read its own rows.
CE_DEVICE void store_rows(Element* first, const LaneRows& rows) {
  const int own = lane_index() * shape.lane_bytes();
  if constexpr (shape.is_one_access()) {
    Words<words_of_access> part;
#pragma unroll
    for (int w = 0; w < words_of_access; ++w) part.word[w] = rows.word[w];
    store<config::store>(reinterpret_cast<char*>(first) + own, part);
  } else {
    char* shared = shared_memory<Shared>().of_warp[warp_index()][0];
    rows.write(shared + own);
    warp_barrier();
    WarpVectors::store_to(reinterpret_cast<char*>(first), shared);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  static_assert(shape.is_one_access() || sizeof(Shared) <= config::shared_bytes);
  const int64 row = (block_index() * config::warps + warp_index()) * (lanes * config::rows);
  const int64 left = arguments.rows - row;
  if (left <= 0) return;
  const bool is_full = left >= lanes * config::rows;
  const int64 first = row * problem::columns;
  const Element* inputs[problem::inputs] = {static_cast<const Element*>(arguments.input) + first};
  if constexpr (problem::inputs == 2) inputs[1] = static_cast<const Element*>(arguments.second) + first;
  Element* const output = static_cast<Element*>(arguments.output) + first;
  // For a warp with fewer rows: the number of its elements that belong to this lane; below 1 if none.
  const int own = lane_index() * LaneRows::elements;
  const int count = is_full ? LaneRows::elements : int(left) * problem::columns - own;

  LaneRows read[problem::inputs];
  if (is_full) {
    load_rows(inputs, read);
  } else {
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) read[i].load_elements(inputs[i] + own, count);
  }
  LaneRows outputs;
#pragma unroll
  for (int r = 0; r < config::rows; ++r) {
    Operation operation(arguments, row + lane_index() * config::rows + r, false);
    PackedRow own_row(read, r, Operation::padding());
    Operation::Stats stats;
    const bool is_simple = reduce(operation, stats, own_row);
    operation.finalize(stats);
    if (is_simple && operation.fast())
      own_row.apply<true>(operation, outputs, r);
    else
      own_row.apply<false>(operation, outputs, r);
  }
  if (is_full)
    store_rows(output, outputs);
  else
    outputs.store_elements(output + own, count);
}
