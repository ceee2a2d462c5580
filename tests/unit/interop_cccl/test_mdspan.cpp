// Views from and to CCCL's cuda::std::mdspan, on the host.

#include <cuda/std/array>
#include <cuda/std/mdspan>

#include "unit/interop/mdspan_cases.hpp"

namespace {

namespace cs = cuda::std;

struct Cccl {
  template <class T, std::size_t... Extents>
  using span = cs::mdspan<T, cs::extents<std::size_t, Extents...>>;
  template <class T>
  using left = cs::mdspan<T, cs::dextents<std::size_t, 2>, cs::layout_left>;
  template <class T>
  static auto strided(T* memory, int rows, int columns, int row, int column) {
    using Extents = cs::dextents<int, 2>;
    const cs::layout_stride::mapping<Extents> mapping(Extents(rows, columns),
                                                      cs::array<int, 2>{row, column});
    return cs::mdspan<T, Extents, cs::layout_stride>(memory, mapping);
  }
};

}  // namespace

TEST_CASE("views of spans") { testing::check_views_of_spans<Cccl>(); }
TEST_CASE("spans of views") { testing::check_spans_of_views<Cccl>(); }
TEST_CASE("spans that are not dense and row-major are refused") {
  testing::check_refused_spans<Cccl>();
}
TEST_CASE("spans that a view does not fit are refused") {
  testing::check_refused_views<Cccl>();
  testing::check_small_index<cs::mdspan<const float, cs::dextents<signed char, 2>>>();
}
