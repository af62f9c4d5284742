#include "cli/presets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ce/error.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

constexpr std::array table{
    Vocabulary{"deepseek-v3", "DeepSeek-V3, V3.1, R1", 129280, DType::bf16,
               "https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json"},
    Vocabulary{"gemma2", "Gemma 2: logits are capped", 256000, DType::bf16,
               "https://huggingface.co/google/gemma-2-9b-it/blob/main/config.json", true},
    Vocabulary{"gemma3", "Gemma 3 1B, 270M", 262144, DType::bf16,
               "https://huggingface.co/google/gemma-3-1b-pt/blob/main/config.json"},
    Vocabulary{"gemma3", "Gemma 3 4B, 12B, 27B, which take images", 262208, DType::bf16,
               "https://huggingface.co/google/gemma-3-4b-pt/blob/main/config.json"},
    Vocabulary{"gpt-oss", "gpt-oss 20B, 120B", 201088, DType::bf16,
               "https://huggingface.co/openai/gpt-oss-20b/blob/main/config.json"},
    Vocabulary{"gpt2", "GPT-2", 50257, DType::f32,
               "https://huggingface.co/openai-community/gpt2/blob/main/config.json"},
    Vocabulary{"gpt2", "GPT-2 as it is trained: padded to 64", 50304, DType::bf16,
               "https://github.com/karpathy/nanoGPT/blob/master/model.py"},
    Vocabulary{"kimi-k2", "Kimi K2", 163840, DType::bf16,
               "https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/config.json"},
    Vocabulary{"llama2", "Llama 2", 32000, DType::f16,
               "https://huggingface.co/meta-llama/Llama-2-7b-hf/blob/main/config.json"},
    Vocabulary{"llama3", "Llama 3, 3.1, 3.2, 3.3", 128256, DType::bf16,
               "https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json"},
    Vocabulary{"llama4", "Llama 4", 202048, DType::bf16,
               "https://huggingface.co/meta-llama/Llama-4-Scout-17B-16E/blob/main/config.json"},
    Vocabulary{"mistral", "Mistral 7B v0.3", 32768, DType::bf16,
               "https://huggingface.co/mistralai/Mistral-7B-Instruct-v0.3/blob/main/config.json"},
    Vocabulary{"mistral", "Mistral NeMo, Small 3", 131072, DType::bf16,
               "https://huggingface.co/mistralai/Mistral-Nemo-Base-2407/blob/main/config.json"},
    Vocabulary{"olmo2", "OLMo 2", 100352, DType::f32,
               "https://huggingface.co/allenai/OLMo-2-1124-7B/blob/main/config.json"},
    Vocabulary{"phi4", "Phi-4", 100352, DType::bf16,
               "https://huggingface.co/microsoft/phi-4/blob/main/config.json"},
    Vocabulary{"qwen2.5", "Qwen2.5 up to 3B", 151936, DType::bf16,
               "https://huggingface.co/Qwen/Qwen2.5-3B/blob/main/config.json"},
    Vocabulary{"qwen2.5", "Qwen2.5 7B and more", 152064, DType::bf16,
               "https://huggingface.co/Qwen/Qwen2.5-7B/blob/main/config.json"},
    Vocabulary{"qwen3", "Qwen3", 151936, DType::bf16,
               "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json"},
};

/// Operations of samplers; all others are for training.
bool is_serving(Operation operation) {
  return generator::row_of(operation).family == generator::Family::softmax;
}

std::vector<Operation> operations_of_presets() {
  return {Operation::cross_entropy, Operation::softmax, Operation::log_softmax};
}

std::vector<std::int64_t> rows_of(Operation operation) {
  if (is_serving(operation)) return {1, 8, 64, 256};
  return {4096, 8192, 16384};
}

std::vector<DType> dtypes_of(Operation operation, const Vocabulary& vocabulary) {
  if (is_serving(operation) || vocabulary.dtype == DType::f32) return {DType::f32};
  return {vocabulary.dtype, DType::f32};
}

template <class Value>
std::vector<Value> first_of(std::vector<Value> given, std::vector<Value> otherwise) {
  return given.empty() ? std::move(otherwise) : std::move(given);
}

std::vector<Vocabulary> vocabularies_of(const std::vector<std::string>& presets) {
  std::vector<Vocabulary> chosen;
  for (const std::string& name : split_list("--preset", presets)) {
    const std::size_t before = chosen.size();
    for (const Vocabulary& vocabulary : table)
      if (vocabulary.preset == name) chosen.push_back(vocabulary);
    if (chosen.size() > before) continue;
    std::vector<std::string_view> names;
    for (const Vocabulary& vocabulary : table)
      if (names.empty() || names.back() != vocabulary.preset) names.push_back(vocabulary.preset);
    throw InvalidArgument("--preset", fmt::format("\"{}\"", name), fmt::format("{}", fmt::join(names, ", ")));
  }
  return chosen;
}

}  // namespace

std::span<const Vocabulary> vocabularies() noexcept { return table; }

std::vector<Problem> problems_of_presets(const std::vector<std::string>& presets,
                                         const ProblemOptions& given) {
  if (!given.columns.empty())
    throw InvalidArgument("--cols", fmt::format("\"{}\"", fmt::join(given.columns, ",")),
                          "no value together with --preset, which sets them");
  std::vector<Problem> problems;
  for (const Vocabulary& vocabulary : vocabularies_of(presets)) {
    ProblemOptions options = given;
    options.on.softcap = given.on.softcap || vocabulary.softcap;
    for (const Operation operation : first_of(operations_of(given), operations_of_presets()))
      for (const DType dtype : first_of(dtypes_of(given), dtypes_of(operation, vocabulary)))
        for (const std::int64_t rows : first_of(rows_of(given), rows_of(operation))) {
          const Problem problem = problem_of(options, operation, dtype, rows, vocabulary.columns);
          if (std::find(problems.begin(), problems.end(), problem) == problems.end())
            problems.push_back(problem);
        }
  }
  check(given, problems);
  return problems;
}

}  // namespace ce::cli
