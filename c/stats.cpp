#include "ce/stats.hpp"

#include "c/guard.hpp"
#include "c/structs.hpp"
#include "ce/ce.h"
#include "ce/error.hpp"

namespace ce::c {
namespace {

constexpr ce_stats no_stats = CE_STATS_INIT;

}  // namespace
}  // namespace ce::c

using namespace ce::c;

ce_status ce_get_stats(ce_stats* stats) {
  return guarded([&] {
    if (stats == nullptr) throw ce::InvalidArgument("stats", "NULL", "an address for the counts");
    ce_stats storage;
    static_cast<void>(read_struct("stats", *stats, no_stats, sizeof(ce_stats), storage));
    const ce::Stats now = ce::stats();
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7] =
        now;  // a count that is added to ce does not compile here
    ce_stats found = no_stats;
    found.calls = now.calls;
    found.known = now.known;
    found.tuned = now.tuned;
    found.fallback = now.fallback;
    found.compiled = now.compiled;
    found.waited = now.waited;
    found.errors = now.errors;
    write_struct(*stats, found);
  });
}
