// What blocks of a cluster tell each other of a row, in words that one instruction sends.
#pragma once
#include "row/part.cuh"

namespace ce {

/// A set of chunks, below 32. Always empty if it is not used.
template <bool used>
struct Marks {
  static constexpr int words = 0;
  template <class Visit>
  CE_DEVICE void each(Visit&) {}
  CE_DEVICE static Marks of(int) { return {}; }
  CE_DEVICE static Marks below(int) { return {}; }
  CE_DEVICE void leave_out(int) {}
  CE_DEVICE void advance() {}
  CE_DEVICE static bool has(const Marks&) { return false; }
  CE_DEVICE void join(const Marks&) {}
  CE_DEVICE Marks of_warp() const { return {}; }
};
template <>
struct Marks<true> {
  int bits = 0;

  static constexpr int words = 1;
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    visit(bits);
  }
  CE_DEVICE static Marks of(int chunk) { return {1 << chunk}; }
  CE_DEVICE static Marks below(int count) { return {count == 0 ? 0 : int((2u << (count - 1)) - 1)}; }
  CE_DEVICE void leave_out(int chunk) { bits &= ~(1 << chunk); }
  /// To the next chunks.
  CE_DEVICE void advance() { bits <<= 1; }
  CE_DEVICE bool has(const Marks& any) const { return (bits & any.bits) != 0; }
  CE_DEVICE void join(const Marks& other) { bits |= other.bits; }
  CE_DEVICE Marks of_warp() const {
    if (!any_lane(bits != 0)) return {};
    Marks all = *this;
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask /= 2) all.bits |= shuffle_xor(all.bits, mask);
    return all;
  }
};

/// \tparam has_target  the logit of the target is sent too
/// \tparam has_marks   so are marks
template <class Part, bool has_target, bool has_marks = false>
struct Message {
  using Marks = ce::Marks<has_marks>;
  using Element = problem::Element;
  static constexpr int count = (Part::words + (has_target ? 1 : 0) + Marks::words + 3) / 4;
  Words<4> of[count];

  /// One value after the other.
  struct Put {
    Message& message;
    int i = 0;
    template <class T>
    CE_DEVICE void operator()(T value) {
      put_bits(message.of[i / 4].word[i % 4], value);
      ++i;
    }
  };
  struct Get {
    const Message& message;
    int i = 0;
    template <class T>
    CE_DEVICE void operator()(T& value) {
      get_bits(message.of[i / 4].word[i % 4], value);
      ++i;
    }
  };

  CE_DEVICE static Message about(Part part, Element target_logit = {}, Marks marks = {}) {
    Message message{};
    Put put{message};
    part.each(put);
    if constexpr (has_target) put(target_logit);
    marks.each(put);
    return message;
  }
  CE_DEVICE void read(Part& part, Element& target_logit) const {
    Marks marks;
    read(part, target_logit, marks);
  }
  CE_DEVICE void read(Part& part, Element& target_logit, Marks& marks) const {
    Get get{*this};
    part.each(get);
    if constexpr (has_target) get(target_logit);
    marks.each(get);
  }

  /// Writes it to the same `place` of a block of the cluster; by one thread.
  /// \param arrival  where `bytes` are announced for each message
  CE_DEVICE void send(Message& place, Arrival& arrival, int rank) const {
#pragma unroll
    for (int i = 0; i < count; ++i) cluster_send(place.of[i], of[i], arrival, rank);
  }
  static constexpr int bytes = count * int(sizeof(Words<4>));
};

}  // namespace ce
