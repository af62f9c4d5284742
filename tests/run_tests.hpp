#pragma once
/// \file
/// What every program of tests runs them with: those whose main() does nothing else, and those that tests start again
/// as another program.

namespace ce::test {

/// Runs the tests of the program in an environment of its own, whichever user starts it: no database of the user's and
/// none below it, no policy, and folders for data and caches beside the program. Processes that tests start inherit it.
/// \returns the exit status
int run_tests(int argc, char** argv);

}  // namespace ce::test
