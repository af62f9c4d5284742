// What blocks of a cluster tell each other of a row, in words that one instruction sends.
#pragma once
#include "part.cuh"

namespace ce {

/// \tparam has_target  the logit of the target is sent too
template <class Part, bool has_target>
struct Message {
  using Element = problem::Element;
  static constexpr int count = (Part::words + (has_target ? 1 : 0) + 3) / 4;
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

  CE_DEVICE static Message about(Part part, Element target_logit = {}) {
    Message message{};
    Put put{message};
    part.each(put);
    if constexpr (has_target) put(target_logit);
    return message;
  }
  CE_DEVICE void read(Part& part, Element& target_logit) const {
    Get get{*this};
    part.each(get);
    if constexpr (has_target) get(target_logit);
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
