#include "ce/context.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/operations.hpp"
#include "c/structs.hpp"
#include "c/tensor.hpp"
#include "ce/error.hpp"

namespace ce::c {
namespace {

constexpr ce_context_options no_context_options = CE_CONTEXT_OPTIONS_INIT;
/// The size of the options before they had an allocator.
constexpr std::size_t first_size = offsetof(ce_context_options, allocate);
constexpr ce_bad_targets no_bad_targets = CE_BAD_TARGETS_INIT;

constexpr ce_policy to_c(Policy policy) {
  switch (policy) {  // a policy that is added to ce does not compile until it is added here
    case Policy::tune: return CE_POLICY_TUNE;
    case Policy::lookup: return CE_POLICY_LOOKUP;
    case Policy::frozen: return CE_POLICY_FROZEN;
    case Policy::background: return CE_POLICY_BACKGROUND;
  }
  return CE_POLICY_DEFAULT;
}

std::optional<Policy> policy_from(ce_policy policy) {
  if (policy == CE_POLICY_DEFAULT) return std::nullopt;
  for (const Policy own : {Policy::tune, Policy::lookup, Policy::frozen, Policy::background})
    if (to_c(own) == policy) return own;
  throw InvalidArgument("policy", std::to_string(policy), "a value CE_POLICY_...");
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

ContextOptions options_from(const ce_context_options& given) {
  const auto& [size, device, database, tuning_seconds, scratch_bytes, capture_bytes, policy, any_order,
               allocate, release, state] = given;
  ContextOptions options{.device = text_or_empty(device),
                         .database = text_or_empty(database),
                         .policy = policy_from(policy),
                         .tuning_seconds = std::nullopt,
                         .scratch_bytes = scratch_bytes,
                         .capture_bytes = capture_bytes,
                         .nondeterministic_products = flag_from("nondeterministic_products", any_order),
                         .allocator = {.allocate = allocate, .release = release, .state = state}};
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8] = options;
  if (tuning_seconds != CE_TUNING_SECONDS_DEFAULT) options.tuning_seconds = tuning_seconds;
  return options;
}

/// \throws InvalidArgument
ContextOptions options_from(const ce_context_options* given) {
  if (given == nullptr) given = &no_context_options;
  ce_context_options storage;
  return options_from(read_struct("options", *given, no_context_options, first_size, storage));
}

ce_bad_targets to_c(const TargetOutOfRange& error) {
  ce_bad_targets found = no_bad_targets;
  found.count = error.count();
  found.first_row = error.first_row();
  found.first_target = error.first_target().value_or(0);
  found.has_first_target = error.first_target() ? 1 : 0;
  return found;
}

/// Also returns the error that `check` throws as a struct.
template <class Check>
ce_status report(ce_bad_targets* found, const Check& check) noexcept {
  return guarded([&] {
    ce_bad_targets storage;
    if (found != nullptr) {
      static_cast<void>(read_struct("found", *found, no_bad_targets, sizeof(ce_bad_targets), storage));
      write_struct(*found, no_bad_targets);
    }
    try {
      check();
    } catch (const TargetOutOfRange& error) {
      if (found != nullptr) write_struct(*found, to_c(error));
      throw;
    }
  });
}

}  // namespace
}  // namespace ce::c

using namespace ce::c;

ce_status ce_context_create(const ce_context_options* options, ce_context** context) {
  if (context != nullptr) *context = nullptr;
  return guarded([&] {
    require_pointer("context", context, "an address for the handle");
    *context = to_handle(std::make_unique<ce::Context>(options_from(options)).release());
  });
}

ce_status ce_configure_default_context(const ce_context_options* options) {
  return guarded([&] { ce::configure_default_context(options_from(options)); });
}

void ce_context_destroy(ce_context* context) { delete from_handle(context); }

ce_status ce_device_name(ce_context* context, char* text, size_t size) {
  return guarded([&] {
    require_pointer("text", text, "an address for the name");
    const std::string name = context_or_default(context).device_name();
    if (size <= name.size())
      throw ce::InvalidArgument("size", std::to_string(size), std::to_string(name.size() + 1) + " or more");
    std::memcpy(text, name.c_str(), name.size() + 1);
  });
}

ce_status ce_compiled(ce_context* context, int32_t* count) {
  return guarded([&] {
    require_pointer("count", count, "an address for the number");
    *count = context_or_default(context).compiled();
  });
}

ce_status ce_stop_background(ce_context* context) {
  return guarded([&] { context_or_default(context).stop_background(); });
}

ce_status ce_synchronize(ce_context* context, ce_stream stream) {
  return guarded([&] { context_or_default(context).synchronize(stream); });
}

ce_status ce_scale_gradient(ce_context* context, const ce_tensor* grad, const ce_tensor* upstream,
                            ce_stream stream) {
  return guarded([&] {
    context_or_default(context).scale_gradient(tensor_from("grad", grad), tensor_from("upstream", upstream),
                                               stream);
  });
}

ce_status ce_check(ce_context* context, ce_stream stream, ce_bad_targets* found) {
  return report(found, [&] { context_or_default(context).check(stream); });
}

ce_status ce_check_all(ce_context* context, ce_bad_targets* found) {
  return report(found, [&] { context_or_default(context).check(); });
}
