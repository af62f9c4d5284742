// The contract between a Variant (templates/kernels) and an Operation (templates/operations) that it runs over rows.
//
// The Variant moves the data, holds it, and merges statistics; the Operation defines the statistics and the outputs.
// For each row, every thread of the row makes an Operation and uses it like this:
//
//     constant(value)?  ->  prepare(), set_target()  ->  add() each tile to the thread's Stats  ->  merge all Stats
//                       ->  finalize(stats)          ->  store_row_results(), and apply() to each tile
//
// clang-format off
//   Element, Stats                 of the inputs; the statistics (stats.cuh) that a row is reduced to
//   reduces, has_output            the row is read before its outputs are known; something is written per element
//   padding()                      the value of elements beyond the row
//   exponent_factor()              exponents are exponent_factor() x (u - maximum), to the base of exponent.cuh
//   maximum_of(tile)               the largest exponent of the tile, before the factor; where Stats has exponentials
//   add(stats, tile)               adds the tile to statistics whose maximum is not smaller; returns whether the tile is simple
//   finalize(stats)                of the whole row: outputs and results are known from here on
//   simple(tile), fast()           apply<true>, the cheaper form, is right for the tile; and for the row. A tile is not simple
//                                  if some of its logits are too large for the short form of a soft cap (logits.cuh)
//   apply<fast>(elements, column)  the outputs of these columns
//
// and, with defaults for operations that have no such thing:
//
//   RowPrefetch(arguments, row)    what is read of a row before its turn; look_up() reads what depends on that
//   BatchScalars(arguments)        what all rows share, counted or waited for; by whole warps
//   KernelScalars(arguments)       what the arguments alone say, made once by threads that take many rows
//   Operation(arguments, row, leader [, prefetch, kernel_scalars])    one thread of the row leads
//   has_target, target_column(), target_output()    one column has another output
//   target_logit(row), set_target(logit)    the logit of that column: read before outputs are written over it
//   all_weights, weights           the weights of all classes are read: from `weights`, ClassWeights
//   constant(value)                this row needs no inputs: its outputs, if any, are `value` (ignored rows)
//   prepare([batch_scalars])       of a row that is not constant; by whole warps
//   needs_maximum()                exponentials could overflow or vanish if all maxima were 0
//   caps, cap(tile)                logits are put under a soft cap, in place: once for each time that a tile is read, after
//                                  its maximum is known and before its outputs, by add() or cap()
//   replaces_target                add() takes the target's logit, as it is in memory, for padding(), and nothing else that add()
//                                  does depends on it: not where a cap makes something finite of that
//   some_simple                    some tiles are simple and others are not
//   entropy_gradient               outputs depend on the entropy of the row
//   store_row_results()            the leader writes what a row has once: losses and the like; by its whole warp, once for
//                                  every row, constant ones, too
//
// Only for `pipeline_decoupled`: Operation(arguments), whose thread writes one row after the other, each as a FinalizedRow
// gives it (finalized_row.cuh); takes_plainly(tile), weights_of(tile), knows_weight, tile_weight; and, of
// ranks that exchange statistics of their rows:
//
//   exchanges                      this is so: clusters take all their rows from the queue, the first one too
//   begin_rows(arguments)          by whole warps that finalize rows, before the first
//   send_statistics(stats)         by a whole warp of one block of the cluster, once for each row that is not constant; what
//                                  finalize() then merges is what all ranks have sent, whatever it is given
//   end_rows(arguments)            by one thread of all, when the last row is done
// clang-format on
#pragma once
#include "row/row.cuh"
#include "row/stats.cuh"

namespace ce {

/// Default hooks for an operation without target, weights, cap, results of rows, or per-row data to prefetch.
struct OperationDefaults {
  using Element = problem::Element;
  static constexpr bool has_target = false, replaces_target = false, all_weights = false, caps = false,
                        some_simple = false, entropy_gradient = false, exchanges = false;

  struct RowPrefetch {
    CE_DEVICE RowPrefetch(const Arguments&, int64) {}
    CE_DEVICE void look_up(const Arguments&) {}
  };
  struct BatchScalars {
    CE_DEVICE BatchScalars() {}
    CE_DEVICE explicit BatchScalars(const Arguments&) {}
  };
  struct KernelScalars {
    CE_DEVICE explicit KernelScalars(const Arguments&) {}
  };
  CE_DEVICE OperationDefaults() {}
  CE_DEVICE OperationDefaults(const Arguments&, int64, bool) {}
  CE_DEVICE OperationDefaults(const Arguments&, int64, bool, const RowPrefetch&, const KernelScalars&) {}
  CE_DEVICE static float exponent_factor() { return 1.f; }
  CE_DEVICE bool constant(float&) const { return false; }
  CE_DEVICE Element target_logit(const Row<Element>&) const { return {}; }
  CE_DEVICE void prepare() {}
  template <class BatchScalars>
  CE_DEVICE void prepare(const BatchScalars&) {}
  CE_DEVICE void set_target(Element) {}
  CE_DEVICE void store_row_results() const {}
  CE_DEVICE static void begin_rows(const Arguments&) {}
  template <class Stats>
  CE_DEVICE static void send_statistics(const Stats&) {}
  CE_DEVICE static void end_rows(const Arguments&) {}
  CE_DEVICE static bool needs_maximum() { return false; }
  CE_DEVICE bool fast() const { return true; }
  template <class Tile>
  CE_DEVICE static bool simple(const Tile&) {
    return true;
  }
};

/// Shared memory for the weights of the slice's classes (slice_weights.cuh): empty if an operation does not read the
/// weights of all classes.
/// \tparam cluster  number of blocks that share a row
template <class Partition, int cluster, class Operation, bool = Operation::all_weights>
struct SliceWeights;
template <class Partition, int cluster, class Operation>
struct SliceWeights<Partition, cluster, Operation, false> {
  static constexpr long long bytes = 0;
  CE_DEVICE void load(const Arguments&, int) {}
  CE_DEVICE void attach(Operation&, int) const {}
  CE_DEVICE static void detach(Operation&) {}
};

/// The part of the contract that does not depend on the Variant's storage of a row.
template <class O>
concept RowOperation = requires(O operation, const O finalized, const Arguments& arguments,
                                typename O::Stats stats, const Elements<typename O::Element, 1>& elements,
                                const Row<typename O::Element>& row, float value) {
  O(arguments, 0ll, true);
  O(arguments, 0ll, true, typename O::RowPrefetch(arguments, 0ll), typename O::KernelScalars(arguments));
  {O::reduces && O::has_output && O::has_target && O::all_weights && O::caps && O::some_simple};
  {O::padding()};
  {operation.constant(value)};
  {operation.target_logit(row)};
  operation.prepare();
  operation.prepare(typename O::BatchScalars(arguments));
  operation.set_target(operation.target_logit(row));
  {operation.needs_maximum()};
  {operation.exponent_factor()};
  operation.finalize(stats);
  finalized.store_row_results();
  {finalized.fast()};
  {finalized.template apply<false>(elements, 0)};
};

}  // namespace ce
