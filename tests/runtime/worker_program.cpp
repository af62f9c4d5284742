// A compile worker and nothing else, for tests that build no ce-tune.
#include <string_view>

#include "runtime/workers/worker.hpp"

int main(int argument_count, char** arguments) {
  if (argument_count != 2 || std::string_view(arguments[1]) != "compile-worker") return 2;
  return ce::runtime::compile_worker_main(0, 1);
}
