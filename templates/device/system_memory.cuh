// Memory of this GPU and of others that several GPUs write while kernels run. On the host device ranks are threads,
// each with its own blocks.
//
// clang-format off
//   store_system(address, words)   writes 16 bytes of global memory, perhaps of another GPU, at once: a thread that
//                                  reads them by load_system sees all of them or none; nothing else that this thread
//                                  wrote is seen with them
//   load_system(address)           reads what store_system wrote; again at each call
//   store_system_flag(address, value)  a 32-bit word: a reader that sees it by load_system_flag has no write to await
//                                  that a thread of this kernel made before a barrier or atomic_add that came before
//   load_system_flag(address)      reads such a word, again at each call
// clang-format on
#pragma once
#include "device/device.cuh"

namespace ce {

#if defined(CE_HOST)

CE_DEVICE void store_system(Words<4>* address, const Words<4>& words, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  host::require_aligned(address, sizeof words, {file, line});
  for (int i = 0; i < 3; ++i) __atomic_store_n(&address->word[i], words.word[i], __ATOMIC_RELAXED);
  __atomic_store_n(&address->word[3], words.word[3], __ATOMIC_RELEASE);
}
/// A read is whole if its last word is new.
CE_DEVICE Words<4> load_system(const Words<4>* address, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  host::require_aligned(address, sizeof *address, {file, line});
  Words<4> words;
  words.word[3] = __atomic_load_n(&address->word[3], __ATOMIC_ACQUIRE);
  for (int i = 0; i < 3; ++i) words.word[i] = __atomic_load_n(&address->word[i], __ATOMIC_RELAXED);
  return words;
}
CE_DEVICE void store_system_flag(uint32* address, uint32 value) {
  __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}
CE_DEVICE uint32 load_system_flag(const uint32* address) {
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

#else

// 16-byte relaxed operations are atomic since PTX 8.3 (CUDA 12.3). An older compiler generates the same instructions
// from vector operations, for which its documentation does not promise it.
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4)
CE_DEVICE void store_system(Words<4>* address, const Words<4>& v) {
  asm volatile(
      "{\n"
      "  .reg .b64 low, high;\n"
      "  .reg .b128 all;\n"
      "  mov.b64 low, {%1, %2};\n"
      "  mov.b64 high, {%3, %4};\n"
      "  mov.b128 all, {low, high};\n"
      "  st.relaxed.sys.global.b128 [%0], all;\n"
      "}\n" ::"l"(address),
      "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
      : "memory");
}
CE_DEVICE Words<4> load_system(const Words<4>* address) {
  Words<4> v;
  asm volatile(
      "{\n"
      "  .reg .b64 low, high;\n"
      "  .reg .b128 all;\n"
      "  ld.relaxed.sys.global.b128 all, [%4];\n"
      "  mov.b128 {low, high}, all;\n"
      "  mov.b64 {%0, %1}, low;\n"
      "  mov.b64 {%2, %3}, high;\n"
      "}\n"
      : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
      : "l"(address)
      : "memory");
  return v;
}
#else
CE_DEVICE void store_system(Words<4>* address, const Words<4>& v) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.word[0]),
               "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}
CE_DEVICE Words<4> load_system(const Words<4>* address) {
  Words<4> v;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(address)
               : "memory");
  return v;
}
#endif
CE_DEVICE void store_system_flag(uint32* address, uint32 value) {
  asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.b32 [%0], %1;" ::"l"(address), "r"(value)
               : "memory");
}
CE_DEVICE uint32 load_system_flag(const uint32* address) {
  uint32 value;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

#endif

}  // namespace ce
