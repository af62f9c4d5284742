#include "cli/app.hpp"

int main(int argument_count, char** arguments) { return ce::cli::run(argument_count, arguments); }
