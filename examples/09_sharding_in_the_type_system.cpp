// One perceptron, sharded in four ways, compared before anything runs.
//
//     784 ──W1──> 512 ──ReLU──> 512 ──W2──> 10            what is sent
//
//     column, column    W1, W2 by their outputs             the hidden layer, each way
//     row, row          W1, W2 by their inputs              the hidden layer, each way
//     column, row       W1 by outputs, W2 by inputs         10 numbers a sample
//     data              whole weights, a share of samples   all gradients
//
// A sharding is a type, so the compiler knows what each sends and holds. The program prints the
// figures that the static assertions compare. A change of the model that exceeds a budget does not
// compile.
//
// test:
#include <cstddef>
#include <cstdio>

#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/queries.hpp"

namespace sw = shardwise;
using namespace sw::byte_literals;

namespace {

template <class First, class Second>
struct Mlp : sw::Sequential<sw::Linear<First, 784, 512>, sw::Relu, sw::Linear<Second, 512, 10>> {};

// A way to split the work: the types of the layers, and the layout of samples.
struct ColumnColumn {
  static constexpr const char* name = "column, column";
  using Model = Mlp<sw::split::output, sw::split::output>;
  using Layout = sw::Invariant;
};
struct RowRow {
  static constexpr const char* name = "row, row";
  using Model = Mlp<sw::split::input, sw::split::input>;
  using Layout = sw::Invariant;
};
struct ColumnRow {
  static constexpr const char* name = "column, row";
  using Model = Mlp<sw::split::output, sw::split::input>;
  using Layout = sw::Invariant;
};
struct Data {
  static constexpr const char* name = "data";
  using Model = Mlp<sw::split::none, sw::split::none>;
  using Layout = sw::Sharded<sw::Axis::batch>;
};

constexpr sw::batch samples{512};

// begin: queries
template <class Way, int Ranks>
constexpr std::size_t sent =
    sw::plan<typename Way::Model, Ranks, typename Way::Layout, typename Way::Layout>(samples)
        .bytes_sent();

template <class Way, int Ranks>
constexpr auto held =
    sw::memory_of<typename Way::Model, Ranks, typename Way::Layout, typename Way::Layout>(samples);

// A budget for eight ranks: all messages of a step, and the memory of the fullest rank.
static_assert(sent<ColumnRow, 8> < 4_MiB && held<ColumnRow, 8>.largest().bytes() < 1_MiB);
static_assert(held<ColumnRow, 8>.imbalance() < 1.01);

// ColumnColumn and RowRow send about the same, and more than fifty times as much as ColumnRow.
// RowRow holds less than ColumnColumn.
static_assert(sent<ColumnColumn, 8> > 50 * sent<ColumnRow, 8>);
static_assert(sent<RowRow, 8> > 50 * sent<ColumnRow, 8>);
static_assert(held<RowRow, 8>.largest().bytes() < held<ColumnColumn, 8>.largest().bytes());
// end: queries

template <class Way, int Ranks>
void print_row() {
  constexpr auto memory = held<Way, Ranks>;
  std::printf("%-15s %5d %14zu %14zu %14zu %9.4f\n", Way::name, Ranks, sent<Way, Ranks>,
              memory.largest().bytes(), memory.smallest().bytes(), memory.imbalance());
}

template <class Way>
void print_rows() {
  print_row<Way, 1>();
  print_row<Way, 2>();
  print_row<Way, 3>();
  print_row<Way, 8>();
}

}  // namespace

int main() {
  std::printf("one training step on %zu samples, float32; bytes\n\n", samples.size);
  std::printf("%-15s %5s %14s %14s %14s %9s\n", "sharding", "ranks", "all send", "fullest holds",
              "emptiest holds", "imbalance");
  print_rows<ColumnColumn>();
  print_rows<RowRow>();
  print_rows<ColumnRow>();
  print_rows<Data>();
}
