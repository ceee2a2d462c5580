// Who may look on, and that nobody's looking costs nothing.

#include "shardwise/model/observer.hpp"

#include <string>
#include <type_traits>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/observe/tracer.hpp"

using namespace shardwise;

static_assert(Observer<Unobserved>);
static_assert(Observer<Tracer>);

struct MayThrow {
  void begin(const Work&) {}
  void end() {}
};
struct NeedsArguments {
  explicit NeedsArguments(int) {}
  void begin(const Work&) {}
  void end() noexcept {}
};
static_assert(!Observer<int>);
static_assert(!Observer<MayThrow>);        // an error on its way out would end the program
static_assert(!Observer<NeedsArguments>);  // a model makes its observer

using Absent = Context<float, Reference, SingleRank>;
static_assert(std::is_same_v<Absent, Context<float, Reference, SingleRank, Unobserved>>);

// Nothing is stored for nobody: not in a run, and not where somebody would be told.
static_assert(std::is_empty_v<Unobserved>);
static_assert(std::is_empty_v<detail::Observation<Unobserved>>);
static_assert(std::is_trivially_destructible_v<detail::Observation<Unobserved>>);

// Nothing is called: describing could not be part of a constant expression.
inline Work not_constant() {
  return phase([] { return std::string(); });
}
consteval bool is_not_described() {
  Unobserved nobody;
  const detail::Observation here(nobody, not_constant);
  nobody.begin({});
  nobody.end();
  return true;
}
static_assert(is_not_described());
