// Checks a layer with the library's laws, without a test framework, and a wrong layer too.
#include <cstdio>
#include <string>

#include "scale.hpp"
#include "shardwise/testing/testing.hpp"

using namespace sw::byte_literals;

using Rows = sw::Sharded<sw::Axis::batch>;
using Features = sw::Sharded<sw::Axis::feature>;

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<7, 5>, Scale, sw::RowParallelLinear<5, 3>> {};

// begin: asked
// The compiler checks that the layer itself sends nothing, and that its factors are split.
static_assert(sw::plan<Mlp, 4>(sw::batch{64}).forward ==
              sw::CollectiveList{sw::all_reduce(64 * 3)});
static_assert(sw::memory_of<Mlp, 4>(sw::batch{64})[0].parameters == 2 * 7 + 2 + 2 + 3 * 2 + 3);
static_assert(sw::plan<Mlp, 4>(sw::batch{64}).bytes_sent() < 5_KiB);
// end: asked

int main() try {
  // begin: checked
  const sw::Shape in{{sw::Axis::batch, 3}, {sw::Axis::feature, 7}};
  const sw::LayerChecks checks{.ranks = {1, 2, 3, 8}, .gradients = 5};
  sw::check_layer(Scale{}, in, checks).require();
  sw::check_layer<Rows, Rows>(Scale{}, in, checks).require();
  sw::check_layer<Features, Features>(Scale{}, in, checks).require();
  sw::check_layer(Mlp{}, in, checks).require();
  sw::check_layer({.data = 2, .tensor = 2}, Scale{}, in, checks).require();
  // end: checked

  const sw::CheckReport wrong = sw::check_layer<Rows, Rows>(WrongScale{}, in, checks);
  const std::string found = wrong.failures.empty() ? "found nothing" : wrong.failures[0];
  std::printf("%s\n", found.c_str());
  return found == "WrongScale on 2 rank(s), Sharded<batch> -> Sharded<batch>: the gradient of "
                  "factor is not that of one rank alone, on integers: element 0 is 5 on rank 0, "
                  "and 9 alone. Is its ParameterUse true? What each rank uses for a share of its "
                  "own is stored as Invariant and used as Replicated."
             ? 0
             : 1;
} catch (const sw::error& e) {
  std::fprintf(stderr, "test_scale: %s\n", e.what());
  return 1;
}
