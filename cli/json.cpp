#include "cli/json.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/say.hpp"
#include "generator/operations/cross_entropy.hpp"

namespace ce::cli {

Json json_of(const Failure& failure) {
  Json error = failure.fields;
  error["exit_code"] = static_cast<int>(failure.code);
  return error;
}

Json json_of(const generator::Problem& problem) {
  Json json{{"title", generator::title(problem)}, {"operation", generator::name(problem.operation)},
            {"dtype", name(problem.dtype)},       {"rows", problem.rows},
            {"columns", problem.columns},         {"alignment", generator::name(problem.alignment)},
            {"in_place", problem.in_place},       {"batched", problem.batched},
            {"strided", problem.strided}};
  if (!generator::is_cross_entropy(problem.operation)) return json;
  json.update({{"target_dtype", problem.probabilities ? Json() : Json(name(problem.target_dtype))},
               {"loss_dtype", name(problem.loss_dtype)},
               {"reduction", name(problem.reduction)},
               {"gradient", problem.gradient},
               {"probabilities", problem.probabilities},
               {"weights", problem.weights ? Json(name(problem.weight_dtype)) : Json()},
               {"upstream", generator::name(problem.upstream)}});
  for (const auto& option : generator::cross_entropy_options) json[option.word] = problem.has.*option.field;
  for (const auto& input : generator::cross_entropy_inputs) json[input.word] = problem.has.*input.field;
  for (const auto& output : generator::cross_entropy_outputs) json[output.word] = problem.has.*output.field;
  return json;
}

Json json_of(const cache::Measurement& measurement) {
  Json json{{"config", measurement.config},
            {"outcome", cache::name(measurement.outcome)},
            {"created_at", measurement.created_at},
            {"stage", measurement.stage},
            {"rows", measurement.rows},
            {"bytes", measurement.bytes},
            {"median_us", measurement.median_us},
            {"spread", measurement.spread},
            {"samples_us", measurement.samples_us},
            {"registers", measurement.registers},
            {"local_bytes", measurement.local_bytes},
            {"compile_key", measurement.compile_key},
            {"template_digest", measurement.template_digest},
            {"environment", measurement.environment.map()}};
  if (measurement.outcome == cache::Outcome::quarantined) json["reason"] = measurement.reason;
  return json;
}

Json json_of(const runtime::Model& model) {
  return {{"name", model.name},
          {"capability", model.capability},
          {"multiprocessors", model.multiprocessors},
          {"l2_bytes", model.l2_bytes},
          {"shared_bytes_per_block", model.shared_bytes_per_block},
          {"shared_bytes_per_multiprocessor", model.shared_bytes_per_multiprocessor},
          {"registers_per_multiprocessor", model.registers_per_multiprocessor},
          {"threads_per_multiprocessor", model.threads_per_multiprocessor},
          {"mig_slice", model.mig_slice},
          {"memory_bytes", model.memory_bytes}};
}

Json json_of(const tuner::AxisEffect& effect) {
  return {{"axis", effect.axis},     {"value", effect.value},
          {"other", effect.other},   {"at_winner", effect.at_winner ? Json(*effect.at_winner) : Json()},
          {"median", effect.median}, {"pairs", effect.pairs}};
}

void print(const Json& fields) {
  Json document{{"format", json_format}};
  document.update(fields);
  write_text(stdout, document.dump(2, ' ', true, Json::error_handler_t::replace) + "\n");
}

}  // namespace ce::cli
