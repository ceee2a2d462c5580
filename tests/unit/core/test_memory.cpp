// The pool: what goes back comes again, and a program that repeats itself asks for nothing new.

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/core/memory.hpp"

using namespace shardwise;

namespace {

/// Takes and gives back buffers of random sizes, in random order; the same for the same seed.
void random_program(Pool& pool, std::uint64_t seed) {
  std::vector<Buffer> held;
  std::uint64_t state = seed;
  for (int step = 0; step < 2000; ++step) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t draw = state >> 33;
    if (held.size() < 40 && draw % 2 == 0) {
      held.push_back(pool.take((draw >> 1) % 20'000));
    } else if (!held.empty()) {
      std::swap(held[(draw >> 1) % held.size()], held.back());
      held.pop_back();
    }
  }
}

}  // namespace

TEST_CASE("memory is aligned, disjoint and as large as asked for") {
  Pool pool;
  std::vector<Buffer> held;
  for (std::size_t bytes = 0; bytes < 3000; bytes += 37) {
    held.push_back(pool.take(bytes));
    CHECK(reinterpret_cast<std::uintptr_t>(held.back().data()) % 64 == 0);
    std::memset(held.back().data(), static_cast<int>(held.size()), bytes);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(held[i].data());
    bool untouched = true;
    for (std::size_t k = 0; k < i * 37; ++k) untouched = untouched && bytes[k] == i + 1;
    CHECK(untouched);
  }
}

TEST_CASE("sizes around a power of two get enough") {
  Pool pool;
  for (std::size_t power = 64; power <= (std::size_t{1} << 20); power *= 2) {
    for (const std::size_t bytes :
         {power - 1, power, power + 1, power + power / 4, power + power / 4 + 1, 2 * power - 1}) {
      const std::size_t before = pool.reserved();
      const Buffer buffer = pool.take(bytes);
      std::memset(buffer.data(), 1, bytes);  // the address sanitizer looks on
      const std::size_t got = pool.reserved() - before;
      if (got != 0) {  // a new block, not one used again
        CHECK(got >= bytes);
        CHECK(got <= bytes + bytes / 4 + 64);
      }
    }
  }
}

TEST_CASE("what is given back is used again") {
  Pool pool;
  void* first = pool.take(1000).data();
  CHECK(pool.take(1000).data() == first);
  const Buffer held = pool.take(1000);
  CHECK(held.data() == first);
  CHECK(pool.take(1000).data() != first);
}

TEST_CASE("the second round of a program asks the system for nothing") {
  Pool pool;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    random_program(pool, seed);
    const std::size_t reserved = pool.reserved();
    random_program(pool, seed);
    CHECK(pool.reserved() == reserved);
  }
  CHECK(pool.reserved() > 0);
}

TEST_CASE("copies share a block and the last one gives it back") {
  Pool pool;
  Buffer a = pool.take(10);
  void* const memory = a.data();
  CHECK(a.unique());
  {
    const Buffer b = a;
    CHECK(b.data() == memory);
    CHECK_FALSE(a.unique());
    CHECK_FALSE(b.unique());
  }
  CHECK(a.unique());

  Buffer c = std::move(a);
  CHECK(c.unique());
  CHECK(c.data() == memory);
  Buffer d = c;
  c = Buffer();
  CHECK(c.data() == nullptr);
  CHECK(d.unique());
  CHECK(pool.take(10).data() != memory);  // still held by d
  d = pool.take(5000);
  CHECK(pool.take(10).data() == memory);
}

TEST_CASE("a buffer survives assignment to itself") {
  Pool pool;
  Buffer a = pool.take(10);
  Buffer& same = a;
  a = same;
  CHECK(a.unique());
  CHECK(a.data() != nullptr);
}

namespace {

/// In a template, where clang 14 would never destroy an argument that is passed by value.
template <class>
struct Holder {
  Buffer held;
  void empty() { held = {}; }
};

}  // namespace

TEST_CASE("a buffer that is assigned nothing gives its block back") {
  Pool pool;
  Holder<void> holder{pool.take(100)};
  const void* memory = holder.held.data();
  holder.empty();
  CHECK(holder.held.data() == nullptr);
  CHECK(pool.take(100).data() == memory);
}

TEST_CASE("a default-made buffer holds nothing") {
  const Buffer nothing;
  CHECK(nothing.data() == nullptr);
  CHECK_FALSE(nothing.unique());
  const Buffer copy = nothing;
  CHECK(copy.data() == nullptr);
}

TEST_CASE("more than there is is an error that says how much") {
  Pool pool;
  const Buffer held = pool.take(100);
  for (const std::size_t bytes : {std::size_t{1} << 60, static_cast<std::size_t>(-1),
                                  static_cast<std::size_t>(-200), std::size_t{1} << 63}) {
    CHECK_THROWS_WITH_AS(pool.take(bytes), doctest::Contains(std::to_string(bytes).c_str()),
                         memory_error);
    CHECK_THROWS_WITH_AS(pool.take(bytes),
                         doctest::Contains(std::to_string(pool.reserved()).c_str()), memory_error);
  }
  CHECK(pool.take(100).data() != nullptr);  // and the pool goes on
}

namespace {

/// Memory of the host, of which there is so much.
class Little final : public MemorySource {
 public:
  explicit Little(std::size_t bytes) : free_(bytes) {}
  void* allocate(std::size_t bytes) override {
    if (bytes > free_) return nullptr;
    void* const memory = host_memory().allocate(bytes);
    free_ -= bytes;
    sizes_[memory] = bytes;
    return memory;
  }
  void release(void* memory) noexcept override {
    free_ += sizes_.at(memory);
    sizes_.erase(memory);
    host_memory().release(memory);
  }

 private:
  std::size_t free_;
  std::map<void*, std::size_t> sizes_;
};

}  // namespace

TEST_CASE("free blocks go back to a source that has no more memory, and lent or kept ones do not") {
  Little little(100 << 10);
  Pool pool(little);
  Buffer held = pool.take(10 << 10);
  std::memset(held.data(), 7, 10 << 10);
  { const Buffer large = pool.take(60 << 10), small = pool.take(1 << 10); }
  CHECK(pool.take(70 << 10).data() != nullptr);  // 60 KiB that are free are in its way
  CHECK(pool.reserved() <= 100 << 10);
  CHECK(pool.lent() == 10 << 10);
  CHECK(static_cast<const char*>(held.data())[(10 << 10) - 1] == 7);

  const Pool::Kept kept = pool.keep_free();
  const std::size_t reserved = pool.reserved();
  CHECK_THROWS_WITH_AS(
      pool.take(50 << 10),
      doctest::Contains(("holds " + std::to_string(reserved) + " bytes in its pool").c_str()),
      memory_error);
  CHECK(pool.reserved() == reserved);
  held = {};
  CHECK(pool.take(5 << 10).data() != nullptr);  // and the pool goes on
}

namespace {

/// Whether a program of Linux has asked for huge pages at this address, as /proc/self/smaps says.
bool asks_for_huge_pages(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_in = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> begin >> dash >> end && dash == '-')
      is_in = begin <= at && at < end;
    if (is_in && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("huge pages are asked for where they lie in memory that is used") {
  constexpr std::size_t page = std::size_t{2} << 20;
  std::vector<char> memory(8 * page);  // at whatever address
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  char* const first = memory.data() + (page - address % page) + page;
  if (asks_for_huge_pages(first)) return;                  // the C library was told to ask for all
  detail::ask_for_huge_pages(first + 64, 2 * page - 128);  // no whole page
  CHECK(!asks_for_huge_pages(first + page / 2));
  detail::ask_for_huge_pages(first - 64, 2 * page + 128);
  detail::ask_for_huge_pages(nullptr, 0);
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) return;
  CHECK(!asks_for_huge_pages(first - 64));
  CHECK(asks_for_huge_pages(first));
  CHECK(asks_for_huge_pages(first + 2 * page - 1));
  CHECK(!asks_for_huge_pages(first + 2 * page));
}
