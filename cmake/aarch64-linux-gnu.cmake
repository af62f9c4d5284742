# Cross-builds for 64-bit Arm (GH200 and other Grace machines) with Debian's compilers, and runs what was built by
# emulation: cmake --preset aarch64. scripts/test-aarch64 says what to install.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
# That g++ passes some structs otherwise than before version 10 is no news to a build of its own.
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)
# Libraries of the build machine are never taken: Debian keeps those of each architecture apart.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_IGNORE_PATH /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/cmake)
