#include "c/guard.hpp"
#include "c/handles.hpp"

namespace ce::c {
namespace {

constexpr ce_origin to_c(Origin origin) {
  switch (origin) {  // an origin that is added to ce does not compile until it is added here
    case Origin::tuned: return CE_ORIGIN_TUNED;
    case Origin::database: return CE_ORIGIN_DATABASE;
    case Origin::nearest: return CE_ORIGIN_NEAREST;
    case Origin::fallback: return CE_ORIGIN_FALLBACK;
    case Origin::assigned: return CE_ORIGIN_ASSIGNED;
  }
  return CE_ORIGIN_FALLBACK;
}

}  // namespace
}  // namespace ce::c

using namespace ce::c;

const char* ce_choice_config(const ce_choice* choice) {
  return choice == nullptr ? "" : from_handle(choice)->config.c_str();
}
ce_origin ce_choice_origin(const ce_choice* choice) {
  return choice == nullptr ? CE_ORIGIN_FALLBACK : to_c(from_handle(choice)->origin);
}
const char* ce_choice_reason(const ce_choice* choice) {
  return choice == nullptr ? "" : from_handle(choice)->reason.c_str();
}
const char* ce_choice_key(const ce_choice* choice) {
  return choice == nullptr ? "" : from_handle(choice)->key.c_str();
}
int32_t ce_choice_provisional(const ce_choice* choice) {
  return choice != nullptr && from_handle(choice)->provisional ? 1 : 0;
}
double ce_choice_row_us(const ce_choice* choice) {
  return choice == nullptr ? 0 : from_handle(choice)->row_us;
}
ce_status ce_use(ce_context* context, const char* key, const char* config) {
  return guarded([&] {
    require_pointer("key", key, "a text that ce_choice_key() returned");
    require_pointer("config", config, "a text that ce_choice_config() returned");
    context_or_default(context).use(key, config);
  });
}

ce_status ce_plan_run(const ce_plan* plan, ce_stream stream) {
  return guarded([&] {
    require_pointer("plan", plan, "a plan");
    from_handle(plan)->run(stream);
  });
}
const ce_choice* ce_plan_choice(const ce_plan* plan) {
  return plan == nullptr ? nullptr : to_handle(&from_handle(plan)->choice());
}
void ce_plan_destroy(ce_plan* plan) { delete from_handle(plan); }
