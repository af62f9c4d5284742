// Ranks of one host exchange statistics of a row while their kernels run, instead of an all-gather between kernels.
//
// Each rank has memory that all can write to (PeerExchange). The warp that has this rank's statistics of a row writes
// them to the memory of every rank, including its own, in packets with the number of the call. A warp that needs the
// row polls its rank's memory until the packets of all ranks have that number, and merges them in the order of the
// ranks:
//
//     rank 0   statistics of row r --+--> packet (r, 0) of rank 0 | packet (r, 1) of rank 0    looks here
//                                    +--> packet (r, 0) of rank 1 |
//     rank 1   statistics of row r --+--> packet (r, 1) of rank 1 | packet (r, 0) of rank 1    looks here
//                                    +--> packet (r, 1) of rank 0
//
// A packet is overwritten only by the next call, which first waits until every rank has ended this one (`finished`).
//
// There is no deadlock, whatever the ranks' configs are and however many of their blocks run at the same time, as long
// as rows are taken in order (Ring::RowQueue::first) and sent before others are awaited: of two ranks' smallest unsent
// rows, the smaller one only waits for earlier rows, which all ranks have sent. If a rank does not come within
// PeerExchange::patience, the warp that waits for it reports that to all, and rows are NaN from there on.
#pragma once
#include "device/system_memory.cuh"
#include "exchange_layout.cuh"
#include "operations/shard.cuh"

namespace ce {

class Exchange {
 public:
  CE_DEVICE Exchange(const Arguments& a)
      : own_(*a.exchange), layout_{a.ranks, a.statistics_words}, call_(after(own_.calls)) {}

  /// Waits until all ranks have ended the previous call. By a whole warp, before it sends or receives a row. A rank may
  /// even have ended this call, if other clusters took all rows.
  CE_DEVICE void begin() const {
    const uint32* const finished = at<uint32>(own_, layout_.finished());
    await([&] {
      for (int rank = lane_index(); rank < int(layout_.ranks); rank += lanes)
        if (const uint32 call = load_system_flag(finished + rank); call != own_.calls && call != call_)
          return rank;
      return no_rank;
    });
  }

  /// Sends the words to all ranks. By a whole warp, once for each row.
  template <int n>
  CE_DEVICE void send(int64 row, const uint32 (&words)[n]) const {
    for (int rank = lane_index(); rank < int(layout_.ranks); rank += lanes) {
      Words<4>* const to = packets_of(of_rank(rank), row, own_.rank);
#pragma unroll
      for (int from = 0; from < n; from += per_packet) {
        Words<4> packet{};
#pragma unroll
        for (int i = 0; i < per_packet; ++i)
          if (from + i < n) packet.word[i] = words[from + i];
        packet.word[per_packet] = call_;
        store_system(to + from / per_packet, packet);
      }
    }
  }

  /// The merged statistics of all ranks for the row, in their order; NaN if a rank did not come. By a whole warp.
  /// \param c  the factor of the exponents
  template <class Shard>
  CE_DEVICE Shard receive(int64 row, float c) const {
    Shard all;
#pragma unroll 1
    for (int first = 0; first < int(layout_.ranks); first += lanes) {
      const int rank = first + lane_index();
      uint32 words[Shard::words] = {};
      // A rank that gave up before this kernel began has reported it: then no rank goes on.
      const bool came =
          own_.missing == 0 && await([&] {
            return rank >= int(layout_.ranks) || read(packets_of(own_, row, rank), words) ? no_rank : rank;
          });
      if (!came) return Shard::not_a_number();
#pragma unroll 1
      for (int lane = 0; lane < lanes && first + lane < int(layout_.ranks); ++lane) {
        uint32 of_lane[Shard::words];
#pragma unroll
        for (int i = 0; i < Shard::words; ++i) of_lane[i] = from_lane(words[i], lane);
        all.merge(Shard::read(of_lane), c);
      }
    }
    return all;
  }

  /// Ends the call. By one thread, when all blocks of the kernel have received all rows.
  CE_DEVICE void end() const {
    own_.calls = call_;
    for (int rank = 0; rank < int(layout_.ranks); ++rank)
      store_system_flag(at<uint32>(of_rank(rank), layout_.finished()) + own_.rank, call_);
  }

 private:
  static constexpr int per_packet = ExchangeLayout::words_of_packet;
  static constexpr int no_rank = -1;

  /// Never 0, which is the initial content of the memory.
  CE_DEVICE static uint32 after(uint32 call) { return call + 1 == 0 ? 1 : call + 1; }
  template <class T>
  CE_DEVICE static T* at(PeerExchange& of, int64 offset) {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(&of) + offset);
  }
  CE_DEVICE PeerExchange& of_rank(int rank) const {
    return *at<PeerExchange>(own_, at<int64>(own_, layout_.distances())[rank]);
  }
  CE_DEVICE Words<4>* packets_of(PeerExchange& of, int64 row, int rank) const {
    return at<Words<4>>(of, layout_.packets()) + (row * layout_.ranks + rank) * layout_.packets_of_row();
  }

  /// Whether all packets are of this call.
  template <int n>
  CE_DEVICE bool read(const Words<4>* packets, uint32 (&words)[n]) const {
    bool are_here = true;
#pragma unroll
    for (int from = 0; from < n; from += per_packet) {
      const Words<4> packet = load_system(packets + from / per_packet);
#pragma unroll
      for (int i = 0; i < per_packet; ++i)
        if (from + i < n) words[from + i] = packet.word[i];
      are_here = are_here && packet.word[per_packet] == call_;
    }
    return are_here;
  }

  /// Waits until no lane misses a rank. By a whole warp. Returns false if a rank did not come, here or elsewhere.
  /// \param look  returns a missing rank, or `no_rank`
  template <class Look>
  CE_DEVICE bool await(const Look& look) const {
    constexpr int looks_a_while = 64;
    uint64 since = 0;
#pragma unroll 1
    for (int looks = 1;; ++looks) {
      const int missing = look();
      if (!any_lane(missing != no_rank)) return true;
      if (looks % looks_a_while == 0) {
        const uint64 now = nanoseconds();
        if (since == 0) since = now;
        const bool is_late = missing != no_rank && now - since > own_.patience;
        if (is_late) report(missing);
        if (any_lane(is_late || load_system_flag(&own_.missing) != 0)) return false;
      }
      await_others();
    }
  }
  CE_DEVICE void report(int missing) const {
    for (int rank = 0; rank < int(layout_.ranks); ++rank)
      store_system_flag(&of_rank(rank).missing, uint32(1 + missing));
  }

  PeerExchange& own_;
  const ExchangeLayout layout_;
  const uint32 call_;
};

}  // namespace ce
