// Messages between the blocks of a cluster about a row, in words that one instruction sends.
#pragma once
#include "row/stats.cuh"

namespace ce {

/// A set of chunks (like ChunkMarks, marked_chunks.cuh) that is always empty and takes no words.
struct NoMarks {
  static constexpr int words = 0;
  template <class Visit>
  CE_DEVICE void each(Visit&) {}
  CE_DEVICE static NoMarks of(int) { return {}; }
  CE_DEVICE void advance() {}
  CE_DEVICE static bool has(const NoMarks&) { return false; }
  CE_DEVICE void merge(const NoMarks&) {}
  CE_DEVICE NoMarks of_warp() const { return {}; }
};

/// \tparam has_target  the message contains the logit of the target
/// \tparam RowMarks    the type of the marks in the message
template <class Stats, bool has_target, class RowMarks = NoMarks>
struct Message {
  using Marks = RowMarks;
  using Element = problem::Element;
  static constexpr int bytes = message_bytes(Stats::words, has_target, Marks::words > 0);
  static constexpr int count = bytes / int(sizeof(Words<4>));
  Words<4> of[count];

  /// Writes one value after the other.
  struct Put {
    Message& message;
    int i = 0;
    template <class T>
    CE_DEVICE void operator()(T value) {
      put_bits(message.of[i / 4].word[i % 4], value);
      ++i;
    }
  };
  /// Reads values in the same order.
  struct Get {
    const Message& message;
    int i = 0;
    template <class T>
    CE_DEVICE void operator()(T& value) {
      get_bits(message.of[i / 4].word[i % 4], value);
      ++i;
    }
  };

  CE_DEVICE static Message about(Stats stats, Element target_logit = {}, Marks marks = {}) {
    Message message{};
    Put put{message};
    stats.each(put);
    if constexpr (has_target) put(target_logit);
    marks.each(put);
    return message;
  }
  CE_DEVICE void read(Stats& stats, Element& target_logit) const {
    Marks marks;
    read(stats, target_logit, marks);
  }
  CE_DEVICE void read(Stats& stats, Element& target_logit, Marks& marks) const {
    Get get{*this};
    stats.each(get);
    if constexpr (has_target) get(target_logit);
    marks.each(get);
  }

  /// Writes the message to the same `place` (offset) in a block of the cluster; by one thread.
  /// \param barrier  mbarrier at which `bytes` are announced for each message
  CE_DEVICE void send(Message& place, Mbarrier& barrier, int rank) const {
#pragma unroll
    for (int i = 0; i < count; ++i) cluster_send(place.of[i], of[i], barrier, rank);
  }
};

}  // namespace ce
