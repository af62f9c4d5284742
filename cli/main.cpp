#include <string_view>

#include "cli/app.hpp"
#include "cli/isolated_tuning.hpp"
#include "cli/timing_process.hpp"
#include "runtime/cuda/worker.hpp"

int main(int argument_count, char** arguments) {
  // Not commands: the library and ce-tune itself start them, and speak to them over standard input and output.
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::runtime::compile_worker_argument)
    return ce::runtime::compile_worker_main(0, 1);
  ce::runtime::offer_this_executable();
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::cli::tuning_worker_argument)
    return ce::cli::tuning_worker_main(0, 1);
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::cli::timing_worker_argument)
    return ce::cli::timing_worker_main(0, 1);
  return ce::cli::run(argument_count, arguments);
}
