// A row in vectors. A row of `columns` elements is a prologue of single elements up to the first vector boundary, a body of
// whole vectors, and an epilogue of single elements:
//
//     | prologue | vector `first` | vector first + 1 | ...       | vector (end - 1) | epilogue |
//
// Vectors are counted from the 128-byte line in which the first of them lies, so that a warp that takes 32 of
// them in a row touches no more lines than it must; where a few lanes share a row, from the first of them. Thread t
// takes vectors t, t + threads, t + 2 threads, ... as far as they are inside, and at most one element of the prologue
// or the epilogue (its "edge"). Where every row starts on a line the prologue is empty and all sizes are compile-time
// constants.
#pragma once
#include "arguments.cuh"
#include "device/device.cuh"
#include "row/layout.cuh"

namespace ce {

/// Elements from the start of a tensor to that of a row: in 64 bits.
CE_DEVICE int64 row_offset(const Arguments& arguments, const Layout& layout, int64 row) {
  if constexpr (problem::batched)
    return row / arguments.batch_rows * layout.batch + row % arguments.batch_rows * layout.row;
  return row * layout.row;
}

/// Some elements in 32-bit words (or in one 16-bit half), and their values in f32.
template <class T, int n>
struct Vector {
  static constexpr int words = n * int(sizeof(T)) / 4;
  Words<words> data;

  template <Load modifier>
  CE_DEVICE static Vector read(const T* address) {
    return {load<modifier, words>(address)};
  }
  template <Store modifier>
  CE_DEVICE void write(T* address) const {
    store<modifier>(address, data);
  }

  /// One value in all elements.
  CE_DEVICE static Vector filled(float value) {
    float x[n];
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = value;
    return of(x);
  }
  CE_DEVICE static Vector of(const float (&x)[n]) {
    Vector v;
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if constexpr (sizeof(T) == 4) {
        const T element = x[i];
        v.data.word[i] = reinterpret_cast<const uint32&>(element);
      } else {
        v.data.word[i] = pack<T>(x[2 * i], x[2 * i + 1]);
      }
    }
    return v;
  }
  /// One value in all elements but one, whose index is not negative and has another value.
  CE_DEVICE Vector with(int position, float value) const {
    const uint32 other = filled(value).data.word[0];
    Vector v = *this;
#pragma unroll
    for (int i = 0; i < words; ++i) {
      uint32 kept = 0xffffffffu;
      if (position >= 0 && position * int(sizeof(T)) / 4 == i)
        kept = sizeof(T) == 4 ? 0u : position % 2 == 0 ? 0xffff0000u : 0xffffu;
      v.data.word[i] = (v.data.word[i] & kept) | (other & ~kept);
    }
    return v;
  }
  /// The larger of each two elements.
  CE_DEVICE Vector larger(const Vector& other) const {
    Vector v;
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if constexpr (sizeof(T) == 4) {
        const T element =
            maximum(reinterpret_cast<const T&>(data.word[i]), reinterpret_cast<const T&>(other.data.word[i]));
        v.data.word[i] = reinterpret_cast<const uint32&>(element);
      } else {
        v.data.word[i] = maximum_pair<T>(data.word[i], other.data.word[i]);
      }
    }
    return v;
  }
  CE_DEVICE float largest() const {
    if constexpr (sizeof(T) == 4) {
      float x[n];
      values(x);
      float max = x[0];
#pragma unroll
      for (int i = 1; i < n; ++i) max = maximum(max, x[i]);
      return max;
    } else {
      uint32 max = data.word[0];
#pragma unroll
      for (int i = 1; i < words; ++i) max = maximum_pair<T>(max, data.word[i]);
      const Float2 pair = unpack<T>(max);
      return maximum(pair.low, pair.high);
    }
  }
  /// The same bits as another type.
  template <class Other>
  CE_DEVICE Vector<Other, n> as() const {
    return {data};
  }
  CE_DEVICE void values(float (&x)[n]) const {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if constexpr (sizeof(T) == 4) {
        x[i] = reinterpret_cast<const T&>(data.word[i]);
      } else {
        const Float2 pair = unpack<T>(data.word[i]);
        x[2 * i] = pair.low;
        x[2 * i + 1] = pair.high;
      }
    }
  }
};

/// A vector of one 16-bit element: used if input and output share no boundary.
template <class T>
requires(sizeof(T) == 2) struct Vector<T, 1> {
  T data;
  template <Load modifier>
  CE_DEVICE static Vector read(const T* address) {
    return {load_element<modifier>(address)};
  }
  template <Store modifier>
  CE_DEVICE void write(T* address) const {
    store_element<modifier>(address, data);
  }
  CE_DEVICE static Vector filled(float value) { return {from_float<T>(value)}; }
  CE_DEVICE static Vector of(const float (&x)[1]) { return {from_float<T>(x[0])}; }
  template <class Other>
  CE_DEVICE Vector<Other, 1> as() const {
    return {Other{data.bits}};
  }
  CE_DEVICE void values(float (&x)[1]) const { x[0] = to_float(data); }
  CE_DEVICE Vector with(int position, float value) const { return position >= 0 ? filled(value) : *this; }
  CE_DEVICE float largest() const { return to_float(data); }
  CE_DEVICE Vector larger(const Vector& other) const {
    return largest() > other.largest() || other.largest() != other.largest() ? *this : other;
  }
};

/// The same columns of every input.
template <class T, int n>
struct Elements {
  static constexpr int count = n;
  using Element = T;
  using Vec = Vector<T, n>;
  Vec of_input[problem::inputs];

  CE_DEVICE static Elements filled(float value) {
    Elements elements;
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) elements.of_input[i] = Vec::filled(value);
    return elements;
  }
};

/// The memory of a row.
template <class T>
struct Row {
  const T* in[problem::inputs];
  T* out;
  const Arguments& arguments;

  CE_DEVICE Row(const Arguments& a, int64 row) : arguments(a) {
    in[0] = static_cast<const T*>(a.input) + row_offset(a, a.input_layout, row);
    if constexpr (problem::inputs == 2)
      in[1] = static_cast<const T*>(a.second) + row_offset(a, a.second_layout, row);
    out = static_cast<T*>(a.output) + row_offset(a, a.output_layout, row);
  }
  template <Load modifier, int n>
  CE_DEVICE Elements<T, n> read(int column) const {
    Elements<T, n> elements;
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i)
      elements.of_input[i] = Vector<T, n>::template read<modifier>(in[i] + column);
    return elements;
  }
  template <Store modifier, int n>
  CE_DEVICE void write(int column, const Vector<T, n>& vector) const {
    vector.template write<modifier>(out + column);
  }
  template <Load modifier>
  CE_DEVICE Elements<T, 1> read_element(int column) const {
    Elements<T, 1> elements;
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) {
      const Layout& layout = i == 0 ? arguments.input_layout : arguments.second_layout;
      const float x[1] = {to_float(load_element<modifier>(in[i] + element_offset(layout, column)))};
      elements.of_input[i] = Vector<T, 1>::of(x);
    }
    return elements;
  }
  template <Store modifier>
  CE_DEVICE void write_element(int column, const Vector<T, 1>& element) const {
    float x[1];
    element.values(x);
    store_element<modifier>(out + element_offset(arguments.output_layout, column), from_float<T>(x[0]));
  }
  /// An element of the first input.
  CE_DEVICE T logit(int column) const {
    return load_element<Load::ca>(in[0] + element_offset(arguments.input_layout, column));
  }

 private:
  CE_DEVICE static int64 element_offset(const Layout& layout, int column) {
    return problem::strided ? column * layout.column : column;
  }
};

/// The prologue, body and epilogue of one row.
/// \tparam aligned  every row of every tensor starts on a vector boundary
/// \tparam of_line  see RowShape::from_line
template <class T, int row_columns, int vec, bool aligned, bool of_line = true>
struct RowPartition {
  static constexpr int columns = row_columns, elements = vec;  ///< of a row, of a vector
  static constexpr RowShape shape{columns, vec, int(sizeof(T)), aligned, of_line};
  static constexpr int line = shape.line(), most_vectors = shape.most_vectors();
  static constexpr bool whole = shape.whole(), exact = shape.exact(), from_line = of_line;
  int prologue, first, end;

  CE_DEVICE explicit RowPartition(const void* start) {
    prologue = 0;
    first = 0;
    end = columns / vec;
    if constexpr (!exact) {
      constexpr uint32 bytes = vec * sizeof(T);
      const uint32 address = uint32(reinterpret_cast<uint64>(start));
      if constexpr (!aligned) {
        prologue = int((bytes - address % bytes) % bytes / sizeof(T));
        if (prologue > columns) prologue = columns;
      }
      first = from_line ? int((address + prologue * sizeof(T)) / bytes % line) : 0;
      end = first + (columns - prologue) / vec;
    }
  }
  CE_DEVICE int epilogue() const { return columns - column_of(end); }
  CE_DEVICE int column_of(int vector) const { return prologue + (vector - first) * vec; }
  CE_DEVICE bool inside(int vector) const { return (exact || vector >= first) && vector < end; }

  /// The column of this thread's edge element, or -1. Needs 2 vec - 1 threads.
  CE_DEVICE int edge_column(int thread) const {
    if constexpr (whole) return -1;
    if (thread < prologue) return thread;
    if (thread >= vec && thread < vec + epilogue()) return columns - epilogue() + thread - vec;
    return -1;
  }
};

}  // namespace ce
