// The order of parameters in memory: those that fill whole cache lines begin at one, also where
// gaps would be sent.

#include "shardwise/model/parameter_layout.hpp"

#include <cstddef>

using namespace shardwise;
using namespace shardwise::detail;

namespace {

constexpr std::size_t line = 64 / sizeof(float);

struct Given {
  std::size_t elements;
  bool decays;
};
constexpr Given given[] = {
    {10, false}, {3 * line, true}, {7, true}, {line, false}, {2 * line, true}};
constexpr std::size_t of_all = 17 + 6 * line;

constexpr bool begin_at_lines(Holding holding, bool dense) {
  ParameterLayout layout(sizeof(float));
  if (dense) layout.make_dense();
  layout.reserve(5, Holding::owing, true);
  ParameterSlot slots[5];
  for (std::size_t i = 0; i < 5; ++i)
    slots[i] = layout.reserve(given[i].elements, holding, given[i].decays);
  bool used[2 * of_all]{};
  for (const ParameterSlot& slot : slots) {
    const std::size_t first = layout.position(slot);
    if (slot.size % line == 0 && first % line != 0) return false;
    for (std::size_t i = first; i < first + slot.size; ++i) {
      if (used[i]) return false;
      used[i] = true;
    }
  }
  return true;
}
static_assert(begin_at_lines(Holding::owing_on_stages, false));
static_assert(begin_at_lines(Holding::alike, false));
static_assert(begin_at_lines(Holding::alike, true));
static_assert(begin_at_lines(Holding::split, true));

/// What is sent of a group has no gaps.
constexpr std::size_t sent(Holding holding, bool dense) {
  ParameterLayout layout(sizeof(float));
  if (dense) layout.make_dense();
  for (const Given& one : given) layout.reserve(one.elements, holding, one.decays);
  return layout.size_of(holding);
}
static_assert(sent(Holding::owing, false) == of_all);
static_assert(sent(Holding::split, true) == of_all);
static_assert(sent(Holding::split, false) == 8 * line);

}  // namespace
