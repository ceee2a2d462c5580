// Layers that share parameters, and whose owner does not fit.

#include "shardwise/model/tied.hpp"

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

struct Table {};
struct Other {};
template <class S>
using Square = Linear<S, 6, 6>;
using Owner = Owns<Table, Square<split::output>>;

#if CASE == 1  // expect: L borrows parameters, but no layer in front of it in the model owns them
struct Net : Sequential<Borrows<Table, Square<split::output>>, Owner> {};
#elif CASE == 2  // expect: L borrows parameters, but no layer in front of it in the model owns them
struct Net : Sequential<Owner, Borrows<Other, Square<split::output>>> {};
#elif CASE == 3  // expect: Several layers in front of L own parameters under its Tag
struct Net : Sequential<Owner, Owner, Borrows<Table, Square<split::output>>> {};
#elif CASE == 4  // expect: L borrows parameters and uses them in other layouts
struct Net : Sequential<Owner, Borrows<Table, Square<split::input>>> {};
#elif CASE == 5  // expect: Owns and Borrows share the parameters of one layer
struct Net : Owns<Table, Sequential<Square<split::output>>> {};
#else
struct Net : Sequential<Owner, Borrows<Table, Square<split::output>>> {};
#endif

Model<Net, Context<float, Reference, SingleRank>>* asked(SingleRank& ranks) {
  return new Model<Net, Context<float, Reference, SingleRank>>(ranks, Seed{1});
}
