#pragma once
// Products of bf16 as fast as a core makes them: operands and sums stay in registers.

#include <cstddef>

namespace bench {

/// Whether the processor has the instruction, and none that is quicker: AMX multiplies tiles.
inline bool bf16_registers_are_the_peak() {
  constexpr unsigned leaf = 7, amx_bf16 = 1U << 22U;
  unsigned a = 0, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(0));
  return __builtin_cpu_supports("avx512bf16") != 0 && (d & amx_bf16) == 0;
}

/// At least `operations` multiplications and additions, of ones.
inline void multiply_in_registers(std::size_t operations) {
  constexpr unsigned two_ones = 0x3f803f80;
  constexpr std::size_t operations_a_turn = 15 * 2 * 32;  // of 15 sums: more than the latency
  for (std::size_t done = 0; done < operations; done += operations_a_turn) {
    __asm__ volatile(
        "vpbroadcastd %0, %%zmm15\n"
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14\n"
        "vdpbf16ps %%zmm15, %%zmm15, %%zmm\\sum\n"
        ".endr"
        :
        : "r"(two_ones)
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  }
}

}  // namespace bench
