// The layout of the memory in which ranks exchange statistics of rows (operations/exchange.cuh).
#pragma once
#include "row/layout.cuh"

namespace ce {

/// The memory of a rank that others write to, behind its PeerExchange (arguments.cuh).
struct ExchangeLayout {
  long long ranks;
  long long words;  ///< shard_words()

  /// Packets of 16 bytes: three words of statistics each, and the number of the call.
  static constexpr int words_of_packet = 3, packet_bytes = 16;

  CE_HOST_DEVICE constexpr int packets_of_row() const { return ceil_of(int(words), words_of_packet); }
  /// [ranks], 64-bit: bytes from this rank's PeerExchange to that of each rank, as this rank sees it.
  CE_HOST_DEVICE static constexpr long long distances() { return 32; }
  /// [ranks], 32-bit: PeerExchange::calls of each rank.
  CE_HOST_DEVICE constexpr long long finished() const { return distances() + 8 * ranks; }
  /// [rows, ranks, packets_of_row()].
  CE_HOST_DEVICE constexpr long long packets() const { return align_16(finished() + 4 * ranks); }
  CE_HOST_DEVICE constexpr long long bytes_of_row() const { return ranks * packets_of_row() * packet_bytes; }
  CE_HOST_DEVICE constexpr long long bytes(long long rows) const { return packets() + rows * bytes_of_row(); }
};

}  // namespace ce
