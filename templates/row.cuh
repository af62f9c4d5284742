// A row in vectors. A row of `columns` elements is a head of single elements up to the first vector boundary,
// a body of whole vectors, and a tail of single elements:
//
//     | head | vector 0 | vector 1 | ...             | vector (vectors - 1) | tail |
//
// Thread t takes vectors t, t + threads, t + 2 threads, ... and at most one element of the head or the tail
// (its "edge"). Where every row starts on a boundary the head is empty and all sizes are compile-time constants.
#pragma once
#include "device.cuh"

namespace ce {

/// The address of a row, whole rows away from the first: always in 64 bits.
template <class T>
CE_DEVICE T* row_start(T* first, int64 row, int64 stride) { return first + row * stride; }

/// Some elements in 32-bit words (or in one 16-bit half), and their values in f32.
template <class T, int n>
struct Vector {
  static constexpr int words = n * int(sizeof(T)) / 4;
  Words<words> data;

  template <Load modifier> CE_DEVICE static Vector read(const T* address) {
    return {load<modifier, words>(address)};
  }
  template <Store modifier> CE_DEVICE void write(T* address) const { store<modifier>(address, data); }

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

/// A vector of one 16-bit element: what remains when input and output share no boundary.
template <class T>
  requires(sizeof(T) == 2)
struct Vector<T, 1> {
  T data;
  template <Load modifier> CE_DEVICE static Vector read(const T* address) {
    return {load_element<modifier>(address)};
  }
  template <Store modifier> CE_DEVICE void write(T* address) const { store_element<modifier>(address, data); }
  CE_DEVICE static Vector of(const float (&x)[1]) { return {from_float<T>(x[0])}; }
  CE_DEVICE void values(float (&x)[1]) const { x[0] = to_float(data); }
};

/// All elements -infinity: adds nothing to a maximum and nothing to a sum of exponentials.
template <class T, int n>
CE_DEVICE Vector<T, n> nothing() {
  float x[n];
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] = -infinity();
  return Vector<T, n>::of(x);
}

/// How one row is cut.
/// \tparam aligned  every row of every tensor starts on a vector boundary
template <class T, int columns, int vec, bool aligned>
struct Cut {
  static constexpr int most_vectors = columns / vec;
  static constexpr int elements = vec;  ///< of a vector
  static constexpr bool exact = aligned && columns % vec == 0;  ///< no head and no tail
  int head, vectors;

  CE_DEVICE explicit Cut(const void* start) {
    if constexpr (aligned) {
      head = 0;
      vectors = most_vectors;
    } else {
      constexpr uint32 bytes = vec * sizeof(T);
      const uint32 past = uint32(reinterpret_cast<uint64>(start)) % bytes;
      head = int((bytes - past) % bytes / sizeof(T));
      if (head > columns) head = columns;
      vectors = (columns - head) / vec;
    }
  }
  CE_DEVICE int tail() const { return columns - head - vectors * vec; }
  CE_DEVICE int column_of(int vector) const { return head + vector * vec; }

  /// The column of this thread's edge element, or -1. Needs 2 x vec threads.
  CE_DEVICE int edge_column() const {
    if constexpr (exact) return -1;
    const int t = thread_index();
    if (t < head) return t;
    if (t >= vec && t < vec + tail()) return columns - tail() + t - vec;
    return -1;
  }
};

/// Writes one value to the vectors [first, first + count) of a row and to this thread's edge element.
template <Store modifier, int threads, class T, class RowCut>
CE_DEVICE void fill_row(T* out, const RowCut& cut, int first, int count, int edge, float value) {
  float x[RowCut::elements];
#pragma unroll
  for (int k = 0; k < RowCut::elements; ++k) x[k] = value;
  const auto vector = Vector<T, RowCut::elements>::of(x);
  for (int v = thread_index(); v < count; v += threads)
    vector.template write<modifier>(out + cut.column_of(first + v));
  if (edge >= 0) store_element<modifier>(out + edge, from_float<T>(value));
}

}  // namespace ce
