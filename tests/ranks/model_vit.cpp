// A vision transformer of transformers, see transformers.hpp.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ranks/transformers.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/vit.hpp"
#include "shardwise/models/vit_files.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "support/filled.hpp"
#include "witness/formula.hpp"

using namespace shardwise;
using testing::filled;

namespace {

/// What the model of make_transformers.py reads and learns. Logits stay as the plan gives them.
template <Layout Logits>
class Classes {
 public:
  using ends = Ends<Invariant, Logits>;
  using loss = CrossEntropy;
  static Shape shapes() {
    return {{Axis::batch, 3}, {Axis::channel, 2}, {Axis::height, 10}, {Axis::width, 10}};
  }
  static std::vector<Segment> segments() { return {}; }
  static bool is_token(std::size_t) { return true; }
  static auto labels(Place place) {
    return filled<std::int32_t, Invariant>({{Axis::batch, 3}}, place, [](std::size_t i) {
      return static_cast<std::int32_t>(i == 0 ? 3 : 2 * (i - 1));
    });
  }

  explicit Classes(Place place)
      : images_(filled<double, Invariant>(shapes(), place, [](std::size_t i) {
          return witness::made(7, static_cast<std::int64_t>(i));
        })) {}
  auto view() const { return images_.view(); }

 private:
  Tensor<double, Invariant> images_;
};

template <class P, Layout Logits>
void check(const std::string& family, int size) {
  const VitConfig config = read_vit_config(testing::transformers::directory(family));
  testing::transformers::check<P, Classes<Logits>>(family, vit<P, VitForm{.patch = 3}>(config),
                                                   vit_tensors(config), size);
}

void check_plans(const std::string& family, int size) {
  check<TensorParallel, Sharded<Axis::feature>>(family, size);
  check<SequenceParallel, Sharded<Axis::feature>>(family, size);
  check<ContextParallel, Invariant>(family, size);
}

}  // namespace

TEST_CASE("a vision transformer of transformers") {
  for (const int size : {1, 2, 3, 5, 8}) check_plans("vit", size);
}

TEST_CASE("a vision transformer of transformers with heads of one feature") {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8}) check_plans("vit_heads", size);
}
