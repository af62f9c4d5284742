#include <string_view>

#include "cli/app.hpp"
#include "runtime/cuda/worker.hpp"

int main(int argument_count, char** arguments) {
  // Not a command: the library starts it, and speaks to it over standard input and output.
  if (argument_count == 2 && std::string_view(arguments[1]) == "compile-worker")
    return ce::runtime::compile_worker_main(0, 1);
  return ce::cli::run(argument_count, arguments);
}
