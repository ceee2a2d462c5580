// Prints the library's version, what it was compiled with and for, and what the build found.

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "found.hpp"
#include "shardwise/version.hpp"

namespace {

std::string compiler() {
#ifdef __clang__
  std::string name = "clang " + std::to_string(__clang_major__) + '.' +
                     std::to_string(__clang_minor__) + '.' + std::to_string(__clang_patchlevel__);
#else
  std::string name = "g++ " __VERSION__;
#endif
#ifdef _LIBCPP_VERSION
  return name + ", libc++ " + std::to_string(_LIBCPP_VERSION);
#elif defined(_GLIBCXX_RELEASE)
  return name + ", libstdc++ " + std::to_string(_GLIBCXX_RELEASE);
#else
  return name;
#endif
}

std::string standard() {
  const long year = __cplusplus / 100 % 100;
  return "C++" + std::to_string(year > 20 && year < 23 ? 20 : year) + " (__cplusplus is " +
         std::to_string(__cplusplus) + ')';
}

/// Of the processor that runs this.
std::string instruction_sets() {
#if defined(__x86_64__) || defined(__i386__)
  std::string sets;
  const auto add = [&](bool has, const char* name) {
    if (has) (sets += sets.empty() ? "" : " ") += name;
  };
  add(__builtin_cpu_supports("sse4.2") != 0, "sse4.2");
  add(__builtin_cpu_supports("avx") != 0, "avx");
  add(__builtin_cpu_supports("fma") != 0, "fma");
  add(__builtin_cpu_supports("avx2") != 0, "avx2");
  add(__builtin_cpu_supports("avx512f") != 0, "avx512f");
  add(__builtin_cpu_supports("avx512bw") != 0, "avx512bw");
  add(__builtin_cpu_supports("avx512vnni") != 0, "avx512vnni");
  return sets.empty() ? "none beyond sse2" : sets;
#else
  return "not known for this kind of processor";
#endif
}

/// The widest of those that the compiler was told it may use; the examples' and tests' own loops
/// are no faster than that, oneDNN and BLAS choose at run time.
const char* compiled_for() {
#if defined(__AVX512F__)
  return "avx512f";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__AVX__)
  return "avx";
#elif defined(__SSE2__)
  return "sse2";
#else
  return "not known for this kind of processor";
#endif
}

void print(const std::string& name, const std::string& text) {
  std::printf("  %-22s %s\n", name.c_str(), text.c_str());
}

void print(const std::vector<info::Row>& rows) {
  for (const info::Row& row : rows)
    print(row.name, row.found.empty() ? "missing: " + row.missing : row.found);
}

}  // namespace

int main() {
  std::printf("shardwise %s\n\n", SHARDWISE_VERSION);
  print("compiler", compiler());
  print("standard", standard());
  print("compiled for", compiled_for());
  print("this processor has", instruction_sets());
  print("its threads", std::to_string(std::thread::hardware_concurrency()));
  std::printf("\nCMake targets, and what is behind them\n");
  print("shardwise::shardwise", "the core, which needs nothing but threads");
  print(info::parts());
  std::printf("\nNVIDIA's headers\n");
  print(info::headers());
}
