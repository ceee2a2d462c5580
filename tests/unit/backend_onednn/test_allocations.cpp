// What a steady-state call allocates, asked of the global allocator. oneDNN's own allocations are
// told apart by the address they are called from, so these functions must not be inlined.

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "unit/backend/linear_problem.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> ours{0};
std::atomic<std::size_t> of_library{0};

void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
  if (counting.load()) {
    Dl_info where;
    const bool library = dladdr(caller, &where) != 0 && where.dli_fname != nullptr &&
                         std::strstr(where.dli_fname, "libdnnl") != nullptr;
    ++(library ? of_library : ours);
  }
  if (bytes >> 40 != 0) return nullptr;  // a sanitizer's allocator would end the program instead
  return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment, const void* caller) {
  void* memory = allocate(bytes, alignment, caller);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment,
                                     const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

using namespace shardwise;
using backend_test::LinearProblem;

TEST_CASE_TEMPLATE("calls with row counts that were seen before allocate nothing", T, float, bf16) {
  OneDnn backend;
  OneDnn::Linear<T> kernel(backend, 48, 70);
  const auto full = LinearProblem<T>::of_integers(300, 48, 70);
  std::vector<T> y(300 * 70), dx(300 * 48), dw(70 * 48), db(70);

  const auto step = [&](std::size_t rows, std::uint64_t version) {
    const Weight<T> weight{full.w.data(), version};
    kernel.forward(rows, full.x.data(), weight, full.bias.data(), Activation::relu, y.data());
    kernel.backward_input(rows, full.dy.data(), weight, dx.data());
    for (const Write write : {Write::replace, Write::add})
      kernel.backward_weight(rows, full.x.data(), full.dy.data(), write, dw.data(), db.data());
  };
  const auto steps = [&](bool weights_change) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      for (const std::size_t rows : {300U, 1U, 44U}) step(rows, weights_change ? i : 0);
    }
  };
  const auto counted = [&](bool weights_change) {
    ours = 0;
    of_library = 0;
    counting = true;
    steps(weights_change);
    counting = false;
    return ours.load();
  };

  steps(true);
  CHECK(counted(true) == 0);
  CHECK(of_library.load() > 0);  // else the two were not told apart
  steps(false);
  CHECK(counted(false) == 0);
}

TEST_CASE("the counter counts") {
  ours = 0;
  counting = true;
  std::vector<int> something(100);
  something.push_back(1);
  counting = false;
  CHECK(ours.load() == 2);
}
