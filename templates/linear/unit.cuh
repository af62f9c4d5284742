// Units in which rows are moved, whatever elements they hold.
#pragma once
#include "linear_arguments.cuh"

namespace ce {

/// 4, 8 or 16 bytes.
template <int bytes>
struct Unit {
  using Data = Words<bytes / 4>;
  CE_DEVICE static Data read(const void* input, int64 at) {
    return load<Load::ca, bytes / 4>(static_cast<const Data*>(input) + at);
  }
  CE_DEVICE static void write(void* output, int64 at, const Data& data) {
    store<Store::wb>(static_cast<Data*>(output) + at, data);
  }
  /// The pattern, repeated; of a unit of 4 bytes its lower half.
  CE_DEVICE static Data filled(uint64 pattern) {
    Data data;
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i) data.word[i] = uint32(i % 2 == 0 ? pattern : pattern >> 32);
    return data;
  }
};

template <class Integer>
struct SmallUnit {
  using Data = Integer;
  CE_DEVICE static Data read(const void* input, int64 at) { return static_cast<const Integer*>(input)[at]; }
  CE_DEVICE static void write(void* output, int64 at, Data data) { static_cast<Integer*>(output)[at] = data; }
  CE_DEVICE static Data filled(uint64 pattern) { return Integer(pattern); }
};
template <>
struct Unit<1> : SmallUnit<unsigned char> {};
template <>
struct Unit<2> : SmallUnit<unsigned short> {};

/// Whether more tokens count than the caller has said. False for a kernel without a count.
CE_DEVICE bool is_exceeded(const LinearArguments& arguments) {
  return arguments.counted != nullptr && *arguments.counted > arguments.limit;
}

}  // namespace ce
