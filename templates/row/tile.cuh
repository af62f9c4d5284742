// Some vectors of a row in the registers of one thread, and common operations on them.
#pragma once
#include "row/operation.cuh"

namespace ce {

/// Vectors first + thread, first + thread + threads, ... of a row, as far as they are before `end`.
/// \tparam whole     begin and end are those of the row; then most checks are done at compile time
/// \tparam together  number of neighbouring threads that determine together whether the tile is full
/// \tparam plain     the caller determines before adding that the tile is full, without the target, and simple
template <class T, class Partition, int size, int threads, bool whole, int together = threads,
          bool plain = false>
struct Tile {
  static_assert(size > 0, "a thread without a vector would hold elements that nothing has set");
  static constexpr int count = size, vec = Partition::elements;
  static constexpr bool is_whole = whole, is_plain = plain;
  const Partition partition;
  int begin, vector;  ///< elements[0] of the first of these threads, and of this one
  int end;
  Elements<T, vec> elements[size];

  CE_DEVICE Tile(const Partition& row_partition, int first, int end_of_slice, int thread)
      : partition(row_partition),
        begin(together == threads ? first : first + thread / together * together),
        vector(first + thread),
        end(end_of_slice) {}

  /// \param read  gives the Elements of a vector that is inside
  template <class Read>
  CE_DEVICE void fill(float padding, const Read& read) {
#pragma unroll
    for (int i = 0; i < size; ++i)
      elements[i] = inside(i) ? read(vector + i * threads) : Elements<T, vec>::filled(padding);
  }
  /// Whether all of its vectors are inside, in all threads together.
  CE_DEVICE bool full() const {
    if constexpr (plain) return true;
    return (Partition::exact || !Partition::from_line || begin >= partition.first) &&
           begin + ((size - 1) * threads + together) <= end;
  }
  /// Like fill() if most tiles are full: one check instead of one for each vector.
  template <class Read>
  CE_DEVICE void fill_mostly_full(float padding, const Read& read) {
    if (full()) {
#pragma unroll
      for (int i = 0; i < size; ++i) elements[i] = read(vector + i * threads);
    } else {
      fill(padding, read);
    }
  }
  template <Store modifier>
  CE_DEVICE void write_value(const Row<T>& row, float value) const {
    const auto outputs = Vector<T, vec>::filled(value);
#pragma unroll
    for (int i = 0; i < size; ++i)
      if (inside(i)) row.template write<modifier>(column_of(i), outputs);
  }
  /// Whether the tile contains that column, or would if all its vectors were inside.
  CE_DEVICE bool holds(int column) const {
    if constexpr (plain) return false;
    const int distance = column - column_of(0);
    return distance >= 0 && distance < size * threads * vec && distance / vec % threads == 0;
  }
  /// Overwrites the first input in that column, if the tile contains it.
  CE_DEVICE void replace(int column, float value) {
    if (!holds(column)) return;
    const int distance = column - column_of(0);
#pragma unroll
    for (int i = 0; i < size; ++i)
      elements[i].of_input[0] =
          elements[i].of_input[0].with(distance / (vec * threads) == i ? distance % vec : -1, value);
  }
  CE_DEVICE bool inside(int i) const {
    if constexpr (plain) return true;
    constexpr int fewest =
        whole ? (Partition::exact ? Partition::most_vectors : Partition::columns / vec - 1) : 0;
    const bool reaches = (i + 1) * threads <= fewest;
    const bool past = Partition::exact || !Partition::from_line || (whole && i * threads >= Partition::line);
    const int v = vector + i * threads;
    return (past || v >= partition.first) && (reaches || v < end);
  }
  CE_DEVICE int column_of(int i) const { return partition.column_of(vector + i * threads); }
  /// \param visit  gets i and the index of its vector
  template <class Visit>
  CE_DEVICE void each_inside(const Visit& visit) const {
    if (full()) {
#pragma unroll
      for (int i = 0; i < size; ++i) visit(i, vector + i * threads);
    } else {
#pragma unroll
      for (int i = 0; i < size; ++i)
        if (inside(i)) visit(i, vector + i * threads);
    }
  }
};

/// The edge element of a thread (row.cuh), as a separate tile.
template <class T>
struct Edge {
  static constexpr int count = 1, vec = 1;
  static constexpr bool is_plain = false;
  int column;  ///< -1: none
  Elements<T, 1> elements[1];

  template <Load modifier>
  CE_DEVICE void read(const Row<T>& row, float padding) {
    elements[0] = column >= 0 ? row.template read_element<modifier>(column) : Elements<T, 1>::filled(padding);
  }
  CE_DEVICE bool full() const { return column >= 0; }
  CE_DEVICE bool holds(int other) const { return column >= 0 && other == column; }
  CE_DEVICE void replace(int other, float value) {
    if (holds(other)) elements[0].of_input[0] = Vector<T, 1>::filled(value);
  }
  CE_DEVICE bool inside(int) const { return column >= 0; }
  CE_DEVICE int column_of(int) const { return column; }
};

/// Writes the outputs of a tile, for vectors that are inside.
template <bool is_fast, Store modifier, class Operation, class T, class Tile>
CE_DEVICE void write_inside(const Operation& operation, const Row<T>& row, const Tile& tile) {
#pragma unroll
  for (int i = 0; i < Tile::count; ++i)
    if (tile.inside(i))
      row.template write<modifier>(tile.column_of(i),
                                   operation.template apply<is_fast>(tile.elements[i], tile.column_of(i)));
}

/// Writes the outputs of a tile. Most tiles are full, and most outputs have a fast form.
template <Store modifier, class Operation, class T, class Tile>
CE_DEVICE void write_outputs(const Operation& operation, const Row<T>& row, const Tile& tile, bool fast) {
  if (fast && tile.full()) {
#pragma unroll
    for (int i = 0; i < Tile::count; ++i)
      row.template write<modifier>(tile.column_of(i),
                                   operation.template apply<true>(tile.elements[i], tile.column_of(i)));
  } else if ((Tile::is_whole || Operation::some_simple) && fast) {
    write_inside<true, modifier>(operation, row, tile);
  } else {
    write_inside<false, modifier>(operation, row, tile);
  }
}
template <Store modifier, class Operation, class T, class Tile>
CE_DEVICE void write_outputs(const Operation& operation, const Row<T>& row, const Tile& tile) {
  write_outputs<modifier>(operation, row, tile, operation.fast() & operation.simple(tile));
}
template <Store modifier, class Operation, class T>
CE_DEVICE void write_edge(const Operation& operation, const Row<T>& row, const Edge<T>& edge,
                          bool constant = false, float value = 0.f) {
  if (edge.column >= 0)
    row.template write_element<modifier>(
        edge.column, constant ? Vector<T, 1>::filled(value)
                              : operation.template apply<false>(edge.elements[0], edge.column));
}

/// Corrects the output of the target's column, after the others of the row; by the thread that has written it before,
/// whose vectors are begin + thread, begin + thread + threads, ... below `end`.
template <Store modifier, int threads, class Operation, class T, class Partition>
CE_DEVICE void correct_target(const Operation& operation, const Row<T>& row, const Partition& partition,
                              int begin, int end, int thread, const Edge<T>& edge) {
  if constexpr (Operation::has_target) {
    const int column = operation.target_column();
    const int distance = column - partition.column_of(begin);
    const bool own = distance >= 0 && column < partition.column_of(end) && column >= partition.prologue &&
                     distance / Partition::elements % threads == thread;
    if (own || (edge.column >= 0 && edge.column == column))
      row.template write_element<modifier>(column, operation.target_output());
  }
}

/// The largest element of the first input.
template <class Tile>
CE_DEVICE float largest_of(const Tile& tile) {
  constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
  auto largest = tile.elements[0].of_input[0];
#pragma unroll
  for (int i = 1; i < count; ++i) largest = largest.larger(tile.elements[i].of_input[0]);
  return largest.largest();
}

/// The first column of the tile whose first input satisfies the condition.
/// \tparam T  type of the elements, whatever the tile says
template <class T = problem::Element, class Tile, class Wanted>
CE_DEVICE int first_where(const Tile& tile, const Wanted& wanted) {
  constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]), vec = Tile::vec;
  int first = no_column;
#pragma unroll
  for (int i = count - 1; i >= 0; --i) {
    float x[vec];
    tile.elements[i].of_input[0].template as<T>().values(x);
#pragma unroll
    for (int k = vec - 1; k >= 0; --k)
      if (wanted(x[k]) && tile.inside(i)) first = tile.column_of(i) + k;
  }
  return first;
}

/// Puts the logits of a tile that is not added under their cap, if the operation requires that.
template <class Operation, class Tile>
CE_DEVICE void cap(const Operation& operation, Tile& tile) {
  if constexpr (Operation::caps) operation.cap(tile);
}

/// Adds the tile's largest logit to the statistics, if they keep it.
template <class Stats, class Tile>
CE_DEVICE void observe_largest(Stats& stats, const Tile& tile) {
  if constexpr (Stats::indices)
    if (const float largest = largest_of(tile); largest >= stats.largest && largest > -infinity())
      stats.observe(largest, first_where(tile, [&](float x) { return x == largest; }));
}

/// Raises the maximum of the statistics to at least the tile's.
template <class Operation, class Stats, class Tile>
CE_DEVICE void rescale_to(const Operation& operation, Stats& stats, const Tile& tile) {
  if constexpr (Stats::exponentials) {
    if (operation.needs_maximum())
      stats.rescale(maximum(stats.max, operation.maximum_of(tile)), operation.exponent_factor());
    else
      stats.max = 0.f;
    observe_largest(stats, tile);
  }
}

/// Adds the tile to the statistics and puts its logits under their cap. Returns whether it is simple.
template <class Operation, class Stats, class Tile>
CE_DEVICE bool extend(const Operation& operation, Stats& stats, Tile& tile) {
  rescale_to(operation, stats, tile);
  return operation.add(stats, tile);
}
}  // namespace ce
