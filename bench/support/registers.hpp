#pragma once
// Products as fast as a core makes them: operands and sums stay in registers.

#include <concepts>
#include <cstddef>

#include "shardwise/core/dtype.hpp"

namespace bench {

/// Whether the processor has the instructions of multiply_in_registers<T>, and none for T that are
/// quicker: AMX multiplies tiles of bf16.
template <class T>
bool registers_are_the_peak() {
  if constexpr (std::same_as<T, float>) return __builtin_cpu_supports("avx512f") != 0;
  constexpr unsigned leaf = 7, amx_bf16 = 1U << 22U;
  unsigned a = 0, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(0));
  return __builtin_cpu_supports("avx512bf16") != 0 && (d & amx_bf16) == 0;
}

/// At least `operations` multiplications and additions of T, of ones.
template <class T>
void multiply_in_registers(std::size_t operations) {
  constexpr bool of_float = std::same_as<T, float>;
  constexpr unsigned ones = of_float ? 0x3f800000 : 0x3f803f80;  // one float, or two bf16
  constexpr std::size_t products = of_float ? 16 : 32;           // of an instruction
  constexpr std::size_t operations_a_turn = 15 * 2 * products;  // of 15 sums: more than the latency
  for (std::size_t done = 0; done < operations; done += operations_a_turn) {
    __asm__ volatile(
        "vpbroadcastd %0, %%zmm15\n"
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14\n"
        ".if %c1\n"
        "vfmadd231ps %%zmm15, %%zmm15, %%zmm\\sum\n"
        ".else\n"
        "vdpbf16ps %%zmm15, %%zmm15, %%zmm\\sum\n"
        ".endif\n"
        ".endr"
        :
        : "r"(ones), "i"(of_float ? 1 : 0)
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  }
}

}  // namespace bench
