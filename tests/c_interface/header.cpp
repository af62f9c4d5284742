// The header compiles alone as C++, and so does all that C programs do with it.
#include "tests/c_interface/header.c"
