#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "shardwise/core/fixed_list.hpp"
#include "shardwise/core/growing_list.hpp"
#include "support/skipped.hpp"

using shardwise::detail::FixedList;
using shardwise::detail::GrowingList;

namespace {

/// 0, 1, 4, ... below size².
constexpr GrowingList<std::size_t> squares(std::size_t size) {
  GrowingList<std::size_t> list;
  for (std::size_t i = 0; i < size; ++i) list.add(i * i);
  return list;
}

constexpr std::size_t sum(const GrowingList<std::size_t>& list) {
  std::size_t all = 0;
  for (const std::size_t entry : list) all += entry;
  return all;
}

static_assert(GrowingList<int>{}.empty());
static_assert(sum(squares(20)) == 2470 && squares(20).size() == 20 && squares(20)[19] == 361);
static_assert(GrowingList<int>::of_size(3).size() == 3 && GrowingList<int>::of_size(3)[2] == 0);

}  // namespace

TEST_CASE("copies of a growing list are apart, and a moved one gives its entries away") {
  GrowingList<std::size_t> list = squares(5);
  const GrowingList<std::size_t> copy = list;
  list[0] = 7;
  list.add(list[0]);
  CHECK(sum(list) == 44);
  CHECK(sum(copy) == 30);
  CHECK(copy[2] == 4);
  GrowingList<std::size_t> other{1, 2};
  other = std::move(list);
  CHECK(sum(other) == 44);
  other = copy;
  CHECK(sum(other) == 30);
  list = squares(2);
  list.remove_last();
  CHECK(list.size() == 1);
  CHECK(list.last() == 0);
  other = squares(0);
  CHECK(other.empty());
  CHECK(other.begin() == other.end());
}

TEST_CASE("sanitizers and the preset dev stop behind the last entry of a growing list") {
#ifdef __clang__
  constexpr bool is_checked = __has_feature(undefined_behavior_sanitizer);
#else
  constexpr bool is_checked = false;
#endif
  if (!is_checked) return testing::skip("no sanitizer looks for unreachable code");
  GrowingList<int> list{1, 2};
  list.add(3);  // with room for more
  GrowingList<int> none;
  const std::function<void()> wrong[] = {[&] { list[3] = 1; }, [&] { none.last() = 1; },
                                         [&] { none.remove_last(); },
                                         [&] { std::as_const(list)[list.size()]; }};
  for (const auto& call : wrong) {
    const pid_t child = fork();
    if (child == 0) {
      struct rlimit no_core {};
      setrlimit(RLIMIT_CORE, &no_core);
      std::signal(SIGILL, SIG_DFL);
      call();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

TEST_CASE("a growing list moves its entries when it grows") {
  GrowingList<std::unique_ptr<int>> list;
  for (int i = 0; i < 9; ++i) list.add(std::make_unique<int>(i));
  int sum = 0;
  for (const auto& entry : list) sum += *entry;
  CHECK(sum == 36);
  list.remove_last();
  CHECK(*list.last() == 7);
}

TEST_CASE("entries of a fixed list need not be movable, and are T{}") {
  FixedList<std::atomic<int>> list(3);
  CHECK(list[2] == 0);
  std::atomic<int>* const second = &list[1];
  *second = 5;
  FixedList<std::atomic<int>> none(0);
  none.swap(list);
  CHECK(list.size() == 0);
  CHECK(list.data() == nullptr);  // no memory for none
  CHECK(list.begin() == list.end());
  CHECK(none.size() == 3);
  CHECK(none.data() + 1 == second);
  CHECK(none[1] == 5);
}
