// Views from and to std::mdspan, where the standard library has it; other spans stand in for it in
// unit/interop_cccl.

#include <version>

#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

#include "unit/interop/mdspan_cases.hpp"

using namespace shardwise;

namespace {

/// All that a span has to offer, in one type without a library.
struct Rows {
  using element_type = float;
  using reference = float&;
  using index_type = int;
  using rank_type = std::size_t;
  using data_handle_type = float*;

  Rows(float* memory, int rows, int columns) : memory_(memory), rows_(rows), columns_(columns) {}

  static constexpr std::size_t rank() { return 2; }
  static constexpr std::size_t static_extent(std::size_t) { return dynamic; }
  int extent(std::size_t axis) const { return axis == 0 ? rows_ : columns_; }
  int stride(std::size_t axis) const { return axis == 0 ? columns_ : 1; }
  float* data_handle() const { return memory_; }

 private:
  float* memory_;
  int rows_, columns_;
};
struct Proxies : Rows {
  using reference = double;  // as an accessor gives that scales
};
static_assert(Mdspan<Rows> && !Mdspan<Proxies> && !Mdspan<std::vector<float>>);

}  // namespace

TEST_CASE("any type with the interface of a span goes to a view and comes back") {
  std::vector<float> memory{0, 1, 2, 3, 4, 5};
  const auto view = view_of(Rows(memory.data(), 3, 2), {Axis::batch, Axis::feature});
  CHECK(view.global() == Shape{{Axis::batch, 3}, {Axis::feature, 2}});
  const Rows back = to_mdspan<Rows>(view);
  CHECK(back.data_handle() == memory.data());
  CHECK(back.extent(0) == 3);
}

#ifdef __cpp_lib_mdspan

namespace {

struct Standard {
  template <class T, std::size_t... Extents>
  using span = std::mdspan<T, std::extents<std::size_t, Extents...>>;
  template <class T>
  using left = std::mdspan<T, std::dextents<std::size_t, 2>, std::layout_left>;
  template <class T>
  static auto strided(T* memory, int rows, int columns, int row, int column) {
    using Extents = std::dextents<int, 2>;
    const std::layout_stride::mapping<Extents> mapping(Extents(rows, columns),
                                                       std::array{row, column});
    return std::mdspan<T, Extents, std::layout_stride>(memory, mapping);
  }
};

}  // namespace

TEST_CASE("std::mdspan") {
  testing::check_views_of_spans<Standard>();
  testing::check_refused_spans<Standard>();
  testing::check_spans_of_views<Standard>();
  testing::check_refused_views<Standard>();
  testing::check_small_index<std::mdspan<const float, std::dextents<signed char, 2>>>();
}

#endif
