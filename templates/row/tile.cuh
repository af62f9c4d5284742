// Some vectors of a row in the registers of one thread, and what every operation does with them.
//
// An Operation is what a Variant runs over a row (softmax.cuh, softmax_backward.cuh, cross_entropy.cuh). The
// Variant cuts the row, moves the data, joins the parts, and asks:
//
// clang-format off
//   Early(arguments, row)          what can be read before the row's turn; look_up() reads what depends on that
//   Common(arguments)              what all rows share, counted or waited for; by whole warps
//   Fixed(arguments)               what the arguments alone say, made once by threads that take many rows
//   Operation(arguments, row, leader [, early, fixed])  by every thread of the row; one of them leads
//   reduces                        whether the row has to be read before its outputs are known
//   has_output                     whether there is anything to write per element
//   has_target                     whether one column needs another output: target_output() at target_column()
//   all_weights                    whether it reads the weights of all classes: from its `weights`, ClassWeights
//   padding()                      the value of elements that are none
//   factor()                       of the exponents (Part::move_to)
//   constant(value)                whether this row needs no inputs: its outputs, if any, are this value (ignored rows)
//   prepare()                      if it is not: reads what a row has once; by whole warps
//   prepare(common)                the same where the caller has Common, and has told its Early to look up
//   target_logit(row)              what must be read of the row by its column, before anybody writes over it ...
//   set_target(logit)              ... and here it is
//   needs_maximum()                whether exponentials could overflow or vanish if all maxima were 0
//   maximum_of(tile)               the largest exponent of the tile, before the factor
//   caps                           whether logits are put under a cap, in place: once for each time that a tile is read,
//                                  after its maximum is known and before its outputs, by add() or cap(tile)
//   add(part, tile)                adds the tile to a part whose maximum is not smaller; the tile loses the target's logit.
//                                  Whether it is simple now
//   settle(total)                  here is the part that is the whole row
//   fast()                         whether outputs have a fast form, which simple(tile) then says of a tile, under its cap
//   apply<fast>(elements, column)  the outputs of these columns
//   some_simple                    whether some tiles are simple and others are not
//   settled()                      what outputs need of a settled row: a Settled, to be put() to an Operation(arguments) of a
//                                  thread that only writes, for one row after the other; where `pipeline_decoupled` serves
//   record()                       the leader writes what a row has once, losses and the like; by its whole warp, once for
//                                  every row, constant ones, too
// clang-format on
#pragma once
#include "row/part.cuh"
#include "row/row.cuh"

namespace ce {

/// Vectors begin + thread, begin + thread + threads, ... of a row, as far as they lie before `end`.
/// \tparam whole     begin and end are those of the row; then most checks are decided at compile time
/// \tparam together  neighbouring threads that find out together whether the tile is full
/// \tparam plain     that it is full, without the target, and simple, the caller finds out before it is added
template <class T, class RowCut, int size, int threads, bool whole, int together = threads,
          bool plain = false>
struct Tile {
  static constexpr int count = size, vec = RowCut::elements;
  static constexpr bool is_whole = whole, is_plain = plain;
  const RowCut cut;
  int begin, vector;  ///< of elements[0] of the first of the threads together, and of this one
  int end;
  Elements<T, vec> elements[size > 0 ? size : 1];

  CE_DEVICE Tile(const RowCut& row_cut, int first, int end_of_part, int thread)
      : cut(row_cut),
        begin(together == threads ? first : first + thread / together * together),
        vector(first + thread),
        end(end_of_part) {}

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
    return (RowCut::exact || begin >= cut.first) && begin + ((size - 1) * threads + together) <= end;
  }
  /// The same as fill() where most tiles are full: one check instead of one for each vector.
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
  /// Whether the tile has that column, or would have if its vectors were all inside.
  CE_DEVICE bool holds(int column) const {
    if constexpr (plain) return false;
    const int distance = column - column_of(0);
    return distance >= 0 && distance < size * threads * vec && distance / vec % threads == 0;
  }
  /// Overwrites the first input where the tile has that column.
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
    constexpr int fewest = whole ? (RowCut::exact ? RowCut::most_vectors : RowCut::columns / vec - 1) : 0;
    const bool reaches = (i + 1) * threads <= fewest;
    const bool past = RowCut::exact || (whole && i * threads >= RowCut::line);
    const int v = vector + i * threads;
    return (past || v >= cut.first) && (reaches || v < end);
  }
  CE_DEVICE int column_of(int i) const { return cut.column_of(vector + i * threads); }
  /// \param visit  gets i and the number of its vector
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

/// The edge element of a thread, as a tile of its own.
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

/// The outputs of a tile, of those vectors that are inside.
template <bool is_fast, Store modifier, class Operation, class T, class Tile>
CE_DEVICE void write_inside(const Operation& operation, const Row<T>& row, const Tile& tile) {
#pragma unroll
  for (int i = 0; i < Tile::count; ++i)
    if (tile.inside(i))
      row.template write<modifier>(tile.column_of(i),
                                   operation.template apply<is_fast>(tile.elements[i], tile.column_of(i)));
}

/// The outputs of a tile. Most tiles are full, and most outputs have a fast form.
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

/// Sets the output of the target's column right, after the others of the row; by the thread that has written
/// it before, whose vectors are begin + thread, begin + thread + threads, ... below `end`.
template <Store modifier, int threads, class Operation, class T, class RowCut>
CE_DEVICE void correct_target(const Operation& operation, const Row<T>& row, const RowCut& cut, int begin,
                              int end, int thread, const Edge<T>& edge) {
  if constexpr (Operation::has_target) {
    const int column = operation.target_column();
    const int distance = column - cut.column_of(begin);
    const bool own = distance >= 0 && column < cut.column_of(end) && column >= cut.head &&
                     distance / RowCut::elements % threads == thread;
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

/// The largest |x| of what is inside of the first input; of some that are NaN it may be that of the others.
/// \tparam T  of the elements, whatever the tile says
template <class T = problem::Element, class Tile>
CE_DEVICE float largest_magnitude_of(const Tile& tile) {
  constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
  if (tile.full()) {
    auto largest = tile.elements[0].of_input[0].template as<T>();
#pragma unroll
    for (int i = 1; i < count; ++i)
      largest = largest.larger_magnitude(tile.elements[i].of_input[0].template as<T>());
    return largest.largest_magnitude();
  }
  float largest = 0.f;
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (tile.inside(i))
      largest = maximum(largest, tile.elements[i].of_input[0].template as<T>().largest_magnitude());
  return largest;
}

/// The first column of the tile where the first input is as wanted; T as above.
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

/// Puts the logits of a tile that is not added under their cap, where the operation asks for that.
template <class Operation, class Tile>
CE_DEVICE void cap(const Operation& operation, Tile& tile) {
  if constexpr (Operation::caps) operation.cap(tile);
}

/// The part knows of the tile's largest logit, if it keeps that.
template <class Part, class Tile>
CE_DEVICE void see_largest(Part& part, const Tile& tile) {
  if constexpr (Part::indices)
    if (const float largest = largest_of(tile); largest >= part.largest && largest > -infinity())
      part.see(largest, first_where(tile, [&](float x) { return x == largest; }));
}

/// The part's maximum is now also that of the tile.
template <class Operation, class Part, class Tile>
CE_DEVICE void raise(const Operation& operation, Part& part, const Tile& tile) {
  if constexpr (Part::exponentials) {
    if (operation.needs_maximum())
      part.move_to(maximum(part.max, operation.maximum_of(tile)), operation.factor());
    else
      part.max = 0.f;
    see_largest(part, tile);
  }
}

/// The part now includes the tile, whose logits are now under their cap. Whether it is simple.
template <class Operation, class Part, class Tile>
CE_DEVICE bool extend(const Operation& operation, Part& part, Tile& tile) {
  raise(operation, part, tile);
  return operation.add(part, tile);
}
/// The same where no maximum is needed.
template <class Operation, class Part, class Tile>
CE_DEVICE void extend_alone(const Operation& operation, Part& part, Tile& tile) {
  if constexpr (Part::exponentials) {
    part.max = 0.f;
    see_largest(part, tile);
  }
  operation.add(part, tile);
}

}  // namespace ce
