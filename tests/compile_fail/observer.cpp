// Onlookers that a Context cannot have.

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

namespace {

struct Mine {
#if CASE == 1  // expect: O is no observer.*has begin\(const Work&\) and a noexcept end\(\)
  void begin(Work&) {}
#else
  void begin(const Work&) {}
#endif
#if CASE == 2  // expect: O is no observer.*a noexcept end\(\)
  void end() {}
#else
  void end() noexcept {}
#endif
#if CASE == 3  // expect: O is no observer.*can be made without arguments
  explicit Mine(int) {}
#endif
};

}  // namespace

int main() {
  SingleRank alone;
  using Small = Linear<split::none, 2, 2>;
  Model<Small, Context<float, Reference, SingleRank, Mine>> model(alone, Seed{1});
  return static_cast<int>(model.step());
}
